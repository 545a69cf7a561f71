"""A zip archive of records stored as they are, read by byte ranges: the frame of torch.save and of numpy.savez.

The list of records is at the end (the central directory), each record has a header of its own before it, and both are
checked against each other and against the file before anything is believed: names once each and without paths that
lead outside, no compression, nothing encrypted, records that do not overlap. Nothing is ever unpacked onto the disk.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import UInt8

from checkpoints.files.byte_source import ByteSource
from checkpoints.files.checkpoint import WeightsError

TAIL = 4096
"""Bytes that are read from the end first; a short list of records is in them already."""

LONGEST_COMMENT = 65_535

_CHUNK = 1 << 24

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_LISTED = struct.Struct("<4s6H3I5H2I")
_HEADER = struct.Struct("<4s5H3I2H")


@dataclass(frozen=True, slots=True)
class Record:
    """One record as the archive lists it."""

    name: str
    size: int
    checksum: int
    header: int
    """At which byte its own header begins."""
    room: int
    """Where the next record, or the list of records, begins."""


class ZipArchive:
    """The records of one archive by name."""

    def __init__(self, source: ByteSource) -> None:
        self.bytes = source
        self.records = _records(source)
        self._starts: dict[str, int] = {}

    def start(self, name: str) -> int:
        """At which byte the content of a record begins."""
        if name not in self._starts:
            self._starts[name] = self._start(self.records[name])
        return self._starts[name]

    def _start(self, record: Record) -> int:
        encoded = record.name.encode()
        header = self.bytes.read(record.header, record.header + _HEADER.size + len(encoded)).tobytes()
        signature, *_, name_length, extra_length = _HEADER.unpack(header[: _HEADER.size])
        if signature != b"PK\x03\x04" or header[_HEADER.size :] != encoded or name_length != len(encoded):
            raise damaged(self.bytes, f"the header of {record.name!r} is not where its archive says")
        start = record.header + _HEADER.size + name_length + extra_length
        if start + record.size > record.room:
            raise damaged(self.bytes, f"{record.name!r} would reach over what follows it in the archive")
        return start

    def read(self, name: str, start: int = 0, stop: int | None = None) -> UInt8[np.ndarray, " n"]:
        """Bytes of a record. Read whole, they are compared with its checksum: that adds 7 % to what measuring costs.

        (`python -m benchmarks.checksums`; .7 % where layers are small.)
        """
        record = self.records[name]
        stop = record.size if stop is None else stop
        if not 0 <= start <= stop <= record.size:
            raise damaged(self.bytes, f"{name!r} has {record.size} bytes, and {start} to {stop} are asked for")
        begin = self.start(name)
        content = self.bytes.read(begin + start, begin + stop)
        if stop - start == record.size:
            self._check(record, content)
        return content

    def span(self, name: str) -> tuple[int, int]:
        """The range of a record in the file, its header included."""
        return self.records[name].header, self.records[name].room

    def verify(self) -> None:
        """Compare every record with its checksum."""
        for record in self.records.values():
            begin, checksum = self.start(record.name), 0
            for at in range(begin, begin + record.size, _CHUNK):
                checksum = zlib.crc32(self.bytes.read(at, min(at + _CHUNK, begin + record.size)).data, checksum)
            self._compare(record, checksum)

    def _check(self, record: Record, content: UInt8[np.ndarray, " n"]) -> None:
        self._compare(record, zlib.crc32(content.data))

    def _compare(self, record: Record, checksum: int) -> None:
        if checksum != record.checksum:
            raise damaged(self.bytes, f"{record.name!r} has another checksum than its archive says: bits were changed")


def is_zip(source: ByteSource) -> bool:
    """Whether this begins like a zip archive."""
    return source.size >= 4 and source.read(0, 4).tobytes() in (b"PK\x03\x04", b"PK\x05\x06")


def damaged(source: ByteSource, reason: str) -> WeightsError:
    """What is said of an archive that does not add up."""
    return WeightsError(
        f"{source.label} cannot be read ({source.size} bytes): {reason}. "
        "It is cut short, damaged or not what its name says; copy it again or delete it"
    )


def _refused(source: ByteSource, reason: str) -> WeightsError:
    return WeightsError(f"{source.label} is refused: its archive holds {reason}")


def _records(source: ByteSource) -> dict[str, Record]:
    count, start, stop = _directory(source)
    listing = source.read(start, stop).tobytes()
    found: list[tuple[str, int, int, int]] = []
    at = 0
    for _ in range(count):
        if at + _LISTED.size > len(listing):
            raise damaged(source, f"its archive lists {len(found)} records where it says {count}")
        fields = _LISTED.unpack_from(listing, at)
        lengths = fields[10:13]  # of the name, of what extends the entry, of the comment
        end = at + _LISTED.size + sum(lengths)
        if fields[0] != b"PK\x01\x02" or end > len(listing):
            raise damaged(source, "the list of records in its archive is not one")
        name_end = at + _LISTED.size + lengths[0]
        try:
            name = listing[at + _LISTED.size : name_end].decode()
        except UnicodeDecodeError:
            raise damaged(source, "a record of its archive has a name that is not text") from None
        found.append((name, *_sizes(source, name, fields, listing[name_end : name_end + lengths[1]])))
        at = end
    if at != len(listing):
        raise damaged(source, f"its archive lists more than the {count} records that it says")
    return _laid_out(source, found, start)


def _laid_out(source: ByteSource, found: list[tuple[str, int, int, int]], end: int) -> dict[str, Record]:
    """The records with the room that each has, in the order of the list."""
    room: dict[int, int] = {}
    for name, size, _, header in sorted(found, key=lambda record: -record[3]):
        if header + _HEADER.size + size > end:
            raise damaged(source, f"{name!r} would reach over what follows it in the archive")
        room[header] = end
        end = header
    records: dict[str, Record] = {}
    for name, size, checksum, header in found:
        if name in records:
            raise _refused(source, f"{name!r} twice")
        records[name] = Record(name, size, checksum, header, room[header])
    return records


def _sizes(source: ByteSource, name: str, fields: tuple, extra: bytes) -> tuple[int, int, int]:
    """Size, checksum and place of a record that is neither compressed nor encrypted nor leads elsewhere."""
    _, _, _, flags, method, _, _, checksum, packed, size, _, _, _, _, _, attributes, header = fields
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name or "\0" in name:
        raise _refused(source, f"{name!r}, a path that leads outside")
    if attributes >> 28 == 0xA:
        raise _refused(source, f"a symbolic link, {name!r}")
    values = [size, packed, header]
    if 0xFFFFFFFF in values:
        values = _zip64(source, name, values, extra)
    if method or flags & 1 or values[0] != values[1]:
        how = "encrypted" if flags & 1 else "compressed"
        raise _refused(source, f"{name!r}, which is {how}. Store it as it is: unpack it and zip -0 it")
    return values[0], checksum, values[2]


def _zip64(source: ByteSource, name: str, values: list[int], extra: bytes) -> list[int]:
    """Sizes and place of a record of an archive that is too large for 32 bits: they stand in what extends the entry."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = extra[at + 4 : at + 4 + length]
            numbers = iter(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
            full = [next(numbers, -1) if value == 0xFFFFFFFF else value for value in values]
            if -1 not in full:
                return full
        at += 4 + length
    raise damaged(source, f"the size of {name!r} is not in its archive")


def _directory(source: ByteSource) -> tuple[int, int, int]:
    """How many records are listed, and from where to where the list goes."""
    size = source.size
    for length in (TAIL, _END.size + LONGEST_COMMENT):
        begin = max(0, size - length)
        tail = source.read(begin, size).tobytes()
        at = tail.rfind(b"PK\x05\x06")
        if at >= 0 and at + _END.size <= len(tail):
            break
        if not begin:
            raise damaged(source, "the end of its archive is missing")
    else:
        raise damaged(source, "the end of its archive is missing")
    _, _, _, _, count, length, start, comment = _END.unpack_from(tail, at)
    end = begin + at
    if end + _END.size + comment != size:
        raise damaged(source, "something follows the end of its archive")
    locator = at - _LOCATOR64.size
    if locator >= 0 and tail.startswith(b"PK\x06\x07", locator):
        end = _LOCATOR64.unpack_from(tail, locator)[2]
        if end + _END64.size > begin + locator:
            raise damaged(source, "the end of its archive is not where it says")
        wide = _END64.unpack(source.read(end, end + _END64.size).tobytes())
        if wide[0] != b"PK\x06\x06":
            raise damaged(source, "the end of its archive is not where it says")
        count, length, start = wide[7], wide[8], wide[9]
    if start + length != end or count * _LISTED.size > length or count * _HEADER.size > start:
        raise damaged(source, f"its archive lists {count} records in {length} bytes from byte {start}, before {end}")
    return count, start, end
