"""Where bytes come from: a file on disk, a server. Readers ask for ranges and do not know which of them it is."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8

from checkpoints.files.checkpoint import WeightsError

Result = TypeVar("Result")


class ByteSource(ABC):
    """Where bytes come from."""

    label: str

    @property
    @abstractmethod
    def size(self) -> int:
        """How many bytes there are in all."""

    @abstractmethod
    def read(self, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """The bytes of start <= position < stop."""

    def prefetch(self, ranges: list[tuple[int, int]]) -> None:  # noqa: B027 - nothing to do, for most
        """Say which ranges will be read."""

    def forget(self) -> bool:
        """Drop what was kept of it, where something is kept: True if reading it again may give other bytes."""
        return False


class LocalFile(ByteSource):
    """A file on disk, opened for each read: a walk over thousands of checkpoints holds no descriptors.

    All that is read is of one file: one that is written to or replaced between two reads is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = str(path)
        self._version: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """How many bytes the file has now."""
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} does not exist") from None

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """The bytes of start <= position < stop."""
        content = np.empty(stop - start, np.uint8)  # not zeros: that would cost as much as reading
        with open(self.path, "rb") as file:
            file.seek(start)
            if file.readinto(content.data) != stop - start:
                raise WeightsError(f"{self.path} ends before byte {stop}: it was cut short while being read")
            found = _version(file.fileno())
        if self._version not in (None, found):
            raise WeightsError(f"{self.path} was changed while it was being read: read it again when it is written")
        self._version = found
        return content


def _version(descriptor: int) -> tuple[int, ...]:
    """What changes when a file is written to or replaced."""
    known = os.fstat(descriptor)
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns


def parsed_from(source: ByteSource, parse: Callable[[ByteSource], Result]) -> Result:
    """What parse makes of the bytes; where kept bytes do not parse they are dropped and fetched once more."""
    try:
        return parse(source)
    except WeightsError:
        if not source.forget():
            raise
        return parse(source)


def as_byte_source(source: ByteSource | Path | str) -> ByteSource:
    """A path as a source of bytes; a source of bytes as it is."""
    return LocalFile(Path(source)) if isinstance(source, str | Path) else source


class BytesInMemory(ByteSource):
    """Bytes that were read already."""

    def __init__(self, content: UInt8[np.ndarray, " n"], label: str) -> None:
        self.content, self.label = content, label

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.content)

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """The bytes of start <= position < stop, not copied."""
        if not 0 <= start <= stop <= len(self.content):
            raise WeightsError(f"{self.label} has {len(self.content)} bytes: {start} to {stop} is outside")
        return self.content[start:stop]
