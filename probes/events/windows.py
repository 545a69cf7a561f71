"""Places and widths, in the logarithm of the step, at which the speed of a panel of series is measured.

The speed at a place is the difference of the means over the window before and the window after it, over the distance of
their mean ln(step): d value / d ln(step) as those checkpoints show it. A place can be judged where there are such
speeds on both sides of it too, between 1.5 and 3 widths away: what is faster than both of these sides is a burst.

Wider windows than .4 are not looked through. An exponential decay, over ln(step), is itself a hump: seen through a
window of .4 it is 1.36 times faster at its peak than on its faster side, and a burst has to be 1.5 times.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

WIDTHS = tuple(0.05 * 2 ** (k / 2) for k in range(7))
"""In ln(step): .05 to .4, a factor sqrt(2) apart."""

NEAREST, FURTHEST = 1.5, 3.0
"""Where the sides of a place begin and end, in widths."""

CLOSEST = 0.4
"""Checkpoints nearer to the one before than this share of the usual spacing around are left out: between two that are
one step apart, noise divided by next to nothing looks like speed."""

FEWEST_BESIDE = 2
"""Speeds on each side of a place."""

PLACES_PER_WIDTH = 5
"""Places no closer than a fifth of a width: closer ones see the same checkpoints."""

Times = Float64[np.ndarray, " times"]


@dataclass(frozen=True, eq=False)
class Windows:
    """Places for one width.

    at [places]              their ln(step)
    speed [places, times]    times the values at all times: the speed at each place
    left, right [judged, places]   times the speeds: the mean speed on either side of each place that can be judged
    judged [places]          whether it can
    """

    width: float
    at: Float64[np.ndarray, " places"]
    speed: Float64[np.ndarray, "places times"]
    left: Float64[np.ndarray, "judged places"]
    right: Float64[np.ndarray, "judged places"]
    judged: Bool[np.ndarray, " places"]

    @property
    def judged_at(self) -> Float64[np.ndarray, " judged"]:
        """ln(step) of the places that can be judged."""
        return self.at[self.judged]


def spread_out(x: Times) -> Int64[np.ndarray, " kept"]:
    """Which of these times are kept, so that none is much nearer to the one before than others around it are."""
    from scipy.ndimage import median_filter  # slow to import, and importing probes must be quick

    if len(x) < 3:
        return np.arange(len(x))
    usual = median_filter(np.diff(x), size=7, mode="nearest")
    kept = [0]
    for i in range(1, len(x)):
        if x[i] - x[kept[-1]] >= CLOSEST * usual[i - 1]:
            kept.append(i)
    return np.array(kept)


def windows_over(x: Times) -> list[Windows]:
    """Windows of every width through which some place of these times, in ln(step), can be judged."""
    found = [_of_width(x, width) for width in WIDTHS]
    return [one for one in found if one is not None]


def searched(windows: list[Windows]) -> list[tuple[float, float]]:
    """The stretches of steps that hold places which can be judged through some width."""
    spans = sorted((place - one.width / 2, place + one.width / 2) for one in windows for place in one.judged_at)
    joined: list[tuple[float, float]] = []
    for low, high in spans:
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return [(float(np.exp(low)), float(np.exp(high))) for low, high in joined]


def _of_width(x: Times, width: float) -> Windows | None:
    places, rows = [], []
    for place in (x[1:] + x[:-1]) / 2:
        before, after = (x >= place - width) & (x < place), (x >= place) & (x < place + width)
        if not before.any() or not after.any():
            continue
        distance = x[after].mean() - x[before].mean()
        if distance < width / 2 or (places and place - places[-1] < width / PLACES_PER_WIDTH):
            continue
        places.append(place)
        rows.append((after / after.sum() - before / before.sum()) / distance)
    if not places:
        return None
    at = np.array(places)
    offsets = (at[None] - at[:, None]) / width  # [place, other]
    left = (offsets <= -NEAREST) & (offsets >= -FURTHEST)
    right = (offsets >= NEAREST) & (offsets <= FURTHEST)
    judged = (left.sum(1) >= FEWEST_BESIDE) & (right.sum(1) >= FEWEST_BESIDE)
    if not judged.any():
        return None
    before, after = (side[judged] / side[judged].sum(1, keepdims=True) for side in (left, right))
    return Windows(width, at, np.array(rows), before, after, judged)
