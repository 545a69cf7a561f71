"""The heads of one circuit in one layer of one checkpoint, with what all probes share computed once.

A probe of the catalogue is handed a `LayerHeads` and takes from it singular values, ranks, distances. For factored
circuits all of these come from the same two Gram matrices per head. Heads whose weights are not finite are kept in
place, as zeros, and `missing_reason` says what is wrong with them.
"""

import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from probes.matrices.factored import Factored, Matrix, factors, is_thin, read
from probes.matrices.grams import CachedGrams, Factors, Grams, gathered, in_groups, overlap
from probes.matrices.ranks import spectrum_rank
from probes.matrices.spectra import singular_values, values_from_grams
from probes.matrices.subspaces import moved, moved_from_grams, outside_from_grams, part_outside
from probes.measuring.catalogue.probe import ProbeValues

_LARGE = 1e150
"""Sums of squares beyond this cannot be squared again."""


class LayerHeads:
    """Matrices [head, rows, columns]; thin factored ones may be several of one shape, one after the other."""

    def __init__(self, *matrices: Matrix, step: int = 0, cached: CachedGrams | None = None) -> None:
        self.step = step
        """Of the checkpoint that they were read from."""
        self._moved: tuple[weakref.ref[LayerHeads], tuple[Tensor, Tensor]] | None = None
        given = [read(matrix, "matrix") for matrix in matrices]
        self.heads: list[int] = [matrix.shape[0] for matrix in given]
        """How many there are of each of the matrices handed in."""
        self.shape: tuple[int, ...] = (sum(self.heads), *given[0].shape[1:])
        self._matrix, self.grams = given[0], None
        thin = [factors(matrix) for matrix in given if is_thin(matrix)]
        if thin:
            self.grams = Grams(tuple(thin), *cached) if cached else _grams(thin)
            self._matrix = Factored(*self.grams.groups[0])  # so that what the heads were gathered from can go
        # NaN and infinity survive sums of squares: the small matrices tell of the large ones
        squares = [self.grams.squared_norm] if self.grams else [_energy(part) for part in _parts(self._matrix)]
        self.is_usable: Bool[Tensor, " head"] = torch.stack([square < _LARGE for square in squares]).all(0)
        if not self.is_usable.all():
            self._put_zeros()

    def _put_zeros(self) -> None:
        """In place of the heads that cannot be used."""
        if self.grams is None:
            parts = [_zeros_unless(self.is_usable, part) for part in _parts(self._matrix)]
            self._matrix = Factored(*parts) if isinstance(self._matrix, Factored) else parts[0]
            return
        pairs = zip(in_groups(self.is_usable, self.grams.groups), self.grams.groups, strict=True)
        self.grams = _grams([(_zeros_unless(keep, left), _zeros_unless(keep, right)) for keep, (left, right) in pairs])

    def __len__(self) -> int:
        """How many heads there are, of all circuits together."""
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """How much memory the weights take."""
        groups = self.grams.groups if self.grams else (_parts(self._matrix),)
        return sum(part.nbytes for group in groups for part in group)

    @property
    def matrix(self) -> Tensor | Factored:
        """The heads as one matrix."""
        if self.grams is None:
            return self._matrix
        return Factored(*self.grams.at(torch.ones(len(self), dtype=torch.bool)))

    @property
    def mT(self) -> "LayerHeads":  # noqa: N802 (the array libraries' own name for it)
        """The same heads transposed; nothing is computed again."""
        transposed = object.__new__(LayerHeads)
        transposed._matrix, transposed.grams = self._matrix.mT, self.grams.mT if self.grams else None
        transposed.heads, transposed.shape = self.heads, (len(self), *self.shape[:0:-1])
        transposed.is_usable, transposed.step, transposed._moved = self.is_usable, self.step, None
        for name in ("singular_values", "rank", "is_zero", "missing_reason"):  # of which a transpose has the same
            if name in self.__dict__:
                transposed.__dict__[name] = self.__dict__[name]
        return transposed

    def with_grams(self, grams: Grams, step: int) -> "LayerHeads | None":
        """Heads of the same layout at another step, of which the Gram matrices are known; None if one is unusable."""
        is_usable = grams.squared_norm < _LARGE
        if not bool(is_usable.all()):
            return None
        other = object.__new__(LayerHeads)
        other._matrix, other.grams, other.is_usable = self._matrix, grams, is_usable
        other.heads, other.shape, other.step, other._moved = self.heads, self.shape, step, None
        return other

    @cached_property
    def singular_values(self) -> Float64[Tensor, "head k"]:
        """Singular values, largest first."""
        if self.grams is None:
            return torch.as_tensor(singular_values(self.matrix))
        return values_from_grams(self.grams)

    @cached_property
    def rank(self) -> Int64[Tensor, " head"]:
        """How many singular values exceed rounding."""
        return torch.as_tensor(spectrum_rank(self.singular_values))

    @cached_property
    def is_zero(self) -> Bool[Tensor, " head"]:
        """Which heads are zero, told without their spectra."""
        if self.grams is None:
            return (torch.as_tensor(self.singular_values) == 0).all(-1)
        return self.grams.squared_norm <= 0

    @cached_property
    def missing_reason(self) -> list[str | None]:
        """For each head, why it has no spectrum to speak of; None if it has one."""
        reasons = {(False, True): "the weights are not finite", (True, True): "the matrix is zero"}
        pairs = zip(self.is_usable.tolist(), self.is_zero.tolist(), strict=True)
        return [reasons.get(pair) for pair in pairs]

    def from_spectrum(self, function: Callable[[np.ndarray], Any]) -> ProbeValues:
        """A number that a spectrum has, by a function of singular values [head, k], for the heads that have one."""
        reasons = self.missing_reason
        if not any(reasons):
            return ProbeValues.of(np.asarray(function(self.singular_values.numpy())))
        values, has = np.full(len(self), np.nan), np.array([reason is None for reason in reasons])
        if has.any():
            values[has] = function(self.singular_values.numpy()[has])
        return ProbeValues.of(values, reasons)

    def from_row_spaces(
        self, function: Callable[["LayerHeads", "LayerHeads"], np.ndarray], other: "LayerHeads"
    ) -> ProbeValues:
        """A number that two row spaces have; none where one is missing or fills the whole space."""
        if other.shape != self.shape:
            mismatch = f"it is {self.shape[1:]}, and {other.shape[1:]} in the checkpoint it is compared with"
            return ProbeValues.nothing(len(self), 1, mismatch)
        dimension = self.shape[-1]
        reasons: list[str | None] = []
        for mine, theirs, rank in zip(self.missing_reason, other.missing_reason, self.rank.tolist(), strict=True):
            if mine:
                reasons.append("a matrix of zeros has no row space" if "zero" in mine else mine)
            elif theirs:
                reasons.append(f"in the checkpoint it is compared with {theirs}")
            elif rank == dimension:
                reasons.append(f"rank {rank} spans all {dimension} dimensions: the distance is 0 from everything")
            else:
                reasons.append(None)
        return ProbeValues.of(np.zeros(len(self)) if all(reasons) else function(self, other), reasons)

    def dense(self, head: int) -> np.ndarray:
        """One head's matrix [rows, columns], multiplied out, in float64."""
        if self.grams is not None:
            left, right = self.grams.at(torch.arange(len(self)) == head)
            return (left[0] @ right[0]).numpy()
        matrix = self._matrix[head]
        return torch.as_tensor(matrix.dense()).numpy() if isinstance(matrix, Factored) else matrix.double().numpy()

    def part_outside(self, final: "LayerHeads") -> tuple[Tensor, Tensor]:
        """For each head, the norm of the part of `final` outside this row space, and the norm of `final`."""
        if final is self:
            return torch.zeros(len(self), dtype=torch.float64), torch.linalg.vector_norm(self.singular_values, dim=-1)
        if self.grams is None or final.grams is None:
            return part_outside(self.matrix, final.matrix)
        return outside_from_grams(self.grams, final.grams, overlap(final.grams, self.grams))

    def moved_since(self, before: "LayerHeads") -> tuple[Tensor, Tensor]:
        """For each head, the squares of what moved since `before` and of what there is (see `subspace_drift`)."""
        if self._moved is None or self._moved[0]() is not before:  # drift and drift per step ask for the same
            self._moved = weakref.ref(before), self._movement(before)
        return self._moved[1]

    def _movement(self, before: "LayerHeads") -> tuple[Tensor, Tensor]:
        if self.grams is None or before.grams is None:
            return moved(before.matrix, self.matrix)
        return moved_from_grams(before.grams, self.grams, overlap(before.grams, self.grams))


def _grams(thin: list[Factors]) -> Grams:
    """Of factors that other probes will read again."""
    return Grams.of(*((gathered(left), gathered(right)) for left, right in thin))


def _parts(matrix: Tensor | Factored) -> tuple[Tensor, ...]:
    return factors(matrix) if isinstance(matrix, Factored) else (matrix,)


def _energy(part: Tensor) -> Tensor:
    return part.double().square().sum((-2, -1))


def _zeros_unless(keep: Bool[Tensor, " head"], part: Tensor) -> Tensor:
    return torch.where(keep[:, None, None], part, torch.zeros((), dtype=part.dtype))
