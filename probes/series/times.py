"""When a curve got there: two definitions of a time for one series.

    half time       the first step at which it has covered half of the way from its start to its end (t* of paper 000)
    settling time   the first step from which it stays within a tolerance of its end

Both interpolate linearly between the two steps around the crossing.
"""

import numpy as np

from probes.series.checks import Values, read_series, require_scalar


def half_time(
    values: Values, steps: Values | None = None, *, start: float | None = None, end: float | None = None
) -> float:
    """First step at which the series is halfway from `start` (default: its first value) to `end` (its last)."""
    series, at = read_series(values, steps, least=2)
    start = float(series[0]) if start is None else require_scalar(start, "start")
    end = float(series[-1]) if end is None else require_scalar(end, "end")
    if start == end:
        raise ValueError(f"start and end are both {start:g}: there is no way to be halfway along")
    progress = (series - start) / (end - start) - 0.5
    arrived = np.flatnonzero(progress >= 0)
    if len(arrived) == 0:
        raise ValueError(
            f"the series never comes halfway from {start:g} to {end:g}: it stays between "
            f"{series.min():g} and {series.max():g}"
        )
    return _crossing(progress, at, int(arrived[0]))


def settling_time(
    values: Values, steps: Values | None = None, *, tolerance: float = 0.05, end: float | None = None
) -> float:
    """First step from which the series stays within `tolerance` x its range of `end` (default: its last value)."""
    series, at = read_series(values, steps, least=2)
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance is {tolerance}: a fraction of the range, between 0 and 1, is expected")
    end = float(series[-1]) if end is None else require_scalar(end, "end")
    spread = float(series.max() - series.min())
    if spread == 0:
        raise ValueError(f"the series is constant at {series[0]:g}: it has nothing to settle from")
    margin = tolerance * spread - np.abs(series - end)
    outside = np.flatnonzero(margin < 0)
    if len(outside) == 0:
        return float(at[0])
    last = int(outside[-1])
    if last == len(series) - 1:
        raise ValueError(f"the series ends at {series[-1]:g}, further than {tolerance:g} of its range from {end:g}")
    return _crossing(margin, at, last + 1)


def _crossing(height: np.ndarray, at: np.ndarray, after: int) -> float:
    """Where `height`, below zero just before index `after` and not below it there, is zero."""
    if after == 0:
        return float(at[0])
    below, above = height[after - 1], height[after]
    return float(at[after - 1] + (at[after] - at[after - 1]) * -below / (above - below))
