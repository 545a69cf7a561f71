"""Training in one process, or in several that each hold a part of the model.

Where parameters are sharded (FSDP2), reading one is a collective: every rank must do it, or all wait for ever. So the
first rank decides (`agree`) at steps that all ranks know to be due, and each rank measures its share of the heads.
Where every rank holds the whole model (DistributedDataParallel) the first one measures and the others do nothing.
"""

from typing import Any

import torch.distributed as dist


class Alone:
    """One process does everything."""

    rank, count = 0, 1

    def agree(self, decision: Any) -> Any:
        """What the first rank says."""
        return decision

    def gather(self, part: Any) -> list[Any]:
        """The parts of all ranks, on the first one; elsewhere nothing."""
        return [part]


class Together(Alone):
    """Several processes of the default group, in step."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def agree(self, decision: Any) -> Any:
        """What the first rank says, broadcast."""
        said = [decision]
        dist.broadcast_object_list(said, src=0)
        return said[0]

    def gather(self, part: Any) -> list[Any]:
        """The parts of all ranks, on the first one; elsewhere nothing."""
        parts: list[Any] | None = [None] * self.count if self.rank == 0 else None
        dist.gather_object(part, parts, dst=0)
        return parts or []


def is_bystander() -> bool:
    """Whether another process of the group does the monitoring, where every process holds the whole model."""
    return dist.is_available() and dist.is_initialized() and dist.get_rank() > 0
