"""Tables whose truth is known: panels of heads in which nothing happens, or in which some heads move at one step.

What may look like an event and is none (`KINDS`): noise of every head for itself, autocorrelated; noise that all heads
share; a smooth drift that all share; steps that every head makes at a time of its own. Into any of these a burst can be
planted: some heads, up or down, at one place between two checkpoints.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from probes.measuring.tables import as_table

KINDS = ("own noise", "shared noise", "shared drift", "private steps")
"""What the heads do when nothing happens."""

SCHEDULES = {
    "log-spaced 50": np.unique(np.round(np.geomspace(1, 100_000, 50))).astype(np.int64),
    "uniform 30": np.arange(1, 31) * 1000,
    "uniform 150": np.arange(1, 151) * 100,
    "0, 1, 2, 4 ... 512, 1000, 2000 ...": np.r_[0, 2 ** np.arange(10), np.arange(1, 144) * 1000],
}
"""Steps of checkpoints, as people have them."""


@dataclass(frozen=True, eq=False)
class PlantedPanel:
    """A table of one probe of one circuit, and what was planted into it: the step, and the heads as (layer, head)."""

    table: pd.DataFrame
    step: float | None
    movers: frozenset[tuple[int, int]]


def planted_panel(
    kind: str = "own noise",
    steps: Sequence[int] | Int64[np.ndarray, " step"] | None = None,
    *,
    rho: float = 0.6,
    layers: int = 12,
    heads: int = 12,
    share: float = 0.0,
    height: float = 0.0,
    seed: int | Sequence[int] = 0,
) -> PlantedPanel:
    """Heads that do what `kind` says, of which a share moves by `height` (in sd of their noise) at one step.

    rho is the autocorrelation of the noise from checkpoint to checkpoint. The step lies in the middle three fifths of
    the checkpoints (50 log-spaced ones by default); half of the movers go up. Values are exp(noise / 20 + ...), so that
    they are positive as ranks are.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}: one of {', '.join(KINDS)} is expected")
    given = SCHEDULES["log-spaced 50"] if steps is None else steps
    at, rng = np.asarray(given, dtype=np.int64), np.random.default_rng(seed)
    n, count = len(at), layers * heads
    values = _nothing(kind, at, rho, count, rng)
    step, movers = None, frozenset()
    if share > 0:
        gap = int(rng.integers(n // 5, n - n // 5))
        moving = rng.permutation(count)[: max(1, round(share * count))]
        values[gap:, moving] += height * rng.choice([-1.0, 1.0], len(moving))
        step = float(np.sqrt(max(at[gap - 1], 1) * at[gap]))
        movers = frozenset((int(m) // heads, int(m) % heads) for m in moving)
    return PlantedPanel(_table(at, np.exp(values / 20), heads), step, movers)


def smooth_panel(
    steps: Int64[np.ndarray, " step"], *, heads: int = 6, seed: int | Sequence[int] = 0, stage: float | None = None
) -> pd.DataFrame:
    """A table of smooth drifts without any noise, as full-batch training has them.

    With a stage, all heads also make one at that step, a tenth of it wide, of one and a half times the drift's size.
    """
    at, rng = np.asarray(steps, dtype=np.int64), np.random.default_rng(seed)
    at = at[at > 0]
    values = np.stack([drift_over(at, rng) for _ in range(heads)], axis=1) * rng.normal(1, 0.3, heads)
    if stage is not None:
        values += 1.5 / (1 + np.exp(-np.log(at / stage) / 0.1))[:, None]
    return _table(at, np.exp(values), heads)


def _nothing(
    kind: str, steps: Int64[np.ndarray, " step"], rho: float, count: int, rng: np.random.Generator
) -> Float64[np.ndarray, "step head"]:
    n = len(steps)
    own = autoregressive(n, count, rho, rng)
    match kind:
        case "shared noise":
            return 0.6 * own + 0.8 * autoregressive(n, 1, rho, rng) * rng.normal(1, 0.3, count)
        case "shared drift":
            return own + rng.uniform(3, 30) * drift_over(steps, rng)[:, None] * rng.normal(1, 0.5, count)
        case "private steps":
            when = rng.integers(3, n - 3, count)
            heights = rng.choice([-1.0, 1.0], count) * rng.uniform(3, 8, count)
            return own + (np.arange(n)[:, None] >= when) * heights
        case _:
            return own


def autoregressive(n: int, count: int, rho: float, rng: np.random.Generator) -> Float64[np.ndarray, "step head"]:
    """Noise with standard deviation 1 and autocorrelation rho from one value to the next, from the first on."""
    from scipy.signal import lfilter  # slow to import, and importing probes must be quick

    shocks = rng.standard_normal((n, count)) * np.sqrt(1 - rho**2)
    shocks[0] /= np.sqrt(1 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], shocks, axis=0))


def drift_over(steps: Int64[np.ndarray, " step"], rng: np.random.Generator) -> Float64[np.ndarray, " step"]:
    """A smooth curve of height 1: a decay, a power law, a wide logistic or part of a sine in ln(step)."""
    first = steps[steps > 0][0]
    x, t = np.log(steps + (steps == 0) * first / 2), steps / steps[-1]
    length = x[-1] - x[0]
    match int(rng.integers(4)):
        case 0:
            return np.exp(-t / 10 ** rng.uniform(-1.5, 0))
        case 1:
            power = (steps + float(first)) ** -rng.uniform(0.1, 0.7)
            return (power - power.min()) / np.ptp(power)
        case 2:
            return 1 / (1 + np.exp(-(x - x[0] - length * rng.uniform(0.2, 0.8)) / rng.uniform(0.7, 2)))
        case _:
            return np.sin(np.pi * rng.uniform(0.5, 1.5) * (x - x[0]) / length + rng.uniform(0, 6))


def _table(steps: Int64[np.ndarray, " step"], values: Float64[np.ndarray, "step head"], heads: int) -> pd.DataFrame:
    n, count = values.shape
    return as_table(
        {
            "run": ["planted"] * (n * count),
            "step": np.repeat(steps, count),
            "layer": np.tile(np.arange(count) // heads, n),
            "head": np.tile(np.arange(count) % heads, n),
            "circuit": ["qk"] * (n * count),
            "probe": ["effective_rank"] * (n * count),
            "component": [pd.NA] * (n * count),
            "value": values.reshape(-1),
            "why_missing": [None] * (n * count),
        }
    )
