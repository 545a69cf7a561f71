"""Tails: what may still belong to a cliff that goes on falling more slowly, and how far that moves its middle.

A fit takes the steep part for the cliff and what follows for the baseline. Nobody can say which is right: a drop that
ends in a slow tail (all modes of paper 002) is half done later than its steep part is. So its interval holds both
readings. The tail ends where the descent has come down to an eighth of what it was in the cliff, per ln(step); the
other middle is where the series is half-way between the level before and the level there. A cliff without a tail, and
one that ends on a plateau, keeps its interval.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probes.series.transitions.blocks import Sums
from probes.series.transitions.transition import Transition

OVER, BLOCK, REACH = 0.125, 0.15, 6.0
"""A tail is over where a block of .15 in ln(step) falls by an eighth as much as the cliff's own; it is looked for, like
the level before, within a factor six. Tuned on 903 transitions: intervals hold the middle of .92 of the drops of paper
002 (.73 without), and grow by a twentieth in the median."""

FEWEST, MEANS = 4, 200
"""Blocks that hold values, at least; and means over which the middle with the tail is looked for. Judgement."""


def with_tails(rows: Sequence[Transition], sums: Sums) -> list[Transition]:
    """The same rows, the intervals of cliffs as long as their tails ask."""
    upside_down = sums.flipped()
    return [_with_tail(row, rows, sums if row.direction == "fall" else upside_down) for row in rows]


def _with_tail(row: Transition, rows: Sequence[Transition], sums: Sums) -> Transition:
    if row.kind != "cliff":
        return row
    last = _last_level(row, sums)
    if last is None:
        return row
    level, end = last
    begin = max([row.step / REACH, float(sums.at[0]), *(r.high for r in rows if r.high < row.low)])
    # the level before is that of the earlier half, in ln(step), of what lies between there and the cliff
    before = sums.over(np.array([begin]), np.array([np.sqrt(begin * row.low)]))
    if before.count[0] == 0 or before.mean[0] <= level:
        return row
    middle = _crossing(sums, begin, end, (float(before.mean[0]) + level) / 2)
    if middle is None:
        return row
    return replace(row, high=max(row.high, middle + row.high - row.step))


def _last_level(row: Transition, sums: Sums) -> tuple[float, float] | None:
    """The mean of the block in which the tail of a cliff ends, and where that is; None if there is no tail."""
    count = int(np.log(REACH) / BLOCK) + 1
    edges = row.step * np.exp(BLOCK * (np.arange(-1, count + 1) - 0.5))
    blocks = sums.over(edges[:-1], edges[1:])
    some = (blocks.count > 0) & (edges[1:] <= np.nextafter(sums.at[-1], np.inf))
    mean, end = blocks.mean[some], edges[1:][some]
    if len(mean) < FEWEST:
        return None
    falls = mean[:-1] - mean[1:]
    is_over = falls[2:] <= OVER * falls[:2].max()
    over = 2 + (int(is_over.argmax()) if is_over.any() else len(is_over))
    if over == 2 or falls[:2].max() <= 0:
        return None
    return float(mean[over]), float(end[over])


def _crossing(sums: Sums, begin: float, end: float, half: float) -> float | None:
    """Where the series, made to fall all the way, passes a level; None if it does not."""
    from scipy.optimize import isotonic_regression

    edges = np.geomspace(begin, end, MEANS + 1)
    means = sums.over(edges[:-1], edges[1:])
    at, mean = means.at[means.count > 0], means.mean[means.count > 0]
    if len(mean) < FEWEST:
        return None
    mean = isotonic_regression(mean, increasing=False).x
    i = int((mean <= half).argmax())
    return float(np.interp(-half, -mean[i - 1 : i + 1], at[i - 1 : i + 1])) if i else None
