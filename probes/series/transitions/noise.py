"""How noisy a series is, read off the series itself, so that nothing has to be assumed about it.

Two numbers are wanted at any place and for any n: the standard deviation of one value, and that of a mean of n values.
For independent noise the second is the first over sqrt(n). For the noise of real training - autocorrelated, drifting,
now and then a random walk - it is larger, and treating it as independent is how false alarms are made.

    one value      s(t): second differences, a robust scale in bins of ln t; they are blind to straight trends
    mean of n      s(t) sqrt(f(n) / n): third differences of neighbouring means of n values, for n = 1, 2, 4 ...
                   f = 1 for independent noise, saturates for AR(1), grows fourfold per octave for a random walk

What grows faster than a random walk does is the curve itself, not its noise, and is not counted. A low quantile is used
rather than a median, because a few real transitions may fill most of the large blocks.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from probes.series.transitions import constants
from probes.series.transitions.laws import is_uneven

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Noise:
    """The noise of one series: sd of one value at each place, and how that of a mean exceeds the independent case."""

    one_value: Series
    octaves: Float64[np.ndarray, " octaves"]  # f(1), f(2), f(4) ...
    reliable: int  # how many of the octaves were measured; the others are extrapolated

    def inflation(self, count: Int[np.ndarray, " cells"]) -> np.ndarray:
        """f(count): the variance of a mean of `count` neighbours is s^2 f / count."""
        octave = np.log2(np.maximum(count, 1))
        return np.exp(np.interp(octave, np.arange(len(self.octaves)), np.log(self.octaves)))


def measure_noise(series: Series, at: Series, *, benefit: float = 1.0) -> Noise:
    """The noise of a series; never zero, so that a noise-free curve is judged by its own rounding and roughness.

    benefit is how many sampling errors are taken off the correlation measured, in favour of independence: 1 where a
    series is judged once, 0 where it is judged at every look while it grows, of which the luckiest counts.
    """
    floor = constants.ROUNDING * float(series.max() - series.min())
    one_value = np.maximum(size_of_noise(series, at), floor)
    standardised = series / one_value if floor > 0 else series
    octaves, reliable = _octaves(standardised, len(series), benefit)
    if is_uneven(at):
        late = standardised[-len(at) // constants.LATE_PART :]
        octaves = np.maximum(octaves, _octaves(late, len(series), benefit)[0])
    return Noise(one_value, octaves, reliable)


def size_of_noise(series: Series, at: Series) -> Series:
    """Robust sd of a value about the chord of its two neighbours, in bins of ln t."""
    share = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
    chord = (1 - share) * series[:-2] + share * series[2:]
    scaled = np.abs(series[1:-1] - chord) / np.sqrt(1 + share**2 + (1 - share) ** 2)
    x = np.log(at[1:-1] - at[0] + (at[1] - at[0]))
    edges, start = [0], 0
    while start < len(x):
        stop = max(start + constants.NOISE_BIN, int(np.searchsorted(x, x[start] + constants.NOISE_BIN_LENGTH)))
        start = len(x) if len(x) - stop < constants.NOISE_BIN else stop
        edges.append(start)
    middles = [float(x[a:b].mean()) for a, b in itertools.pairwise(edges)]
    scales = [float(np.median(scaled[a:b])) / constants.NORMAL_MEDIAN for a, b in itertools.pairwise(edges)]
    inner = np.interp(x, middles, scales)
    return np.concatenate((inner[:1], inner, inner[-1:]))


def _octaves(standardised: Series, longest: int, benefit: float) -> tuple[np.ndarray, int]:
    """f(1), f(2), f(4) ... up to the longest: measured while there are blocks enough, then growing as they did last.

    Independent noise plus a random walk has f = 1 + c n^2: the excess over 1 grows fourfold per octave, and no more
    than that is taken for noise. An excess too small to be told from sampling error may be that error's size.
    """
    n, excess, error, size = len(standardised), [0.0], 1.0, 1
    total = np.concatenate(([0.0], np.cumsum(standardised - standardised.mean())))
    while n // (2 * size) - 3 >= constants.FEWEST_DIFFERENCES:
        size *= 2
        starts = np.arange(0, n - 4 * size + 1, max(1, size // 4))  # overlapping: more to take the quantile of
        means = [(total[starts + (i + 1) * size] - total[starts + i * size]) / size for i in range(4)]
        third = np.abs(means[3] - 3 * means[2] + 3 * means[1] - means[0]) / np.sqrt(20)
        variance = (np.quantile(third, constants.QUANTILE) / constants.NORMAL_AT_QUANTILE) ** 2
        fastest = constants.RANDOM_WALK_GROWTH if size > 4 else constants.FIRST_GROWTH
        most = fastest * max(excess[-1], error)
        error = 2 / np.sqrt(n / size)
        excess.append(float(np.clip(variance * size / (1 + benefit * error) - 1, excess[-1], most)))
    reliable = len(excess)
    back = excess[max(0, reliable - 4)]
    growth = (excess[-1] / back) ** (1 / min(3, reliable - 1)) if back > 0 else 2.0 if excess[-1] > 0 else 1.0
    while 2 ** len(excess) <= 2 * longest:
        excess.append(excess[-1] * growth)
    return 1.0 + np.array(excess), reliable
