"""Where a matrix points, apart from how large it is.

Equation 16 of paper 000 asks how much of the final matrix lies outside the row space of an earlier one:

    min_A || A earlier - final ||_F  =  || final (I - V V^T) ||_F,      V an orthonormal basis of earlier's row space.

Zero when the earlier rows already span the final ones, ||final||_F when the two are orthogonal. Four things to know:

* A k-dimensional subspace drawn at random in n dimensions scores sqrt(1 - k/n) of ||final||_F
  (`random_subspace_level`): .71 for half of the dimensions. Only what lies below that is agreement.
* It is about the row space. `column_subspace_distance` is the twin for the column space. The other functions take
  `.mT` for that: `principal_angles(a.mT, b.mT)`.
* A full-rank square `earlier` has distance 0 from everything. `rank=` compares only the leading directions of both.
* It needs the final matrix, and so depends on where training stops. `subspace_drift` between neighbours does not.

A direction counts as present when its singular value exceeds the rounding of float64. A low-rank product that was
multiplied out in float32 therefore has full rank; keep the factors, or pass `rank=`.

Everything is computed from the factors; no rows x columns matrix is formed. With A = left^T left, B = right right^T of
both matrices (f, e) and G = right_f right_e^T, all inner x inner,

    distance^2 = sum of A_f * (B_f - G B_e^-1 G^T),

which is fast and, being a difference of squares, loses digits where the distance is small or B_e ill-conditioned. Where
its error bound exceeds `GRAM_ERROR` of ||final||, the projection is carried out on orthonormal bases from QR instead.
"""

import math
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from probes.matrices.factored import (
    A,
    AnyMatrix,
    Array,
    AsNumpy,
    Factored,
    PerMatrix,
    factors,
    in_kind,
    is_thin,
    read,
    require_moderate,
    require_same_shape,
)
from probes.matrices.grams import Grams, inner_product, overlap, product
from probes.matrices.spectra import GRAM_ERROR, flat, frobenius_norm, thin_svd_tensors

_WELL_CONDITIONED = 1e10  # of left^T left: its columns are then independent beyond doubt


@overload
def subspace_distance(  # pyright: ignore[reportOverlappingOverload] (an array is an A as well)
    earlier: A | Factored[A], final: A | Factored[A], *, normalised: bool = False, rank: int | None = None
) -> Float64[A, "*batch"]: ...
@overload
def subspace_distance(
    earlier: AsNumpy, final: AsNumpy, *, normalised: bool = False, rank: int | None = None
) -> Float64[np.ndarray, "*batch"]: ...
@overload
def subspace_distance(
    earlier: AnyMatrix, final: AnyMatrix, *, normalised: bool = False, rank: int | None = None
) -> Float64[Array, "*batch"]: ...
def subspace_distance(earlier: Any, final: Any, *, normalised: bool = False, rank: int | None = None) -> PerMatrix:
    """min_A ||A earlier - final||_F (Eq 16): the part of `final` outside the row space of `earlier`.

    normalised divides by ||final||_F, so that the value lies between 0 and 1 and compares with
    `random_subspace_level`. rank compares the best rank-`rank` approximations of both instead of the whole matrices.
    """
    return in_kind(_distance(read(earlier, "earlier"), read(final, "final"), normalised, rank), earlier, final)


@overload
def column_subspace_distance(  # pyright: ignore[reportOverlappingOverload] (an array is an A as well)
    earlier: A | Factored[A], final: A | Factored[A], *, normalised: bool = False, rank: int | None = None
) -> Float64[A, "*batch"]: ...
@overload
def column_subspace_distance(
    earlier: AsNumpy, final: AsNumpy, *, normalised: bool = False, rank: int | None = None
) -> Float64[np.ndarray, "*batch"]: ...
@overload
def column_subspace_distance(
    earlier: AnyMatrix, final: AnyMatrix, *, normalised: bool = False, rank: int | None = None
) -> Float64[Array, "*batch"]: ...
def column_subspace_distance(
    earlier: Any, final: Any, *, normalised: bool = False, rank: int | None = None
) -> PerMatrix:
    """min_A ||earlier A - final||_F: the part of `final` outside the column space of `earlier`."""
    return in_kind(_distance(read(earlier, "earlier").mT, read(final, "final").mT, normalised, rank), earlier, final)


@overload
def subspace_drift(  # pyright: ignore[reportOverlappingOverload] (an array is an A as well)
    earlier: A | Factored[A], later: A | Factored[A], *, rank: int | None = None
) -> Float64[A, "*batch"]: ...
@overload
def subspace_drift(earlier: AsNumpy, later: AsNumpy, *, rank: int | None = None) -> Float64[np.ndarray, "*batch"]: ...
@overload
def subspace_drift(earlier: AnyMatrix, later: AnyMatrix, *, rank: int | None = None) -> Float64[Array, "*batch"]: ...
def subspace_drift(earlier: Any, later: Any, *, rank: int | None = None) -> PerMatrix:
    """How far the row space moved between two neighbours, from 0 (not at all) to 1 (to an orthogonal one).

    sqrt( (||later outside earlier||^2 + ||earlier outside later||^2) / (||later||^2 + ||earlier||^2) )

    It treats both alike and weighs each direction by its energy, so that the noise of negligible directions stays
    negligible, and it needs no final matrix. A random pair scores `random_subspace_level`. Neighbours that are further
    apart in steps drift further: compare at equal spacing, or divide by it.
    """
    before, after = read(earlier, "earlier"), read(later, "later")
    _check(before, after, "earlier", "later", rank)
    movement, energy = moved(before, after, rank)
    _refuse_zero(energy, "earlier and later")
    return in_kind((movement / energy).clamp(max=1).sqrt(), earlier, later)


@overload
def principal_angles(  # pyright: ignore[reportOverlappingOverload] (an array is an A as well)
    first: A | Factored[A], second: A | Factored[A], *, rank: int | None = None
) -> Float64[A, "*batch k"]: ...
@overload
def principal_angles(
    first: AsNumpy, second: AsNumpy, *, rank: int | None = None
) -> Float64[np.ndarray, "*batch k"]: ...
@overload
def principal_angles(first: AnyMatrix, second: AnyMatrix, *, rank: int | None = None) -> Float64[Array, "*batch k"]: ...
def principal_angles(first: Any, second: Any, *, rank: int | None = None) -> Float64[Array, "*batch k"]:
    """Angles between the row spaces in radians, smallest first: [..., k], k the smaller of the two ranks.

    rank keeps the leading directions of both. Matrices of one batch must have one rank; where they do not, say which.
    """
    a, b = read(first, "first"), read(second, "second")
    _check(a, b, "first", "second", rank)
    basis_a, basis_b = (_full_basis(row_space(m, rank), name) for m, name in ((a, "first"), (b, "second")))
    if basis_a.shape[-1] < basis_b.shape[-1]:
        basis_a, basis_b = basis_b, basis_a
    overlap = basis_a.mT @ basis_b
    cosines = torch.linalg.svdvals(overlap)  # descending: smallest angle first
    sines = torch.linalg.svdvals(basis_b - basis_a @ overlap).flip(-1)
    # each of the two is accurate only on its own half of the range
    angles = torch.where(cosines.square() > 0.5, sines.clamp(max=1).asin(), cosines.clamp(max=1).acos())
    return in_kind(angles, first, second)


def random_subspace_level(rank: int, dimension: int) -> float:
    """What a random `rank`-dimensional subspace of `dimension` scores on the normalised distance: sqrt(1 - k/n).

    Exact for the root mean square over random subspaces, whatever the final matrix is.
    """
    if not 0 <= rank <= dimension or dimension < 1:
        raise ValueError(f"rank is {rank} and dimension {dimension}: 0 <= rank <= dimension is expected")
    return math.sqrt(1 - rank / dimension)


def row_space(matrix: Tensor | Factored, rank: int | None = None) -> Float64[Tensor, "*batch columns k"]:
    """Orthonormal columns that span the rows; columns beyond the numerical rank (or beyond `rank`) are zero."""
    _, values, vectors = thin_svd_tensors(matrix)
    smallest = max(matrix.shape[-2:]) * torch.finfo(torch.float64).eps * values[..., :1]
    vectors = vectors * (values > smallest).double()[..., None, :]
    return vectors if rank is None else vectors[..., :rank]


def _distance(earlier: Tensor | Factored, final: Tensor | Factored, normalised: bool, rank: int | None) -> Tensor:
    _check(earlier, final, "earlier", "final", rank)
    outside, norm = part_outside(earlier, final, rank)
    if not normalised:
        return outside
    _refuse_zero(norm, "final")
    return (outside / norm).clamp(max=1)


def part_outside(
    earlier: Tensor | Factored, final: Tensor | Factored, rank: int | None = None
) -> tuple[Tensor, Tensor]:
    """Norm of the part of `final` outside the row space of `earlier`, and the norm of `final`."""
    if rank is not None or not is_thin(earlier) or not is_thin(final):
        target = _leading(final, rank)
        return _norm_outside(target, row_space(earlier, rank)), torch.as_tensor(frobenius_norm(target))
    e, f, batch = _grams(earlier, final)
    outside, norm = outside_from_grams(e, f, overlap(f, e))
    return outside.reshape(batch), norm.reshape(batch)


def moved(before: Tensor | Factored, after: Tensor | Factored, rank: int | None = None) -> tuple[Tensor, Tensor]:
    """Squares of what moved and of what there is: their ratio is the square of the drift."""
    if rank is not None or not is_thin(before) or not is_thin(after):
        (new, norm_after), (lost, norm_before) = part_outside(before, after, rank), part_outside(after, before, rank)
        return new.square() + lost.square(), norm_after.square() + norm_before.square()
    b, a, batch = _grams(before, after)
    movement, energy = moved_from_grams(b, a, overlap(b, a))
    return movement.reshape(batch), energy.reshape(batch)


def _grams(first: Factored, second: Factored) -> tuple[Grams, Grams, torch.Size]:
    """Both as stacks of one length, and the shape of the batch that they make."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    a, b = (Grams.of(flat(_expanded(matrix, batch))) for matrix in (first, second))
    return a, b, batch


def outside_from_grams(
    earlier: Grams, final: Grams, shared: Float64[Tensor, "n f e"]
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Norm of the part of `final` outside the row space of `earlier`, and the norm of `final`.

    shared is right_final right_earlier^T. Where the Gram matrices are not accurate enough the projection is carried
    out on orthonormal bases instead.
    """
    rows = earlier.of_right
    inside = inner_product(product(final.of_left.matrix, shared), product(shared, rows.inverse))
    squared = final.squared_norm - inside
    outside, norm = squared.clamp(min=0).sqrt(), final.squared_norm.clamp(min=0).sqrt()
    # the factors may cancel in the product; what rounds is their size, not that of the product
    size = final.of_left.trace * final.of_right.trace
    error = torch.finfo(torch.float64).eps * rows.condition * size / (2 * outside)
    is_independent = earlier.of_left.condition < _WELL_CONDITIONED
    doubtful = ~(is_independent & (error <= GRAM_ERROR * norm))  # true where a NaN is involved
    if doubtful.any():
        basis, slow = row_space(Factored(*earlier.at(doubtful))), Factored(*final.at(doubtful))
        outside[doubtful], norm[doubtful] = _norm_outside(slow, basis), torch.as_tensor(frobenius_norm(slow))
    return outside, norm


def moved_from_grams(
    before: Grams, after: Grams, shared: Float64[Tensor, "n b a"]
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """The same from Gram matrices; shared is right_before right_after^T."""
    new, norm_after = outside_from_grams(before, after, shared.mT)
    lost, norm_before = outside_from_grams(after, before, shared)
    return new.square() + lost.square(), norm_after.square() + norm_before.square()


def _expanded(matrix: Factored, batch: torch.Size) -> Factored:
    left, right = factors(matrix)
    return Factored(left.expand(*batch, *left.shape[-2:]), right.expand(*batch, *right.shape[-2:]))


def _check(a: Tensor | Factored, b: Tensor | Factored, name_a: str, name_b: str, rank: int | None) -> None:
    require_same_shape(**{name_a: a, name_b: b})
    require_moderate(a, name_a)
    require_moderate(b, name_b)
    if rank is not None and not 1 <= rank <= min(a.shape[-2:]):
        raise ValueError(f"rank is {rank}: between 1 and {min(a.shape[-2:])} is expected for matrices {tuple(a.shape)}")


def _leading(matrix: Tensor | Factored, rank: int | None) -> Tensor | Factored:
    """The best approximation of this rank, factored; the matrix itself where no rank is asked for."""
    if rank is None:
        return matrix
    u, s, v = thin_svd_tensors(matrix)
    return Factored(u[..., :rank] * s[..., None, :rank], v[..., :rank].mT)


def _norm_outside(matrix: Tensor | Factored, basis: Tensor) -> Tensor:
    """||matrix (I - V V^T)||_F. The residual is formed on the thin factor: nothing cancels, 0 comes out as rounding."""
    left, right = (r.double() for r in factors(matrix)) if isinstance(matrix, Factored) else (None, matrix.double())
    residual = right - (right @ basis) @ basis.mT
    if left is None:
        return torch.linalg.matrix_norm(residual)
    return torch.linalg.matrix_norm(torch.linalg.qr(left, mode="r").R @ residual)


def _refuse_zero(norm: Tensor, name: str) -> None:
    if (norm == 0).any():
        raise ValueError(f"{name}: a matrix of zeros has no row space to compare with")


def _full_basis(basis: Tensor, name: str) -> Tensor:
    present = (basis.abs().amax(-2) > 0).sum(-1)
    ranks = present.unique()
    if len(ranks) > 1:
        raise ValueError(f"the matrices of {name} have ranks {ranks.tolist()}: pass rank= to compare as many of each")
    if int(ranks[0]) == 0:
        raise ValueError(f"{name} is zero: it has no row space")
    return basis[..., : int(ranks[0])]
