"""Settling: the last transition is over and the series stays where it is.

A decay that merely flattens out has no moment at which it settles, so this is only said of a series in which something
happened: the step after the last cliff or dip from which its means stay within a tenth of the size of that transition
of the level at the end. It carries the p-value of the transition it ends. A series that is still moving over the last
third has not settled, and nothing is reported. (`settling_time` answers the plain question for any series.)
"""

from dataclasses import replace

import numpy as np

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.transition import Transition


def find_settling(sums: Sums, last: Transition) -> Transition | None:
    """When the series settled after its last transition, or None if it did not."""
    begin, end = float(last.step), float(sums.at[-1])
    window = float(last.width)
    spacing = window / constants.CENTRES_PER_WINDOW
    centres = _centres(begin, end - window / 2, spacing, sums.at)
    if len(centres) < constants.SETTLED_FEWEST:
        return None
    level = sums.over(np.array([(begin + end) / 2]), np.array([np.nextafter(end, np.inf)]))
    means = sums.over(centres - window / 2, centres + window / 2)
    some = means.count > 0
    centres, away = centres[some], np.abs(means.mean[some] - level.mean[0])
    sd = np.hypot(means.sd[some], level.sd[0])
    tolerance = constants.TOLERANCE * last.strength
    crossings = [_stays_within(tolerance + z * sd, away, centres) for z in constants.SETTLED_SDS]
    low, step, high = (np.nan if crossing is None else crossing for crossing in crossings)
    if not step <= begin + constants.LATEST * (end - begin):
        return None
    low = min(step - spacing, low) if np.isfinite(low) else begin
    high = max(step + spacing, high) if np.isfinite(high) else end
    return replace(last, step=step, low=low, high=high, kind="settled")


def _centres(begin: float, end: float, spacing: float, at: np.ndarray) -> np.ndarray:
    """Evenly spaced; where the record has long gaps, those of them that have a value within half a window."""
    count = max(0, int(np.ceil((end - begin) / spacing)))
    if count <= constants.CENTRES_PER_WINDOW * len(at):
        return begin + spacing * np.arange(count)
    reach = constants.CENTRES_PER_WINDOW // 2
    near = np.unique(np.floor((at - begin) / spacing)[:, None] + np.arange(-reach, reach + 2))
    return begin + spacing * near[(near >= 0) & (near < count)]


def _stays_within(band: np.ndarray, away: np.ndarray, centres: np.ndarray) -> float | None:
    """Where the means come within the band for good, between the two centres around it; None if they never do."""
    outside = np.flatnonzero(away > band)
    if len(outside) == 0 or outside[-1] + 1 == len(centres):
        return None
    i = int(outside[-1])
    over, under = away[i] - band[i], band[i + 1] - away[i + 1]
    return float(centres[i] + (centres[i + 1] - centres[i]) * over / max(over + under, 1e-300))
