"""The cells of the calibration: which series are drawn, how many, and from which seeds.

    level    smooth drifts under AR(1) noise, 20 to 3000 values: what the detector says when nothing happens; and under
             noise in proportion to them, 30 to 200 values
    reliability  more such drifts, with p-values up to .5: P(p <= a) should be a or less
    quiet    other curves in which nothing happens, by schedule and noise; peers are tuned and judged on the same
    benign   what healthy training does, kind by kind
    truth    planted shapes and flows of the solvable models, by schedule and noise
    sgd      losses of the trainers of the solvable models
    dips     down and up again, by schedule
    power    one drop of height 1 under noise .02, anywhere in a sparse record
    limits   where it breaks down: more noise, modes closer together, fewer values

There are two sets of seeds. Everything that is chosen with an eye on results (the penalties and thresholds of the
peers; the detector's constants, where its authors ran this campaign) is chosen on "tuning". "judging" is
meant to be run once for each release of the detector, and what is published is that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np

from analyses.calibration.nulls import BENIGN, QUIET, drift
from analyses.calibration.sampling import LONG, SCHEDULES, SPARSE, Noise, log_spaced, noise_of, pythia, uniform
from analyses.calibration.shapes import PLANTED, Record, dip, logistic, loss_of_head
from analyses.calibration.solvable import FLOWS, Trained, of_flow, trained
from analyses.calibration.truth import Shape, Truth
from probes.series.datasets import LinearHead

SEEDS = {"tuning": 61_003, "judging": 1_271_933}
"""Fixed here, and nowhere else used. (Earlier judging seeds, 48,017, 90,211, 137,911, 214,733, 330,271, 447,103,
518,239, 671,029, 755,203, 862,441, 934,117, 1,047,233 and 1,163,501, were seen while the detector was being changed, and
are retired.)"""

RHOS = (0.0, 0.5, 0.8)
SHORT = (20, 30, 50, 100, 200)
LONGER = (300, 1000, 3000)
PROPORTIONAL = (30, 100, 200)
NOISE_GROUPS = {"uncorrelated": ("white", "sgd", "spiky"), "correlated": ("ar .5", "ar .8", "ar .9")}

COUNTS = {
    #         level, longer, per null kind, per family, benign, dips, power, per point of a curve, SGD seeds
    "toy": (2, 1, 1, 1, 1, 1, 2, 1, 1),
    "quick": (40, 12, 4, 2, 10, 6, 24, 4, 2),
    "paper": (100, 30, 8, 4, 20, 12, 60, 8, 4),
}


@dataclass(frozen=True)
class Case:
    """One series: its values, the clean shape under them, and the law of the noise."""

    cell: str
    index: int
    steps: np.ndarray
    values: np.ndarray
    shape: Shape
    noise: Noise


@dataclass(frozen=True)
class Cell:
    """One cell: its name, part/schedule/..., how many series, and how the i-th is drawn."""

    name: str
    count: int
    draw: Callable[[int, np.random.Generator], tuple[np.ndarray, Shape, Noise, np.ndarray | None]]

    @property
    def part(self) -> str:
        """The first word of the name."""
        return self.name.split("/")[0]

    def cases(self, seeds: str) -> Iterator[Case]:
        """The series of the cell, from one of the two sets of seeds."""
        for index in range(self.count):
            rng = np.random.default_rng([SEEDS[seeds], crc32(self.name.encode()), index])
            steps, shape, noise, values = self.draw(index, rng)
            if values is None:
                clean = shape.curve(steps)
                values = clean + noise.draw(clean, rng)
            yield Case(self.name, index, steps, values, shape, noise)


def cells(size: str = "quick", seeds: str = "judging") -> list[Cell]:
    """All cells of a size. Flows depend on the set of seeds; everything else does so through `Cell.cases`."""
    level, longer, kind, family, benign, dips, power, point, sgd = COUNTS[size]
    found = [_level(n, rho, spacing, level) for n in SHORT for spacing in ("uniform", "log-spaced") for rho in RHOS]
    found += [_level(154, rho, "pythia", level) for rho in RHOS]
    found += [_level(n, rho, spacing, longer) for n in LONGER for spacing in ("uniform", "log-spaced") for rho in RHOS]
    found += [_level(n, rho, "uniform", kind * 5, "reliability") for n in (50, 200, 2000) for rho in RHOS]
    found += [_quiet(schedule, group, kind) for schedule in SCHEDULES for group in NOISE_GROUPS]
    found += [_benign(name, benign) for name in BENIGN]
    found += [_truth(schedule, group, family, seeds) for schedule in SCHEDULES for group in NOISE_GROUPS]
    found += [_dips(schedule, dips) for schedule in SCHEDULES]
    found += [_power(schedule, power) for schedule in SPARSE]
    found += [_noisier(schedule, size, point) for schedule in LONG for size in (0.01, 0.03, 0.1, 0.3, 0.6)]
    found += [_closer(schedule, ratio, point) for schedule in LONG for ratio in (1.5, 2.0, 3.0, 5.0)]
    found += [_fewer(n, spacing, point) for n in (20, 40, 80, 160, 320, 1000) for spacing in ("uniform", "log-spaced")]
    found += [_proportional(n, spacing, level) for n in PROPORTIONAL for spacing in ("uniform", "log-spaced")]
    if size == "toy":  # a few cells of every part
        kept = [cell for cell in found if cell.part not in ("quiet", "truth")][::9]
        found = kept + [cell for cell in found if cell.name in ("quiet/log50/uncorrelated", "truth/log50/uncorrelated")]
    return [*found, _sgd(sgd, seeds, 600 if size == "toy" else 4000)]


def _spaced(n: int, spacing: str) -> np.ndarray:
    return pythia() if spacing == "pythia" else uniform(n) if spacing == "uniform" else log_spaced(n)


def _level(n: int, rho: float, spacing: str, count: int, part: str = "level") -> Cell:
    def draw(_: int, rng: np.random.Generator):
        steps = _spaced(n, spacing)
        noise = Noise("ar" if rho else "white", float(np.exp(rng.uniform(np.log(0.02), np.log(1)))), rho)
        return steps, drift(Record(steps), rng), noise, None

    return Cell(f"{part}/{spacing}/{n}/{rho:g}", count, draw)


def _proportional(n: int, spacing: str, count: int) -> Cell:
    def draw(_: int, rng: np.random.Generator):
        steps = _spaced(n, spacing)
        noise = Noise("proportional", float(np.exp(rng.uniform(np.log(0.02), np.log(0.5)))))
        return steps, drift(Record(steps), rng), noise, None

    return Cell(f"level/{spacing}/{n}/proportional", count, draw)


def _noise(schedule: str, group: str, index: int, rng: np.random.Generator) -> Noise:
    """Noise of 1 to 30 % of the range on long records, .5 to 10 % on sparse ones."""
    low, high = (0.01, 0.3) if schedule in LONG else (0.005, 0.1)
    names = NOISE_GROUPS[group]
    return noise_of(names[index % len(names)], float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _quiet(schedule: str, group: str, count: int) -> Cell:
    kinds = list(QUIET)

    def draw(index: int, rng: np.random.Generator):
        steps = SCHEDULES[schedule](rng)
        shape = QUIET[kinds[index % len(kinds)]](Record(steps), rng)
        return steps, shape, _noise(schedule, group, index // len(kinds), rng), None

    return Cell(f"quiet/{schedule}/{group}", count * len(kinds), draw)


def _benign(name: str, count: int) -> Cell:
    def draw(index: int, rng: np.random.Generator):
        schedule = LONG[index % len(LONG)]
        steps = SCHEDULES[schedule](rng)
        return steps, BENIGN[name](Record(steps), rng), _noise(schedule, "uncorrelated", index // len(LONG), rng), None

    return Cell(f"benign/{name}", count, draw)


def _truth(schedule: str, group: str, count: int, seeds: str) -> Cell:
    families = [*PLANTED, *FLOWS]

    def draw(index: int, rng: np.random.Generator):
        steps, family = SCHEDULES[schedule](rng), families[index % len(families)]
        record = Record(steps)
        shape = PLANTED[family](record, rng) if family in PLANTED else of_flow(family, SEEDS[seeds], record, rng)
        return steps, shape, _noise(schedule, group, index // len(families), rng), None

    return Cell(f"truth/{schedule}/{group}", count * len(families), draw)


def _dips(schedule: str, count: int) -> Cell:
    def draw(index: int, rng: np.random.Generator):
        steps = SCHEDULES[schedule](rng)
        return steps, dip(Record(steps), rng), _noise(schedule, "uncorrelated", index, rng), None

    return Cell(f"dips/{schedule}", count, draw)


def _power(schedule: str, count: int) -> Cell:
    def draw(index: int, rng: np.random.Generator):
        steps = SCHEDULES[schedule](rng)
        # anywhere in the record: every gap between two checkpoints is as likely as any other
        place = rng.uniform(1, len(steps) - 2)
        start, at, end = np.interp([place - 0.5, place, place + 0.5], np.arange(len(steps)), steps).tolist()
        gap = end - start
        width, sign = gap * rng.uniform(0.1, 0.8), (1.0, -1.0)[index % 2]
        truth = Truth(at, at - 2.2 * width, at + 2.2 * width, 1.0, "fall" if sign > 0 else "rise")
        shape = Shape("one drop", lambda t: sign * logistic((at - t) / width), (truth,))
        return steps, shape, Noise("white", 0.02), None

    return Cell(f"power/{schedule}", count, draw)


def _head_cell(name: str, count: int, steps: Callable[[], np.ndarray], ratio: float, size: float) -> Cell:
    """Two modes, `ratio` apart in time, under white noise."""

    def draw(_: int, rng: np.random.Generator):
        at = steps()
        late = float(at[-1] * rng.uniform(0.15, 0.4))
        head = LinearHead.with_half_times([late / ratio, late])
        return at, loss_of_head("two modes", head), Noise("white", size), None

    return Cell(name, count, draw)


def _noisier(schedule: str, size: float, count: int) -> Cell:
    return _head_cell(f"limits noise/{schedule}/{size:g}", count, lambda: _fixed(schedule), 5.0, size)


def _closer(schedule: str, ratio: float, count: int) -> Cell:
    return _head_cell(f"limits spacing/{schedule}/{ratio:g}", count, lambda: _fixed(schedule), ratio, 0.03)


def _fewer(n: int, spacing: str, count: int) -> Cell:
    return _head_cell(f"limits points/{spacing}/{n}", count, lambda: _spaced(n, spacing), 5.0, 0.02)


def _fixed(schedule: str) -> np.ndarray:
    return uniform(20_000, 20_000) if schedule == "dense" else SCHEDULES[schedule](np.random.default_rng(0))


@cache
def _losses(count: int, seeds: str, steps: int) -> tuple[Trained, ...]:
    return tuple(trained([SEEDS[seeds] + i for i in range(count)], steps))


def _sgd(count: int, seeds: str, steps: int) -> Cell:
    """Every trained loss twice: at every step, and at 300 log-spaced ones."""

    def draw(index: int, _: np.random.Generator):
        loss = _losses(count, seeds, steps)[index // 2]
        at = np.arange(1.0, steps + 1) if index % 2 == 0 else log_spaced(min(300, steps // 4), steps)
        return at, loss.shape, loss.noise, loss.loss[at.astype(int) - 1]

    return Cell("sgd/dense and 300 log-spaced", 2 * 4 * count, draw)
