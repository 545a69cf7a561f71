"""Steps that are missing from a schedule, told from the steps that are there.

Where the spacing is even on both sides, or grows by one ratio on both sides, an interval that is several times what
the others make it is a gap. A schedule that changes its spacing is not: it differs on the two sides.
"""

from collections.abc import Sequence
from itertools import pairwise

TOLERANCE = 0.15


def gaps(steps: Sequence[int]) -> list[tuple[int, int]]:
    """(step after the gap, how many steps seem to be missing)."""
    found = []
    intervals = [after - before for before, after in pairwise(steps)]
    for i, interval in enumerate(intervals):
        left, right = intervals[max(0, i - 2) : i], intervals[i + 1 : i + 3]
        missing = _missing(left, interval, right)
        if missing:
            found.append((steps[i + 1], missing))
    return found


def _missing(left: list[int], interval: int, right: list[int]) -> int:
    if len(left) + len(right) < 3:
        return 0
    around = [*left, *right]
    if max(around) <= min(around) * 1.01:  # even
        count = interval / around[0]
        is_multiple = count > 1.5 and abs(count - round(count)) < 0.01
        # a log-spaced schedule rounded to whole steps has 1, 1, 2, 1: a difference of one step is rounding
        return round(count) - 1 if is_multiple and interval - around[0] > 1 else 0
    if len(left) < 2 or len(right) < 2:
        return 0
    before, after = left[1] / left[0], right[1] / right[0]
    if min(before, after) < 1.1 or abs(before / after - 1) > TOLERANCE:  # not one ratio on both sides
        return 0
    ratio = (before * after) ** 0.5
    # the intervals that an unbroken geometric schedule would have here, one or two or three of them
    for count in (2, 3, 4):
        expected = sum(left[1] * ratio**k for k in range(1, count + 1))
        next_one = left[1] * ratio ** (count + 1)
        if abs(interval / expected - 1) < TOLERANCE and abs(right[0] / next_one - 1) < 2 * TOLERANCE:
            return count - 1
    return 0
