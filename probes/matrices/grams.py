"""Small matrices that stand for large ones: Gram matrices of the factors, in float64, computed in cache-sized blocks.

For M = left @ right, A = left^T left and B = right right^T are inner x inner and hold all that norms, spectra and
distances between row spaces need. Squaring costs half of the digits; who uses them says when that is too much and goes
another way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

_BLOCK_BYTES = 2**20
_SMALL = 10**6
"""Multiplications; up to here OpenBLAS multiplies without copying its input first."""
_FEWEST_COLUMNS = 128
"""With fewer in a piece, adding the pieces up takes longer than is won."""
_HEADS = 4
"""How many are in hand at a time: pieces of 192 columns of two stacks of 64 are then 0.8 MB, a second-level cache."""


def product(
    a: Float64[Tensor, "n i j"], b: Float64[Tensor, "n j k"], out: Float64[Tensor, "n i k"] | None = None
) -> Float64[Tensor, "n i k"]:
    """a @ b, on one CPU thread by NumPy: faster than torch by a third on thin matrices, twice as fast on 64 x 64.

    A thin product is done in pieces of rows that OpenBLAS takes for small, a fifth faster than in one.
    """
    if not _is_for_numpy(a):
        return torch.matmul(a, b, out=out)
    (n, i, j), k = a.shape, b.shape[-1]
    found = torch.empty(n, i, k, dtype=torch.float64) if out is None else out
    rows = next((rows for rows in (16, 8) if i % rows == 0 and rows * j * k <= _SMALL < i * j * k), i)
    pieces = a.numpy().reshape(n, i // rows, rows, j)
    np.matmul(pieces, b.numpy()[:, None], out=found.numpy().reshape(n, i // rows, rows, k))
    return found


def square(a: Float64[Tensor, "n i j"], out: Float64[Tensor, "n i i"]) -> None:
    """a @ a^T; NumPy computes one half of it and copies the other."""
    if _is_for_numpy(a):
        np.matmul(a.numpy(), a.numpy().mT, out=out.numpy())
    else:
        torch.matmul(a, a.mT, out=out)


def inner_product(a: Float64[Tensor, "n i j"], b: Float64[Tensor, "n i j"]) -> Float64[Tensor, " n"]:
    """The sum of a * b over both axes."""
    if _is_for_numpy(a):
        return torch.from_numpy(np.einsum("nij,nij->n", a.numpy(), b.numpy()))
    return (a * b).sum((-2, -1))


def _is_for_numpy(tensor: Tensor) -> bool:
    """With several torch threads the two libraries' thread pools would fight over the cores, which costs far more."""
    return tensor.device.type == "cpu" and torch.get_num_threads() == 1


def in_blocks(*stacks: Float[Tensor, "n _ _"]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Walk several stacks of matrices together, a block at a time, as float64.

    On the CPU a block's float64 copies stay in the cache, and their memory is used again for the next block: fresh
    memory for each costs more than the arithmetic. So a block is only valid until the next one is asked for.
    """
    count = len(stacks[0])
    if stacks[0].device.type != "cpu":
        yield slice(0, count), [stack.double() for stack in stacks]
        return
    size = block_size(*stacks)
    space = [room_for(stack, size) for stack in stacks]
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        filled = rows.stop - rows.start
        yield rows, [_copied(stack[rows], room[:filled]) for room, stack in zip(space, stacks, strict=True)]


def block_size(*stacks: Float[Tensor, "n _ _"]) -> int:
    """How many matrices of each stack are in a block on the CPU; all of them where they are small."""
    largest = max(8 * stack.shape[-1] * stack.shape[-2] for stack in stacks)
    return max(1, min(len(stacks[0]), _BLOCK_BYTES // largest))


def _copied(block: Float[Tensor, "n i j"], room: Float64[Tensor, "n i j"]) -> Float64[Tensor, "n i j"]:
    """The block as float64: by NumPy, a third faster, but not where it has no such type or is slow with it."""
    if block.dtype != torch.float32:
        return room.copy_(block)
    np.copyto(room.numpy(), block.numpy())
    return room


def room_for(stack: Float[Tensor, "n _ _"], size: int) -> Tensor:
    """Room for a block, as float64, laid out as the stack is: transposed it stays so, which BLAS does not mind."""
    if _is_transposed(stack):
        return torch.empty(size, stack.shape[2], stack.shape[1], dtype=torch.float64).mT
    return torch.empty(size, *stack.shape[1:], dtype=torch.float64)


def _is_transposed(stack: Tensor) -> bool:
    return stack.stride(-2) < stack.stride(-1)


def gathered(stack: Float[Tensor, "n i j"]) -> Float[Tensor, "n i j"]:
    """The same with each matrix in one piece, for what is read several times; no copy where it is so already.

    Where several matrices of a layer are stored as one, a head is spread over all of it.
    """
    return stack.mT.contiguous().mT if _is_transposed(stack) else stack.contiguous()


class GramMatrix:
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


Factors = tuple[Tensor, Tensor]
"""left [n, rows, inner] and right [n, inner, columns]."""

CachedGrams = tuple[GramMatrix, GramMatrix, Tensor]
"""What is worth keeping of `Grams` when the factors themselves are let go: both Gram matrices and the norms."""


@dataclass(frozen=True)
class Grams:
    """Products left @ right with both of their Gram matrices, left^T left and right right^T.

    They come in groups, one after the other: stacks of one shape that may lie in memory differently, such as the
    circuits of one layer.
    """

    groups: tuple[Factors, ...]
    of_left: GramMatrix
    of_right: GramMatrix
    squared_norm: Float64[Tensor, " n"]
    """||left @ right||_F^2, which the two Gram matrices give."""

    @staticmethod
    def of(*groups: Factors) -> "Grams":
        """Both Gram matrices of every group's products, block by block, in one stack."""
        first = groups[0][0]
        shape = sum(len(left) for left, _ in groups), first.shape[-1], first.shape[-1]
        of_left, of_right = torch.empty(2, *shape, dtype=torch.float64, device=first.device)
        rooms = zip(in_groups(of_left, groups), in_groups(of_right, groups), strict=True)
        for (left, right), (room_left, room_right) in zip(groups, rooms, strict=True):
            for rows, (a, b) in in_blocks(left, right):
                square(a.mT, room_left[rows])
                square(b, room_right[rows])
        return Grams(groups, GramMatrix(of_left), GramMatrix(of_right), inner_product(of_left, of_right))

    @property
    def cached(self) -> CachedGrams:
        """What is worth keeping when the factors themselves are let go."""
        return self.of_left, self.of_right, self.squared_norm

    @property
    def mT(self) -> "Grams":  # noqa: N802 (the array libraries' own name for it)
        """The Gram matrices of the transposed products; nothing is computed again."""
        groups = tuple((right.mT, left.mT) for left, right in self.groups)
        return Grams(groups, self.of_right, self.of_left, self.squared_norm)

    def at(self, index: Bool[Tensor, " n"]) -> Factors:
        """The factors of some of them, in float64."""
        chosen = list(zip(self.groups, in_groups(index, self.groups), strict=True))
        left = torch.cat([left[some].double() for (left, _), some in chosen])
        return left, torch.cat([right[some].double() for (_, right), some in chosen])


def in_groups(stack: Tensor, groups: Sequence[Factors]) -> tuple[Tensor, ...]:
    """What belongs to each group, of something that is one for all of them."""
    return stack.split([len(left) for left, _ in groups])


def overlap(of: Grams, with_: Grams) -> Float64[Tensor, "n _ _"]:
    """right_of right_with^T: how the rows of one stack lie along those of the other."""
    mine, theirs = of.of_right.matrix, with_.of_right.matrix
    found = torch.empty(*mine.shape[:2], theirs.shape[-1], dtype=torch.float64, device=mine.device)
    rooms = in_groups(found, of.groups)
    for (_, right), (_, other), room in zip(of.groups, with_.groups, rooms, strict=True):
        width = _SMALL // (right.shape[-2] * other.shape[-2])
        if width >= _FEWEST_COLUMNS and _is_float_by_columns(right) and _is_float_by_columns(other):
            _add_up(right.mT.numpy(), other.mT.numpy(), room.numpy(), width)
            continue
        for rows, (a, b) in in_blocks(right, other):
            product(a, b.mT, out=room[rows])
    return found


def _is_float_by_columns(stack: Tensor) -> bool:
    return stack.dtype == torch.float32 and _is_transposed(stack) and _is_for_numpy(stack)


def _add_up(
    a: Float32[np.ndarray, "n columns i"], b: Float32[np.ndarray, "n columns k"], out: np.ndarray, width: int
) -> None:
    """a^T b, so many columns at a time: as products that OpenBLAS takes for small, of what is still in the cache."""
    columns = a.shape[1]
    out[:] = 0
    width = -(-columns // -(-columns // width))  # of one size, as far as they divide
    room_a, room_b = np.empty((_HEADS, width, a.shape[2])), np.empty((_HEADS, width, b.shape[2]))
    for head in range(0, len(a), _HEADS):
        heads = slice(head, head + _HEADS)
        for start in range(0, columns, width):
            piece = heads, slice(start, start + width)
            n, size = a[piece].shape[:2]
            np.copyto(room_a[:n, :size], a[piece])
            np.copyto(room_b[:n, :size], b[piece])
            out[heads] += np.matmul(room_a[:n, :size].mT, room_b[:n, :size])
