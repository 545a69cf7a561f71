"""The course of a scalar, in bounded memory and as one line of text.

Kept are means over stretches of steps that grow with the step. A stretch at step t is about t / 400 steps long, so a
view of a hundred columns loses nothing, on a logarithmic or a linear axis, and a run of a billion steps takes eight
thousand means. Drawn it is ▇▆▅▅▄▂▁▁, the highest value a full block, the lowest an eighth of one.
"""

import math
from collections.abc import Sequence

_PER_E_FOLD = 400
_BLOCKS = "▁▂▃▄▅▆▇█"


class Curve:
    """Steps and values, thinned as they come."""

    def __init__(self) -> None:
        self._stretches: dict[int, list[float]] = {}

    def add(self, step: float, value: float) -> None:
        """One more value; one that is not a number is left out."""
        if not math.isfinite(value):
            return
        stretch = self._stretches.setdefault(int(_PER_E_FOLD * math.log1p(step)), [0.0, 0.0, 0])
        stretch[0] += step
        stretch[1] += value
        stretch[2] += 1

    def points(self) -> list[tuple[float, float]]:
        """Steps, ascending, and the mean value there."""
        return [(step / n, value / n) for _, (step, value, n) in sorted(self._stretches.items())]


def sparkline(points: Sequence[tuple[float, float]], width: int, *, log_steps: bool = True) -> str:
    """Means over `width` equal parts of the axis; a part without a value looks like the one before it."""
    if not points:
        return ""
    at = [math.log1p(step) if log_steps else step for step, _ in points]
    length = at[-1] - at[0] or 1.0
    columns: list[list[float]] = [[] for _ in range(width)]
    for place, (_, value) in zip(at, points, strict=True):
        columns[min(width - 1, int(width * (place - at[0]) / length))].append(value)
    heights, height = [], points[0][1]
    for column in columns:
        height = sum(column) / len(column) if column else height
        heights.append(height)
    low, span = min(heights), max(heights) - min(heights)
    return "".join(_BLOCKS[round(7 * (height - low) / span) if span else 0] for height in heights)
