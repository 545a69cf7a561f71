"""Since when: the earlier checkpoint that a drift is measured from, over a stretch of training that is stated.

    "previous"   the checkpoint before, however far that is                              subspace_drift@previous
    250          the checkpoint 250 steps before                                         subspace_drift@-250
    1.2          the checkpoint nearest to step / 1.2                                    subspace_drift@/1.2

Between neighbours a drift is as large as they are far apart: where checkpoints are spaced unevenly it draws the
schedule. Over so many steps, or over a ratio, every row has the same stretch, and a row for which there is no such
checkpoint is missing and says so. A ratio is met to within a third of its logarithm: 1.2 by anything from 1.13 to 1.28.

Where nothing is asked for, `usual_stretch` picks what fits the schedule of the run, and `subspace_drift` is measured
over that: a fixed number of steps where checkpoints are evenly spaced, else the smallest of a few ratios that finds a
partner over four fifths of ln(step). Pythia's schedule gets 2, its early steps being factors of two apart; fifty
log-spaced checkpoints over four decades 1.2.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Stretch = str | int | float

_RATIOS = (1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 5.0, 10.0)
_TOLERANCE = 1 / 3  # of ln(ratio): half-way between rows that are missing for nothing and stretches that differ
_ENOUGH = 0.8  # of ln(step)


def check_stretch(stretch: Any) -> Stretch:
    """The stretch, or a ValueError that says what one is."""
    if stretch == "previous":
        return stretch
    is_steps = isinstance(stretch, int) and not isinstance(stretch, bool) and stretch > 0
    is_ratio = isinstance(stretch, float) and 1 < stretch < math.inf
    if not (is_steps or is_ratio):
        raise ValueError(
            f"drift_over is {stretch!r}: 'previous', a number of steps (250) or a ratio above 1 (1.2) is expected"
        )
    return stretch


def suffix(stretch: Stretch) -> str:
    """What is added to the name of a probe that is measured over this stretch."""
    if stretch == "previous":
        return "@previous"
    return f"@-{stretch}" if isinstance(stretch, int) else f"@/{stretch:g}"


def since(stretch: Stretch) -> str:
    """In words, for the definition."""
    if stretch == "previous":
        return "since the checkpoint before"
    if isinstance(stretch, int):
        return f"since the checkpoint {stretch} steps before"
    return f"since the checkpoint nearest to step / {stretch:g}"


def partner(stretch: Stretch, steps: Sequence[int], place: int) -> int | str:
    """The step that the checkpoint at `place` of `steps` (ascending) is compared with, or why there is none."""
    step = steps[place]
    if place == 0:
        return "no checkpoint before this one"
    if stretch == "previous":
        return steps[place - 1]
    if isinstance(stretch, int):
        found = bisect_left(steps, step - stretch, 0, place)
        if steps[found] == step - stretch:
            return steps[found]
        return f"no checkpoint {stretch} steps before this one, at step {step - stretch}"
    ratio = float(stretch)
    after = bisect_left(steps, step / ratio, 0, place)
    near = [other for other in steps[max(0, after - 1) : min(after + 1, place)] if other > 0]  # 0 has no logarithm
    nearest = min(near, key=lambda other: abs(_excess(step, other, ratio)), default=None)
    if nearest is None or abs(_excess(step, nearest, ratio)) > _TOLERANCE * math.log(ratio):
        has = f"; the nearest is {nearest}" if nearest is not None else ""
        return f"no checkpoint near step {step / ratio:.4g} = {step} / {ratio:g}{has}"
    return nearest


def usual_stretch(steps: Sequence[int]) -> Stretch:
    """What fits a schedule, by how much of ln(step) has a partner."""
    if len(steps) < 3:
        return "previous"
    gaps = Counter(after - before for before, after in pairwise(steps))
    candidates: list[Stretch] = [gaps.most_common(1)[0][0], *_RATIOS]
    covered = [_covered(candidate, steps) for candidate in candidates]
    enough = [candidate for candidate, share in zip(candidates, covered, strict=True) if share >= _ENOUGH]
    return enough[0] if enough else candidates[covered.index(max(covered))]


def _covered(stretch: Stretch, steps: Sequence[int]) -> float:
    """Share of ln(step), between the first and the last checkpoint after step 0, at whose end there is a partner."""
    total = found = 0.0
    for place in range(1, len(steps)):
        if steps[place - 1] > 0:
            length = math.log(steps[place] / steps[place - 1])
            total += length
            found += length if isinstance(partner(stretch, steps, place), int) else 0.0
    return found / total if total else 0.0


def _excess(step: int, other: int, ratio: float) -> float:
    """By how much the stretch between two steps exceeds the ratio, in logarithms."""
    return math.log(step / other) - math.log(ratio)
