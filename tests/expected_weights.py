"""What an opened checkpoint must give back."""

import torch
from torch import Tensor

from checkpoints import Checkpoint


def expect(checkpoint: Checkpoint, state: dict[str, Tensor]) -> None:
    assert set(checkpoint) == set(state)
    for name, tensor in state.items():
        assert checkpoint[name].dtype == tensor.dtype
        assert torch.equal(checkpoint[name], tensor), name
        assert checkpoint.stored[name].shape == tuple(tensor.shape)
    checkpoint.prefetch(list(state))
    checkpoint.verify()
