"""A safetensors file, read by byte ranges: eight bytes of length, a JSON table of contents, then the tensors.

The table is checked whole before anything is believed: names once each, known dtypes, sizes that agree with shapes,
ranges that neither overlap nor leave holes nor end outside the file. Where the bytes come from (a disk, a server) is
the business of a `ByteSource`.
"""

import json
import math
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from checkpoints.files.byte_source import ByteSource, as_byte_source, parsed_from
from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError, is_text

LONGEST_TABLE = 100_000_000
"""Bytes; the limit that the format's own library sets."""

DIMENSIONS, LARGEST = 64, 1 << 62
"""What a shape may have, and a number in it."""

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class SafetensorsFile(Checkpoint):
    """The tensors of one safetensors file."""

    def __init__(self, source: ByteSource | Path | str) -> None:
        self.bytes = as_byte_source(source)
        self.label = self.bytes.label
        self._contents: dict[str, tuple[Stored, int]] | None = None

    def _ranges(self) -> dict[str, tuple[Stored, int]]:
        if self._contents is None:
            self._contents = parsed_from(self.bytes, table_of_contents)
        return self._contents

    def _table(self) -> Mapping[str, Stored]:
        return {name: stored for name, (stored, _) in self._ranges().items()}

    def byte_range(self, name: str) -> tuple[int, int]:
        """Where a tensor lies, by its name in the file."""
        stored, start = self._ranges()[name]
        return start, start + stored.bytes

    def _prefetch(self, raw_names: list[str]) -> None:
        self.bytes.prefetch([self.byte_range(name) for name in raw_names])

    def _read(self, name: str) -> Tensor:
        stored = self._ranges()[name][0]
        return as_tensor(self.bytes.read(*self.byte_range(name)), stored)


def as_tensor(content: UInt8[np.ndarray, " n"], stored: Stored) -> Tensor:
    """Raw little-endian bytes as a tensor that owns them."""
    if sys.byteorder != "little":
        raise WeightsError(f"{stored.file}: this machine is big-endian, which is not supported")
    if not content.size:
        return torch.empty(stored.shape, dtype=stored.dtype)
    return torch.frombuffer(content, dtype=stored.dtype).reshape(stored.shape)


def table_of_contents(source: ByteSource) -> dict[str, tuple[Stored, int]]:
    """By name: what is stored and at which byte it begins. Raises WeightsError on anything that does not add up."""
    size = source.size
    if size == 0:
        raise _refused(source, "it is empty")
    if size < 8:
        raise _refused(source, f"it is {size} bytes long: cut short")
    (length,) = struct.unpack("<Q", source.read(0, 8).tobytes())
    if length == 0 or length > min(LONGEST_TABLE, size - 8):
        (swapped,) = struct.unpack(">Q", struct.pack("<Q", length))
        hint = (
            "it is filled with zeros"
            if length == 0
            else "its length is written in the wrong byte order"
            if swapped <= size - 8
            else "it is cut short, or not a safetensors file"
        )
        raise _refused(source, f"its table of contents would be {length} bytes long in a file of {size}; {hint}")
    text = source.read(8, 8 + length).tobytes()
    if 80 * (text.count(b"[") + text.count(b"{")) + 40 * text.count(b",") > 16_000_000 + 4 * size:
        raise _refused(source, "its table of contents has far more entries than a file of this size should")
    try:
        table = json.loads(text, object_pairs_hook=lambda pairs: _each_once(source, pairs))
    except WeightsError:
        raise
    except (ValueError, RecursionError) as error:
        raise _refused(source, f"its table of contents is not JSON ({error})") from None
    if not isinstance(table, dict):
        raise _refused(source, "its table of contents is not a table")
    if b"\\ud" in text.lower() and not is_text(json.dumps(table, ensure_ascii=False)):
        raise _refused(source, "its table of contents is not text: it has half a character in it")
    table.pop("__metadata__", None)
    return _checked(source, table, 8 + length, size)


def _checked(source: ByteSource, table: dict[str, Any], begin: int, size: int) -> dict[str, tuple[Stored, int]]:
    contents, spans = {}, []
    for name, entry in table.items():
        stored, start, stop = _entry(source, name, entry)
        contents[name] = (stored, begin + start)
        spans.append((start, stop, name))
    end = 0
    for start, stop, name in sorted(spans):
        if start != end:
            raise _refused(source, f"tensor {name!r} begins at byte {start} where {end} is expected: overlap or hole")
        end = stop
    if begin + end != size:
        verb = "cut short" if begin + end > size else "followed by something else"
        raise _refused(source, f"its tensors end at byte {begin + end} and the file at {size}: it is {verb}")
    return contents


def _entry(source: ByteSource, name: str, entry: Any) -> tuple[Stored, int, int]:
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, start, stop]
    except (KeyError, TypeError, ValueError):
        raise _refused(source, f"tensor {name!r} is not described by dtype, shape and data_offsets") from None
    if (
        not isinstance(shape, list)
        or len(shape) > DIMENSIONS
        or not all(type(number) is int and 0 <= number < LARGEST for number in numbers)
    ):
        told = f"shape {str(shape)[:200]}, bytes {str(start)[:40]} to {str(stop)[:40]}"
        raise _refused(source, f"tensor {name!r}: {told} are not all whole numbers that a file can hold")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _refused(source, f"tensor {name!r} has dtype {dtype!r}; known are {', '.join(DTYPES)}")
    stored = Stored(DTYPES[dtype], tuple(shape), source.label)
    if stop - start != math.prod(shape) * DTYPES[dtype].itemsize:
        raise _refused(source, f"tensor {name!r} of shape {shape} and dtype {dtype} cannot have {stop - start} bytes")
    return stored, start, stop


def _each_once(source: ByteSource, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise _refused(source, f"it lists {twice!r} twice")
    return table


def _refused(source: ByteSource, reason: str) -> WeightsError:
    return WeightsError(f"{source.label} cannot be read: {reason}. Copy it again or delete it")
