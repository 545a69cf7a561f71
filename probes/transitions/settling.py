"""Settling: the last transition is over and the series stays where it is.

A decay that merely flattens out has no moment at which it settles, so this is only said of a series in which something
happened: the step after the last cliff or dip from which its means stay within a tenth of the size of that transition
of the level at the end. It carries the p-value of the transition it ends. A series that is still moving over the last
third has not settled, and nothing is reported. (`settling_time` answers the plain question for any series.)
"""

from dataclasses import replace

import numpy as np

from probes.transitions.blocks import Sums
from probes.transitions.transition import Transition

_TOLERANCE = 0.1  # of the size of the transition
_LATEST = 2 / 3  # of what remains after the transition
_FEWEST = 8


def find_settling(sums: Sums, last: Transition) -> Transition | None:
    """When the series settled after its last transition, or None if it did not."""
    begin, end = float(last.step), float(sums.at[-1])
    window = float(last.width)
    centres = np.arange(begin, end - window / 2, window / 4)
    if len(centres) < _FEWEST:
        return None
    level = sums.over(np.array([(begin + end) / 2]), np.array([np.nextafter(end, np.inf)]))
    means = sums.over(centres - window / 2, centres + window / 2)
    some = means.count > 0
    centres, away = centres[some], np.abs(means.mean[some] - level.mean[0])
    sd = np.hypot(means.sd[some], level.sd[0])

    def first_to_stay_within(band: np.ndarray) -> float:
        outside = np.flatnonzero(away > band)
        following = outside[-1] + 1 if len(outside) else 0
        return float(centres[following]) if following < len(centres) else end

    tolerance = _TOLERANCE * last.strength
    low, step, high = (first_to_stay_within(tolerance + z * sd) for z in (6.0, 4.0, 3.0))
    if step > begin + _LATEST * (end - begin):
        return None
    low, high = min(low, step - window / 4), max(high, step + window / 4)
    return replace(last, step=step, low=low, high=high, kind="settled")
