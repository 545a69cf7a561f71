"""What only slows down: the best mixture of decays through a short record, or of what saturates.

Everything that merely decays (exponentials, power laws, any sum of them, a straight fall that ends in a plateau) is
convex in t, and everything that merely saturates is concave; a U-shape is convex as well. A rapid change between two
slower stretches is neither. So the null of a short record holds a straight line plus any decaying exponentials and one
hinge max(t_k - t, 0), none of them negative, or none positive. The best one is a problem of non-negative least squares.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants

Columns = Float64[np.ndarray, "_ _"]


def straight_lines(at: np.ndarray) -> Columns:
    """A level and a slope."""
    t = (at - at[0]) / (at[-1] - at[0])
    return np.column_stack([np.ones(len(at)), t])


def hinges(at: np.ndarray, values: np.ndarray) -> Columns:
    """max(t_k - t, 0) for the values of these numbers, each from 1 to 0."""
    t = (at - at[0]) / (at[-1] - at[0])
    return np.maximum(t[values] - t[:, None], 0) / t[values]


def decay_columns(at: np.ndarray) -> Columns:
    """Decaying exponentials, a factor DECAY_RATIO apart, from the first gap to most of the record."""
    t = (at - at[0]) / (at[-1] - at[0])
    shortest = max(short_constants.FASTEST_DECAY, float(t[1]))
    return np.exp(-t[:, None] / _scales(shortest, short_constants.SLOWEST_DECAY))


def warm_up_columns(at: np.ndarray, share: float) -> Columns:
    """Decays of t^2 in the first share of a record: what decays while the learning rate still grows."""
    t = (at - at[0]) / (at[-1] - at[0])
    shortest = max(short_constants.FASTEST_DECAY, float(t[1]))
    if share <= shortest:
        return np.zeros((len(at), 0))
    return np.exp(-((t[:, None] / _scales(shortest, share)) ** 2))


def warmed_up_columns(at: np.ndarray, end: float) -> Columns:
    """What decays with the sum of a learning rate that grows evenly up to this share of a record, and then stays.

    Those that are gone before are decays of t^2.
    """
    t = (at - at[0]) / (at[-1] - at[0])
    total = np.where(t < end, t**2 / (2 * end), t - end / 2)
    return np.exp(-total[:, None] / _scales(end / 3, short_constants.SLOWEST_DECAY))


def _scales(shortest: float, longest: float) -> np.ndarray:
    count = int(np.ceil(np.log(longest / shortest) / np.log(short_constants.DECAY_RATIO))) + 1
    return np.geomspace(shortest, longest, count)


@dataclass(frozen=True)
class Cone:
    """The columns of a cone at one rho, whitened, the straight lines taken off, each of length 1: basis x triangle."""

    lines: Columns
    basis: Columns
    triangle: Columns

    def fit(self, record: np.ndarray, sign: int, shape: np.ndarray | None = None) -> tuple[float, np.ndarray, float]:
        """What is left of a record (whitened, its lines taken off), the weights, and the height of the shape."""
        from scipy.optimize import nnls

        inside = self.basis.T @ record
        beyond = float(record @ record - inside @ inside)
        if shape is None:
            weights, rest = nnls(sign * self.triangle, inside, maxiter=10 * len(inside))
            return rest**2 + max(beyond, 0.0), weights, 0.0
        along = self.basis.T @ shape
        out = shape - self.basis @ along
        length = float(np.sqrt(out @ out))
        if length < short_constants.SAME_DIRECTION * float(np.sqrt(shape @ shape)):
            out, length = np.zeros_like(out), 0.0  # rounding
        m = len(inside)
        columns = np.zeros((m + 1, self.triangle.shape[1] + 2))
        columns[:m, :-2] = sign * self.triangle
        columns[:m, -2], columns[:m, -1] = along, -along
        columns[m, -2], columns[m, -1] = length, -length
        target = np.append(inside, float(out @ record) / max(length, 1e-300))
        weights, rest = nnls(columns, target, maxiter=10 * len(columns))
        beyond = max(beyond - target[-1] ** 2, 0.0)
        return rest**2 + beyond, weights[:-2], float(weights[-2] - weights[-1])


def cone_of(lines: Columns, columns: Columns) -> Cone:
    """From whitened lines and columns; directions in which the columns differ by rounding alone are left out."""
    from scipy.linalg import qr

    q, _ = np.linalg.qr(lines)
    rest = columns - q @ (q.T @ columns)
    rest -= q @ (q.T @ rest)
    length = np.linalg.norm(rest, axis=0)
    known = length > short_constants.SAME_DIRECTION * np.linalg.norm(columns, axis=0)
    rest = np.where(known, rest / np.where(known, length, 1.0), 0.0)
    factors: Any = qr(rest, mode="economic", pivoting=True)
    basis, triangle, order = factors
    rank = int((np.abs(np.diag(triangle)) > short_constants.SAME_DIRECTION).sum())
    unordered = np.empty((rank, len(order)))
    unordered[:, order] = triangle[:rank]
    return Cone(q, basis[:, :rank], unordered)
