"""What a probe gives on weights that have learned nothing: the level to hold a number against.

Nothing learned means independent Gaussian entries: of both factors, [rows, inner] and [inner, columns], for a circuit
that is their product (OV, QK), or of the matrix itself (inner is None). The squared singular values then spread over a
known stretch, and the ranks follow from it. With a = inner / rows and b = inner / columns, and 1 the mean of x,

    z(u) = (1 + u) (1 + a u) (1 + b u) / u,   density(x) = -Im (1 + u) / (pi x) at z(u) = x,   largest x = min_u>0 z(u)

(free product of two Marchenko-Pastur laws; b = 0 is a single one). These are laws of large matrices: in seven shapes
of eight inner dimensions and more, effective ranks were at most 1.0 % off the average over 1,500 random draws, the
participation ratio 1.8 %, the stable rank 4.1 %. Levels of subspaces are exact for the root mean square.

A network is not initialised with independent entries by every trainer, and its weights need not begin at this level:
the first checkpoint of the run says where it did begin. The level says what a number is worth without any history.
"""

import numpy as np
from jaxtyping import Float64

POINTS = 2000
"""At which the density is known: with ten times as many, ranks change by less than 1 in 10,000."""


def effective_rank(rows: int, columns: int, inner: int | None = None) -> Float64[np.ndarray, "1"]:
    """Of the singular values that random weights have."""
    return marginalized_effective_rank(rows, columns, inner, removed=0)


def marginalized_effective_rank(
    rows: int, columns: int, inner: int | None = None, *, removed: int
) -> Float64[np.ndarray, "component"]:
    """Without the k largest, k = 0 .. removed; NaN where that leaves nothing."""
    rank, a, b = _ratios(rows, columns, inner)
    values, weights = _spectrum(a, b)
    levels = np.full(removed + 1, np.nan)
    for k in range(min(removed + 1, rank)):
        left = np.minimum(weights, np.clip((1 - k / rank) - (weights.cumsum() - weights), 0, None))
        total = (left * values).sum()
        logs = np.log(values, where=values > 0, out=np.zeros_like(values))
        levels[k] = rank * total * np.exp(-(left * values * logs).sum() / total)
    return np.maximum(1, levels)


def stable_rank(rows: int, columns: int, inner: int | None = None) -> Float64[np.ndarray, "1"]:
    """The mean of the squared singular values over the largest, times how many there are.

    The largest of finitely many stays short of the edge by the mean of the Tracy-Widom law, 1.2065, times the scale on
    which the root of the density counts one eigenvalue.
    """
    rank, a, b = _ratios(rows, columns, inner)
    u, edge = _edges(a, b)[1]
    bend = 2 / u**3 + 2 * a * b  # z''(u)
    short_of_it = 1.2065 * (edge * np.sqrt(bend / 2) / rank) ** (2 / 3)
    return np.maximum(1, np.array([rank / (edge - short_of_it)]))


def participation_ratio(rows: int, columns: int, inner: int | None = None) -> Float64[np.ndarray, "1"]:
    """Ratio of the expected (sum s²)² and sum s⁴, from the moments of Wishart matrices."""
    _ratios(rows, columns, inner)
    if inner is None:
        return np.maximum(1, np.array([rows * columns / (rows + columns + 1)]))
    return np.maximum(
        1, np.array([rows * columns * inner / ((rows + 1) * (columns + 1 + inner) + columns * inner + 2)])
    )


def row_subspace(rows: int, columns: int, inner: int | None = None) -> Float64[np.ndarray, "1"]:
    """How much of a matrix lies outside a random row space: sqrt(1 - rank / columns)."""
    return np.array([np.sqrt(1 - _ratios(rows, columns, inner)[0] / columns)])


def column_subspace(rows: int, columns: int, inner: int | None = None) -> Float64[np.ndarray, "1"]:
    """How much of a matrix lies outside a random column space: sqrt(1 - rank / rows)."""
    return row_subspace(columns, rows, inner)


def _ratios(rows: int, columns: int, inner: int | None) -> tuple[int, float, float]:
    """The rank, and how many dimensions it has for each dimension of either side."""
    if min(rows, columns) < 1 or (inner is not None and not 1 <= inner <= min(rows, columns)):
        raise ValueError(f"rows, columns, inner are {rows}, {columns}, {inner}: 1 <= inner <= both sides is expected")
    if inner is None:
        return min(rows, columns), min(rows, columns) / max(rows, columns), 0.0
    return inner, inner / rows, inner / columns


def _z(u: float, a: float, b: float) -> float:
    return (1 + u) * (1 + a * u) * (1 + b * u) / u


def _edges(a: float, b: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where z(u) turns, u and z: the smallest squared singular value, at u <= -1, and the largest, at u > 0."""
    turns = np.roots([2 * a * b, a + b + a * b, 0, -1] if b else [a, 0, -1]).real  # u² z'(u)
    largest = float(turns.max())
    # of the negative turns the one nearest to zero; with as many dimensions inside as outside, zero is reached
    smallest = -1.0 if max(a, b) == 1 else float(max(u for u in turns if u < 0))
    return (smallest, max(_z(smallest, a, b), 0.0)), (largest, _z(largest, a, b))


def _spectrum(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    """Singular values, ascending, and the share of them that each stands for."""
    low, high = (np.sqrt(edge) for _, edge in _edges(a, b))
    # in s rather than x, and closer together towards both ends, where the density has roots or poles
    angle = (np.arange(POINTS) + 0.5) * np.pi / POINTS
    s = low + (high - low) * (1 - np.cos(angle)) / 2
    # z(u) = x as a polynomial in u: its companion matrix has the roots as eigenvalues
    polynomial = [np.ones_like(s), 1 + a + b - s**2, np.full_like(s, a + b + a * b), np.full_like(s, a * b)]
    degree = 3 if b else 2
    companion = np.zeros((POINTS, degree, degree))
    companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1
    companion[:, :, -1] = -np.stack(polynomial[:degree], axis=-1) / polynomial[degree][:, None]
    imaginary = np.linalg.eigvals(companion).imag.max(axis=-1)
    density = imaginary / s * np.sin(angle)  # dx = 2 s ds; constants go with the sum
    return s, density / density.sum()
