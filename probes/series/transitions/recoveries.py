"""Recoveries: a fall that only takes back a rise is the end of a spike, and no cliff or stage.

Seen from its top, a spike and a loss that rises for a while and is learned then are alike. These things tell them
apart: the rise is a good part of the fall; it is sure; it is no longer before the fall than the fall itself takes, so
that the top is no level of its own. And all of it lies at the very beginning of the record, as the spike of a warm-up
does, under which the loss goes on falling; or else it takes little time beside what went before, and the fall ends
about where the rise began. The test loss of a model that groks rises and falls too, but over most of its record, and
ends below its beginning.
"""

from dataclasses import replace

import numpy as np

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.transition import Transition


def spike_if_it_recovers(sums: Sums, row: Transition) -> Transition:
    """A fall; or the spike that it ends, at its top."""
    first = max(float(sums.at[0]), float(sums.at[1] - sums.at[0]), row.step / constants.RECOVERY_REACH)
    edges = np.exp(np.arange(np.log(first), np.log(max(row.step, first * 1.01)), constants.RECOVERY_SPACING))
    means = sums.over(edges[:-1], edges[1:])
    some = means.count > 0
    at, mean, sd = means.at[some], means.mean[some], means.lasting_sd(sums.noise)[some]
    if len(mean) < 3:
        return row
    doubt = constants.RECOVERY_SDS * sd
    top = int((mean - doubt).argmax())
    bottom = int((mean + doubt)[: top + 1].argmin())
    rose = float(mean[top] - mean[bottom])
    after = _level_after(sums, row)  # a fit may hold a fall up by its baseline, so the record is asked as well
    fell = min(row.strength, float(mean[top]) - after) if after < mean[top] else row.strength
    if rose < max(constants.RECOVERY * fell, doubt[top] + doubt[bottom]):
        return row
    half = at[bottom + int(np.argmax(mean[bottom : top + 1] >= mean[bottom] + rose / 2))]
    if row.step - half > constants.RECOVERY_WIDTHS * row.width:
        return row
    is_long = row.step > constants.RECOVERY_RATIO * half
    if not _is_early(sums, row) and (is_long or ends_deeper(sums, row, float(mean[bottom]))):
        return row
    low, high = float(edges[:-1][some][top]), float(edges[1:][some][top])
    return replace(row, step=float(at[top]), low=low, high=high, kind="spike", direction="rise", strength=rose)


def _is_early(sums: Sums, row: Transition) -> bool:
    near, _ = constants.BEFORE_AND_AFTER
    return bool(row.step + near * row.width < constants.RECOVERY_EARLY * sums.at[-1])


def ends_deeper(sums: Sums, row: Transition, level: float) -> bool:
    """Whether a fall goes on for a good part of itself below a level, where the series was before it rose."""
    return level - _level_after(sums, row) > constants.RECOVERY_DEEPER * row.strength


def _level_after(sums: Sums, row: Transition) -> float:
    """The mean where a fall is over; inf if there are no values."""
    near, far = constants.BEFORE_AND_AFTER
    start = min(row.step + near * row.width, (row.step + float(sums.at[-1])) / 2)
    after = sums.over(np.array([start]), np.array([start + (far - near) * row.width]))
    return float(after.mean[0]) if after.count[0] > 0 else np.inf
