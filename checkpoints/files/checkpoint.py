"""A checkpoint: tensors by name, known before they are read and read only when asked for.

What a file must offer is a table of what is stored (`Stored`: dtype, shape, in which file) and a way to read one
tensor. Names lose what wrappers put in front of them (`module.` of DataParallel, `_orig_mod.` of torch.compile).
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from checkpoints.notebook import in_bytes, told

_BRIDGE = "_original_component."
WRAPPERS = (
    *("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_forward_module."),
    _BRIDGE,
)
"""What DataParallel, torch.compile, FSDP, activation checkpointing, Lightning's strategies and TransformerLens' bridge
put into names."""


class WeightsError(ValueError):
    """A file of weights that cannot or must not be read; the message names it, and is short whatever it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= 2000 else f"{message[:1500]} ... {message[-300:]}")


@dataclass(frozen=True)
class Stored:
    """One tensor as a file describes it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    file: str

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return math.prod(self.shape) * self.dtype.itemsize


class Checkpoint(Mapping):  # of str to Tensor; said in prose, or type checkers would read a tensor to check it
    """The tensors of one checkpoint by name. Only the tensor asked for is read."""

    is_remote: bool = False
    """Whether reading costs requests."""

    label: str
    """Which file, folder or revision this is; errors name it."""

    @property
    def lists_cheaply(self) -> bool:
        """Whether what is stored can be told without reading weights or asking a server."""
        return "stored" in self.__dict__ or not self.is_remote

    @abstractmethod
    def _table(self) -> Mapping[str, Stored]:
        """What is stored, by the names in the file."""

    @abstractmethod
    def _read(self, name: str) -> Tensor:
        """One tensor, by its name in the file."""

    @property
    def recorded_step(self) -> int | None:
        """The step that the checkpoint itself says it is, where it says so."""
        return None

    @property
    def recorded_config(self) -> dict[str, Any]:
        """The shape of the model, where the checkpoint itself keeps it."""
        return {}

    def prefetch(self, names: list[str]) -> None:
        """Say which tensors will be read, so that a remote checkpoint can ask for them in few requests."""
        self._prefetch([self._raw_names[name] for name in names if name in self._raw_names])

    def _prefetch(self, raw_names: list[str]) -> None:
        """The same, by the names in the file."""

    def verify(self) -> None:
        """Compare what is stored with the checksums that the file has of it; a format without any has nothing to say.

        Reads all of the file. Raises WeightsError where they differ.
        """

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """What there is: dtype, shape and file of every tensor; nothing is read for it but the table of contents."""
        table = self._table()
        return {name: table[raw] for name, raw in self._raw_names.items()}

    @cached_property
    def _raw_names(self) -> dict[str, str]:
        table = self._table()
        names: dict[str, str] = {}
        for raw in sorted(table):
            if not is_text(raw):
                raise WeightsError(f"{self.label} cannot be read: a tensor is called {raw[:100]!a}, which is not text")
            name = without_wrappers(raw)
            # a bridge lists one tensor under several wrapped names; elsewhere two names are two tensors
            if name in names and _BRIDGE not in raw + names[name]:
                raise WeightsError(f"{self.label}: {raw!r} and {names[name]!r} are both {name!r} once unwrapped")
            names.setdefault(name, raw)
        return dict(sorted(names.items()))

    def __getitem__(self, name: str) -> Tensor:
        """One tensor, read now."""
        if name not in self._raw_names:
            raise KeyError(f"{self.label} has no tensor {name!r}; it has {abridged(list(self))}")
        return self._read(self._raw_names[name])

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor; it is not read for that."""
        return name in self._raw_names

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors, sorted."""
        return iter(self._raw_names)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._raw_names)

    def __repr__(self) -> str:
        """Where it is and, where that costs nothing, how much is in it."""
        return f"{type(self).__name__}({self.label!r}, {told(self._extent)})"

    def _extent(self) -> str:
        if not self.lists_cheaply:
            return "not read yet"
        size = sum(stored.bytes for stored in self.stored.values())
        return f"{len(self)} tensor{'s' if len(self) != 1 else ''}, {in_bytes(size)}"


Tensors = Checkpoint | dict[str, Tensor]
"""What tensors are read from: a checkpoint, or a state dict in memory."""


def without_wrappers(name: str) -> str:
    """A parameter's name without what wrapping the model put into it."""
    start = 0
    while wrapper := next((word for word in WRAPPERS if name.startswith(word, start)), ""):
        start += len(wrapper)
    name = name[start:]
    for wrapper in WRAPPERS:
        name = name.replace("." + wrapper, ".")
    return name


def is_text(name: str) -> bool:
    """Whether a name can be written at all: JSON and pickles can say half a character."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def abridged(items: list, most: int = 8) -> str:
    """A list for a message: the first few and the last, none of them longer than a line."""
    texts = [text if len(text := str(item)) <= 200 else f"{text[:200]}..." for item in items[: most - 1]]
    if len(items) >= most:
        texts += ["..."] * (len(items) > most) + [str(items[-1])[:200]]
    return ", ".join(texts) or "nothing"
