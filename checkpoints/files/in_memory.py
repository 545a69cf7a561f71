"""Tensors that are in memory already: those of a model in training, or a copy of some of them."""

import torch
from torch import Tensor

from checkpoints.files.checkpoint import Checkpoint, Stored


class InMemory(Checkpoint):
    """Names and tensors as a checkpoint. Nothing is copied; of sharded tensors each is gathered when it is read."""

    def __init__(self, tensors: dict[str, Tensor], label: str) -> None:
        self.tensors, self.label = tensors, label

    def _table(self) -> dict[str, Stored]:
        return {name: Stored(tensor.dtype, tuple(tensor.shape), self.label) for name, tensor in self.tensors.items()}

    def _read(self, name: str) -> Tensor:
        return whole(self.tensors[name])

    def where_it_is(self, name: str) -> Tensor:
        """A tensor on its own device; one that is sharded is gathered, by all processes."""
        return gathered(self.tensors[self._raw_names[name]])

    def copy_of(self, names: list[str], label: str) -> "InMemory":
        """Some of the tensors as they are now; what follows does not change them. Shards stay shards."""
        return InMemory({name: self.tensors[self._raw_names[name]].detach().clone() for name in names}, label)

    def gathered(self, names: list[str]) -> "InMemory":
        """Some of the tensors, whole; those that are sharded are gathered now, by all processes in this order."""
        return InMemory({name: self[name] for name in names}, self.label)


def whole(tensor: Tensor) -> Tensor:
    """A tensor on the processor; one that is spread over several processes (DTensor) is gathered, by all of them."""
    return gathered(tensor).cpu()


def gathered(tensor: Tensor) -> Tensor:
    """A tensor where it is; one that is spread over several processes (DTensor) is gathered, by all of them."""
    if not is_sharded(tensor):
        return tensor.detach()
    with torch.no_grad():
        return tensor.detach().full_tensor()  # pyright: ignore[reportAttributeAccessIssue]


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is spread over several processes (DTensor)."""
    return hasattr(tensor, "full_tensor")
