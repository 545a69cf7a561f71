"""The weights of a model in training: seen where they are, not copied, under the names that its checkpoints have."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.in_memory import InMemory
from checkpoints.heads.find import HEAD_COUNTS

Model = torch.nn.Module | Callable[[], dict[str, Tensor]]
"""A module, or a function that gives names and tensors as they are now."""


class LiveWeights:
    """A model in training as checkpoints."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def now(self, label: str) -> InMemory:
        """All tensors as they are; they go on changing when training does."""
        tensors = self.model.state_dict() if isinstance(self.model, torch.nn.Module) else dict(self.model())
        return InMemory({name: value for name, value in tensors.items() if isinstance(value, Tensor)}, label)

    @property
    def is_sharded(self) -> bool:
        """Whether tensors are spread over several processes (FSDP2, tensor parallelism)."""
        return any(hasattr(tensor, "full_tensor") for tensor in self.now("the model").tensors.values())

    def config(self) -> dict[str, Any]:
        """What the model says of its own shape: the first `config` or `cfg` in it that knows how many heads it has."""
        for module in self.model.modules() if isinstance(self.model, torch.nn.Module) else ():
            for attribute in ("config", "cfg", "hparams"):
                found = _as_dict(getattr(module, attribute, None))
                if any(isinstance(found.get(key), int) for key in HEAD_COUNTS):
                    return found
        return {}


def _as_dict(config: Any) -> dict[str, Any]:
    if isinstance(config, Mapping):
        return dict(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    return dict(vars(config)) if hasattr(config, "__dict__") and not callable(config) else {}
