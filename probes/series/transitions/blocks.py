"""Means of a series over any stretch of steps, with the noise each mean carries."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from probes.series.transitions.noise import Noise

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Blocks:
    """Means over one block of every cell, with the place and the noise of each."""

    mean: np.ndarray
    at: np.ndarray
    count: np.ndarray
    one_value: np.ndarray  # sd of a single value there
    inflation: np.ndarray  # how much the variance of the mean exceeds that of independent values

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of the mean."""
        return self.one_value * np.sqrt(self.inflation / np.maximum(self.count, 1))

    def lasting_sd(self, noise: Noise) -> np.ndarray:
        """The same for noise with a memory, of which a mean over few values shows little: no less than over more."""
        count = 2 ** np.arange(len(noise.octaves))
        least = np.maximum.accumulate((noise.octaves / count)[::-1])[::-1]
        variance = np.interp(np.log2(np.maximum(self.count, 1)), np.arange(len(least)), least)
        return self.one_value * np.sqrt(variance)


class Sums:
    """Running sums of a series, so that the mean over any stretch costs two look-ups."""

    def __init__(self, series: Series, at: Series, noise: Noise) -> None:
        self.at, self.noise, self._series = at, noise, series
        self._level = float(series.mean())
        self._values = np.concatenate(([0.0], np.cumsum(series - self._level)))
        self._steps = np.concatenate(([0.0], np.cumsum(at)))

    def flipped(self) -> "Sums":
        """The same series upside down, so that what rises falls; its noise is the same."""
        return Sums(1.0 - self._series, self.at, self.noise)

    def over(self, low: np.ndarray, high: np.ndarray) -> Blocks:
        """Means over low <= step < high."""
        first, last = np.searchsorted(self.at, low), np.searchsorted(self.at, high)
        count = last - first
        some = np.maximum(count, 1)
        middle = np.clip((first + last) // 2, 0, len(self.at) - 1)
        return Blocks(
            (self._values[last] - self._values[first]) / some + self._level,
            (self._steps[last] - self._steps[first]) / some,
            count,
            self.noise.one_value[middle],
            self.noise.inflation(count),
        )
