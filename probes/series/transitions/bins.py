"""Long records by the likelihood ratio of short ones: on means over bins, under noise of any memory.

The block tests (`cliffs.py`, `stages.py`) measure the noise apart from the curve, at the scale of what they look for.
Where noise is correlated that cannot be done well: a cliff counts as noise of long memory, and is missed. Here, as in
short records, curve, change and noise are fitted together:

    mean over a bin = baseline + one step + noise of the means

Bins are even in ln t, two hundred at most, so that a step of any place and width is a step among the means. The noise
of one value is AR(1) with a memory from none to the whole record (a random walk), plus independent noise, its size
taken from the series, bin by bin; the law of the means follows (`laws.py`). Or it is a walk under noise that forgets
quickly; where steps are uneven, a walk in time, which moves more between values that are far apart. Of some sixty such
laws the few that are likely are kept, with or without a step, beside a straight line and beside all that is slow.
Baselines are those of short records, and what a warm-up of the learning rate does to them, at a price: at the very
beginning decays may set out as t^2.

Steps are looked for one after the other, each beside those found before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float64, Int

from probes.series.transitions import bin_constants, short_constants
from probes.series.transitions.baselines import Columns, orthonormal, smooth_baselines
from probes.series.transitions.cones import decay_columns, straight_lines, warm_up_columns, warmed_up_columns
from probes.series.transitions.laws import (
    Correlated,
    Law,
    covariance_in_time,
    covariance_of_means,
    inverse_root,
    is_uneven,
)
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
    """What depends on the steps alone: bins, their places, the laws of their noise but for its size, shapes.

    Laws are compared beside coarse steps and anything slow: a loss that falls in ln t is no random walk.
    """

    first: Int[np.ndarray, " bins"]
    count: Int[np.ndarray, " bins"]
    centre: Means
    laws: list[tuple[float, Float64[np.ndarray, "bins bins"]]]  # memory, root: see Correlated
    walks_in_time: list[tuple[float, Float64[np.ndarray, "bins bins"]]]  # whose size does not follow from the values
    shapes: ShapeGrid
    coarse: Columns
    slow: Columns
    warm_up: Columns

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
    laws = [law_of_bins(covariance_of_means(count, rho, white)) for rho, white in pairs]
    n, places = len(first), np.add.reduceat(at, first) / count
    quick = {memory: covariance_of_means(count, 1 - 1 / memory, 0.0) for memory in bin_constants.BESIDE_A_WALK}
    laws += _beside(covariance_of_means(count, 1 - 1 / len(at), 0.0), quick, bin_constants.WALKS)
    in_time = _beside(covariance_in_time(places), quick, bin_constants.WALKS_IN_TIME) if is_uneven(at) else []
    coarse = [Shape("step", place, bin_constants.COARSE_WIDTH)(n) for place in np.linspace(6, n - 7, 48)]
    earliest = np.searchsorted(first, bin_constants.FEWEST_BEFORE)
    shapes = [shape for shape in steps_among(n, bin_constants.SHARP_STEPS) if shape.place >= earliest]
    grid = ShapeGrid(shapes, n, bin_constants.AVERAGED, is_fine=True)  # beside what is left of a step, see _forms
    slow = [straight_lines(places), decay_columns(places), *smooth_baselines(places)]
    slow = orthonormal(np.hstack(slow), bin_constants.SLOW_ALIKE)
    warm_up = [warm_up_columns(places, short_constants.WARM_UP)]
    warm_up += [warmed_up_columns(places, end) for end in bin_constants.WARMED_UP]
    return BinGrid(first, count, places, laws, in_time, grid, np.column_stack(coarse), slow, np.hstack(warm_up))


def _beside(walk: np.ndarray, quick: dict[int, np.ndarray], shares: Sequence[float]) -> list[tuple[float, np.ndarray]]:
    """A walk over the whole record, under noise that forgets quickly."""
    return [law_of_bins((1 - share) * noise + share * walk) for noise in quick.values() for share in shares]


def law_of_bins(covariance: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean correlation of neighbouring bins, and the inverse root of the covariance of all."""
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
        self.laws += [Correlated(memory, root) for memory, root in self.grid.walks_in_time]

    def test(self, found: Sequence[ChangeTest]) -> ChangeTest:
        """The next step, beside those found before."""
        return change_test(self._fits(found), self.means)

    def located(self, test: ChangeTest, others: Sequence[ChangeTest]) -> Transition:
        """Where a step is, with its interval."""
        fits = self._fits(others, laws=[test.model.law])
        return located(fits, self.means, test)

    def _fits(self, found: Sequence[ChangeTest], laws: Sequence[Law] = ()) -> Fits:
        grid, known = self.grid, [_forms(test.shape, len(self.means)) for test in found]
        warm_up = grid.warm_up, bin_constants.WARM_UP_COST
        fits = Fits(grid.centre, laws or self._likely(known), grid.shapes, chance, None, *warm_up)
        return fits.beside(np.hstack(known)) if known else fits

    def _likely(self, known: list[Columns]) -> list[Law]:
        """The laws that explain the means about as well as any, without one more step or with one.

        Beside straight lines, where what is slow counts as noise of long memory, and beside all that is slow.
        """
        baselines = [np.hstack([one, *known]) for one in (straight_lines(self.grid.centre), self.grid.slow)]
        columns, n = np.column_stack([self.grid.coarse, self.means]), len(self.means)
        scores = np.empty((len(baselines), 2, len(self.laws)))
        for j, law in enumerate(self.laws):
            white = law.whiten(columns)
            for i, baseline in enumerate(baselines):
                q, _ = np.linalg.qr(law.whiten(baseline))
                rest = white - q @ (q.T @ white)
                steps, record = rest[:, :-1], rest[:, -1]
                length = (steps**2).sum(0)
                distinct = length > short_constants.BEYOND_BASELINE**2 * (white[:, :-1] ** 2).sum(0)
                gain = np.where(distinct, (steps.T @ record) ** 2 / np.maximum(length, 1e-300), 0.0).max()
                left = float(record @ record)
                lefts = np.array([left, max(left - gain, 1e-9 * left)])
                scores[i, :, j] = law.level - n / 2 * np.log(lefts + 1e-300)
        away = (scores.max(2, keepdims=True) - scores).min(1)
        chosen = {
            int(j): None
            for one in away
            for j in np.argsort(one)[: bin_constants.MOST_LAWS]
            if one[j] < bin_constants.LIKELY
        }
        return [self.laws[j] for j in chosen]


def _forms(shape: Shape, n: int) -> Columns:
    """A step that was found, and what is left of it if it is wider, or has a foot or a tail."""
    place, width = shape.place, shape.width
    others = [(place, 2 * width), (place - width, width), (place + width, width), (place + width, 2 * width)]
    return np.column_stack([shape(n), *(Shape("step", *one)(n) for one in others)])


def chance(statistic: float, law: Law) -> float:
    """How often the likelihood ratio exceeds this where nothing happens and the noise has this law."""
    start = float(np.interp(law.memory, bin_constants.TAIL_MEMORIES, bin_constants.TAIL_STARTS))
    return 0.1 * float(np.exp(-(statistic - start) / bin_constants.TAIL_SCALE))
