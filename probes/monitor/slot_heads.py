"""The heads that lie in a slot, measured again and again: what does not change with the weights is worked out once.

A slot has the same tensors at the same addresses every time (see `weight_slots`). So where the factors of its heads
are, how they are laid out, and room for their float64 copies are found at the first measurement; from then on the Gram
matrices take one copy and one product for each factor. Copies and products are those of `Grams.of`, in the same order,
so that the numbers are the same to the last bit. What is not like this (dense matrices, another type than float32,
more than a block of them, weights that are not finite) is read as everywhere.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from probes.circuits import Matrix
from probes.matrices.factored import factors, is_thin
from probes.matrices.grams import GramMatrix, Grams, block_size, room_for
from probes.matrices.spectra import GRAM_ERROR
from probes.measuring.layer_heads import LayerHeads


class SlotHeads:
    """Matrices of one shape, all of them views of a slot. `read` is to be called inside `one_thread`."""

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        self._matrices = matrices
        self._template: LayerHeads | None = None
        self._copies: list[tuple[np.ndarray, np.ndarray]] = []
        self._squares: list[tuple[np.ndarray, np.ndarray]] = []
        self._is_alike = all(is_thin(one) and _is_in_one_block(*factors(one)) for one in matrices)

    def read(self, step: int) -> LayerHeads:
        """The heads as they lie there now."""
        if not self._is_alike:
            return LayerHeads(*self._matrices, step=step)
        if self._template is None:
            first = LayerHeads(*self._matrices, step=step)
            self._prepare(first)
            return first
        grams = self._grams(self._template)
        heads = self._template.with_grams(grams, step)
        if heads is None:
            return LayerHeads(*self._matrices, step=step)
        values = certain_values(grams)
        if values is not None:
            vars(heads)["singular_values"] = values  # where they are not certain, it finds out by itself
        return heads

    def _prepare(self, first: LayerHeads) -> None:
        """Find where everything is, at a time when all heads can be used."""
        if first.grams is None or not bool(first.is_usable.all()):
            return
        self._template = LayerHeads(*self._matrices, cached=first.grams.cached)
        assert self._template.grams is not None
        for pair in self._template.grams.groups:
            rooms = [room_for(part, len(part)) for part in pair]
            self._copies += [(room.numpy(), part.numpy()) for room, part in zip(rooms, pair, strict=True)]
            turned = rooms[0].mT.numpy(), rooms[1].numpy()
            self._squares += [(one, one.mT) for one in turned]

    def _grams(self, template: LayerHeads) -> Grams:
        """Both Gram matrices of every group, in one stack."""
        assert template.grams is not None
        inner = template.grams.of_left.matrix.shape[-1]
        both = np.empty((2, len(template), inner, inner))
        for room, part in self._copies:
            np.copyto(room, part)
        start = 0
        for number, (one, turned) in enumerate(self._squares):
            end = start + len(one)
            np.matmul(one, turned, out=both[number % 2, start:end])
            start = end if number % 2 else start
        squared_norm = torch.from_numpy(np.einsum("nij,nij->n", both[0], both[1]))
        of_left, of_right = torch.from_numpy(both)
        return Grams(template.grams.groups, GramMatrix(of_left), GramMatrix(of_right), squared_norm)


def certain_values(grams: Grams) -> Float64[Tensor, "n inner"] | None:
    """The singular values of `values_from_grams`, where it is plain that the Gram route will do; None otherwise.

    A trace bounds the Frobenius norm of a Gram matrix, and takes one call instead of several.
    """
    squares = grams.of_left.cholesky.mT @ grams.of_right.matrix @ grams.of_left.cholesky
    values = torch.linalg.eigvalsh(squares).clamp(min=0).sqrt().flip(-1)
    of_left, of_right, found = (one.numpy() for one in (grams.of_left.matrix, grams.of_right.matrix, values))
    scale = of_left.diagonal(0, 1, 2).sum(-1) * of_right.diagonal(0, 1, 2).sum(-1)
    largest, smallest = found[:, 0], found[:, -1]
    is_certain = np.finfo(np.float64).eps * scale <= 2 * GRAM_ERROR * smallest * largest
    return values if bool(is_certain.all()) and not bool(grams.of_left.failed.any()) else None


def _is_in_one_block(left: Tensor, right: Tensor) -> bool:
    """Whether all heads are copied at once, by NumPy; of an inner axis of one the layout does not tell."""
    is_plain = all(part.ndim == 3 and part.dtype == torch.float32 for part in (left, right))
    return is_plain and left.shape[-1] > 1 and block_size(left, right) == len(left)
