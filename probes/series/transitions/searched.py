"""Where one could look: the stretches of steps in which a transition of the usual size would have been seen.

The usual size is a drop (or rise) by the whole range of the record within the usual time: a logistic whose width is .12
of its step, which is that of a mode of the solvable models that grows a thousandfold. At each place of the record, the
means and the noise that are really there say how large the statistic of such a drop would come out; the place is
searched if in nine of ten draws of the noise that is enough. Elsewhere - too few values, too near an end, too much
noise - nothing found means nothing.
"""

import warnings

import numpy as np

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.constants import BLOCK_WIDTHS

Stretches = list[tuple[float, float]]


def searched_by_blocks(sums: Sums, alpha: float) -> Stretches:
    """Where the convexity test and the fit that follows it would see a usual drop."""
    from scipy.special import stdtrit

    at = sums.at
    start = max(float(at[0]), float(at[1] - at[0]))
    centre = np.exp(np.arange(np.log(start), np.log(at[-1]), constants.SEARCH_SPACING))
    seen = np.zeros(len(centre), dtype=bool)
    cells = constants.INDEPENDENT_CELLS * np.log(at[-1] / start) * np.sum(constants.CENTRES_PER_WIDTH / BLOCK_WIDTHS)
    tried = constants.INDEPENDENT_STEPS * np.log(at[-1] / start) * sum(1 / w for w in constants.STEP_WIDTHS)
    for width in BLOCK_WIDTHS:
        block = width * centre
        inner, middle, outer = (block * (constants.GAP / 2 + whole) for whole in (0, 1, 2))
        edges = [(-outer, -middle), (-middle, -inner), (inner, middle), (middle, outer)]
        blocks = [sums.over(centre + low, centre + high) for low, high in edges]
        enough = np.minimum.reduce([one.count for one in blocks]) >= constants.FEWEST_IN_BLOCK
        enough &= (centre - outer >= at[0]) & (centre + outer <= at[-1])
        with np.errstate(over="ignore"):
            drop = [1 / (1 + np.exp((one.at - centre) / (constants.USUAL_WIDTH * centre))) for one in blocks]
        least = np.full(len(centre), np.inf)
        for (i, j, k), sign in (((0, 1, 2), 1), ((1, 2, 3), -1)):
            with np.errstate(invalid="ignore", divide="ignore"):
                share = (blocks[j].at - blocks[i].at) / (blocks[k].at - blocks[i].at)
                height = sign * (drop[j] - (1 - share) * drop[i] - share * drop[k])
                sd = np.sqrt(blocks[j].sd ** 2 + ((1 - share) * blocks[i].sd) ** 2 + (share * blocks[k].sd) ** 2)
                least = np.fmin(least, height / sd)
        is_correlated = blocks[1].inflation > constants.CORRELATED
        freedom = np.where(is_correlated, constants.FREEDOM_IF_CORRELATED, constants.DEGREES_OF_FREEDOM)
        fit = -stdtrit(freedom, alpha / tried)
        gate = -stdtrit(freedom, np.where(is_correlated, alpha / cells, constants.GATE / constants.CELLS_PER_PLACE))
        needed = np.maximum(gate, fit / constants.FIT_OVER_SCAN) + constants.NINE_IN_TEN
        seen |= enough & (least > needed)
    return stretches(centre, seen, np.exp(constants.SEARCH_SPACING / 2))


def stretches(places: np.ndarray, seen: np.ndarray, reach: float) -> Stretches:
    """Runs of places that are seen, each widened by a ratio either side; single places do not count."""
    from scipy.ndimage import median_filter

    seen = median_filter(seen.astype(int), constants.SHORTEST_STRETCH, mode="constant") > 0
    padded = np.concatenate(([False], seen, [False])).astype(int)
    first, last = np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1) - 1
    runs = [(i, j) for i, j in zip(first, last, strict=True) if j - i + 1 >= constants.SHORTEST_STRETCH]
    return [(float(places[i] / reach), float(places[j] * reach)) for i, j in runs]


def share_searched(found: Stretches, at: np.ndarray) -> float:
    """Of the record, in ln t from its first positive step on."""
    first = float(at[at > 0][0])
    whole = np.log(at[-1] / first)
    return float(sum(np.log(min(high, at[-1]) / max(low, first)) for low, high in found if high > first) / whole)


def warn_if_little(found: Stretches, at: np.ndarray, stacklevel: int) -> None:
    """A UserWarning where less than half of the record was searched."""
    share = share_searched(found, at)
    if not found:
        message = (
            f"nothing could be looked for in these {len(at)} values: nowhere would a drop by their whole range be told "
            "from their noise. That nothing is reported means nothing"
        )
    elif share < constants.SEARCHED_ENOUGH:
        where = ", ".join(f"{low:.4g} to {high:.4g}" for low, high in found)
        message = (
            f"only {100 * share:.0f} % of the record (in ln step) could be searched, steps {where}: see "
            '.attrs["searched"]. Elsewhere a drop by its whole range would not have been seen'
        )
    else:
        return
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
