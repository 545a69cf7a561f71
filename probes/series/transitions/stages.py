"""Stages: a second hump of the descent in log time, which is how a person sees a stage on the usual log axis.

Curves of training are read over ln t. There, the descent f = -dy / d ln t of anything that happens once has one hump:
an exponential, a power law, a logistic, a straight line that ends in a plateau. Each further stage adds one. So the
null is *one hump*, whatever its shape, and the test asks for a second: over places a < b < c < d

        f(a) above f(b) below f(c) above f(d)

    |  a                c              z = the least of the three differences, each in its own standard error,
    | / \\              / \\                 at the best a, b, c, d and many widths w
    |/   \\____b______/   \\___d

f is the difference of the means over [x - w, x) and [x, x + w), x = ln t, over the distance of their places. Means are
over all values, none is left out; their noise is that of `Sums`. The least favourable null is a constant slope, where
nothing but noise orders the four. There, each pair (b, c) that is as good as independent of the others has the tail of
one difference of two means, so that p = pairs x P(t > z) is a bound: the other two differences, which must hold as
well, are not counted in its favour.

It is blind to a first hump, however sharp: that is the business of the convexity test (`cliffs.py`).
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.log_fit import LogFit, fit_in_log_time
from probes.series.transitions.recoveries import ends_deeper, spike_if_it_recovers
from probes.series.transitions.transition import Transition

Centres = Float64[np.ndarray, " centres"]


@dataclass(frozen=True)
class LogSlopes:
    """The descent -dy / d ln t at centres x = ln t, seen over a width, with its noise."""

    x: Centres
    descent: Centres
    sd: Centres
    inflation: Centres
    width: float


@dataclass(frozen=True)
class Hump:
    """A second hump of the descent: at ln t = x, seen over a width, behind a valley and before another fall."""

    x: float
    valley: float
    valley_descent: float
    width: float
    z: float
    p_value: float


def find_stages(sums: Sums, alpha: float, masked: list[tuple[float, float]]) -> list[Transition]:
    """Stages with p < alpha, each where half of its own drop is done; what only makes up for a rise is a spike.

    masked are stretches of steps that something else explains.
    """
    slopes = [log_slopes(sums, width) for width in constants.SLOPE_WIDTHS]
    return located_stages(sums, find_humps(slopes, alpha, in_log_time(masked)), masked)


def in_log_time(masked: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Stretches of steps as stretches of ln t."""
    with np.errstate(divide="ignore"):
        return [(float(np.log(max(low, 0.0))), float(np.log(high))) for low, high in masked]


def located_stages(sums: Sums, humps: list[Hump], masked: list[tuple[float, float]]) -> list[Transition]:
    """A row for every hump that is worth one; see `find_stages`."""
    rows, logs = [], in_log_time(masked)
    for hump in humps:
        reach = max(hump.x - hump.valley, 2 * hump.width) + hump.width
        fit = fit_in_log_time(sums, hump.x, hump.width, reach, logs)
        if fit is None:
            continue
        # a wide step and a parabola share the fall between them: no more is counted than the series really fell
        height = min(fit.height, _fall(sums, fit))
        if height < constants.SMALLEST_STAGE:
            continue
        low, step, high = (float(np.exp(x)) for x in (fit.low, fit.x, fit.high))
        stage = Transition(step, low, high, "stage", "fall", height, hump.p_value, step * fit.width)
        if _comes_back(sums, hump, stage):
            stage = replace(stage, kind="spike", direction="rise")
        rows.append(spike_if_it_recovers(sums, stage) if stage.kind == "stage" else stage)
    return rows


def _fall(sums: Sums, fit: LogFit) -> float:
    """How far the series falls from three widths before the middle of a step to three after."""
    ends = fit.x + np.array([-3.5, 2.5]) * fit.width
    means = sums.over(np.exp(ends), np.exp(ends + fit.width))
    return float(means.mean[0] - means.mean[1]) if means.count.all() else np.inf


def _comes_back(sums: Sums, hump: Hump, stage: Transition) -> bool:
    """Whether the series rose shortly before the hump, surely or not, and leads no lower than it was before it rose."""
    if hump.valley_descent >= 0 or hump.x - hump.valley > np.log(constants.RECOVERY_RATIO):
        return False
    w = hump.width
    edges = np.arange(hump.valley - 3 * w, hump.x - w / 2, w / 2)
    before = sums.over(np.exp(edges), np.exp(edges + w / 2))
    some = before.count > 0
    return bool(some.any()) and not ends_deeper(sums, stage, float(before.mean[some].min()))


def log_slopes(sums: Sums, width: float) -> LogSlopes:
    """The descent of a series per unit of ln t, at centres a quarter of the width apart."""
    first = np.log(max(float(sums.at[0]), float(sums.at[1] - sums.at[0])))
    x = np.arange(first + width, np.log(sums.at[-1]) - width + 1e-9, width / constants.SLOPES_PER_WIDTH)
    before, after = sums.over(np.exp(x - width), np.exp(x)), sums.over(np.exp(x), np.exp(x + width))
    enough = np.minimum(before.count, after.count) >= constants.SLOPE_FEWEST
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.log(after.at) - np.log(before.at)
        descent = (before.mean - after.mean) / apart
        sd = np.hypot(before.sd, after.sd) / apart
    inflation = np.maximum(before.inflation, after.inflation)
    return LogSlopes(x[enough], descent[enough], sd[enough], inflation[enough], width)


def find_humps(slopes_by_width: list[LogSlopes], alpha: float, masked: list[tuple[float, float]]) -> list[Hump]:
    """Second humps with p < alpha, the surest first; stretches of ln t that are masked are not looked at.

    The slopes may be those of one series (`log_slopes`), or means of many made the same way.
    """
    seen = [_unmasked(slopes, masked) for slopes in slopes_by_width]
    found: list[Hump] = []
    while True:
        humps = [_best_hump(slopes, found, alpha / len(seen)) for slopes in seen]
        best = min((hump for hump in humps if hump is not None), key=lambda hump: hump.p_value, default=None)
        if best is None:
            return found
        found.append(replace(best, p_value=best.p_value * len(seen)))


def _unmasked(slopes: LogSlopes, masked: list[tuple[float, float]]) -> LogSlopes:
    clear = np.ones(len(slopes.x), dtype=bool)
    for low, high in masked:
        clear &= (slopes.x + slopes.width < low) | (slopes.x - slopes.width > high)
    return LogSlopes(slopes.x[clear], slopes.descent[clear], slopes.sd[clear], slopes.inflation[clear], slopes.width)


def _best_hump(slopes: LogSlopes, found: list[Hump], alpha: float) -> Hump | None:
    """The surest hump at this width with p < alpha; between it and those found before there is a valley of its own."""
    from scipy.special import stdtr

    x, f = slopes.x, slopes.descent
    apart = constants.HUMP_WIDTHS * slopes.width - 1e-9
    if not len(x) or x[-1] - x[0] < 3 * apart:
        return None
    above = (f[:, None] - f) / np.hypot(slopes.sd[:, None], slopes.sd)  # [i, j]: by how much f_i exceeds f_j
    earlier = x[:, None] <= x - apart  # [i, j]: i is well before j
    taller = f[:, None] > constants.HUMP_RATIO * np.maximum(f, 0)
    places = np.sort([hump.x for hump in found])
    previous = np.concatenate(([-np.inf], places))[np.searchsorted(places, x)]
    following = np.concatenate((places, [np.inf]))[np.searchsorted(places, x)]
    risen = np.where(earlier, above, -np.inf).max(0)  # of the best a, for every b
    after = np.where(earlier & taller & (x < following[:, None] - apart), above, -np.inf)
    valleys = np.where(earlier.T & taller & (x > previous[:, None] + apart), above, -np.inf)  # [c, b]
    z = np.minimum(np.minimum(valleys, risen), after.max(1)[:, None])
    near = max(2 * apart, constants.STAGES_APART)
    z[(np.abs(x[:, None] - places) < near).any(1)] = -np.inf
    independent = len(x) / constants.SLOPES_PER_WIDTH
    pairs = max(1.0, independent * (independent - 1) / 2)
    is_correlated = slopes.inflation > constants.CORRELATED
    freedom = np.where(is_correlated, constants.FREEDOM_IF_CORRELATED, constants.DEGREES_OF_FREEDOM)
    p_value = pairs * stdtr(np.minimum(freedom[:, None], freedom), -z)
    c, b = (int(i) for i in np.unravel_index(int(p_value.argmin()), z.shape))
    if not p_value[c, b] < alpha:
        return None
    # behind that valley every sure place will do, and the middle of the hump is the steepest of those around
    sure = p_value[:, b] < alpha
    first, last = c, c
    while first > 0 and sure[first - 1]:
        first -= 1
    while last + 1 < len(x) and sure[last + 1]:
        last += 1
    c = first + int(f[first : last + 1].argmax())
    return Hump(float(x[c]), float(x[b]), float(f[b]), slopes.width, float(z[c, b]), float(p_value[c, b]))
