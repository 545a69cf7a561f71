"""A file of numpy.savez: a zip archive with one array per record, each after a short header that describes it.

Only arrays of plain numbers are read; arrays of objects are pickles and are refused. Slashes in names (as JAX writes
nested parameters) become dots.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from checkpoints.files.byte_source import ByteSource, as_byte_source
from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError
from checkpoints.files.safetensors_file import as_tensor
from checkpoints.files.zip_archive import ZipArchive, damaged, is_zip

DTYPES = {
    "f2": torch.float16, "f4": torch.float32, "f8": torch.float64, "c8": torch.complex64, "c16": torch.complex128,
    "i1": torch.int8, "i2": torch.int16, "i4": torch.int32, "i8": torch.int64, "b1": torch.bool,
    "u1": torch.uint8, "u2": torch.uint16, "u4": torch.uint32, "u8": torch.uint64,
}  # fmt: skip

_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\{'descr': '(?P<dtype>[^']{1,40})', 'fortran_order': (?P<by_columns>True|False), "
    r"'shape': \((?P<shape>[\d, ]{0,600})\),? *\}\s*"
)
_LONGEST_HEADER = 10_000


class _Array(NamedTuple):
    record: str
    start: int
    stored: Stored
    by_columns: bool


class NpzFile(Checkpoint):
    """The arrays of one .npz file."""

    def __init__(self, source: ByteSource | Path | str) -> None:
        self.bytes = as_byte_source(source)
        self.label = self.bytes.label

    @cached_property
    def archive(self) -> ZipArchive:
        """The records of the file."""
        if not is_zip(self.bytes):
            raise damaged(self.bytes, "it is not an archive of numpy.savez")
        return ZipArchive(self.bytes)

    @cached_property
    def _arrays(self) -> dict[str, _Array]:
        found: dict[str, _Array] = {}
        for record in self.archive.records:
            name = record.removesuffix(".npy").replace("/", ".")
            if name in found:
                raise damaged(self.bytes, f"two of its arrays are {name!r}")
            found[name] = self._array(record)
        return found

    def _array(self, record: str) -> _Array:
        size = self.archive.records[record].size
        head = self.archive.read(record, 0, min(size, 512)).tobytes()
        wide = head[6:7] != b"\x01"  # since version 2 the length of the header has four bytes
        length = int.from_bytes(head[8 : 12 if wide else 10], "little")
        start = (12 if wide else 10) + length
        if not head.startswith(_MAGIC) or length > _LONGEST_HEADER or start > size:
            raise damaged(self.bytes, f"{record!r} is not an array of NumPy")
        if start > len(head):
            head = self.archive.read(record, 0, start).tobytes()
        match = _HEADER.fullmatch(head[12 if wide else 10 : start].decode("latin1"))
        dtype = match and match["dtype"]
        if match is None or not dtype or dtype[0] not in "<|=" or dtype[1:] not in DTYPES:
            told = dtype or "objects, or of several fields"
            raise WeightsError(f"{self.bytes.label} is refused: {record!r} is an array of {told}, not of plain numbers")
        numbers = [int(size) for size in match["shape"].replace(" ", "").split(",") if size]
        stored = Stored(DTYPES[dtype[1:]], tuple(numbers), self.label)
        if len(numbers) > 64 or stored.bytes != size - start:
            raise damaged(self.bytes, f"{record!r} of shape {stored.shape} cannot have {size - start} bytes")
        return _Array(record, start, stored, match["by_columns"] == "True")

    def _table(self) -> Mapping[str, Stored]:
        return {name: array.stored for name, array in self._arrays.items()}

    def _read(self, name: str) -> Tensor:
        record, start, stored, by_columns = self._arrays[name]
        content = self.archive.read(record, start)
        if not by_columns:
            return as_tensor(content, stored)
        turned = Stored(stored.dtype, stored.shape[::-1], stored.file)
        return as_tensor(content, turned).permute(*reversed(range(len(stored.shape)))).contiguous()

    def _prefetch(self, raw_names: list[str]) -> None:
        self.bytes.prefetch([self.archive.span(self._arrays[name].record) for name in raw_names])

    def verify(self) -> None:
        """Compare every array with its checksum."""
        self.archive.verify()
