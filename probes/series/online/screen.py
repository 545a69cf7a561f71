"""Whether a search by blocks could find anything at all, told at a tenth of its price.

Most looks at a growing series find nothing, and most of the time of `search_blocks` goes into tables of the cells that
it tried. Its first tests need nothing but a few means over blocks each. Here these are worked out for all widths, for
falls and for rises at once, and compared with thresholds that are looser than those of the search by `_LOOSER`, which
is far more than rounding and far less than anybody would notice. Where none is passed the search would return nothing,
and need not be made; where one is, it is made. So what is found is the same, always:

    cliffs   a place that passes the test of convexity, that no known cliff explains, and where a step fits well enough
    dips     a cell whose p-value is below alpha, or a spike
    stages   a second hump of the descent in log time, at one of the widths
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from probes.series.transitions import cliffs, constants
from probes.series.transitions.blocks import Blocks, Sums
from probes.series.transitions.search import search_blocks
from probes.series.transitions.transition import Transition

_LOOSER = 1e-6


def search_if_promising(sums: Sums, alpha: float, known: Sequence[Transition] = ()) -> list[Transition]:
    """What `search_blocks` returns."""
    share = alpha / constants.TESTS
    if may_have_dips(sums, share) or may_have_cliffs(sums, share, known) or may_have_stages(sums, share / 2):
        return search_blocks(sums, alpha, known)
    return []


def may_have_cliffs(sums: Sums, alpha: float, known: Sequence[Transition]) -> bool:
    """Whether `find_cliffs` would fit anything, in the series or upside down."""
    at = sums.at
    centre, block = _centres(sums, tuple(constants.BLOCK_WIDTHS))
    inner, middle, outer = (block * (constants.GAP / 2 + whole) for whole in (0, 1, 2))
    inside = (centre - outer >= at[0]) & (centre + outer <= at[-1])
    centre, block, inner, middle, outer = (one[inside] for one in (centre, block, inner, middle, outer))
    edges = [centre - outer, centre - middle, centre - inner, centre + inner, centre + middle, centre + outer]
    before2, before, after, after2 = (sums.over(edges[k], edges[k + 1]) for k in (0, 1, 3, 4))
    enough = np.minimum.reduce([b.count for b in (before2, before, after, after2)]) >= constants.FEWEST_IN_BLOCK
    if not enough.any():
        return False
    everywhere = max(1.0, constants.INDEPENDENT_CELLS * int(enough.sum()))
    with np.errstate(invalid="ignore", divide="ignore"):
        accelerates, decelerates = _above_chord(before2, before, after), -_above_chord(before, after, after2)
        drop = before.mean - after.mean
        rate = drop / (after.at - before.at)
        rate_before = (before2.mean - before.mean) / (before.at - before2.at)
        rate_after = (after.mean - after2.mean) / (after2.at - after.at)
    is_correlated = before.inflation > constants.CORRELATED
    for direction, sign in (("fall", 1), ("rise", -1)):
        most = constants.RETURN_ALLOWED * sign * drop + _LOOSER
        plausible = enough & (sign * drop > constants.SMALLEST_DROP - _LOOSER)
        plausible &= sign * rate * (1 + _LOOSER) > constants.FASTER_INSIDE * np.maximum(
            sign * rate_before, sign * rate_after
        )
        plausible &= (sign * (before.mean - before2.mean) < most) & (sign * (after2.mean - after.mean) < most)
        if not plausible.any():
            continue
        z = np.where(plausible, np.minimum(sign * accelerates, sign * decelerates), -np.inf)
        least = np.where(
            is_correlated,
            _least_z(everywhere * constants.GATE / alpha, constants.FREEDOM_IF_CORRELATED, constants.GATE),
            _least_z(constants.CELLS_PER_PLACE, constants.DEGREES_OF_FREEDOM, constants.GATE),
        )
        places = new = np.flatnonzero(z > least)
        for row in known:
            if row.direction == direction:
                reach = max(constants.EXPLAINED_WIDTHS * row.width, constants.CLOSEST * row.step)
                reach = np.maximum(constants.EXPLAINED_BLOCKS * block[new], reach) * (1 - _LOOSER)
                new = new[np.abs(centre[new] - row.step) > reach]
        if len(new) and _has_step(sums if sign > 0 else sums.flipped(), centre[places], alpha):
            return True
    return False


def _has_step(sums: Sums, centres: np.ndarray, alpha: float) -> bool:
    """Whether the best step down at one of these places has p < alpha; at fewer places it is no better."""
    from scipy.special import stdtr

    best, z = cliffs._best_step(sums, pd.DataFrame({"centre": centres}), [])
    if best is None:
        return False
    freedom = cliffs._freedom(cliffs._at_scale(sums, best).inflation[0])
    return bool(cliffs._places_looked_at(sums) * float(stdtr(freedom, -z)) < alpha * (1 + _LOOSER))


def may_have_dips(sums: Sums, alpha: float) -> bool:
    """Whether `find_dips_and_spikes` would find anything."""
    at = sums.at
    centre, block = _centres(sums, tuple(constants.DIP_WIDTHS))
    half, whole = block / 2, 1.5 * block
    inside = (centre - whole >= at[0]) & (centre + whole <= at[-1])
    centre, block, half, whole = (one[inside] for one in (centre, block, half, whole))
    left, middle, right = (
        sums.over(*ends)
        for ends in ((centre - whole, centre - half), (centre - half, centre + half), (centre + half, centre + whole))
    )
    enough = np.minimum.reduce([b.count for b in (left, middle, right)]) >= constants.DIP_FEWEST_IN_BLOCK
    if not enough.any():
        return False
    is_narrow = block < constants.WIDEST_SPIKE * centre
    tried = max(1.0, constants.DIP_INDEPENDENT_CELLS * int(enough.sum() + (enough & is_narrow).sum()))
    down, up = left.mean - middle.mean, right.mean - middle.mean
    sd_left, sd_right = np.hypot(left.sd, middle.sd), np.hypot(right.sd, middle.sd)
    is_correlated = middle.inflation > constants.CORRELATED
    for sign, counts in ((1, enough), (-1, enough & (block < constants.WIDEST_SPIKE * centre * (1 + _LOOSER)))):
        deep = counts & (sign * np.where(sign * down < sign * up, down, up) > constants.SMALLEST_DEPTH - _LOOSER)
        if not deep.any():
            continue
        z = np.where(deep, np.minimum(sign * down / sd_left, sign * up / sd_right), -np.inf)
        for some, freedom in (
            (is_correlated, constants.DIP_FREEDOM_IF_CORRELATED),
            (~is_correlated, constants.DIP_DEGREES_OF_FREEDOM),
        ):
            if some.any() and z[some].max() > _least_z(tried, freedom, alpha):
                return True
    return False


def may_have_stages(sums: Sums, alpha: float) -> bool:
    """Whether `find_humps` would find any, in the series or upside down; what is masked can only take some away."""
    first = np.log(max(float(sums.at[0]), float(sums.at[1] - sums.at[0])))
    last = np.log(sums.at[-1])
    grids = [
        np.arange(first + width, last - width + 1e-9, width / constants.SLOPES_PER_WIDTH)
        for width in constants.SLOPE_WIDTHS
    ]
    x, width = np.concatenate(grids), np.repeat(constants.SLOPE_WIDTHS, [len(grid) for grid in grids])
    here = np.exp(x)
    before, after = sums.over(np.exp(x - width), here), sums.over(here, np.exp(x + width))
    enough = np.minimum(before.count, after.count) >= constants.SLOPE_FEWEST
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.log(after.at) - np.log(before.at)
        descent = (before.mean - after.mean) / apart
        sd = np.hypot(before.sd, after.sd) / apart
    ends = np.cumsum([0, *(len(grid) for grid in grids)])
    for number, of_one in enumerate(constants.SLOPE_WIDTHS):
        part = slice(ends[number], ends[number + 1])
        some = enough[part]
        if _has_hump(x[part][some], descent[part][some], sd[part][some], of_one, alpha / len(grids)):
            return True
    return False


def _has_hump(x: np.ndarray, descent: np.ndarray, sd: np.ndarray, width: float, alpha: float) -> bool:
    """Whether there is a c behind a valley b behind an a, each above the valley by enough, falling or rising."""
    apart = constants.HUMP_WIDTHS * width - 1e-9
    if not len(x) or x[-1] - x[0] < 3 * apart:
        return False
    independent = len(x) / constants.SLOPES_PER_WIDTH
    pairs = max(1.0, independent * (independent - 1) / 2)
    least = _least_z(pairs, constants.DEGREES_OF_FREEDOM, alpha)
    above = (descent[:, None] - descent) / np.hypot(sd[:, None], sd)
    earlier = x[:, None] <= x - apart
    for sign in (1, -1):
        higher = sign * above > least
        valley = (higher & earlier).any(0)  # b: some a before it is higher
        if not valley.any():
            continue
        f = sign * descent
        taller = f[:, None] * (1 + _LOOSER) + _LOOSER > constants.HUMP_RATIO * np.maximum(f, 0)
        behind = (higher & earlier.T & taller)[:, valley].any(1)  # c: higher than such a valley before it
        if behind.any() and (higher & earlier & taller)[behind].any():  # and than something after it
            return True
    return False


def _centres(sums: Sums, widths: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The centres at which every width is tried, and the block there."""
    at = sums.at
    first, last = np.log(max(float(at[0]), float(at[1] - at[0]))), np.log(at[-1])
    grids = [np.arange(first, last, width / constants.CENTRES_PER_WIDTH) for width in widths]
    centre = np.exp(np.concatenate(grids))
    return centre, np.repeat(widths, [len(grid) for grid in grids]) * centre


def _above_chord(left: Blocks, middle: Blocks, right: Blocks) -> np.ndarray:
    """As in `convexity`."""
    share = (middle.at - left.at) / (right.at - left.at)
    height = middle.mean - (1 - share) * left.mean - share * right.mean
    return height / np.sqrt(middle.sd**2 + ((1 - share) * left.sd) ** 2 + (share * right.sd) ** 2)


@lru_cache(maxsize=1024)
def _least_z(tried: float, freedom: float, alpha: float) -> float:
    """The z whose tail, so often tried, is alpha; a little less than that."""
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, min(0.5, alpha * (1 + _LOOSER) / tried))) - _LOOSER
