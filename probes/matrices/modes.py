"""Following one direction of a matrix through training.

The final matrix defines the modes: its singular pairs (u_k, v_k). The amplitude of mode k at an earlier time is

    a_k(t) = u_k^T M(t) v_k ,

which ends at sigma_k and, in the solvable models, follows a logistic of its own rate. Because a mode is known by its
vectors and not by its place in the sorted spectrum, it keeps its identity while others overtake it. That is why paper
000's marginalized effective rank has two readings, and why they differ: in its own model the modes that are learned
later end up the larger (a_inf is about 1 / s), so "without the largest" and "without the earliest" part ways.

Equal final singular values leave the vectors within their space arbitrary; amplitudes are then defined only as a sum.
"""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from probes.matrices.factored import (
    A,
    AnyMatrix,
    Array,
    Factored,
    Nested,
    factors,
    in_kind,
    read,
    require_finite,
)
from probes.matrices.ranks import spectrum_effective_rank
from probes.matrices.spectra import SVD, singular_values, thin_svd


@overload
def mode_amplitudes(matrix: A | Factored[A], basis: SVD[Any]) -> Float64[A, "*batch k"]: ...
@overload
def mode_amplitudes(matrix: Nested, basis: SVD[Any]) -> Float64[np.ndarray, "*batch k"]: ...
def mode_amplitudes(matrix: Any, basis: Any) -> Float64[Array, "*batch k"]:
    """u_k^T M v_k for every mode of `basis` (the `thin_svd` of the final matrix): [..., k].

    Takes one checkpoint at a time, so that a long run never has to be in memory at once.
    """
    given = read(matrix, "matrix")
    require_finite(given, "matrix")
    u, v = _vectors(given, basis)
    if isinstance(given, Factored):
        left, right = (f.double() for f in factors(given))
        return in_kind(((u.mT @ left) * (right @ v).mT).sum(-1), matrix)
    return in_kind((u * (given.double() @ v)).sum(-2), matrix)


@overload
def mode_trajectories(
    matrices: A, final: AnyMatrix | None = None, modes: int | None = None
) -> Float64[A, "time *batch modes"]: ...
@overload
def mode_trajectories(
    matrices: Iterable[A | Factored[A]], final: AnyMatrix | None = None, modes: int | None = None
) -> Float64[A, "time *batch modes"]: ...
@overload
def mode_trajectories(
    matrices: Iterable[Nested], final: AnyMatrix | None = None, modes: int | None = None
) -> Float64[np.ndarray, "time *batch modes"]: ...
def mode_trajectories(
    matrices: Iterable[Any], final: Any = None, modes: int | None = None
) -> Float64[Array, "time *batch modes"]:
    """Amplitudes of the leading modes of `final` (default: the last matrix) at each time: [time, ..., modes]."""
    matrices = list(matrices)
    if len(matrices) == 0:
        raise ValueError("matrices is empty: at least one matrix is expected")
    basis = thin_svd(matrices[-1] if final is None else final)
    if modes is not None and not 1 <= modes <= basis.values.shape[-1]:
        raise ValueError(f"modes is {modes}: between 1 and {basis.values.shape[-1]} is expected")
    basis = SVD(basis.left[..., :modes], basis.values[..., :modes], basis.right[..., :modes])
    amplitudes = torch.stack([torch.as_tensor(mode_amplitudes(matrix, basis)) for matrix in matrices])
    return in_kind(amplitudes, *matrices)


@overload
def remove_modes(matrix: Factored[A], basis: SVD[Any], modes: Iterable[int]) -> Factored[A]: ...
@overload
def remove_modes(matrix: A, basis: SVD[Any], modes: Iterable[int]) -> Float64[A, "*batch rows columns"]: ...
@overload
def remove_modes(
    matrix: Nested, basis: SVD[Any], modes: Iterable[int]
) -> Float64[np.ndarray, "*batch rows columns"]: ...
def remove_modes(
    matrix: Any, basis: Any, modes: Iterable[int]
) -> Factored[Any] | Float64[Array, "*batch rows columns"]:
    """(I - U U^T) M (I - V V^T) with the named modes of `basis` in U and V: the matrix without those directions."""
    given = read(matrix, "matrix")
    require_finite(given, "matrix")
    vectors = _vectors(given, basis)
    chosen, count = list(modes), vectors[0].shape[-1]
    if len(set(chosen)) < len(chosen) or any(not 0 <= k < count for k in chosen):
        raise ValueError(f"modes is {chosen}: different modes between 0 and {count - 1} are expected")
    u, v = (x[..., chosen] for x in vectors)
    if isinstance(given, Factored):
        left, right = (f.double() for f in factors(given))
        return Factored(in_kind(left - u @ (u.mT @ left), matrix), in_kind(right - (right @ v) @ v.mT, matrix))
    rest = given.double()
    rest = rest - u @ (u.mT @ rest)
    return in_kind(rest - (rest @ v) @ v.mT, matrix)


@overload
def marginalized_effective_rank_by_mode(
    matrix: A | Factored[A], basis: SVD[Any], order: Sequence[int], removed: int = 4
) -> Float64[A, "*batch {removed}+1"]: ...
@overload
def marginalized_effective_rank_by_mode(
    matrix: Nested, basis: SVD[Any], order: Sequence[int], removed: int = 4
) -> Float64[np.ndarray, "*batch {removed}+1"]: ...
def marginalized_effective_rank_by_mode(
    matrix: Any, basis: Any, order: Sequence[int], removed: int = 4
) -> Float64[Array, "*batch {removed}+1"]:
    """Effective rank once the first k modes of `order` are taken out, for k = 0 .. removed: [..., removed + 1].

    order is usually `convergence_order` of the run: this is the paper's reading by convergence. basis is the
    `thin_svd` of the final matrix. With all modes taken out nothing is left, and that is an error.
    """
    if not 0 <= removed <= len(order):
        raise ValueError(f"removed is {removed}: between 0 and the {len(order)} modes of order is expected")
    size = torch.as_tensor(singular_values(matrix)).amax(-1)
    if (size == 0).any():
        raise ValueError("the matrix is zero: it has no effective rank")
    ranks = []
    for k in range(removed + 1):
        left_over = torch.as_tensor(singular_values(remove_modes(matrix, basis, order[:k])))
        if (left_over.amax(-1) <= 1e-12 * size).any():
            raise ValueError(f"removing {k} modes leaves nothing: use removed <= {k - 1}")
        ranks.append(spectrum_effective_rank(left_over))
    return in_kind(torch.stack(ranks, dim=-1), matrix)


def _vectors(matrix: Tensor | Factored, basis: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(basis, SVD):
        raise ValueError(f"basis is a {type(basis).__name__}: pass probes.thin_svd(final)")
    u, v = torch.as_tensor(basis.left), torch.as_tensor(basis.right)
    if (u.shape[-2], v.shape[-2]) != tuple(matrix.shape[-2:]):
        raise ValueError(
            f"matrix is {tuple(matrix.shape)}, but basis belongs to a matrix of "
            f"{u.shape[-2]} rows and {v.shape[-2]} columns"
        )
    return u, v
