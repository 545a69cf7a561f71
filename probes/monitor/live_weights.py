"""The weights of a model in training: seen where they are, not copied, under the names that its checkpoints have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.checkpoint import abridged
from checkpoints.files.in_memory import InMemory, is_sharded
from checkpoints.heads.configs import HEAD_COUNTS, KV_HEAD_COUNTS, knows_heads

Model = torch.nn.Module | Callable[[], dict[str, Tensor]]
"""A module, or a function that gives names and tensors as they are now."""

_HEADS = (*HEAD_COUNTS, "nhead", "nheads", "heads")
_KV_HEADS = (*KV_HEAD_COUNTS, "n_kv_head", "num_kv_head")
"""What modules call the number of their heads."""
_FSDP1 = "FullyShardedDataParallel"


class LiveWeights:
    """A model in training as checkpoints."""

    def __init__(self, model: Model) -> None:
        if any(type(module).__name__ == _FSDP1 for module in _modules(model)):
            raise ValueError(
                f"the model is wrapped in {_FSDP1}, whose state_dict() has to be called by all ranks and gathers all "
                "of it at once: shard it with torch.distributed.fsdp.fully_shard (FSDP2), which leaves it in place"
            )
        self.model = model
        self._names: list[str] = []
        self._unwrapped: dict[str, str] = {}

    def now(self, label: str) -> InMemory:
        """All tensors as they are; they go on changing when training does."""
        tensors = self.model.state_dict() if isinstance(self.model, torch.nn.Module) else dict(self.model())
        found = InMemory({name: value for name, value in tensors.items() if isinstance(value, Tensor)}, label)
        names = list(found.tensors)
        if names == self._names:
            vars(found)["_raw_names"] = self._unwrapped  # which else are worked out anew, name by name
        else:
            self._names, self._unwrapped = names, found._raw_names
        return found

    @property
    def is_sharded(self) -> bool:
        """Whether tensors are spread over several processes (FSDP2, tensor parallelism)."""
        return any(is_sharded(tensor) for tensor in self.now("the model").tensors.values())

    def names(self) -> list[str]:
        """The names of all tensors, those of every shard alike."""
        return list(self.now("the model"))

    def own_bytes(self) -> int:
        """How much memory the tensors of this process take; of sharded ones, its shards."""
        tensors = self.now("the model").tensors.values()
        return sum(getattr(tensor, "_local_tensor", tensor).nbytes for tensor in tensors)

    def must_have(self, names: list[str]) -> None:
        """Raise ValueError where the tensors are not those of the first rank, which are these."""
        other = sorted({*names} ^ {*self.names()})
        if other:
            raise ValueError(
                f"this rank and the first one hold different tensors, {abridged(other)} among them: a model cut into "
                "stages (pipeline parallelism) cannot be monitored, only one of which every rank holds a shard"
            )

    def config(self) -> dict[str, Any]:
        """What the model says of its own shape: the first `config` or `cfg` in it that knows how many heads it has."""
        for module in _modules(self.model):
            for attribute in ("config", "cfg", "hparams"):
                found = _as_dict(getattr(module, attribute, None))
                if knows_heads(found):
                    return found
        return self._counted_in_modules()

    def _counted_in_modules(self) -> dict[str, int]:
        """How many heads the modules themselves say they have, as `n_head` does; nothing where they disagree."""
        found = {}
        for key, names in (("num_attention_heads", _HEADS), ("num_key_value_heads", _KV_HEADS)):
            said = [vars(module).get(name) for module in _modules(self.model) for name in names]
            counts = {count for count in said if isinstance(count, int) and not isinstance(count, bool) and count > 0}
            if len(counts) == 1:
                found[key] = counts.pop()
        return found if "num_attention_heads" in found else {}


def _modules(model: Model) -> Iterable[torch.nn.Module]:
    """A module and all inside it; a function has none."""
    return model.modules() if isinstance(model, torch.nn.Module) else ()


def _as_dict(config: Any) -> dict[str, Any]:
    """What a config says, whatever library made it; nothing if it is none."""
    if isinstance(config, Mapping):
        return dict(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    return dict(vars(config)) if hasattr(config, "__dict__") and not callable(config) else {}
