"""When a series is looked at and what it is blurred by: the schedules and the noise of the calibration.

    >>> steps = SCHEDULES["pythia"](rng)
    >>> noise = Noise("ar", memory=0.8, size=0.05)
    >>> values = clean + noise.draw(clean, rng)

A noise knows the standard deviation of any weighted sum of itself (`sd_of_sum`): what a person can see in a curve is
decided by the noise of means over stretches of it, and that is exact here, whatever the autocorrelation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.signal import lfilter

LAST = 100_000
"""The last step of every schedule but Pythia's (143,000) and the shorter dense ones."""


def uniform(n: int, last: float = LAST) -> np.ndarray:
    """n steps, equally far apart, the first one spacing after 0."""
    return np.arange(1, n + 1) * (last / n)


@cache
def log_spaced(n: int, last: float = LAST) -> np.ndarray:
    """About n whole steps, equally far apart in ln(step): repeated ones are there once, as in anybody's schedule."""
    count = n
    while len(found := np.unique(np.round(np.geomspace(1, last, count)))) < n:
        count += max(1, n - len(found))
    return found.astype(np.float64)


def pythia() -> np.ndarray:
    """The 154 checkpoints of the Pythia suite: 0, 1, 2, 4 ... 512, 1000, 2000 ... 143000."""
    return np.concatenate(([0.0], 2.0 ** np.arange(10), np.arange(1000, 144_000, 1000.0)))


def dense(rng: np.random.Generator) -> np.ndarray:
    """Every step of 5,000 to 100,000."""
    return np.arange(1.0, round(np.exp(rng.uniform(np.log(5_000), np.log(100_000)))) + 1)


SCHEDULES: Mapping[str, Callable[[np.random.Generator], np.ndarray]] = {
    "dense": dense,
    "2000 uniform": lambda _: uniform(2000),
    "300 log-spaced": lambda _: log_spaced(300),
    "log50": lambda _: log_spaced(50),
    "log150": lambda _: log_spaced(150),
    "pythia": lambda _: pythia(),
    "200 uniform": lambda _: uniform(200),
    "100 uniform": lambda _: uniform(100),
    "50 uniform": lambda _: uniform(50),
    "30 uniform": lambda _: uniform(30),
}
"""Schedules by name; each is drawn with a generator because the length of a dense record varies."""

LONG = ("dense", "2000 uniform", "300 log-spaced")
SPARSE = ("log50", "log150", "pythia", "200 uniform", "100 uniform", "50 uniform", "30 uniform")


QUIET_END = {"sgd": 0.2, "proportional": 0.01}
"""Noise that follows the curve: its size where that is lowest, as a share of its size where it is highest."""


@dataclass(frozen=True)
class Noise:
    """What is added to a clean curve.

    kind    white; ar (AR(1) from one value to the next, of this memory); sgd (white, in proportion to the curve's
            height over its lowest value, as that of a batch is, plus a fifth); proportional (the same plus a
            hundredth); spiky (white, and one value in a hundred is 5 to 20
            times off); walk (a random walk whose end is off by `size` x the root of a tenth, under white noise a third as large)
    size    standard deviation of one value, as a share of the range of the clean curve
    """

    kind: str
    size: float
    memory: float = 0.0

    def sd(self, clean: np.ndarray) -> np.ndarray:
        """The standard deviation of every value."""
        span = np.ptp(clean)
        scale = self.size * (span if span > 0 else 1.0)
        if self.kind in QUIET_END:
            share = (clean - clean.min()) / span if span > 0 else np.ones(len(clean))
            return scale * (QUIET_END[self.kind] + (1 - QUIET_END[self.kind]) * share)
        return np.full(len(clean), scale)

    def draw(self, clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One draw of it, as long as the curve."""
        sd, raw = self.sd(clean), rng.standard_normal(len(clean))
        if self.kind == "ar":
            return sd * autoregressive(raw, self.memory)
        if self.kind == "walk":
            return sd * (raw / 3 + np.sqrt(0.1 / len(clean)) * np.cumsum(rng.standard_normal(len(clean))))
        if self.kind == "spiky":
            wild = rng.random(len(clean)) < 0.01
            raw = np.where(wild, rng.choice([-1, 1], len(clean)) * rng.uniform(5, 20, len(clean)), raw)
        return sd * raw

    def sd_of_sum(self, clean: np.ndarray, weights: np.ndarray) -> float:
        """The standard deviation of the sum of weights x noise. Spikes are left out: the eye passes over them."""
        w = weights * self.sd(clean)
        if self.kind == "ar":
            # the noise is a filter of white noise; its transpose runs backwards over the weights
            start = np.sqrt(1 - self.memory**2)
            back = np.asarray(lfilter([1.0], [1.0, -self.memory], w[::-1]))[::-1]
            return float(np.sqrt(back[0] ** 2 + start**2 * (back[1:] ** 2).sum()))
        if self.kind == "walk":
            back = np.cumsum(w[::-1])
            return float(np.sqrt((w**2).sum() / 9 + 0.1 / len(w) * (back**2).sum()))
        return float(np.sqrt((w**2).sum()))


def autoregressive(raw: np.ndarray, memory: float) -> np.ndarray:
    """AR(1) noise of unit variance from white noise, stationary from its first value on."""
    driven = np.sqrt(1 - memory**2) * raw
    driven[..., 0] = raw[..., 0]
    return np.asarray(lfilter([1.0], [1.0, -memory], driven, axis=-1))


NOISES: Mapping[str, tuple[str, float]] = {
    "white": ("white", 0.0),
    "sgd": ("sgd", 0.0),
    "spiky": ("spiky", 0.0),
    "ar .5": ("ar", 0.5),
    "ar .8": ("ar", 0.8),
    "ar .9": ("ar", 0.9),
    "walk": ("walk", 0.0),
}
"""Kind and memory of the noises by name."""


def noise_of(name: str, size: float) -> Noise:
    """One of `NOISES`, of this size."""
    kind, memory = NOISES[name]
    return Noise(kind, size, memory)
