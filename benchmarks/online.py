"""How often a monitor's detector announces something where nothing happens, and how late it is where something does.

    python -m benchmarks.online --seeds tuning --runs 20
    python -m benchmarks.online --seeds judging --runs 100       # once, after everything is settled

A run is one growing series, looked at as the monitor looks: alpha is the chance of any false announcement over all
looks. Quiet runs are the nulls of `probes.datasets`, dense (a value at every step), thinned (one in ten, as a trainer
logs) and log-spaced (as probes are measured); and smooth curves with autocorrelated noise. Tuning and judging draw from
different seeds, and the judged ones are used for nothing else.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from probes.series.datasets import NULLS, null
from probes.series.online import Detector, Event

SEEDS = {"tuning": 71, "judging": 75}  # 72 to 74 judged what came before
ALPHA = 0.01
Series = tuple[np.ndarray, np.ndarray]


def watched(steps: np.ndarray, values: np.ndarray, **settings) -> list[Event]:
    """What is announced of a series that comes value by value."""
    detector = Detector("loss", ALPHA, **settings)
    for step, value in zip(steps.astype(int).tolist(), values.tolist(), strict=True):
        detector.add(step, value)
        if detector.is_due(step + 1):
            detector.look(step + 1)
    return detector.events


def quiet(run: int, seeds: int) -> Iterator[tuple[str, str, Series]]:
    """Schedule, kind and series in which nothing happens."""
    for number, kind in enumerate(NULLS):
        for schedule, length in (("every step", (1000, 3000)[run % 2]), ("every tenth", 2000), ("log-spaced", 5000)):
            series = null(kind, length, seed=[seeds, number, run, length]).series
            steps = series.index.to_numpy()
            if schedule == "every tenth":
                keep = steps % 10 == 0
            elif schedule == "log-spaced":
                keep = np.isin(steps, np.unique(np.geomspace(1, length, 120).astype(int)))
            else:
                keep = steps > 0
            yield schedule, kind, (steps[keep], series.to_numpy()[keep])


def staged(run: int, seeds: int) -> Iterator[tuple[str, float, Series]]:
    """Name, true step and series with one drop (or rise) by 1, noise .02, somewhere in 3000 steps."""
    rng = np.random.default_rng([seeds, 99, run])
    centre = float(np.exp(rng.uniform(np.log(60), np.log(2000))))
    steps = np.arange(1, 3001)
    step = 1 / (1 + np.exp(np.clip((steps - centre) / (0.05 * centre), -500, 500)))
    noise = 0.02 * rng.standard_normal(len(steps))
    yield "fall", centre, (steps, step + noise)
    yield "rise", centre, (steps, 3 - step + noise)
    yield "fall on a decay", centre, (steps, step + np.exp(-steps / 300) + noise)
    yield "fall, every tenth value", centre, (steps[9::10], (step + noise)[9::10])


def diverging(run: int, seeds: int) -> Iterator[tuple[str, float, Series]]:
    """Name, true step and series that end badly."""
    rng = np.random.default_rng([seeds, 98, run])
    at = int(rng.integers(200, 2000))
    steps = np.arange(1, at + 400)
    calm = 2 + np.exp(-steps / 300) + 0.05 * rng.standard_normal(len(steps))
    yield "NaN from there on", at, (steps, np.where(steps >= at, np.nan, calm))
    yield "explodes", at, (steps, calm + np.where(steps >= at, np.expm1(np.minimum((steps - at) / 10, 300)), 0.0))


def run(seeds: str, runs: int) -> None:
    """Print both tables."""
    raised: dict[tuple[str, str], list[int]] = defaultdict(list)
    named: dict[str, int] = defaultdict(int)
    for number in range(runs):
        for schedule, kind, (steps, values) in quiet(number, SEEDS[seeds]):
            events = watched(steps, values)
            raised[schedule, kind].append(len(events) > 0)
            for event in events:
                named[f"{schedule}: {event.kind} {event.direction}"] += 1
    print(f"False announcements, alpha = {ALPHA} a run over all looks, {seeds} seeds, {runs} runs of each kind:")
    for schedule in dict.fromkeys(key[0] for key in raised):
        rows = {kind: sum(found) for (one, kind), found in raised.items() if one == schedule}
        some = ", ".join(f"{kind} {count}" for kind, count in rows.items() if count) or "none"
        print(f"  {schedule:12s} {sum(rows.values()):4d} of {runs * len(rows)} runs ({some})")
    print(f"  what was announced: {dict(named) or 'nothing'}")
    print("Delays: (announced - true step) / true step:")
    late: dict[str, list[float]] = defaultdict(list)
    besides: dict[str, int] = defaultdict(int)
    for number in range(runs):
        for name, true, (steps, values) in [*staged(number, SEEDS[seeds]), *diverging(number, SEEDS[seeds])]:
            events = watched(steps, values)
            right = [event for event in events if abs(np.log(event.step / true)) < np.log(1.25)]
            late[name].append(right[0].detected_at / true - 1 if right else np.inf)
            besides[name] += len(events) - len(right[:1])
    for name, ratios in late.items():
        found = np.isfinite(ratios)
        quantiles = np.quantile(np.array(ratios)[found], (0.5, 0.9)) if found.any() else (np.nan, np.nan)
        print(
            f"  {name:26s} {found.sum()} of {len(ratios)} announced; delay {quantiles[0]:.3f}, nine in ten below "
            f"{quantiles[1]:.3f}; {besides[name]} other announcements"
        )


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", choices=SEEDS, default="tuning")
    parser.add_argument("--runs", type=int, default=20)
    run(**vars(parser.parse_args()))
