"""Whether a search by blocks could find anything at all, told at a fraction of its price.

Most looks at a growing series find nothing, and most of the time of `search_blocks` goes into tables of the cells that
it tried. Its first tests need nothing but a few means over blocks each. Here these are worked out for all widths, for
falls and for rises at once, and compared with thresholds that are looser than those of the search by `_LOOSER`, which
is far more than rounding and far less than anybody would notice. Where none is passed the search would return nothing,
and need not be made; where one is, it is made. So what is found is the same, always:

    cliffs   a place that passes the test of convexity, that no known cliff explains, and where a step fits well enough
    dips     a cell whose p-value is below alpha, or a spike
    stages   a second hump of the descent in log time, at one of the widths

Where the blocks lie depends on the steps alone, and is worked out once for all series of the same steps (`cells.py`).
The noise of a mean is asked for where the shape is right, which is seldom.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float64

from probes.series.online.best_step import has_step
from probes.series.online.cells import Cells, cells_of
from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.find import scaled_sums
from probes.series.transitions.search import search_blocks
from probes.series.transitions.transition import Transition

Series = Float64[np.ndarray, " n"]

_LOOSER = 1e-6


def search_if_promising(calm: Series, at: Series, alpha: float, known: Sequence[Transition] = ()) -> list[Transition]:
    """What `search_blocks` finds in a series without spikes, not constant, that is looked at while it grows."""
    share, series = alpha / constants.TESTS, Screened(calm, at)
    if may_have_dips(series, share) or may_have_stages(series, share / 2) or may_have_cliffs(series, share, known):
        return search_blocks(series.sums, alpha, known)
    return []


class Screened:
    """A series, scaled to its range, as the screening of all tests needs it."""

    def __init__(self, calm: Series, at: Series) -> None:
        self._calm, self.cells = calm, cells_of(at)
        low, high = calm.min(), calm.max()
        scaled = (calm - low) / (high - low)
        self.total = np.concatenate(([0.0], np.cumsum(scaled - scaled.mean())))
        self._one_value = self.cells.noise.one_value(scaled, constants.ROUNDING)
        self.inflation, self._of_mean = self.cells.noise.of_means(scaled, self._one_value)

    @cached_property
    def sums(self) -> Sums:
        """What the search itself is given."""
        return scaled_sums(self._calm, self.cells.at, benefit=0.0)

    def sd(self, cells: Cells) -> Float64[np.ndarray, "block cell"]:
        """Standard deviation of the mean of every block."""
        return self._one_value[cells.middle] * self._of_mean[cells.count]

    def least(self, correlated: float, independent: float) -> Float64[np.ndarray, " count"]:
        """By the number of values in a block: the threshold for correlated noise or for independent noise."""
        found = np.where(self.inflation > constants.CORRELATED, correlated, independent)
        unclear = np.abs(self.inflation - constants.CORRELATED) < _LOOSER
        return np.where(unclear, min(correlated, independent), found)


def may_have_cliffs(series: Screened, alpha: float, known: Sequence[Transition]) -> bool:
    """Whether `find_cliffs` would fit anything, in the series or upside down."""
    cells = series.cells.cliffs
    if not len(cells):
        return False
    before2, before, after, after2 = cells.means(series.total)
    drop, earlier, later = before - after, before2 - before, after - after2
    apart = np.diff(cells.at, axis=0)
    rate_before, rate, rate_after = earlier / apart[0], drop / apart[1] * (1 + _LOOSER), later / apart[2]
    everywhere = max(1.0, constants.INDEPENDENT_CELLS * len(cells))
    least = series.least(
        _least_z(everywhere * constants.GATE / alpha, constants.FREEDOM_IF_CORRELATED, constants.GATE),
        _least_z(constants.CELLS_PER_PLACE, constants.DEGREES_OF_FREEDOM, constants.GATE),
    )
    for direction, sign in (("fall", 1), ("rise", -1)):
        most = constants.RETURN_ALLOWED * sign * drop + _LOOSER
        plausible = sign * drop > constants.SMALLEST_DROP - _LOOSER
        plausible &= sign * rate > constants.FASTER_INSIDE * np.maximum(sign * rate_before, sign * rate_after)
        plausible &= (-sign * earlier < most) & (-sign * later < most)
        if not plausible.any():
            continue
        some = cells.where(plausible)
        sd, means = series.sd(some), [one[plausible] for one in (before2, before, after, after2)]
        accelerates = _above_chord(some.at[:3], means[:3], sd[:3])
        decelerates = -_above_chord(some.at[1:], means[1:], sd[1:])
        passed = np.minimum(sign * accelerates, sign * decelerates) > least[some.count[1]]
        places, width = some.centre[passed], some.width[passed]
        new = np.ones(len(places), dtype=bool)
        for row in known:
            if row.direction == direction:
                reach = max(constants.EXPLAINED_WIDTHS * row.width, constants.CLOSEST * row.step)
                new &= np.abs(places - row.step) > np.maximum(constants.EXPLAINED_BLOCKS * width, reach) * (1 - _LOOSER)
        if new.any() and has_step(series.sums if sign > 0 else series.sums.flipped(), places, alpha * (1 + _LOOSER)):
            return True
    return False


def may_have_dips(series: Screened, alpha: float) -> bool:
    """Whether `find_dips_and_spikes` would find anything."""
    cells = series.cells.dips
    if not len(cells):
        return False
    left, middle, right = cells.means(series.total)
    down, up = left - middle, right - middle
    ratio = cells.width / cells.centre
    tried = max(1.0, constants.DIP_INDEPENDENT_CELLS * (len(cells) + int((ratio < constants.WIDEST_SPIKE).sum())))
    least = series.least(
        _least_z(tried, constants.DIP_FREEDOM_IF_CORRELATED, alpha),
        _least_z(tried, constants.DIP_DEGREES_OF_FREEDOM, alpha),
    )
    for sign in (1, -1):
        deep = np.minimum(sign * down, sign * up) > constants.SMALLEST_DEPTH - _LOOSER
        if sign < 0:
            deep &= ratio < constants.WIDEST_SPIKE * (1 + _LOOSER)
        if not deep.any():
            continue
        some = cells.where(deep)
        sd = series.sd(some)
        z = np.minimum(sign * down[deep] / np.hypot(sd[0], sd[1]), sign * up[deep] / np.hypot(sd[2], sd[1]))
        if (z > least[some.count[1]]).any():
            return True
    return False


def may_have_stages(series: Screened, alpha: float) -> bool:
    """Whether `find_humps` would find any, in the series or upside down; what is masked can only take some away."""
    cells, place, widths = series.cells.slopes, series.cells.slope_place, series.cells.slope_width
    if not len(cells):
        return False
    before, after = cells.means(series.total)
    descent = (before - after) / series.cells.slope_apart
    sd = np.hypot(*series.sd(cells)) / series.cells.slope_apart
    lengths = [int((cells.width == width).sum()) for width in widths]
    least = np.array([_least_hump(length, alpha / len(constants.SLOPE_WIDTHS)) for length in lengths])
    f, error = descent[place], sd[place]
    for sign in (1, -1):  # a valley between higher places, were all the noise its own
        highest = sign * f
        before_it = np.maximum.accumulate(highest, axis=1)
        after_it = np.maximum.accumulate(highest[:, ::-1], axis=1)[:, ::-1]
        deep = np.minimum(before_it, after_it) - highest > least[:, None] * error
        for row in np.flatnonzero(deep.any(1)):
            part = place[row, : lengths[row]]
            if _has_hump(cells.centre[part], sign * descent[part], sd[part], widths[row], least[row]):
                return True
    return False


def _least_hump(length: int, alpha: float) -> float:
    """The z by which a place must exceed another, of so many of one width."""
    independent = length / constants.SLOPES_PER_WIDTH
    return _least_z(max(1.0, independent * (independent - 1) / 2), constants.DEGREES_OF_FREEDOM, alpha)


def _has_hump(x: np.ndarray, f: np.ndarray, sd: np.ndarray, width: float, least: float) -> bool:
    """Whether there is a c behind a valley b behind an a, each above the valley by enough."""
    apart = constants.HUMP_WIDTHS * width - 1e-9
    if x[-1] - x[0] < 3 * apart:
        return False
    higher = (f[:, None] - f) / np.hypot(sd[:, None], sd) > least
    earlier = x[:, None] <= x - apart
    valley = (higher & earlier).any(0)  # b: some a before it is higher
    taller = f[:, None] * (1 + _LOOSER) + _LOOSER > constants.HUMP_RATIO * np.maximum(f, 0)
    behind = (higher & earlier.T & taller)[:, valley].any(1)  # c: higher than such a valley before it
    return bool((higher & earlier & taller)[behind].any())  # and than something after it


def _above_chord(at: np.ndarray, means: Sequence[np.ndarray], sd: np.ndarray) -> np.ndarray:
    """As in `convexity`, of three blocks."""
    share = (at[1] - at[0]) / (at[2] - at[0])
    height = means[1] - (1 - share) * means[0] - share * means[2]
    return height / np.sqrt(sd[1] ** 2 + ((1 - share) * sd[0]) ** 2 + (share * sd[2]) ** 2)


@lru_cache(maxsize=1024)
def _least_z(tried: float, freedom: float, alpha: float) -> float:
    """The z whose tail, so often tried, is alpha; a little less than that."""
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, min(0.5, alpha * (1 + _LOOSER) / tried))) - _LOOSER
