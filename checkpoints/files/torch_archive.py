"""Both formats of torch.save as content and storages: zip archives (since torch 1.6), and pickles in a row before that.

    content    what was saved, with a `TensorRecord` for every tensor; nothing else is read for it
    tensor     the values of such a record, read by their range

In an archive the pickle is the record data.pkl and each storage a record data/KEY, whose size must be the storage's.
The older format is five pickles (a magic number, a version, the machine, the content, the keys of the storages) and
then the storages in the order of their keys, each after its number of elements.
"""

import struct
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from checkpoints.files.byte_source import ByteSource
from checkpoints.files.checkpoint import WeightsError
from checkpoints.files.pickle_values import BrokenError, EndedError, ForbiddenError, Names
from checkpoints.files.pickles import Machine
from checkpoints.files.torch_pickle import NAMES, Storage, TensorRecord, storage_of
from checkpoints.files.zip_archive import ZipArchive, damaged, is_zip

MAGIC = 0x1950A86A20F9469CFC6C
_TRUST = "If you trust it, load it yourself and save the state dict alone, as safetensors"


class TorchArchive(ABC):
    """What torch.save wrote: content that describes tensors, and storages that hold them."""

    bytes: ByteSource
    content: Any
    is_swapped: bool = False
    """Whether the numbers are big-endian."""

    @abstractmethod
    def place(self, storage: Storage) -> int:
        """At which byte of the file a storage begins; raises where the file has another size for it."""

    @abstractmethod
    def span(self, storage: Storage) -> tuple[int, int]:
        """What has to be fetched to read a storage."""

    def read(self, storage: Storage, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """Bytes of a storage."""
        begin = self.place(storage)
        return self.bytes.read(begin + start, begin + stop)

    def verify(self) -> None:  # noqa: B027 - nothing to compare with, in the older format
        """Compare the content with checksums, where there are any."""

    def tensor(self, record: TensorRecord) -> Tensor:
        """The values of a tensor, which owns them."""
        fault = record.fault()
        if fault:
            raise damaged(self.bytes, f"a tensor of {fault}")
        start, stop = record.span
        if start == stop:
            self.place(record.storage)
            return torch.empty(record.shape, dtype=record.dtype)
        content = self.read(record.storage, start, stop)
        if self.is_swapped:
            content = _swapped(content, record.dtype)
        values = torch.frombuffer(content, dtype=record.dtype)
        if record.stride == _contiguous(record.shape):
            values = values.reshape(record.shape)
        else:
            is_dense = values.numel() * record.dtype.itemsize == record.bytes
            values = values.as_strided(record.shape, record.stride)
            values = values if is_dense else values.contiguous()
        if record.conjugate:
            values = values.conj().resolve_conj()
        return -values if record.negative else values


class ZipTensors(TorchArchive):
    """A zip archive of torch.save."""

    def __init__(self, source: ByteSource) -> None:
        self.bytes, self.archive = source, ZipArchive(source)
        records = self.archive.records
        pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise damaged(source, f"its archive holds {len(pickles)} pickles called data.pkl where one is expected")
        self.folder = pickles[0].removesuffix("data.pkl")
        if self.folder + "constants.pkl" in records:
            raise WeightsError(f"{source.label} is refused: it is a TorchScript program, not weights. {_TRUST}")
        order = self.folder + "byteorder"
        self.is_swapped = order in records and self.archive.read(order).tobytes() == b"big"
        self.content, _ = read_pickle(source, self.archive.read(pickles[0]).tobytes(), NAMES)

    def _record(self, storage: Storage) -> str:
        name = f"{self.folder}data/{storage.key}"
        record = self.archive.records.get(name)
        if record is None:
            raise damaged(self.bytes, f"the storage {storage.key!r} of a tensor is not in it")
        if record.size != storage.bytes:
            raise damaged(self.bytes, f"{name!r} has {record.size} bytes, and its tensors say {storage.bytes}")
        return name

    def place(self, storage: Storage) -> int:
        """Where the record begins."""
        return self.archive.start(self._record(storage))

    def span(self, storage: Storage) -> tuple[int, int]:
        """The record with its header."""
        return self.archive.span(self._record(storage))

    def read(self, storage: Storage, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """Bytes of a record, compared with its checksum where that costs little."""
        return self.archive.read(self._record(storage), start, stop)

    def verify(self) -> None:
        """Compare every record with its checksum."""
        self.archive.verify()


class OldTensors(TorchArchive):
    """A file of torch before 1.6: pickles in a row, then the storages."""

    def __init__(self, source: ByteSource) -> None:
        self.bytes = source
        self.storages: dict[str, Storage] = {}
        length = min(source.size, 1 << 20)
        while True:
            try:
                self._read(source.read(0, length).tobytes())
                break
            except EndedError:
                if length == source.size:
                    raise damaged(source, "it ends before its pickle does") from None
                length = min(source.size, 4 * length)

    def _read(self, head: bytes) -> None:
        at, pickled = 0, []
        for names in (NAMES,) * 5:
            content, at = read_pickle(self.bytes, head, names, self._storage, at, may_end=True)
            pickled.append(content)
            if pickled[0] != MAGIC:
                raise damaged(self.bytes, "it is a pickle, but not one that torch.save wrote")
        _, _, machine, self.content, keys = pickled
        self.is_swapped = isinstance(machine, dict) and machine.get("little_endian") is False
        if type(keys) is not list or not all(type(key) is str for key in keys) or set(keys) != set(self.storages):
            raise damaged(self.bytes, "the list of its storages is not that of its tensors")
        self.places: dict[str, int] = {}
        for key in keys:
            self.places[key] = at + 8
            at += 8 + self.storages[key].bytes
        if len(self.places) != len(keys) or at > self.bytes.size:
            raise damaged(self.bytes, f"its storages would end at byte {at}")

    def _storage(self, identifier: Any) -> Any:
        if type(identifier) is tuple and len(identifier) > 5 and identifier[5] is not None:
            raise BrokenError("its storages are parts of each other, as before torch 0.4. Load it and save it anew")
        storage = storage_of(identifier)
        if isinstance(storage, Storage) and self.storages.setdefault(storage.key, storage) != storage:
            raise BrokenError(f"the storage {storage.key!r} has two sizes")
        return storage

    def place(self, storage: Storage) -> int:
        """Where the values begin; the number of elements before them must be that of the pickle."""
        place = self.places[storage.key]
        (count,) = struct.unpack("<q", self.bytes.read(place - 8, place).tobytes())
        if count * (storage.dtype.itemsize if storage.dtype else 1) != storage.bytes:
            raise damaged(self.bytes, f"storage {storage.key!r} has {count} elements, its tensors say otherwise")
        return place

    def span(self, storage: Storage) -> tuple[int, int]:
        """The number of elements and the values."""
        return self.places[storage.key] - 8, self.places[storage.key] + storage.bytes


def open_archive(source: ByteSource) -> TorchArchive:
    """What torch.save wrote, as data. Raises WeightsError for everything that is not data, or not whole."""
    if source.size == 0:
        raise WeightsError(f"{source.label} cannot be read: it is empty. Copy it again or delete it")
    if is_zip(source):
        return ZipTensors(source)
    if source.size > 512 and source.read(257, 262).tobytes() == b"ustar":
        raise WeightsError(f"{source.label} is refused: it is a tar archive. Unpack it and open what is inside")
    return OldTensors(source)


def read_pickle(
    source: ByteSource,
    content: bytes,
    names: Names,
    persistent: Any = storage_of,
    at: int = 0,
    *,
    may_end: bool = False,
) -> tuple[Any, int]:
    """What a pickle holds as data, and where it ends; what asks for more is refused by name and never run."""
    machine = Machine(content, names, persistent, given=source.size, at=at)
    try:
        return machine.load(), machine.at
    except ForbiddenError as name:
        raise WeightsError(
            f"{source.label} is refused and nothing of it was run: it is not only data, it asks for {name}. {_TRUST}"
        ) from None
    except EndedError as error:
        if may_end:
            raise
        raise damaged(source, str(error)) from None
    except BrokenError as error:
        raise damaged(source, str(error)) from None


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _swapped(content: UInt8[np.ndarray, " n"], dtype: torch.dtype) -> UInt8[np.ndarray, " n"]:
    """Big-endian numbers as little-endian ones; the halves of a complex number change places each by itself."""
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    return np.ascontiguousarray(content.reshape(-1, width)[:, ::-1]).reshape(-1)
