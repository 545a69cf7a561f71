"""A panel without the events that were found in it, so that what is left of it can be looked at.

An event is no noise and no drift. Left in a panel, it would stand in all that panels in which nothing happens are made
from: a smooth curve bent towards a step is too fast everywhere else, and noise that is said to be large around the step
is said to be too small elsewhere; then the quiet parts of the panel look lively beside them. So before anything else is
looked for in the same panel, the event is taken out. Outside of the stretch in which it happens, a series is a smooth
curve, a step for each event that was taken out, and what is left; curve and steps are fitted together, from those
checkpoints alone. The steps are removed, and inside of the stretch, where the event has its own shape, what is left is
scaled down to the size that it has outside.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

INNER_KNOTS = 2
"""Of the smooth curve, a cubic spline over the mean of rank and scaled ln(step)."""

Times = Float64[np.ndarray, " times"]
Values = Float64[np.ndarray, "times series"]


class Stretch(NamedTuple):
    """From where to where something happens, in ln(step)."""

    low: float
    high: float

    def joined(self, other: "Stretch") -> "Stretch":
        """The stretch that holds both."""
        return Stretch(min(self.low, other.low), max(self.high, other.high))


def outside(x: Times, stretches: Sequence[Stretch]) -> Bool[np.ndarray, " times"]:
    """Which times lie in none of these stretches."""
    inside = [(x > one.low) & (x < one.high) for one in stretches]
    return ~np.any(inside, axis=0) if inside else np.ones(len(x), dtype=bool)


def take_out(x: Times, panel: Values, stretches: Sequence[Stretch] = ()) -> tuple[Values, Values]:
    """The panel without what happens in these stretches, and the smooth part of each of its series."""
    free, curves = outside(x, stretches), _splines(x)
    ramps = [np.clip((x - one.low) / (one.high - one.low), 0, 1) for one in stretches]
    steps = np.stack([*ramps, np.zeros(len(x))], axis=1)
    fitted = np.linalg.lstsq(np.concatenate([curves, steps], axis=1)[free], panel[free], rcond=1e-9)[0]
    smooth = curves @ fitted[: curves.shape[1]]
    left = panel - smooth - steps @ fitted[curves.shape[1] :]
    usual = np.sqrt((left[free] ** 2).mean(0))
    for one in stretches:
        inside = (x > one.low) & (x < one.high)
        size = np.sqrt((left[inside] ** 2).mean(0)) if inside.any() else usual
        left[inside] *= np.minimum(1, usual / np.maximum(size, 1e-300))
    return smooth + left, smooth


def _splines(x: Times) -> Float64[np.ndarray, "times splines"]:
    from scipy.interpolate import BSpline  # slow to import, and importing probes must be quick

    rank, scaled = np.linspace(0, 1, len(x)), (x - x[0]) / (x[-1] - x[0])
    knots = np.r_[[0.0] * 4, np.arange(1, INNER_KNOTS + 1) / (INNER_KNOTS + 1), [1.0] * 4]
    return BSpline.design_matrix(np.clip((rank + scaled) / 2, 0, 1 - 1e-9), knots, 3).toarray()
