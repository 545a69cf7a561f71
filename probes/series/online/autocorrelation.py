"""The loss against itself, later, while it still grows: `probes.loss_autocorrelation` without keeping the loss.

A stage at lag tau needs no finer lags than tau / 64, so they are kept in levels, as the multiple-tau correlators of
light scattering do. Level j sees means over blocks of 2^j values and adds up, as each comes in, its products with
itself and the 63 before it:

    P_j(k) = sum_i x_j(i) x_j(i + k)        k = 0 ... 63, a lag of k 2^j values

All lags are taken from level 0, the upper half from every other. Nothing else about the loss is needed to take off its
end e afterwards, since sum (x - e)(y - e) = P - e (X + Y) + n e^2 and the sums X and Y over the n pairs lack only the
last and the first k blocks.

How it differs from the sum over all values: A is smoothed over a triangle of half-width tau / 32 at most, which is
little against the smoothing of the curvature; the newest values, fewer than a block, are left out of their level; and
the end, the mean over the last hundredth, begins and stops at a block, 1/32 of that hundredth at most.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.checks import require_scalar
from probes.series.derivatives import curvature
from probes.series.online.record import LARGEST, are_finite

Lags = Float64[np.ndarray, " lags"]

_LAGS = 64  # of each level
_LEVELS = 40  # enough for 10^13 values
_BATCH = 2048  # values taken in at once: a few calls for each level, however many there are
_LAST_SHARE = 100


class OnlineAutocorrelation:
    """Biased autocorrelation of a growing, evenly spaced loss above its end, in memory that does not grow.

    A value that is not finite is counted in `missing` and stands in as the one before it, so that lags stay right.
    """

    def __init__(self) -> None:
        self.missing = 0
        self._waiting: list[float] = []
        self._start = np.nan  # taken off every value: sums of squares of a loss far from 0 would lose its digits
        self._count = np.zeros(_LEVELS, dtype=np.int64)
        self._total = np.zeros(_LEVELS)
        self._products = np.zeros((_LEVELS, _LAGS))
        self._first = np.zeros((_LEVELS, _LAGS))
        self._last = np.zeros((_LEVELS, _LAGS))
        self._unpaired = np.full(_LEVELS, np.nan)  # a block whose neighbour in the next level is still to come

    def add(self, value: float) -> None:
        """One more value of the loss."""
        if not -LARGEST <= value <= LARGEST:
            self.missing += 1
            if not self._waiting and not len(self):
                return  # nothing can stand in for it, and nothing precedes it
            value = self._waiting[-1] if self._waiting else self._last[0, -1] + self._start
        self._waiting.append(value)
        if len(self._waiting) >= _BATCH:
            self._take_in()

    def extend(self, values: Sequence[float]) -> None:
        """Several more, one after the other."""
        if not len(values) or not are_finite(values):
            for value in values:
                self.add(value)
            return
        begin = 0
        while begin < len(values):
            end = begin + _BATCH - len(self._waiting)
            self._waiting += values[begin:end]
            begin = end
            if len(self._waiting) >= _BATCH:
                self._take_in()

    def __len__(self) -> int:
        return int(self._count[0]) + len(self._waiting)

    def curve(self) -> tuple[Lags, Lags]:
        """Lags, in values, and A at each: every lag below 64, then 32 in every octave."""
        self._take_in()
        if self._count[0] == 0:
            raise ValueError("the loss has no entries yet: add some before asking for its autocorrelation")
        end = self._end()
        lags, sums = zip(*(self._level(j, end) for j in range(_LEVELS) if self._count[j] > 0), strict=True)
        return np.concatenate(lags), np.concatenate(sums) / self._count[0]

    def curvature(self, smoothing: float = 0.2, *, spacing: float = 1.0) -> pd.DataFrame:
        """d^2 A / d(ln lag)^2, columns lag and curvature: see `probes.loss_autocorrelation_curvature`."""
        if require_scalar(spacing, "spacing") <= 0:
            raise ValueError(f"spacing is {spacing}: a positive number of steps is expected")
        if len(self) < 5:
            raise ValueError(f"loss has {len(self)} entries: at least 5 are needed")
        lags, correlation = self.curve()
        bend = curvature(correlation[1:], lags[1:], smoothing=smoothing)  # lag 0 has no logarithm
        return pd.DataFrame({"lag": lags[1:] * spacing, "curvature": bend})

    def _take_in(self) -> None:
        if not self._waiting:
            return
        if self._count[0] == 0:
            self._start = self._waiting[0]
        blocks = np.array(self._waiting) - self._start
        self._waiting.clear()
        level = 0
        while len(blocks) and level < _LEVELS:
            self._correlate(level, blocks)
            blocks = self._paired(level, blocks)
            level += 1

    def _correlate(self, level: int, blocks: np.ndarray) -> None:
        n, count = len(blocks), int(self._count[level])
        # before the first block there are zeros, which add nothing to the products
        known = np.concatenate((self._last[level], blocks))
        self._products[level] += np.correlate(known[1:], blocks, "valid")[::-1]
        if count < _LAGS:
            opening = blocks[: _LAGS - count]
            self._first[level, count : count + len(opening)] = opening
        self._last[level] = known[-_LAGS:]
        self._count[level] += n
        self._total[level] += blocks.sum()

    def _paired(self, level: int, blocks: np.ndarray) -> np.ndarray:
        """Means of neighbours, for the next level; a last one without a neighbour waits."""
        if not np.isnan(self._unpaired[level]):
            blocks = np.append(self._unpaired[level], blocks)
        self._unpaired[level] = blocks[-1] if len(blocks) % 2 else np.nan
        return blocks[: len(blocks) // 2 * 2].reshape(-1, 2).mean(1)

    def _level(self, level: int, end: float) -> tuple[Lags, Lags]:
        """Lags of one level, and the sum over all values of the products above the end."""
        count = int(self._count[level])
        k = np.arange(0 if level == 0 else _LAGS // 2, min(_LAGS, count))
        without_first = self._total[level] - np.append(0.0, np.cumsum(self._first[level]))[k]
        without_last = self._total[level] - np.append(0.0, np.cumsum(self._last[level][::-1]))[k]
        sums = self._products[level][k] - end * (without_first + without_last) + (count - k) * end**2
        return k * 2.0**level, sums * 2**level

    def _end(self) -> float:
        """Mean of the last hundredth, from the finest level that reaches back so far."""
        wanted = max(1, int(self._count[0]) // _LAST_SHARE)
        level = max(0, int(np.ceil(np.log2(wanted / _LAGS))))
        return float(self._last[level, -max(1, round(wanted / 2**level)) :].mean())
