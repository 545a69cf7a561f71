"""Training in one process, or in several that each hold a part of the model and have to stay in step.

Where parameters are sharded (FSDP2), reading one is a collective: every rank must do it, or all wait for ever. So ranks
must never part ways, and there are two ways in which they could:

    a decision that each would take by itself   `first`: one rank decides, and all are told
    an error that only one of them has          `first`, `everywhere`: it is raised on all of them

What may fail is called through one of these, or fails where no collective follows that the others would wait in. Where
every rank holds the whole model (DistributedDataParallel) the first one monitors and the others do nothing.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


class ElsewhereError(RuntimeError):
    """Another rank failed, and reports it itself."""


class SingleProcess:
    """One process does everything."""

    rank, count = 0, 1

    def first(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call on the first rank; what it returns or raises is returned or raised on all."""
        return function(*arguments)

    def everywhere(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call on every rank; where one fails, all raise."""
        return function(*arguments)

    def gather(self, part: T) -> list[T]:
        """The parts of all ranks, on the first one; elsewhere nothing."""
        return [part]


class ProcessGroup(SingleProcess):
    """Several processes of the default group, in step."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def first(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call on the first rank; what it returns (which is sent) or raises is returned or raised on all."""
        value, error = _tried(function, *arguments) if self.rank == 0 else (None, None)
        said: list[Any] = [(value, self._told(error))]
        dist.broadcast_object_list(said, src=0)
        value, told = said[0]
        _raise(error, told)
        return value

    def everywhere(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call on every rank; where one fails, all raise."""
        value, error = _tried(function, *arguments)
        told: list[str | None] = [None] * self.count
        dist.all_gather_object(told, self._told(error))
        _raise(error, next(filter(None, told), None))
        return value

    def gather(self, part: T) -> list[T]:
        """The parts of all ranks, on the first one; elsewhere nothing."""
        parts: list[Any] | None = [None] * self.count if self.rank == 0 else None
        dist.gather_object(part, parts, dst=0)
        return parts or []

    def _told(self, error: Exception | None) -> str | None:
        """What the other ranks are told of an error of this one."""
        return f"on rank {self.rank}: {type(error).__name__}: {error}" if error else None


def is_bystander() -> bool:
    """Whether another process of the group does the monitoring, where every process holds the whole model."""
    return dist.is_available() and dist.is_initialized() and dist.get_rank() > 0


def _tried(function: Callable[..., T], *arguments: Any) -> tuple[Any, Exception | None]:
    """What a function returns, or raises."""
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


def _raise(own: Exception | None, told: str | None) -> None:
    """An error of this rank, or else what was told of that of another; if there is one."""
    if own:
        raise own
    if told:
        raise ElsewhereError(told)
