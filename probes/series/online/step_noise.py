"""The noise of `transitions.noise`, for many series of the same steps: to rounding the same, at a third of the price.

What depends on the steps alone (chords, bins, spacings) is worked out once; quantiles are read off sorted values.
Where something hangs on the last digits, the search measures the noise as it always does.
"""

import itertools

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants

Series = Float64[np.ndarray, " n"]


class StepNoise:
    """Measures the noise of series with these steps."""

    def __init__(self, at: Series) -> None:
        self._share = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
        self._scale = 1 / (np.sqrt(1 + self._share**2 + (1 - self._share) ** 2) * constants.NORMAL_MEDIAN)
        self._x = np.log(at[1:-1] - at[0] + (at[1] - at[0]))
        self._bins = list(itertools.pairwise(_edges(self._x)))
        self._middles = [float(self._x[a:b].mean()) for a, b in self._bins]
        counts = np.arange(len(at) + 1)
        self._octave = np.log2(np.maximum(counts, 1))
        self._per_count = 1 / np.maximum(counts, 1)

    def one_value(self, series: Series, floor: float) -> Series:
        """Standard deviation of a single value at every place, at least `floor`."""
        off = np.abs(series[1:-1] - series[:-2] - self._share * (series[2:] - series[:-2])) * self._scale
        inner = np.interp(self._x, self._middles, [_median(off[a:b]) for a, b in self._bins])
        return np.maximum(np.concatenate((inner[:1], inner, inner[-1:])), floor)

    def of_means(self, series: Series, one_value: Series) -> tuple[np.ndarray, np.ndarray]:
        """By the number of values in a mean: how its variance exceeds that of independent ones; its sd over s."""
        octaves = _octaves(series / one_value)
        inflation = np.exp(np.interp(self._octave, np.arange(len(octaves)), np.log(octaves)))
        return inflation, np.sqrt(inflation * self._per_count)


def _edges(x: Series) -> list[int]:
    """Of the bins, as in `size_of_noise`."""
    edges, start = [0], 0
    while start < len(x):
        stop = max(start + constants.NOISE_BIN, int(np.searchsorted(x, x[start] + constants.NOISE_BIN_LENGTH)))
        start = len(x) if len(x) - stop < constants.NOISE_BIN else stop
        edges.append(start)
    return edges


def _median(values: np.ndarray) -> float:
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _quantile(values: np.ndarray, share: float) -> float:
    ordered, place = np.sort(values), share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def _octaves(standardised: Series) -> np.ndarray:
    """As in `transitions.noise`, where no sampling error is taken off."""
    n, excess, error, size = len(standardised), [0.0], 1.0, 1
    total = np.concatenate(([0.0], np.cumsum(standardised - standardised.mean())))
    while n // (2 * size) - 3 >= constants.FEWEST_DIFFERENCES:
        size *= 2
        last, every = n - 4 * size + 1, max(1, size // 4)
        a, b, c, d, e = (total[i * size : i * size + last : every] for i in range(5))
        third = np.abs(a + e - 4 * (b + d) + 6 * c)
        quantile = _quantile(third, constants.QUANTILE) / (size * np.sqrt(20) * constants.NORMAL_AT_QUANTILE)
        fastest = constants.RANDOM_WALK_GROWTH if size > 4 else constants.FIRST_GROWTH
        most = fastest * max(excess[-1], error)
        error = 2 / np.sqrt(n / size)
        excess.append(max(min(quantile**2 * size - 1, most), excess[-1]) if most >= excess[-1] else most)
    reliable = len(excess)
    back = excess[max(0, reliable - 4)]
    growth = (excess[-1] / back) ** (1 / min(3, reliable - 1)) if back > 0 else 2.0 if excess[-1] > 0 else 1.0
    while 2 ** len(excess) <= 2 * n:
        excess.append(excess[-1] * growth)
    return 1.0 + np.array(excess)
