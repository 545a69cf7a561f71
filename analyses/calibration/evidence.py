"""How strong the evidence for a transition is, in a fit that is told everything about it but its height.

`is_visible` asks for the means before and after it, as if the course of the rest were known. Here the rest is fitted
too: a parabola around the transition, in t or in ln t, and the transition itself as a logistic of the true place and
width, with the true law of the noise. The evidence is how many of its standard errors the true height is away from 0,
the smaller number of the two axes. A detector has to find place, width and noise by itself, and is to be wrong once in
a hundred: with evidence of a few standard errors a transition may be visible and still not be told from chance. (One
that knows more about the rest than a parabola does can do better.)
"""

import numpy as np

from analyses.calibration.sampling import Noise
from analyses.calibration.truth import Shape, Truth

NEAR, NEAR_OF_STEP, NEAR_VALUES = 2.0, 0.6, 6
"""The fit reaches as far as the longest of these, to either side: durations, shares of the step, values."""
LOGISTIC = 4.4
"""A logistic takes so many widths for its middle four fifths."""


def evidence(truth: Truth, shape: Shape, steps: np.ndarray, noise: Noise) -> float:
    """The smaller one of the two axes, for a cliff or a stage."""
    if noise.kind == "walk":
        raise ValueError("evidence under a random walk is not worked out: its values have no correlation of their own")
    clean = shape.curve(steps)
    in_t, in_log = (steps - truth.time) / truth.time, np.log(np.maximum(steps, 0.5) / truth.time)
    duration = (truth.late - truth.early) / truth.time, np.log(truth.late / max(truth.early, 0.5))
    return min(
        _standard_errors(truth.height, u, float(lasts), noise, clean)
        for u, lasts in zip((in_t, in_log), duration, strict=True)
    )


def _standard_errors(height: float, u: np.ndarray, lasts: float, noise: Noise, clean: np.ndarray) -> float:
    """Of one axis u, whose 0 is the middle of a transition that lasts so long."""
    middle = int(np.searchsorted(u, 0.0))
    near = np.abs(u) < max(NEAR * lasts, NEAR_OF_STEP)
    near[max(0, middle - NEAR_VALUES) : middle + NEAR_VALUES] = True
    u, sd = u[near], noise.sd(clean)[near]
    course = 0.5 * (1 - np.tanh(LOGISTIC * u / lasts / 2))
    columns = np.column_stack([np.ones(len(u)), u, u**2, course]) / sd[:, None]
    if noise.kind == "ar":
        left = np.sqrt(1 - noise.memory**2)
        columns = np.vstack([columns[:1], (columns[1:] - noise.memory * columns[:-1]) / left])
    rest = columns[:, 3] - columns[:, :3] @ np.linalg.lstsq(columns[:, :3], columns[:, 3], rcond=None)[0]
    return float(height * np.linalg.norm(rest))
