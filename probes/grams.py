"""Small matrices that stand for large ones: Gram matrices of the factors, in float64, computed in cache-sized blocks.

For M = left @ right, A = left^T left and B = right right^T are inner x inner and hold all that norms, spectra and
distances between row spaces need. Squaring costs half of the digits; who uses them says when that is too much and goes
another way.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

_BLOCK_BYTES = 2**21


def gram(x: Float64[Tensor, "n long short"]) -> Float64[Tensor, "n short short"]:
    """x^T x. NumPy recognises this product of a matrix with itself and does half the work; torch does not.

    With several torch threads the two libraries' thread pools would fight over the cores, which costs far more.
    """
    if x.device.type != "cpu" or torch.get_num_threads() > 1:
        return x.mT @ x
    array = x.numpy()
    return torch.from_numpy(np.matmul(array.mT, array))


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
    space = [torch.empty(size, *stack.shape[1:], dtype=torch.float64) for stack in stacks]
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        filled = rows.stop - rows.start
        yield rows, [room[:filled].copy_(stack[rows]) for room, stack in zip(space, stacks, strict=True)]
