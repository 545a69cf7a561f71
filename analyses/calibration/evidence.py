"""How strong the evidence for a transition is, told everything but its height: what a perfect detector would go by.

`is_visible` asks for the means before and after it, as if the course of the rest were known. Here the rest has to be
fitted too: a parabola around the transition, in t or in ln t, whichever leaves less, and the transition itself as a
logistic of the true place and width. The evidence is how many of its standard errors the true height is away from 0,
with the true law of the noise. A detector has to find place, width, noise and the rest by itself, for which it needs
more than 5: a transition may be visible and yet beyond anybody's reach.
"""

import numpy as np

from analyses.calibration.sampling import Noise
from analyses.calibration.truth import Shape, Truth

NEAR = 2.0
NEAR_OF_STEP = 0.6
NEAR_VALUES = 6
LOGISTIC = 4.4
"""A logistic takes so many widths for its middle four fifths."""


def evidence(truth: Truth, shape: Shape, steps: np.ndarray, noise: Noise) -> float:
    """The smaller one of the two axes, for a cliff or a stage."""
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
