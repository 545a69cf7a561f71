"""An endless, reproducible stream of batches for one seed; its place can be saved and restored exactly.

Batches are drawn a few dozen at a time, because drawing costs more calls than arithmetic. The place is the state of the
generator at the start of the current block, and how many of its batches have been handed out. A batch is a dataclass of
tensors, one row per prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor

Batch = TypeVar("Batch")


class Stream(Generic[Batch]):
    """`draw(count, generator)` gives `count` new rows; `next` hands them out `batch` at a time."""

    BLOCK = 64

    def __init__(self, draw: Callable[[int, Generator], Batch], batch: int, seed: int) -> None:
        if batch < 1:
            raise ValueError(f"batch is {batch}: at least one prompt is needed")
        self.batch, self._draw = batch, draw
        self._generator = torch.Generator().manual_seed(seed)
        self._draw_block()

    def next(self) -> Batch:
        """The next batch; a new block is drawn where this one is used up."""
        if self._used == self.BLOCK:
            self._draw_block()
        rows = slice(self._used * self.batch, (self._used + 1) * self.batch)
        self._used += 1
        return _map(lambda parts: parts[0][rows], [self._block])

    def state(self) -> dict[str, Tensor]:
        """Where the stream is."""
        return {"generator": self._block_start, "used": torch.tensor(self._used)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go to a place."""
        self._generator.set_state(state["generator"])
        self._draw_block()
        self._used = int(state["used"])

    def _draw_block(self) -> None:
        self._block_start, self._used = self._generator.get_state(), 0
        self._block = self._draw(self.BLOCK * self.batch, self._generator)


def next_of_all(streams: Sequence[Stream[Batch]]) -> Batch:
    """The next batch of every stream, stacked: [seeds, batch, ...]."""
    return _map(torch.stack, [stream.next() for stream in streams])


def _map(function: Callable[[list[Tensor]], Tensor], batches: list[Any]) -> Any:
    """Field by field, over batches of one kind."""
    kind = type(batches[0])
    return kind(*(function([getattr(batch, field.name) for batch in batches]) for field in fields(kind)))
