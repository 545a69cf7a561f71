"""A curve as one line of text: ▇▆▅▅▄▂▁▁, the highest value a full block, the lowest an eighth of one."""

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


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
