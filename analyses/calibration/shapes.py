"""Curves in which something happens, and when: one function a family, drawn with a generator.

The losses of the solvable models are in `solvable`; here are shapes written down piece by piece, whose times are known
without any rule: modes of linear heads in closed form, deep linear networks between saddles, logistics in t and in
ln t, curves like those of grokking and of induction heads, accuracies that rise, planted weights, dips.

A shape is drawn for a `Record`, the steps at which there are values, and puts its transitions where there are some.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from analyses.calibration.truth import Shape, Truth
from probes.series.datasets import LinearHead, planted_weights


@dataclass(frozen=True)
class Record:
    """Where a record has values: its steps, and whether they are evenly spaced."""

    steps: np.ndarray

    @property
    def last(self) -> float:
        """The last step."""
        return float(self.steps[-1])

    @property
    def even(self) -> bool:
        """Whether the spacing does not grow with the step."""
        return bool(self.steps[-1] - self.steps[-2] < 3 * (self.steps[1] - self.steps[0]))

    def place(self, rng: np.random.Generator) -> float:
        """A step for a transition: anywhere with a few values before it and room after it."""
        earliest = max(self.steps[min(6, len(self.steps) // 4)], self.last * 1e-3, 20.0)
        if self.even and len(self.steps) <= 200:
            return float(rng.uniform(0.15, 0.75) * self.last)
        return float(np.exp(rng.uniform(np.log(earliest * 2), np.log(0.6 * self.last))))


def logistic(u: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-u)), without overflow."""
    return 0.5 * (1 + np.tanh(u / 2))


def modes(record: Record, rng: np.random.Generator) -> Shape:
    """One to four modes of a linear head, each a factor 2 to 8 after the last: the closed form of paper 000."""
    times = [record.place(rng)]
    for _ in range(rng.integers(0, 4)):
        times.append(times[-1] / np.exp(rng.uniform(np.log(2), np.log(8))))
    return loss_of_head("modes", LinearHead.with_half_times(sorted(times), context=int(rng.integers(16, 256))))


def loss_of_head(family: str, head: LinearHead) -> Shape:
    """The loss of a linear head with half, a tenth and nine tenths of the drop of every mode: it falls as (1 - a / a_inf)^2."""
    s, start = np.array(head.eigenvalues), head.init / head.fixed_point

    def when(share: float) -> np.ndarray:
        grown = 1 - (1 - start) * np.sqrt(1 - share)
        return np.log(grown * (1 - start) / (start * (1 - grown))) / (2 * s**2)

    heights = 0.5 * s**2 * head.fixed_point * (1 - start) ** 2
    order = np.argsort(head.half_times)
    early, half, late = when(0.1), when(0.5), when(0.9)
    truths = tuple(Truth(float(half[k]), float(early[k]), float(late[k]), float(heights[k])) for k in order)
    return Shape(family, head.loss, truths)


def saddles(record: Record, rng: np.random.Generator) -> Shape:
    """Deep linear networks leaving saddle after saddle: da/dt = a^(2 - 2/L) (1 - a), L = 3 or 4, loss (1 - a)^2."""
    depth = int(rng.integers(3, 5))
    a = np.concatenate((np.geomspace(10 ** rng.uniform(-4, -2), 0.5, 3000), 1 - np.geomspace(0.5, 1e-9, 3000)[1:]))
    clock = np.concatenate(([0.0], np.cumsum(np.diff(a) / _middle(a ** (2 - 2 / depth) * (1 - a)))))
    loss = (1 - a) ** 2
    early, half, late = (np.interp(share, loss[0] - loss, clock) for share in loss[0] * np.array([0.1, 0.5, 0.9]))
    times, sizes = [record.place(rng)], [1.0]
    for _ in range(rng.integers(0, 3)):
        times.append(times[-1] / np.exp(rng.uniform(np.log(2.5), np.log(8))))
        sizes.append(sizes[-1] * rng.uniform(0.7, 2))
    scale = np.array(times) / half

    def curve(steps: np.ndarray) -> np.ndarray:
        parts = [size * np.interp(steps / s, clock, loss, right=0.0) for s, size in zip(scale, sizes, strict=True)]
        return np.sum(parts, axis=0) + 0.1

    pairs = sorted(zip(scale, sizes, strict=True))
    return Shape("saddles", curve, tuple(Truth(half * s, early * s, late * s, size * loss[0]) for s, size in pairs))


def _middle(values: np.ndarray) -> np.ndarray:
    return (values[1:] + values[:-1]) / 2


def logistic_in_t(record: Record, rng: np.random.Generator) -> Shape:
    """A logistic of a width of 2 to 15 % of its step, on a slow decay."""
    at = record.place(rng)
    width, decay, share = at * 10 ** rng.uniform(-1.7, -0.8), record.last * rng.uniform(0.3, 3), rng.uniform(0, 0.6)

    def curve(steps: np.ndarray) -> np.ndarray:
        return logistic((at - steps) / width) + share * np.exp(-steps / decay)

    return Shape("logistic in t", curve, (Truth(at, at - 2.2 * width, at + 2.2 * width, 1.0),))


def logistic_in_log_t(record: Record, rng: np.random.Generator) -> Shape:
    """A logistic in ln t of a width of .05 to .2, on a line in ln t of at most a quarter of its steepest slope."""
    at, width, share = record.place(rng), rng.uniform(0.05, 0.2), rng.uniform(0, 0.25)
    slope = share / (4 * width)

    def curve(steps: np.ndarray) -> np.ndarray:
        x = np.log(np.maximum(steps, 0.5))
        return logistic((np.log(at) - x) / width) - slope * x

    spread = np.exp(2.2 * width)
    return Shape("logistic in ln t", curve, (Truth(at, at / spread, at * spread, 1.0),))


def grokking(record: Record, rng: np.random.Generator) -> Shape:
    """A test loss: up or level while the training set is learned by heart, a long slide, then a fast fall."""
    at = record.place(rng)
    width, slide, rise = at * rng.uniform(0.02, 0.08), rng.uniform(0.05, 0.4), rng.uniform(0, 0.3)

    def curve(steps: np.ndarray) -> np.ndarray:
        u = (steps - at) / width
        fall = np.exp(-np.exp(np.clip(u, -50, 6)))  # Gompertz: slow to begin, abrupt at the end
        return fall - slide * -np.expm1(-steps / at) + rise * -np.expm1(-steps / (at / 30)) + 0.5

    early, half, late = (at + width * np.log(-np.log(left)) for left in (0.9, 0.5, 0.1))
    return Shape("grokking", curve, (Truth(float(half), float(early), float(late), 1.0),))


def induction(record: Record, rng: np.random.Generator) -> Shape:
    """A language model's loss: a first hump of -dL/d ln t, a valley of 1.1 to 1.6, and 2 to 2.8 as induction heads form.

    In t itself the rate hardly grows: this is a stage, and only a second hump in ln t tells it from a decay.
    """
    at, valley, width = record.place(rng), rng.uniform(1.1, 1.6), rng.uniform(0.08, 0.16)
    bump, before = rng.uniform(0.8, 1.2) * valley, rng.uniform(1.2, 1.6) * valley
    first, spread, bend = at / rng.uniform(6, 12), rng.uniform(0.25, 0.4), at * rng.uniform(1.5, 2.5)
    height = 4 * width * bump

    def curve(steps: np.ndarray) -> np.ndarray:
        x = np.log(np.maximum(steps, 1e-3))
        # the slope begins at 0, reaches `before` near `first`, falls to `valley`, and to .3 of that beyond `bend`
        slow = valley * (np.log1p(steps / (first / 4)) - 0.7 * np.log1p((steps / bend) ** 2) / 2)
        early = 4 * spread * (before - valley + 0.2 * valley) * logistic((x - np.log(first)) / spread)
        return 11 - slow - early + height * logistic((np.log(at) - x) / width)

    wide = np.exp(2.2 * width)
    return Shape("induction", curve, (Truth(at, at / wide, at * wide, height, kind="stage"),))


def accuracy(record: Record, rng: np.random.Generator) -> Shape:
    """An accuracy that rises: a logistic in ln t or in t, over a slow gain."""
    at, gain = record.place(rng), rng.uniform(0, 0.1)
    width = rng.uniform(0.03, 0.12)

    def curve(steps: np.ndarray) -> np.ndarray:
        return (1 - gain) * logistic((steps - at) / (at * width)) + gain * np.sqrt(steps / record.last)

    truth = Truth(at, at * (1 - 2.2 * width), at * (1 + 2.2 * width), 1 - gain, "rise")
    return Shape("accuracy", curve, (truth,))


def weights(record: Record, rng: np.random.Generator) -> Shape:
    """The nuclear norm of planted weights, one or two modes: it rises by the size of a mode at its half-time."""
    at = [record.place(rng)]
    if rng.random() < 0.5 and at[0] / 4 > 4 * record.steps[min(3, len(record.steps) - 1)]:
        at.append(at[0] / rng.uniform(3, 4))
    grid = np.unique(np.round(np.geomspace(1, record.last, 150))).astype(int)
    planted = planted_weights(sorted(at), steps=grid.tolist(), noise=0.0, shape=(16, 12), seed=int(rng.integers(2**31)))
    norms = np.array([np.linalg.svd(np.asarray(m), compute_uv=False).sum() for m in planted.matrices])
    sizes = planted.amplitudes[-1]

    def curve(steps: np.ndarray) -> np.ndarray:
        return np.interp(np.log(np.maximum(steps, 1.0)), np.log(grid), norms)

    rate = 8.0 / planted.half_times  # STEEPNESS of the data set: ln 9 / rate on either side of the half-time
    spans = np.log(9) / rate
    pairs = zip(planted.half_times, spans, sizes, strict=True)
    return Shape("planted weights", curve, tuple(Truth(t, t - d, t + d, size, "rise") for t, d, size in pairs))


def dip(record: Record, rng: np.random.Generator) -> Shape:
    """Down and up again within a factor of 1.5 to 2.5: an effective rank while one direction takes over."""
    at, width, drift = record.place(rng), rng.uniform(0.15, 0.35), rng.uniform(0, 0.2)

    def curve(steps: np.ndarray) -> np.ndarray:
        x = np.log(np.maximum(steps, 0.5))
        return 1 - np.exp(-0.5 * ((x - np.log(at)) / width) ** 2) - drift * x / np.log(record.last)

    spread = np.exp(1.5 * width)
    return Shape("dip", curve, (Truth(at, at / spread, at * spread, 1.0, kind="dip"),))


PLANTED: Mapping[str, Callable[[Record, np.random.Generator], Shape]] = {
    "modes": modes,
    "saddles": saddles,
    "logistic in t": logistic_in_t,
    "logistic in ln t": logistic_in_log_t,
    "grokking": grokking,
    "induction": induction,
    "accuracy": accuracy,
    "planted weights": weights,
}
"""Families of transitions. Dips are a family apart: they are judged by themselves."""
