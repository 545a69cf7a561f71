"""The heads of one circuit in one layer of one checkpoint, with what all probes share computed once.

A probe of the catalogue is handed a `Stack` and takes from it singular values, ranks, distances. For factored circuits
all of these come from the same two Gram matrices per head. Heads whose weights are not finite are kept in place, as
zeros, and `why_not` says what is wrong with them.
"""

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from probes.effective_rank import spectrum_rank
from probes.grams import Grams, overlap
from probes.matrices import Factored, Matrix, factors, is_thin, read
from probes.spectra import singular_values, values_from_grams
from probes.subspaces import moved, moved_from_grams, outside_from_grams, part_outside

_LARGE = 1e150
"""Sums of squares beyond this cannot be squared again."""


class Stack:
    """Matrices [head, rows, columns]."""

    def __init__(self, matrix: Matrix, grams: Grams | None = None) -> None:
        given = read(matrix, "matrix")
        self.shape: tuple[int, ...] = tuple(given.shape)
        if grams is None and is_thin(given):
            grams = Grams.of(*factors(given))
        self.matrix, self.grams = given, grams
        # NaN and infinity survive sums of squares: the small matrices tell of the large ones
        squares = [grams.squared_norm] if grams else [p.double().square().sum((-2, -1)) for p in _parts(given)]
        self.is_usable: Bool[Tensor, " head"] = torch.stack([square < _LARGE for square in squares]).all(0)
        if not self.is_usable.all():
            keep = self.is_usable[:, None, None]
            parts = [torch.where(keep, part, torch.zeros((), dtype=part.dtype)) for part in _parts(given)]
            self.matrix = Factored(*parts) if isinstance(given, Factored) else parts[0]
            self.grams = Grams.of(*parts) if grams else None

    def __len__(self) -> int:
        """How many heads."""
        return self.shape[0]

    @property
    def mT(self) -> "Stack":  # noqa: N802 (the array libraries' own name for it)
        """The same heads transposed; nothing is computed again."""
        transposed = object.__new__(Stack)
        transposed.matrix, transposed.grams = self.matrix.mT, self.grams.mT if self.grams else None
        transposed.shape, transposed.is_usable = (len(self), *self.shape[:0:-1]), self.is_usable
        for name in ("values", "rank", "is_zero", "why_not"):  # of which a transpose has the same
            if name in self.__dict__:
                transposed.__dict__[name] = self.__dict__[name]
        return transposed

    @cached_property
    def values(self) -> Float64[Tensor, "head k"]:
        """Singular values, largest first."""
        if self.grams is None:
            return torch.as_tensor(singular_values(self.matrix))
        return values_from_grams(self.grams)

    @cached_property
    def rank(self) -> Int64[Tensor, " head"]:
        """How many singular values exceed rounding."""
        return torch.as_tensor(spectrum_rank(self.values))

    @cached_property
    def is_zero(self) -> Bool[Tensor, " head"]:
        """Which heads are zero, told without their spectra."""
        if self.grams is None:
            return (torch.as_tensor(self.values) == 0).all(-1)
        return self.grams.squared_norm <= 0

    @cached_property
    def why_not(self) -> list[str | None]:
        """For each head, why it has no spectrum to speak of; None if it has one."""
        reasons = {(False, True): "the weights are not finite", (True, True): "the matrix is zero"}
        pairs = zip(self.is_usable.tolist(), self.is_zero.tolist(), strict=True)
        return [reasons.get(pair) for pair in pairs]

    @property
    def has_spectrum(self) -> Bool[np.ndarray, " head"]:
        """Which heads have a spectrum."""
        return np.array([reason is None for reason in self.why_not])

    def part_outside(self, final: "Stack") -> tuple[Tensor, Tensor]:
        """For each head, the norm of the part of `final` outside this row space, and the norm of `final`."""
        if final is self:
            return torch.zeros(len(self), dtype=torch.float64), torch.linalg.vector_norm(self.values, dim=-1)
        if self.grams is None or final.grams is None:
            return part_outside(self.matrix, final.matrix)
        return outside_from_grams(self.grams, final.grams, overlap(final.grams, self.grams))

    def moved_since(self, before: "Stack") -> tuple[Tensor, Tensor]:
        """For each head, the squares of what moved since `before` and of what there is (see `subspace_drift`)."""
        if self.grams is None or before.grams is None:
            return moved(before.matrix, self.matrix)
        return moved_from_grams(before.grams, self.grams, overlap(before.grams, self.grams))


def _parts(matrix: Tensor | Factored) -> tuple[Tensor, ...]:
    return factors(matrix) if isinstance(matrix, Factored) else (matrix,)
