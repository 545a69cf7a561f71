"""Copies of the weights that are measured, in a few places that are used again and again.

Each slot holds the same tensors at the same addresses, so that what a layout makes of them (views, one head beside the
next) is found once and not at every measurement. The memory may be this process' own, or be shared with a worker that
measures there what was copied here.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from checkpoints.files.checkpoint import Stored
from checkpoints.files.in_memory import InMemory

_ALIGNED = 64  # bytes


@dataclass(frozen=True)
class SlotLayout:
    """Where in a slot each tensor lies: by name its first byte, dtype and shape. The same in every process."""

    places: Mapping[str, tuple[int, torch.dtype, tuple[int, ...]]]
    nbytes: int
    """Of one slot."""

    @staticmethod
    def of(stored: Mapping[str, Stored], names: list[str]) -> "SlotLayout":
        """Some of the tensors of a model, one after the other."""
        places, end = {}, 0
        for name in names:
            dtype, shape = stored[name].dtype, tuple(stored[name].shape)
            places[name] = end, dtype, shape
            end += -(-prod(shape) * dtype.itemsize // _ALIGNED) * _ALIGNED
        return SlotLayout(places, max(end, _ALIGNED))


class WeightSlots:
    """So many copies of the same tensors, in memory of our own or in what is handed in."""

    def __init__(self, layout: SlotLayout, count: int, memory: bytearray | mmap.mmap | None = None) -> None:
        self.layout, self.count = layout, count
        self._memory = torch.frombuffer(memory or bytearray(count * layout.nbytes), dtype=torch.uint8)
        self._tensors = [self._in_slot(slot) for slot in range(count)]

    def __getitem__(self, slot: int) -> dict[str, Tensor]:
        """The tensors in a slot, by name."""
        return self._tensors[slot]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is a view of one of the slots, and changes with it."""
        first = tensor.data_ptr() - self._memory.data_ptr()
        return 0 <= first < self.count * self.layout.nbytes

    def fill(self, slot: int, weights: InMemory) -> None:
        """Copy the weights as they are now; raises ValueError where they are not what they were at the beginning."""
        with torch.no_grad():
            for name, room in self._tensors[slot].items():
                now = weights.where_it_is(name)
                if now.shape != room.shape or now.dtype != room.dtype:
                    raise ValueError(
                        f"{weights.label}: {name} is {tuple(now.shape)} of {now.dtype}, and was {tuple(room.shape)} of "
                        f"{room.dtype} when monitoring began: make a new Monitor where a model is changed"
                    )
                room.copy_(now, non_blocking=True)
        _wait_for(weights)

    def _in_slot(self, slot: int) -> dict[str, Tensor]:
        found = {}
        for name, (start, dtype, shape) in self.layout.places.items():
            start += slot * self.layout.nbytes
            room = self._memory[start : start + prod(shape) * dtype.itemsize]
            found[name] = room.view(dtype).reshape(shape)
        return found


def _wait_for(weights: InMemory) -> None:
    """Until an accelerator has copied what it was asked for: the next update must not come in between."""
    if torch.cuda.is_initialized() and any(tensor.is_cuda for tensor in weights.tensors.values()):
        torch.cuda.current_stream().synchronize()
