"""Singular values and vectors of many matrices, fast, from the factors.

For M = left @ right with a small inner dimension r, two routes lead to the singular values without forming M:

    Gram   A = left^T left = C C^T,  B = right right^T,  sigma^2 = eigenvalues of C^T B C       (r x r)
    QR     left = Q1 R1,  right^T = Q2 R2,               sigma   = singular values of R1 R2^T   (r x r)

Gram is the faster by two to three times, and it squares the numbers: an eigenvalue carries an absolute error of
about eps ||A|| ||B||, so a singular value sigma carries eps ||A|| ||B|| / (2 sigma). Where that bound exceeds
`GRAM_ERROR` of the largest singular value - very wide spreads, rank-deficient factors, factors that cancel - the
matrix goes through QR instead, whose error is eps ||left|| ||right|| at every singular value. The choice is made
matrix by matrix from the computed numbers, never from the dtype.

Everything is float64. Matrices on an accelerator stay there (one batched computation); on the CPU the batch is walked
in blocks whose float64 copies stay in the cache.
"""

from dataclasses import dataclass
from typing import Any, Generic, overload

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from probes.matrices.factored import (
    A,
    Array,
    Factored,
    Nested,
    PerMatrix,
    factors,
    in_kind,
    is_thin,
    read,
    require_finite,
)
from probes.matrices.grams import GramMatrix, Grams

GRAM_ERROR = 1e-9
"""Largest error, relative to the largest singular value, at which the Gram route is still used."""


@dataclass(frozen=True)
class SVD(Generic[A]):
    """M = left @ diag(values) @ right^T: singular vectors as columns, values descending."""

    left: Float64[A, "*batch rows k"]
    values: Float64[A, "*batch k"]
    right: Float64[A, "*batch columns k"]


@overload
def singular_values(matrix: A | Factored[A]) -> Float64[A, "*batch k"]: ...
@overload
def singular_values(matrix: Nested) -> Float64[np.ndarray, "*batch k"]: ...
def singular_values(matrix: Any) -> Float64[Array, "*batch k"]:
    """Singular values, largest first, as float64.

    matrix is an array [..., rows, columns] or a `Factored`; the result is [..., k] with k = min(rows, columns), and for
    a `Factored` at most its inner dimension (the product has no others but zeros).
    """
    given = read(matrix, "matrix")
    if is_thin(given):
        values = values_from_grams(Grams.of(flat(given)))
        if not torch.isfinite(values).all():
            require_finite(given, "matrix")
        return in_kind(values.reshape(*given.shape[:-2], -1), matrix)
    require_finite(given, "matrix")
    return in_kind(torch.linalg.svdvals(_product(given)), matrix)


@overload
def thin_svd(matrix: A | Factored[A]) -> SVD[A]: ...
@overload
def thin_svd(matrix: Nested) -> SVD[np.ndarray]: ...
def thin_svd(matrix: Any) -> SVD[Any]:
    """Singular vectors (columns) and values, from the factors by QR, so that the vectors are orthonormal to rounding.

    That includes vectors that belong to a zero singular value, where the Gram route would return noise.
    """
    given = read(matrix, "matrix")
    require_finite(given, "matrix")
    u, s, v = thin_svd_tensors(given)
    return SVD(in_kind(u, matrix), in_kind(s, matrix), in_kind(v, matrix))


@overload
def frobenius_norm(matrix: A | Factored[A]) -> Float64[A, "*batch"]: ...
@overload
def frobenius_norm(matrix: Nested) -> Float64[np.ndarray, "*batch"]: ...
def frobenius_norm(matrix: Any) -> PerMatrix:
    """||M||_F, for a `Factored` without forming the product: the root of the sum of sigma^2."""
    given = read(matrix, "matrix")
    if not isinstance(given, Factored):
        require_finite(given, "matrix")
        return in_kind(_norm(given.double().flatten(-2)), matrix)
    return in_kind(_norm(torch.as_tensor(singular_values(matrix))), matrix)


def _norm(numbers: Tensor) -> Tensor:
    """Root of the sum of squares over the last axis, for numbers whose squares may overflow or vanish."""
    largest = numbers.abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    return torch.linalg.vector_norm(numbers / scale, dim=-1) * scale[..., 0]


def thin_svd_tensors(matrix: Tensor | Factored) -> tuple[Tensor, Tensor, Tensor]:
    """`thin_svd` between tensors, for callers that have checked their input: left vectors, values, right vectors."""
    if is_thin(matrix):
        left, right = factors(matrix)
        q1, r1 = torch.linalg.qr(left.double())
        q2, r2 = torch.linalg.qr(right.double().mT)
        u, s, vh = torch.linalg.svd(r1 @ r2.mT)
        return q1 @ u, s, q2 @ vh.mT
    u, s, vh = torch.linalg.svd(_product(matrix), full_matrices=False)
    return u, s, vh.mT


def values_from_grams(grams: Grams) -> Float64[Tensor, "n inner"]:
    """Singular values by the Gram route, by QR where its error is too large, NaN where a factor is not finite."""
    gram_left, gram_right = grams.of_left.matrix, grams.of_right.matrix
    scale = torch.linalg.matrix_norm(gram_left) * torch.linalg.matrix_norm(gram_right)
    too_large = ~torch.isfinite(scale)
    if too_large.any():  # squares that overflow, or factors that are not finite; for QR below
        eye = torch.eye(gram_left.shape[-1], dtype=torch.float64, device=gram_left.device)
        gram_left, gram_right = gram_left.clone(), gram_right.clone()
        gram_left[too_large], gram_right[too_large] = eye, 0.0
        definite = GramMatrix(gram_left)
    else:
        definite = grams.of_left
    squares = definite.cholesky.mT @ gram_right @ definite.cholesky
    if definite.failed.any():
        squares[definite.failed] = 0.0
    values = torch.linalg.eigvalsh(squares).clamp(min=0).sqrt().flip(-1)
    error = torch.finfo(torch.float64).eps * scale / (2 * values[:, -1] * values[:, 0])
    doubtful = definite.failed | ~(error <= GRAM_ERROR)  # ~(<=) so that 0 / 0 is doubtful too
    if doubtful.any():
        left, right = grams.at(doubtful)
        finite = torch.isfinite(left).all(-1).all(-1) & torch.isfinite(right).all(-1).all(-1)
        left, right = (torch.where(finite[:, None, None], part, 0.0) for part in (left, right))
        r1, r2 = torch.linalg.qr(left, mode="r").R, torch.linalg.qr(right.mT, mode="r").R
        values[doubtful] = torch.where(finite[:, None], torch.linalg.svdvals(r1 @ r2.mT), torch.nan)
    return values


def flat(matrix: Factored) -> tuple[Tensor, Tensor]:
    """Both factors with all leading axes in one."""
    left, right = factors(matrix)
    return left.reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:])


def _product(matrix: Tensor | Factored) -> Tensor:
    """The matrix in float64, multiplied out: only for factors that are no smaller than their product."""
    if not isinstance(matrix, Factored):
        return matrix.double()
    left, right = factors(matrix)
    return left.double() @ right.double()
