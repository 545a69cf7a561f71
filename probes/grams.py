"""Small matrices that stand for large ones: Gram matrices of the factors, in float64, computed in cache-sized blocks.

For M = left @ right, A = left^T left and B = right right^T are inner x inner and hold all that norms, spectra and
distances between row spaces need. Squaring costs half of the digits; who uses them says when that is too much and goes
another way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

_BLOCK_BYTES = 2**20


def product(
    a: Float64[Tensor, "n i j"], b: Float64[Tensor, "n j k"], out: Float64[Tensor, "n i k"] | None = None
) -> Float64[Tensor, "n i k"]:
    """a @ b, on one CPU thread by NumPy: a quarter faster than torch on thin matrices, twice as fast on 64 x 64.

    It also recognises the product of a matrix with its own transpose and does half the work. With several torch threads
    the two libraries' thread pools would fight over the cores, which costs far more.
    """
    if a.device.type != "cpu" or torch.get_num_threads() > 1:
        return torch.matmul(a, b, out=out)
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy(), out=None if out is None else out.numpy()))


def in_blocks(*stacks: Float[Tensor, "n _ _"]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Walk several stacks of matrices together, a block at a time, as float64.

    On the CPU a block's float64 copies stay in the cache, and their memory is used again for the next block: fresh
    memory for each costs more than the arithmetic. So a block is only valid until the next one is asked for.
    """
    count = len(stacks[0])
    if stacks[0].device.type != "cpu":
        yield slice(0, count), [stack.double() for stack in stacks]
        return
    largest = max(8 * stack.shape[-1] * stack.shape[-2] for stack in stacks)
    size = max(1, min(count, _BLOCK_BYTES // largest))
    space = [_like(stack, size) for stack in stacks]
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        filled = rows.stop - rows.start
        yield rows, [room[:filled].copy_(stack[rows]) for room, stack in zip(space, stacks, strict=True)]


def _like(stack: Float[Tensor, "n _ _"], size: int) -> Tensor:
    """Room for a block, laid out as the stack is: what is stored transposed stays so, which BLAS does not mind."""
    if stack.stride(-2) < stack.stride(-1):
        return torch.empty(size, stack.shape[2], stack.shape[1], dtype=torch.float64).mT
    return torch.empty(size, *stack.shape[1:], dtype=torch.float64)


class Definite:
    """A Gram matrix with, when asked for, its Cholesky factor, its inverse and how far that can be trusted."""

    def __init__(self, matrix: Float64[Tensor, "n k k"]) -> None:
        self.matrix = matrix

    @cached_property
    def _factored(self) -> tuple[Tensor, Tensor]:
        cholesky, info = torch.linalg.cholesky_ex(self.matrix)
        failed = info > 0
        if failed.any():
            cholesky[failed] = torch.eye(cholesky.shape[-1], dtype=torch.float64, device=cholesky.device)
        return cholesky, failed

    @property
    def cholesky(self) -> Float64[Tensor, "n k k"]:
        """The factor; the identity where there is none."""
        return self._factored[0]

    @property
    def failed(self) -> Bool[Tensor, " n"]:
        """Where there is no factor."""
        return self._factored[1]

    @cached_property
    def inverse(self) -> Float64[Tensor, "n k k"]:
        """The inverse, from the factor: symmetric, so LAPACK's columns are handed out as rows, faster to multiply."""
        return torch.cholesky_inverse(self.cholesky).mT

    @cached_property
    def trace(self) -> Float64[Tensor, " n"]:
        """The sum of the diagonal: how large the factor is, squared."""
        return self.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    @cached_property
    def condition(self) -> Float64[Tensor, " n"]:
        """An upper bound of the condition number; infinite where there is no factor."""
        bound = torch.linalg.matrix_norm(self.matrix) * torch.linalg.matrix_norm(self.inverse)
        return torch.where(self.failed, torch.inf, bound)


@dataclass(frozen=True)
class Grams:
    """A stack of products left @ right and both of their Gram matrices: left^T left and right right^T."""

    left: Float[Tensor, "n rows inner"]
    right: Float[Tensor, "n inner columns"]
    of_left: Definite
    of_right: Definite
    squared_norm: Float64[Tensor, " n"]
    """||left @ right||_F^2, which the two Gram matrices give."""

    @staticmethod
    def of(left: Float[Tensor, "n rows inner"], right: Float[Tensor, "n inner columns"]) -> "Grams":
        """Compute them."""
        both = torch.empty(2, len(left), left.shape[-1], left.shape[-1], dtype=torch.float64, device=left.device)
        for rows, (a, b) in in_blocks(left, right):
            product(a.mT, a, out=both[0, rows])
            product(b, b.mT, out=both[1, rows])
        return Grams(left, right, Definite(both[0]), Definite(both[1]), (both[0] * both[1]).sum((-2, -1)))

    @property
    def mT(self) -> "Grams":  # noqa: N802 (the array libraries' own name for it)
        """The Gram matrices of the transposed products; nothing is computed again."""
        return Grams(self.right.mT, self.left.mT, self.of_right, self.of_left, self.squared_norm)

    def at(self, index: Bool[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """The factors of some of the stack, in float64."""
        return self.left[index].double(), self.right[index].double()


def overlap(of: Grams, with_: Grams) -> Float64[Tensor, "n _ _"]:
    """right_of right_with^T: how the rows of one stack lie along those of the other."""
    shape = (len(of.right), of.right.shape[-2], with_.right.shape[-2])
    found = torch.empty(shape, dtype=torch.float64, device=of.right.device)
    for block, (right, other) in in_blocks(of.right, with_.right):
        product(right, other.mT, out=found[block])
    return found
