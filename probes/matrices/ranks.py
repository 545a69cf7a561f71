"""How many directions a matrix really uses.

Four summaries of one spectrum s_1 >= s_2 >= ... ; all are r for r equal values, all ignore scale and rotation:

    effective rank         exp(- sum p ln p),  p = s / sum s        Roy & Vetterli 2007; Eq 15 of paper 000
    participation ratio    (sum s^2)^2 / sum s^4
    stable rank            sum s^2 / s_1^2
    marginalized           the effective rank of what is left once k components are taken out (paper 000, section 4)

The convention matters: on (4, 2, 1, 1/2) effective rank is 3.1171 with p = s / sum s as here, 2.06 with squares.

Each function takes a matrix (array or `Factored`). Its `spectrum_` twin takes singular values, so that one
decomposition can serve them all. A matrix of zeros has no effective rank, and asking for it is an error.
"""

from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from probes.matrices.factored import A, Array, Factored, Nested, PerMatrix, in_kind
from probes.matrices.spectra import singular_values


@overload
def effective_rank(matrix: A | Factored[A]) -> Float64[A, "*batch"]: ...
@overload
def effective_rank(matrix: Nested) -> Float64[np.ndarray, "*batch"]: ...
def effective_rank(matrix: Any) -> PerMatrix:
    """Effective rank of Roy & Vetterli, between 1 and min(rows, columns)."""
    return spectrum_effective_rank(singular_values(matrix))


@overload
def stable_rank(matrix: A | Factored[A]) -> Float64[A, "*batch"]: ...
@overload
def stable_rank(matrix: Nested) -> Float64[np.ndarray, "*batch"]: ...
def stable_rank(matrix: Any) -> PerMatrix:
    """||M||_F^2 / ||M||_2^2: counts directions by energy against the largest; a rival summary, blind to small ones."""
    return spectrum_stable_rank(singular_values(matrix))


@overload
def participation_ratio(matrix: A | Factored[A]) -> Float64[A, "*batch"]: ...
@overload
def participation_ratio(matrix: Nested) -> Float64[np.ndarray, "*batch"]: ...
def participation_ratio(matrix: Any) -> PerMatrix:
    """(sum s^2)^2 / sum s^4: counts directions by energy; a rival summary between stable and effective rank."""
    return spectrum_participation_ratio(singular_values(matrix))


@overload
def marginalized_effective_rank(matrix: A | Factored[A], removed: int = 4) -> Float64[A, "*batch {removed}+1"]: ...
@overload
def marginalized_effective_rank(matrix: Nested, removed: int = 4) -> Float64[np.ndarray, "*batch {removed}+1"]: ...
def marginalized_effective_rank(matrix: Any, removed: int = 4) -> Float64[Array, "*batch {removed}+1"]:
    """Effective rank without the k largest singular values, for k = 0 .. removed: [..., removed + 1].

    This is the reading of paper 000 by size. It needs one matrix only, but when a later mode overtakes an earlier one
    the component that is taken out changes identity; `marginalized_effective_rank_by_mode` follows the modes instead.
    """
    return spectrum_marginalized_effective_rank(singular_values(matrix), removed)


@overload
def spectrum_effective_rank(values: A) -> Float64[A, "*batch"]: ...
@overload
def spectrum_effective_rank(values: Nested) -> Float64[np.ndarray, "*batch"]: ...
def spectrum_effective_rank(values: Any) -> PerMatrix:
    """Effective rank from singular values [..., k]."""
    s = _spectrum(values)
    return in_kind(_entropy_rank(s), values)


@overload
def spectrum_stable_rank(values: A) -> Float64[A, "*batch"]: ...
@overload
def spectrum_stable_rank(values: Nested) -> Float64[np.ndarray, "*batch"]: ...
def spectrum_stable_rank(values: Any) -> PerMatrix:
    """Stable rank from singular values [..., k]."""
    s = _spectrum(values)
    return in_kind(_scaled(s).square().sum(-1), values)


@overload
def spectrum_participation_ratio(values: A) -> Float64[A, "*batch"]: ...
@overload
def spectrum_participation_ratio(values: Nested) -> Float64[np.ndarray, "*batch"]: ...
def spectrum_participation_ratio(values: Any) -> PerMatrix:
    """Participation ratio from singular values [..., k]."""
    s = _scaled(_spectrum(values))
    return in_kind(s.square().sum(-1).square() / s.pow(4).sum(-1), values)


@overload
def spectrum_marginalized_effective_rank(values: A, removed: int = 4) -> Float64[A, "*batch {removed}+1"]: ...
@overload
def spectrum_marginalized_effective_rank(
    values: Nested, removed: int = 4
) -> Float64[np.ndarray, "*batch {removed}+1"]: ...
def spectrum_marginalized_effective_rank(values: Any, removed: int = 4) -> Float64[Array, "*batch {removed}+1"]:
    """Marginalized effective rank from singular values [..., k], in any order: [..., removed + 1]."""
    if removed < 0:
        raise ValueError(f"removed is {removed}: the number of components to take out cannot be negative")
    s = _spectrum(values).sort(dim=-1, descending=True).values
    left_over = int(torch.as_tensor(spectrum_rank(s)).min())
    if removed >= left_over:
        raise ValueError(
            f"removed is {removed}, but a matrix of this batch has only {left_over} non-zero singular values: "
            f"nothing would be left. Use removed <= {left_over - 1}"
        )
    return in_kind(torch.stack([_entropy_rank(s[..., k:]) for k in range(removed + 1)], dim=-1), values)


@overload
def spectrum_rank(values: A) -> Int64[A, "*batch"]: ...
@overload
def spectrum_rank(values: Nested) -> Int64[np.ndarray, "*batch"]: ...
def spectrum_rank(values: Any) -> Int64[Array, "*batch"] | np.int64:
    """How many singular values [..., k] exceed the rounding of float64 relative to the largest; 0 for a zero matrix."""
    s = torch.as_tensor(values).double()
    smallest = s.shape[-1] * torch.finfo(torch.float64).eps * s.amax(-1, keepdim=True)
    return in_kind((s > smallest).sum(-1), values)


def _entropy_rank(s: Tensor) -> Tensor:
    s = _scaled(s)
    p = s / s.sum(-1, keepdim=True)
    return torch.exp(-torch.special.xlogy(p, p).sum(-1))


def _scaled(s: Tensor) -> Tensor:
    return s / s.amax(-1, keepdim=True)  # so that squares and fourth powers neither overflow nor vanish


def _spectrum(values: Any) -> Tensor:
    """Singular values as a float64 tensor, or an error that says what is wrong with them."""
    s = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, dtype=np.float64))
    s = s.double()
    if s.ndim < 1 or s.shape[-1] == 0:
        raise ValueError(f"values has shape {tuple(s.shape)}: singular values [..., k] are expected")
    if not torch.isfinite(s).all() or (s < 0).any():
        raise ValueError("values must be finite and not negative: singular values are expected")
    zero = s.amax(-1) == 0
    if zero.any():
        where = f" (index {tuple(int(i) for i in zero.nonzero()[0])} of the batch)" if s.ndim > 1 else ""
        raise ValueError(f"the matrix is zero{where}: it has no effective rank")
    return s
