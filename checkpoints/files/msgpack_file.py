"""A file of Flax (flax_model.msgpack): tables within tables in msgpack, arrays as extensions of type 1.

The file is walked once: keys and sizes are read, the bytes of arrays are passed over and read when asked for. An array
is itself three msgpack values (shape, name of the dtype, bytes); one of more than a gigabyte comes in chunks.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from checkpoints.files.byte_source import ByteSource, as_byte_source
from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError
from checkpoints.files.safetensors_file import as_tensor
from checkpoints.files.state_dict import kept_config, kept_step, state_dict_in
from checkpoints.files.torch_pickle import DTYPES

DEEPEST = 64
WINDOW = 1 << 16
LONGEST_TEXT = 1 << 16
_CHUNKED = "__msgpack_chunked_array__"


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that were passed over."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array: what it is and in which ranges its bytes are."""

    stored: Stored
    spans: tuple[Span, ...]


class MsgpackFile(Checkpoint):
    """The arrays of one msgpack file of Flax."""

    def __init__(self, source: ByteSource | Path | str) -> None:
        self.bytes = as_byte_source(source)
        self.label = self.bytes.label

    @cached_property
    def content(self) -> Any:
        """What the file holds, with descriptions in place of arrays."""
        walk = Walk(self.bytes)
        content = walk.value(0)
        if walk.at != self.bytes.size:
            raise walk.fault("something follows its content")
        return content

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        return state_dict_in(self.content, self.label, Array)

    def _table(self) -> Mapping[str, Stored]:
        return {name: array.stored for name, array in self._arrays.items()}

    def _read(self, name: str) -> Tensor:
        array = self._arrays[name]
        parts = [self.bytes.read(span.start, span.stop) for span in array.spans]
        return as_tensor(parts[0] if len(parts) == 1 else np.concatenate(parts), array.stored)

    def _prefetch(self, raw_names: list[str]) -> None:
        self.bytes.prefetch([(span.start, span.stop) for name in raw_names for span in self._arrays[name].spans])

    @property
    def recorded_step(self) -> int | None:
        """The step that the training state has."""
        return kept_step(self.content)

    @property
    def recorded_config(self) -> dict[str, Any]:
        """The shape of the model, where it was kept."""
        return kept_config(self.content)


class Walk:
    """Walks over the values of a msgpack file; `at` is where it is."""

    def __init__(self, source: ByteSource, at: int = 0, stop: int | None = None) -> None:
        self.bytes, self.at, self.stop = source, at, source.size if stop is None else stop
        self.window, self.window_at = b"", 0
        self.budget = 16_000_000 + 4 * source.size

    def fault(self, reason: str) -> WeightsError:
        """What is said of a file that makes no sense."""
        return WeightsError(
            f"{self.bytes.label} cannot be read ({self.bytes.size} bytes): {reason}. "
            "It is cut short, damaged or not a msgpack file of Flax; copy it again or delete it"
        )

    def take(self, length: int) -> bytes:
        """The next bytes."""
        start, self.at = self.at, self.at + length
        if self.at > self.stop:
            raise self.fault("it ends before its content does")
        if not self.window_at <= start <= self.at <= self.window_at + len(self.window):
            self.window_at = start
            self.window = self.bytes.read(start, min(self.stop, max(self.at, start + WINDOW))).tobytes()
        return self.window[start - self.window_at : self.at - self.window_at]

    def number(self, form: str) -> Any:
        """The next number, big-endian."""
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        """The next value."""
        self.budget -= 100
        if depth > DEEPEST or self.budget < 0:
            raise self.fault("its tables are too deep in each other, or hold far more than a file of this size should")
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0x90:
            return self.table(code & 0xF, depth)
        if code < 0xA0:
            return [self.value(depth + 1) for _ in range(code & 0xF)]
        if code < 0xC0:
            return self.text(code & 0x1F)
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if 0xCA <= code <= 0xD3:
            return self.number("fdBHIQbhiq"[code - 0xCA])
        if 0xC4 <= code <= 0xC6:
            return self.span(self.number("BHI"[code - 0xC4]))
        if 0xC7 <= code <= 0xC9:
            return self.extension(self.number("BHI"[code - 0xC7]), depth)
        if 0xD4 <= code <= 0xD8:
            return self.extension(1 << (code - 0xD4), depth)
        if 0xD9 <= code <= 0xDB:
            return self.text(self.number("BHI"[code - 0xD9]))
        length = self.number("HI"[code & 1]) if code >= 0xDC else -1
        if length > self.stop - self.at or length < 0:
            raise self.fault(f"byte {code:#x} begins no value, or one longer than the file")
        if code <= 0xDD:
            return [self.value(depth + 1) for _ in range(length)]
        return self.table(length, depth)

    def text(self, length: int) -> str:
        """The next text."""
        if length > LONGEST_TEXT:
            self.budget -= 4 * length
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.fault("a text in it is not text") from None

    def table(self, length: int, depth: int) -> Any:
        """The next pairs; those of an array in chunks are the array."""
        table: dict[Any, Any] = {}
        for _ in range(length):
            key = self.value(depth + 1)
            if not isinstance(key, str | int) or (isinstance(key, int) and abs(key) >= 1 << 60) or key in table:
                raise self.fault(f"a key in it is {str(key)[:80]!r}, which is no text, or there twice")
            self.budget -= 64
            table[key] = self.value(depth + 1)
        return self.joined(table) if table.get(_CHUNKED) is True else table

    def span(self, length: int) -> Span:
        """The next bytes, passed over."""
        start, self.at = self.at, self.at + length
        if self.at > self.stop:
            raise self.fault("it ends before its content does")
        return Span(start, self.at)

    def extension(self, length: int, depth: int) -> Any:
        """What Flax makes of msgpack's extensions: 1 an array, 2 a complex number, 3 a number of NumPy."""
        kind, span = self.number("b"), self.span(length)
        if kind not in (1, 3):
            return span
        inner = Walk(self.bytes, span.start, span.stop)
        inner.budget = self.budget
        described = inner.value(depth + 1)
        self.budget = inner.budget
        if not isinstance(described, list) or len(described) != 3 or not isinstance(described[2], Span):
            raise self.fault("an array in it is not described by shape, dtype and bytes")
        shape, dtype, content = described
        array = Array(self.stored(shape, dtype), (content,))
        if array.stored.bytes != content.stop - content.start:
            raise self.fault(f"an array of shape {array.stored.shape} in it has {content.stop - content.start} bytes")
        return array

    def stored(self, shape: Any, dtype: Any) -> Stored:
        """Shape and dtype, if they are ones."""
        sizes: list[Any] = shape if isinstance(shape, list) and len(shape) <= 64 else [None]
        if not all(type(size) is int and 0 <= size < 1 << 62 for size in sizes):
            raise self.fault("an array in it has no shape")
        if not isinstance(dtype, str) or not isinstance(DTYPES.get(dtype), torch.dtype):
            raise self.fault(f"an array in it has dtype {str(dtype)[:80]!r}")
        return Stored(DTYPES[dtype], tuple(sizes), self.bytes.label)

    def joined(self, table: dict[Any, Any]) -> Array:
        """An array of its chunks, which lie one after the other, flat."""
        shape, chunks = table.get("shape"), table.get("chunks")
        if not isinstance(shape, dict) or not isinstance(chunks, dict) or not chunks:
            raise self.fault("an array in chunks makes no sense")
        parts = [chunks.get(str(i)) for i in range(len(chunks))]
        sizes = [shape.get(str(i)) for i in range(len(shape))]
        arrays = [part for part in parts if isinstance(part, Array)]
        if len(arrays) != len(parts) or len({part.stored.dtype for part in arrays}) != 1:
            raise self.fault("an array in chunks makes no sense")
        whole = self.stored(sizes, str(arrays[0].stored.dtype).removeprefix("torch."))
        if math.prod(whole.shape) != sum(math.prod(part.stored.shape) for part in arrays):
            raise self.fault(f"the chunks of an array of shape {whole.shape} are not all of it")
        return Array(whole, tuple(span for part in arrays for span in part.spans))
