"""TensorBoard event files without TensorFlow: TFRecords whose records are protocol buffers of a few known fields.

    record    length (8 bytes), its checksum (4), the event, its checksum (4); checksums are masked CRC-32C
    Event     step = 2, summary = 5;  Summary  value = 1;  Value  tag = 1, simple_value = 2, tensor = 8
    Tensor    dtype = 1, shape = 2, content = 4, float_val = 5, double_val = 6: scalars of TensorFlow 2 and JAX

Histograms, images and text are passed over. A file that ends within a record is read up to there: it is being written.
"""

import struct
import warnings
from collections.abc import Iterator

import pandas as pd

from checkpoints.remote_path import Place
from checkpoints.run import metrics_table

Field = tuple[int, int | bytes]


class _NoEventError(Exception):
    """A record that is no event."""


_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
_KIND_OF_FIELD = {5: 1, 6: 2}  # float_val, double_val
_OTHER_EVENTS, _OTHER_VALUES = (3, 4, 6, 7, 8, 9), (3, 4, 5, 6)  # graphs, logs ...; images, histograms, sounds
_CRC: list[int] = []


def read_events(files: list[Place]) -> pd.DataFrame:
    """The scalars of event files, in the order in which they were begun: a later one counts from where it begins."""
    found: dict[str, dict[int, float]] = {}
    for file in files:
        here: dict[str, dict[int, float]] = {}
        for step, tag, value in scalars(file):
            here.setdefault(tag, {})[step] = value
        for tag, values in here.items():
            start, before = min(values), found.get(tag, {})
            kept = {step: value for step, value in before.items() if step < start}
            if len(kept) < len(before):
                warnings.warn(
                    f"{file.name} logs {tag} again from step {start} on: {len(before) - len(kept)} earlier values "
                    "are left out, the later file's word counts",
                    stacklevel=2,
                )
            found[tag] = kept | values
    rows = ((step, {tag: value}) for tag, values in found.items() for step, value in values.items())
    return metrics_table(rows, files[0] if len(files) == 1 else files[0].parent)


def scalars(file: Place) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of every scalar in a file."""
    for record, is_intact in records(file):
        try:
            found = list(_scalars_of(record))
        except _NoEventError as error:
            raise ValueError(f"{file} is damaged: {error}. Copy it again") from None
        if found and not is_intact():
            raise ValueError(f"{file} is damaged: the checksum of an event does not match. Copy it again")
        yield from found


def records(file: Place) -> Iterator:
    """The records of a file, each with a function that says whether its checksum is right."""
    content = memoryview(file.read_bytes())
    place = 0
    while place + 12 <= len(content):
        head = content[place : place + 8]
        length, check = struct.unpack("<QI", content[place : place + 12])
        if masked_crc(head) != check:
            raise ValueError(f"{file} is no event file of TensorBoard, or damaged at byte {place}")
        if place + 16 + length > len(content):
            return
        record = content[place + 12 : place + 12 + length]
        (check,) = struct.unpack("<I", content[place + 12 + length : place + 16 + length])
        yield record, lambda record=record, check=check: masked_crc(record) == check
        place += 16 + length


def masked_crc(content: memoryview | bytes) -> int:
    """The checksum that TFRecords have: CRC-32C, rotated and shifted."""
    if not _CRC:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            _CRC.append(byte)
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _scalars_of(event: memoryview) -> Iterator[tuple[int, str, float]]:
    step, summaries = 0, []
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and not isinstance(value, int):
            summaries.append(value)
        elif number in _OTHER_EVENTS:  # an event is one thing: the last
            summaries.clear()
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and not isinstance(value, int):
                tag, scalar = _value(value)
                if scalar is not None:
                    yield step, tag, scalar


def _value(content: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(content):
        if isinstance(value, int):
            continue
        if number == 1:
            try:
                tag = value.decode()
            except UnicodeDecodeError:
                raise _NoEventError("the name of a scalar is not text") from None
        elif number == 2 and len(value) == 4:
            (scalar,) = struct.unpack("<f", value)
        elif number == 8:
            scalar = _scalar_tensor(value)
        elif number in _OTHER_VALUES:
            scalar = None
    if scalar is not None and not tag:
        raise _NoEventError("a scalar has no name")
    return tag, scalar


def _scalar_tensor(content: bytes) -> float | None:
    """The number in a tensor without dimensions, None if it has some or is no number."""
    kind, raw, shape, place = 0, b"", b"", 4
    for number, value in _fields(content):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and not isinstance(value, int):
            shape = value
        elif number in (4, 5, 6) and not isinstance(value, int):
            raw, place = value, number
    if place != 4 and _KIND_OF_FIELD[place] != kind:
        raise _NoEventError("the number of a scalar is of another type than its tensor")
    if kind not in _FORMATS or len(shape) or len(raw) != struct.calcsize(_FORMATS[kind]):
        return None
    return float(struct.unpack(_FORMATS[kind], raw)[0])


def _fields(content: bytes | memoryview) -> Iterator[Field]:
    """Numbers and values of the fields of a protocol buffer; raises where it is none, or cut short."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(content, place)
        else:
            if kind == 2:
                length, place = _varint(content, place)
            elif kind in (1, 5):
                length = 8 if kind == 1 else 4
            else:
                raise _NoEventError("a record is no protocol buffer")
            value = bytes(content[place : place + length])
            if length < 0 or len(value) < length:
                raise _NoEventError("a field reaches over the end of its record")
            place += length
        if not key >> 3:
            raise _NoEventError("a record is no protocol buffer")
        yield key >> 3, value


def _varint(content: bytes | memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            break
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64) if value >= 1 << 63 else value, place
    raise _NoEventError("a number in a record has no end")
