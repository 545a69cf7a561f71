"""What find_events says of heads and steps beside a real event: `python -m benchmarks.beside [COUNT [SEED [HEADS]]]`.

A panel of 4, 16 or 144 heads, all of which drift smoothly, each in its own way, under noise. Some of them (one to half)
also take one step, all at the same time, by 6 to 300 standard deviations of the noise: between two checkpoints, or over
up to a third of ln(step). Everything else is nothing:

    white, AR .6, AR .9   noise of every head for itself
    uneven                white noise that is ten times smaller early (weights leave their beginning slowly) or late (a
                          learning rate that is cut), from a step on or over a third of the run
    weights               noise of the weights themselves, which drift and gain a direction, seen through two probes:
                          norm and effective rank of the product of two factors

Printed for each: false, the share of panels with an event where none is (at alpha .01); wrong, the share of the heads
named at the real event that take no part in it; found, how often it is found; named, the share of those heads that take
part which are named.
"""

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd

import probes
from probes.events.planted import SCHEDULES, autoregressive, drift_over
from probes.measuring.tables import as_table

COUNT, SEED = 20, 8111
"""Tuned on 8111; 8123 was used to judge the test as it is now, and is used up."""

NOISES = ("white", "AR .6", "AR .9", "uneven", "weights")
SHAPES = {4: (2, 2), 16: (4, 4), 144: (12, 12)}
"""Layers and heads of each, by their number."""

STEPS = (
    SCHEDULES["log-spaced 50"],
    SCHEDULES["uniform 150"],
    np.unique(np.round(np.geomspace(2, 1585, 42))).astype(int),
)
WIDTH, FACTOR = 12, 3
"""Of the matrices of "weights": factors of WIDTH x FACTOR."""


@dataclass(frozen=True, eq=False)
class Beside:
    """A table, the ln(step) of its event, how far that reaches, and the heads that take part."""

    table: pd.DataFrame
    at: float
    reach: float
    movers: frozenset[str]


def draw(noise: str, heads: int, index: int, seed: int) -> Beside:
    """One panel; schedules take turns."""
    rng = np.random.default_rng([seed, NOISES.index(noise), heads, index])
    steps = STEPS[index % len(STEPS)]
    n, x, per_layer = len(steps), np.log(steps), SHAPES[heads][1]
    moves = np.zeros(heads, dtype=bool)
    moves[rng.choice(heads, round(heads * rng.uniform(0.125, 0.5)) or 1, replace=False)] = True
    at = float(x[rng.integers(n // 4, n - n // 5)] + rng.uniform(-0.01, 0.01))
    scale = float(rng.choice([0.005, 0.03, 0.08]))  # a logistic rises from a tenth to nine tenths in 4.4 of these
    late = 1 / (1 + np.exp(-np.clip((x - at) / scale, -60, 60)))
    if noise == "weights":
        values = _of_weights(x, late, moves, rng)
    else:
        height = np.exp(rng.uniform(np.log(6), np.log(300))) * rng.uniform(0.5, 1, heads) * rng.choice([-1, 1], heads)
        own = {"AR .6": 0.6, "AR .9": 0.9}.get(noise, 0.0)
        series = autoregressive(n, heads, own, rng) * (_uneven(n, rng)[:, None] if noise == "uneven" else 1)
        series += np.stack([rng.uniform(0, 30) * drift_over(steps, rng) for _ in range(heads)], axis=1)
        values = {"effective_rank": series + np.outer(late, height * moves)}
        values["effective_rank"] = np.exp(values["effective_rank"] / 100)
    movers = frozenset(f"{k // per_layer}.{k % per_layer}" for k in np.flatnonzero(moves))
    parts = [_table(probe, steps, one, per_layer) for probe, one in values.items()]
    return Beside(pd.concat(parts, ignore_index=True), at, max(0.35, 7 * scale + 0.2), movers)


def _uneven(n: int, rng: np.random.Generator) -> np.ndarray:
    where, length = rng.uniform(0.2, 0.8), rng.choice([0.01, 0.1])
    rising = 1 / (1 + np.exp(-(np.linspace(0, 1, n) - where) / length))
    return 10.0 ** -(rising if rng.random() < 0.5 else 1 - rising)


def _of_weights(x: np.ndarray, late: np.ndarray, moves: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    n, heads = len(x), len(moves)
    time = (x - x[0])[:, None, None, None]
    factors = []
    for _ in range(2):
        begin, drift = rng.standard_normal((2, heads, WIDTH, FACTOR))
        direction = rng.standard_normal((heads, WIDTH, 1)) * rng.standard_normal((heads, 1, FACTOR))
        grown = 2.5 * rng.uniform(0.2, 1) * late[:, None, None, None] * direction * moves[:, None, None]
        factors.append(begin + 0.05 * time * drift + grown + 0.01 * rng.standard_normal((n, heads, WIDTH, FACTOR)))
    product = factors[0] @ np.swapaxes(factors[1], -1, -2)
    ranks = probes.effective_rank(product.reshape(n * heads, WIDTH, WIDTH))
    return {
        "norm": np.sqrt((product**2).sum((-1, -2))),
        "effective_rank": np.asarray(ranks, dtype=np.float64).reshape(n, heads),
    }


def _table(probe: str, steps: np.ndarray, values: np.ndarray, per_layer: int) -> pd.DataFrame:
    n, count = values.shape
    return as_table(
        {
            "run": ["beside"] * (n * count),
            "step": np.repeat(steps, count),
            "layer": np.tile(np.arange(count) // per_layer, n),
            "head": np.tile(np.arange(count) % per_layer, n),
            "circuit": ["ov"] * (n * count),
            "probe": [probe] * (n * count),
            "component": [pd.NA] * (n * count),
            "value": values.reshape(-1),
            "why_missing": [None] * (n * count),
        }
    )


def judge(count: int, seed: int, sizes: tuple[int, ...], *, verbose: bool = False) -> None:
    """Print all cells."""
    print(f"find_events beside a real event, alpha .01, {count} panels each, seed {seed}")
    total = np.zeros(6)
    for heads in sizes:
        for noise in NOISES:
            cell = np.zeros(6)
            for index in range(count):
                cell += _outcome(draw(noise, heads, index, seed), f"{noise} {index}" if verbose else "")
            print(f"  {heads:3d} heads, {noise:8s} {_said(cell)}", flush=True)
            total += cell
    print(f"  all                 {_said(total)}")


def _outcome(one: Beside, label: str) -> np.ndarray:
    """1, whether something false, whether found, heads named, of these wrong, share named of those that take part."""
    findings = probes.find_events(one.table).attrs["findings"]
    away = np.abs(np.log(findings["step"].to_numpy(dtype=np.float64)) - one.at) > one.reach
    there = findings.loc[~away]
    if label and away.any():
        said = findings.loc[away, ["name", "step", "p_value", "members"]].to_dict("records")
        print("    ", label, f"at {np.exp(one.at):.0f} of {sorted(one.movers)[:4]}", said[:3])
    named = [set(names) for names in there["members"]]
    wrong = sum(len(names - one.movers) for names in named)
    share = np.mean([len(names & one.movers) / len(one.movers) for names in named]) if named else 0.0
    return np.array([1, away.any(), len(there) > 0, sum(map(len, named)), wrong, share])


def _said(cell: np.ndarray) -> str:
    panels, false, found, named, wrong, share = cell
    return (
        f"false {false / panels:.3f}, wrong {wrong / max(named, 1):.3f}, found {found / panels:.2f}, "
        f"named {share / max(found, 1):.2f}"
    )


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != "-v"]
    sizes = tuple(int(one) for one in given[2:]) or tuple(SHAPES)
    judge(int(given[0]) if given else COUNT, int(given[1]) if len(given) > 1 else SEED, sizes, verbose="-v" in sys.argv)
