"""Long records by the likelihood ratio of short ones: on means over bins, under noise of any memory.

The block tests (`cliffs.py`, `stages.py`) measure the noise apart from the curve, at the scale of what they look for.
Where noise is correlated that cannot be done well: a cliff counts as noise of long memory, and is missed. Here, as in
short records, curve, change and noise are fitted together:

    mean over a bin = baseline + one step + noise of the means

Bins are even in ln t, two hundred at most, so that a step of any place and width is a step among the means. The noise
of one value is AR(1) with a memory from none to the whole record (a random walk), plus independent noise, its size
taken from the series, bin by bin; the law of the means follows (`laws.py`). Of some forty such laws the few that are
likely, with or without a step, are kept. Baselines are those of short records, and what a warm-up of the learning rate
does to them: at the very beginning decays may set out as t^2.

Steps are looked for one after the other, each beside those found before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float64, Int

from probes.series.transitions import bin_constants, short_constants
from probes.series.transitions.baselines import Columns
from probes.series.transitions.cones import straight_lines
from probes.series.transitions.laws import Correlated, Law, covariance_of_means, inverse_root
from probes.series.transitions.likelihood import ChangeTest, change_test
from probes.series.transitions.models import Fits
from probes.series.transitions.noise import size_of_noise
from probes.series.transitions.shapes import Shape, ShapeGrid, steps_among
from probes.series.transitions.short import located
from probes.series.transitions.transition import Transition

Series = Float64[np.ndarray, " n"]
Means = Float64[np.ndarray, " bins"]


def search_bins(series: Series, at: Series, alpha: float) -> list[Transition]:
    """Steps with p < alpha in a long series without spikes, surest first."""
    record = BinnedRecord(series, at)
    found: list[ChangeTest] = []
    test = record.test(found)
    while len(found) < bin_constants.MOST_STEPS:
        aside: list[ChangeTest] = []
        while alpha <= test.p_value < 1 and len(aside) < bin_constants.HIDDEN_STEPS:  # two may hide each other
            aside.append(test)
            test = record.test([*found, *aside])
        if test.p_value >= alpha:
            break
        found.append(test)
        test = record.test(found)
    rows = [record.located(one, [other for other in found if other is not one]) for one in found]
    return _distinct(rows)


def _distinct(rows: Sequence[Transition]) -> list[Transition]:
    """Of those near each other the surest."""
    kept: list[Transition] = []
    for row in sorted(rows, key=lambda row: row.p_value):
        if all(abs(np.log(row.step / other.step)) > bin_constants.APART for other in kept):
            kept.append(row)
    return kept


@dataclass(frozen=True, eq=False)
class BinGrid:
    """What depends on the steps alone: bins, their places, the laws of their noise but for its size, shapes."""

    first: Int[np.ndarray, " bins"]
    count: Int[np.ndarray, " bins"]
    centre: Means
    laws: list[tuple[float, Float64[np.ndarray, "bins bins"]]]  # memory, root: see Correlated
    shapes: ShapeGrid
    coarse: Columns

    def means(self, series: Series) -> Means:
        """Over every bin."""
        return np.add.reduceat(series, self.first) / self.count


def grid_for(at: Series) -> BinGrid:
    """The grid of a record with values at these steps, made once for all records that have them."""
    return _grid(np.ascontiguousarray(at, dtype=np.float64).tobytes())


@lru_cache(maxsize=4)
def _grid(steps: bytes) -> BinGrid:
    at = np.frombuffer(steps)
    first = _first_of_bins(at)
    count = np.diff(np.append(first, len(at)))
    pairs = [(0.0, 1.0)]
    for memory, shares in bin_constants.MEMORIES.items():
        pairs += [(1 - 1 / memory, white) for white in shares if memory <= len(at)]
    laws = [law_of_bins(count, rho, white) for rho, white in pairs]
    n = len(first)
    coarse = [Shape("step", place, bin_constants.COARSE_WIDTH)(n) for place in np.linspace(6, n - 7, 48)]
    earliest = np.searchsorted(first, bin_constants.FEWEST_BEFORE)
    shapes = [shape for shape in steps_among(n, bin_constants.SHARP_STEPS) if shape.place >= earliest]
    places = np.add.reduceat(at, first) / count
    return BinGrid(first, count, places, laws, ShapeGrid(shapes, n, bin_constants.AVERAGED), np.column_stack(coarse))


def law_of_bins(count: np.ndarray, rho: float, white: float) -> tuple[float, np.ndarray]:
    """The mean correlation of neighbouring bins, and the inverse root of the covariance of all."""
    covariance = covariance_of_means(count, rho, white)
    sd = np.sqrt(np.diag(covariance))
    memory = float((np.diag(covariance, 1) / (sd[1:] * sd[:-1])).mean())
    return memory, inverse_root(covariance)


def _first_of_bins(at: Series) -> np.ndarray:
    """The number of the first value of each bin: even in ln t, as wide as it takes for there to be few enough."""
    x = np.log(at - at[0] + (at[1] - at[0]))
    width = bin_constants.NARROWEST
    while True:
        number = np.floor((x - x[0]) / width)
        first = np.concatenate(([0], np.flatnonzero(np.diff(number)) + 1))
        if len(first) <= bin_constants.MOST_BINS:
            return first
        width *= 1.04


class BinnedRecord:
    """A long series in means over bins, and what it is tested against."""

    def __init__(self, series: Series, at: Series) -> None:
        self.grid = grid_for(at)
        self.means = self.grid.means((series - series.mean()) / (series.max() - series.min()))
        size = self.grid.means(size_of_noise(series, at)) / (series.max() - series.min())
        size = np.maximum(size, bin_constants.LEAST_NOISE)
        self.laws = [Correlated(memory, root, size) for memory, root in self.grid.laws]

    def test(self, found: Sequence[ChangeTest]) -> ChangeTest:
        """The next step, beside those found before."""
        return change_test(self._fits(found), self.means)

    def located(self, test: ChangeTest, others: Sequence[ChangeTest]) -> Transition:
        """Where a step is, with its interval."""
        fits = self._fits(others, laws=[test.model.law])
        return located(fits, self.means, test)

    def _fits(self, found: Sequence[ChangeTest], laws: Sequence[Law] = ()) -> Fits:
        grid, known = self.grid, [_forms(test.shape, len(self.means)) for test in found]
        fits = Fits(grid.centre, laws or self._likely(known), grid.shapes, chance, warm_up=short_constants.WARM_UP)
        return fits.beside(np.hstack(known)) if known else fits

    def _likely(self, known: list[Columns]) -> list[Law]:
        """The laws that explain the means about as well as any, without one more step or with one."""
        n = len(self.means)
        baseline = np.hstack([straight_lines(self.grid.centre), *known])
        k = baseline.shape[1]
        scores = []
        for law in self.laws:
            white = law.whiten(np.column_stack([baseline, self.grid.coarse, self.means]))
            q, _ = np.linalg.qr(white[:, :k])
            rest = white[:, k:] - q @ (q.T @ white[:, k:])
            steps, record = rest[:, :-1], rest[:, -1]
            length = (steps**2).sum(0)
            distinct = length > short_constants.BEYOND_BASELINE**2 * (white[:, k:-1] ** 2).sum(0)
            gain = np.where(distinct, (steps.T @ record) ** 2 / np.maximum(length, 1e-300), 0.0).max()
            left = float(record @ record)
            lefts = np.array([left, max(left - gain, 1e-9 * left)])
            scores.append(law.level - n / 2 * np.log(lefts + 1e-300))
        away = (np.max(scores, axis=0) - scores).min(axis=1)
        order = np.argsort(away)[: bin_constants.MOST_LAWS]
        return [self.laws[j] for j in order if away[j] < bin_constants.LIKELY]


def _forms(shape: Shape, n: int) -> Columns:
    """A step that was found, and what is left of it if it is wider, or has a foot or a tail."""
    place, width = shape.place, shape.width
    others = [(place, 2 * width), (place - width, width), (place + width, width)]
    return np.column_stack([shape(n), *(Shape("step", *one)(n) for one in others)])


def chance(statistic: float, law: Law) -> float:
    """How often the likelihood ratio exceeds this where nothing happens and the noise has this law."""
    start = bin_constants.TAIL_START + bin_constants.TAIL_PER_MEMORY * law.memory
    return 0.1 * float(np.exp(-(statistic - start) / bin_constants.TAIL_SCALE))
