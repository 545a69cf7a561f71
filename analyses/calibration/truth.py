"""What happens in a clean curve, and whether a person could see it under the noise: neither asks a detector.

A transition of a clean curve is a stretch in which it moves faster than before and after. Two axes count, because
people draw both: it is a *cliff* if the rate of change per step grows by half or more on the way into it, and a *stage*
if only the rate per ln(step) does (the loss of a language model when induction heads form). In formulas, with y falling:

    f = -dy / d ln t      every transition is a hump of f, half as high again as the valleys on its two sides;
    g = -dy / dt          the first hump of f counts only if g grows by half within it: any decay has one hump of f.
                          (A first hump may be lower: 5 % above the valley behind it are enough to be one.)

The time of a transition is where half of the way between its two valleys is done. `transitions_of` reads that off a
dense clean curve; where the shape was planted piece by piece, its own times are used instead.

One correction came after first results had been seen: the induction family had no valley before its bump and so was no
transition by this rule; it was given one, and a first hump may be lower than the second since. The windows, the
contrast and the 5 standard deviations below were not touched.

*Visible* (`is_visible`) is what the eye sees, decided from the clean curve and the law of the noise alone:

- the stretches before and after it are twice as long as its 10-90 % duration, a quarter of its step or five values,
  whichever is longest, but end at its neighbours. Each holds at least 3 values, and the transition is at least 3 % of
  the range of the record;
- on one of the two axes the rate inside is at least 1.5 times that before and that after;
- what the drop has beyond the steeper of its two neighbours is at least 5 standard deviations of the difference of the
  means of these two stretches, autocorrelation included.

A dip is visible if its mean lies below that of the stretches before and after it, each half as long as itself, by at
least 3 % of the range and 5 standard deviations of either difference; each of the three holds at least 3 values. (Until
seed 862,441 dips were judged by the rule for drops, by which none is visible: they lead nowhere.)
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analyses.calibration.sampling import Noise

CONTRAST = 1.5
LESSER = 1.05
VALUES_EACH_SIDE = 3
LEAST_HEIGHT = 0.03
LEAST_Z = 5.0
WINDOW = 2.0
WINDOW_OF_STEP = 0.25
WINDOW_VALUES = 5


@dataclass(frozen=True)
class Truth:
    """One transition of a clean curve: when half, a tenth and nine tenths of it are done; cliff, stage, dip or spike."""

    time: float
    early: float
    late: float
    height: float
    direction: str = "fall"
    kind: str = "cliff"


@dataclass(frozen=True)
class Shape:
    """A clean curve, as a function of the step, and what happens in it.

    allowed are kinds of rows that are right to be reported although they are no transitions (the spike of a
    warm-up); interventions are steps handed to the detector.
    """

    family: str
    curve: Callable[[np.ndarray], np.ndarray]
    truths: tuple[Truth, ...] = ()
    allowed: tuple[str, ...] = ()
    interventions: tuple[float, ...] = ()


def transitions_of(times: np.ndarray, values: np.ndarray) -> tuple[Truth, ...]:
    """The transitions of a clean curve that falls, given densely (a thousand values or more) over ln(time)."""
    from scipy.signal import find_peaks

    x = np.log(times)
    grid = np.linspace(x[0], x[-1], 4000)
    y = np.interp(grid, x, values)
    f = -np.gradient(y, grid)
    height = np.log(np.maximum(f, 1e-4 * f.max()))
    peaks, _ = find_peaks(height, prominence=np.log(CONTRAST))
    if not len(peaks):
        return ()
    # a lower hump before the first of these makes it the second, if the valley between is deep enough for it
    lesser, _ = find_peaks(height[: peaks[0]], prominence=np.log(LESSER))
    start = int(lesser[-1] + np.argmin(f[lesser[-1] : peaks[0]])) if len(lesser) else 0
    is_second = len(lesser) > 0 and f[peaks[0]] >= CONTRAST * f[start]
    valleys = [start if is_second else 0]
    valleys += [int(a + np.argmin(f[a:b])) for a, b in itertools.pairwise(peaks)]
    valleys.append(len(grid) - 1)
    found = []
    for k, (a, b) in enumerate(itertools.pairwise(valleys)):
        rate = f[a : b + 1] * np.exp(-grid[a : b + 1])
        grows = rate.max() >= CONTRAST * max(rate[0], 1e-300)
        if (k == 0 and not grows and not is_second) or y[a] - y[b] < 0.01 * np.ptp(y):
            continue
        done = (y[a] - y[a : b + 1]) / (y[a] - y[b])
        early, half, late = (float(np.exp(grid[a + int(np.argmax(done >= share))])) for share in (0.1, 0.5, 0.9))
        found.append(Truth(half, early, late, float(y[a] - y[b]), "fall", "cliff" if grows else "stage"))
    return tuple(found)


def is_visible(truth: Truth, shape: Shape, steps: np.ndarray, noise: Noise) -> bool:
    """Whether the eye sees this transition in such a record; see the top of this file."""
    clean = shape.curve(steps)
    if truth.kind == "dip":
        return _is_visible_dip(truth, clean, steps, noise)
    length = max(WINDOW * (truth.late - truth.early), WINDOW_OF_STEP * truth.time)
    others = [other for other in shape.truths if other is not truth]
    first, last = np.searchsorted(steps, truth.early, side="right"), np.searchsorted(steps, truth.late)
    begin = min(truth.early - length, steps[max(first - WINDOW_VALUES, 0)])
    end = max(truth.late + length, steps[min(last + WINDOW_VALUES, len(steps)) - 1])
    begin = max([begin, *(o.late for o in others if o.time < truth.time)])
    end = min([end, *(o.early for o in others if o.time > truth.time)])
    before = (steps >= begin) & (steps <= truth.early)
    after = (steps >= truth.late) & (steps <= end)
    if min(before.sum(), after.sum()) < VALUES_EACH_SIDE or truth.height < LEAST_HEIGHT * np.ptp(clean):
        return False
    excess = max(_excess(shape, truth, steps[before], steps[after], axis) for axis in (_linear, _log))
    weights = after / after.sum() - before / before.sum()
    return excess >= LEAST_Z * noise.sd_of_sum(clean, weights)


def _is_visible_dip(truth: Truth, clean: np.ndarray, steps: np.ndarray, noise: Noise) -> bool:
    beside = (truth.late - truth.early) / 2
    edges = (truth.early - beside, truth.early, truth.late, truth.late + beside)
    before, inside, after = ((steps >= low) & (steps <= high) for low, high in itertools.pairwise(edges))
    if min(before.sum(), inside.sum(), after.sum()) < VALUES_EACH_SIDE:
        return False
    for side in (before, after):
        weights = side / side.sum() - inside / inside.sum()
        depth = float(weights @ clean)
        if depth < max(LEAST_HEIGHT * np.ptp(clean), LEAST_Z * noise.sd_of_sum(clean, weights)):
            return False
    return True


def visible_truths(shape: Shape, steps: np.ndarray, noise: Noise) -> tuple[Truth, ...]:
    """Those of the shape's transitions that the eye sees in such a record."""
    return tuple(truth for truth in shape.truths if is_visible(truth, shape, steps, noise))


def matches(truth: Truth, step: float) -> bool:
    """Whether a step named by a detector means this transition: within 25 %, or between its tenth and its nine tenths."""
    return abs(np.log(max(step, 1e-9) / truth.time)) <= 0.25 or truth.early <= step <= truth.late


def _excess(shape: Shape, truth: Truth, before: np.ndarray, after: np.ndarray, axis: Callable) -> float:
    """What the transition has beyond the steeper of its neighbours, on one axis of time; 0 without contrast."""
    sign = 1.0 if truth.direction == "fall" else -1.0

    def rate(a: float, b: float) -> float:
        first, last = shape.curve(np.array([a, b]))
        return float(sign * (first - last) / max(axis(b) - axis(a), 1e-12))

    inside = rate(truth.early, truth.late)
    around = max(rate(before[0], before[-1]), rate(after[0], after[-1]), 0.0)
    if inside < CONTRAST * around:
        return 0.0
    return (inside - around) * (axis(truth.late) - axis(truth.early))


def _linear(t: float) -> float:
    return t


def _log(t: float) -> float:
    return float(np.log(max(t, 0.5)))


def nearest(truths: Sequence[Truth], step: float) -> Truth | None:
    """The transition that a step means, the nearest in ln(step) if there are several; None if there is none."""
    near = [truth for truth in truths if matches(truth, step)]
    return min(near, key=lambda truth: abs(np.log(max(step, 1e-9) / truth.time))) if near else None
