"""What a short record does when nothing happens: smooth curves that suit the steps at which it was taken.

A drift that is smooth in t is not smooth over checkpoints 0, 1, 2, 4 ... 512, 1000, 2000 ..., whose spacing changes
abruptly, and one that is smooth in ln t is not smooth over even ones. So there is not one baseline but several: cubics
in the number of the value, in ln t, in the mean of both and in t (those that differ on this schedule). A change counts
only if it beats the best of them, each charged for its columns, and every convex or concave curve (`cones.py`).
"""

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants

Series = Float64[np.ndarray, " n"]
Columns = Float64[np.ndarray, "_ _"]
"""A row for each value, a column for each course."""


def smooth_baselines(at: Series) -> list[Columns]:
    """Orthonormal columns of every smooth baseline for values at these steps."""
    sizes = [size for size in short_constants.SPLINE_COLUMNS if size <= len(at) / short_constants.VALUES_PER_COLUMN]
    return [_spline(axis, size) for size in sizes for axis in time_axes(at)]


def time_axes(at: Series) -> list[Series]:
    """Rank, ln t, the mean of both and t, each from 0 to 1; those that are another one on this schedule left out."""
    rank = np.linspace(0, 1, len(at))
    logs = np.log(at if at[0] > 0 else at - at[0] + (at[1] - at[0]))
    logs = (logs - logs[0]) / (logs[-1] - logs[0])
    axes = [rank]
    for axis in (logs, (logs + rank) / 2, (at - at[0]) / (at[-1] - at[0])):
        if all(np.abs(axis - other).max() > short_constants.SAME_AXIS for other in axes):
            axes.append(axis)
    return axes


def _spline(axis: Series, size: int) -> Columns:
    """A cubic spline of so many columns, its inner knots evenly spaced."""
    knots = np.linspace(0, 1, size - 2)[1:-1]
    powers = np.column_stack([axis**k for k in range(4)])
    return orthonormal(np.column_stack([powers, np.maximum(axis[:, None] - knots, 0) ** 3]), 1e-6)


def orthonormal(columns: Columns, smallest: float) -> Columns:
    """A basis of what the columns span, but for directions in which they hardly differ."""
    u, s, _ = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), full_matrices=False)
    return np.ascontiguousarray(u[:, s > smallest * s[0]])
