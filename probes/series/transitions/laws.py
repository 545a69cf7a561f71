"""Laws of the noise of a record: how it is made independent, and how likely that is.

A short record is judged value by value, under AR(1) noise of several rhos, whose size may change along the record
(`sizes.py`). Where its steps are uneven, what wanders in time wanders more between values that are further apart: there
a random walk in t, under independent noise, may be the law as well. A long one is judged by means over bins of many
values, where noise that forgets within a bin is independent again, and a random walk is not: there the law is AR(1)
noise of some memory, in values, plus independent noise, and the covariance of the means follows from it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from probes.series.transitions import short_constants


@dataclass(frozen=True, eq=False)
class AR1:
    """Noise with autocorrelation rho from one value to the next; size is that of its innovations, 1 if it is None."""

    rho: float
    size: Float64[np.ndarray, " n"] | None = None

    @property
    def memory(self) -> float:
        """Correlation of neighbours."""
        return self.rho

    @property
    def sd(self) -> float:
        """Of a value, where the innovations have 1."""
        return float(1 / np.sqrt(1 - self.rho**2))

    @property
    def level(self) -> float:
        """Half the log determinant of what `whiten` does."""
        level = 0.5 * float(np.log(1 - self.rho**2))
        return level if self.size is None else level - float(np.log(self.size).sum())

    def whiten(self, columns: np.ndarray) -> np.ndarray:
        """Innovations of unit size."""
        return whitened(self.rho, columns if self.size is None else _over(columns, self.size))


@dataclass(frozen=True, eq=False)
class Correlated:
    """Noise of any covariance: of means over bins, or of values.

    memory is the mean correlation of neighbours; root the inverse root of the covariance, were the noise of a value of
    unit size; size is its size, 1 if it is None.
    """

    memory: float
    root: Float64[np.ndarray, "k k"]
    size: Float64[np.ndarray, " k"] | None = None

    @property
    def sd(self) -> float:
        """Of a value."""
        return 1.0

    @property
    def level(self) -> float:
        """Half the log determinant of what `whiten` does."""
        level = float(np.log(np.diag(self.root)).sum())
        return level if self.size is None else level - float(np.log(self.size).sum())

    def whiten(self, columns: np.ndarray) -> np.ndarray:
        """Made independent."""
        return self.root @ (columns if self.size is None else _over(columns, self.size))


Law = AR1 | Correlated
"""Of values, or of means over bins of them."""


def walk_in_time(at: Float64[np.ndarray, " n"], white: float) -> Correlated:
    """Noise of unit variance of which a share `white` is independent, and the rest has forgotten little by the end.

    Of values that are next to each other beside the length of the record nothing could be told apart without any.
    """
    white = max(white, short_constants.LEAST_INDEPENDENT)
    covariance = (1 - white) * covariance_in_time(at) + white * np.eye(len(at))
    return Correlated(float(np.diag(covariance, 1).mean()), inverse_root(covariance))


def covariance_in_time(at: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "n n"]:
    """Of what wanders in time, with unit variance, and has forgotten little of itself by the end of the record."""
    return np.exp(-np.abs(at[:, None] - at) / (short_constants.WALK_MEMORY * (at[-1] - at[0])))


def is_uneven(at: Float64[np.ndarray, " n"]) -> bool:
    """Whether steps are so uneven that what wanders in time differs from what wanders from value to value."""
    gaps = np.diff(at)
    return bool(gaps.max() > short_constants.EVEN_GAPS * gaps.min())


def _over(columns: np.ndarray, size: np.ndarray) -> np.ndarray:
    return columns / (size if columns.ndim == 1 else size[:, None])


def covariance_of_means(count: Int[np.ndarray, " bins"], rho: float, white: float) -> Float64[np.ndarray, "bins bins"]:
    """Of means over neighbouring bins of so many values.

    The noise of one value has unit variance: a share `white` of it is independent, the rest is AR(1).
    """
    n = count.astype(np.float64)
    if rho == 0 or white == 1:
        return np.diag(1 / n)
    end = np.cumsum(count)
    apart = (end - count)[None, :] - end[:, None] + 1  # from the last value of bin i to the first of bin j > i
    near = (apart > 0) & (apart < 40 / (1 - rho))  # what is beyond is nothing, in denormal numbers that cost tenfold
    left = -np.expm1(n * np.log(rho)) / (n * (1 - rho))
    shared = np.where(near, np.exp(np.where(near, apart, 0) * np.log(rho)), 0.0) * np.outer(left, left)
    own = (n * (1 - rho**2) - 2 * rho * (1 - rho) * n * left) / (n * (1 - rho)) ** 2
    return (1 - white) * (shared + shared.T + np.diag(own)) + white * np.diag(1 / n)


def inverse_root(covariance: Float64[np.ndarray, "k k"]) -> Float64[np.ndarray, "k k"]:
    """What makes noise of this covariance independent."""
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    return np.where(np.abs(root) > 1e-14 * np.abs(root).max(), root, 0.0)


def whitened(rho: float, series: np.ndarray) -> np.ndarray:
    """Columns of AR(1) noise made independent, of the variance of the innovations."""
    out = series.copy()
    out[1:] -= rho * series[:-1]
    out[0] *= np.sqrt(1 - rho**2)
    return out


def coloured(rho: float, white: np.ndarray) -> np.ndarray:
    """The inverse of `whitened`."""
    from scipy.signal import lfilter

    start = white.copy()
    start[0] /= np.sqrt(1 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], start, axis=0))
