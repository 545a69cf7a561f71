"""Changes to files: of their bytes, and of what the bytes mean, so that the change reaches beyond the first check.

A flipped byte in a zip archive or a TFRecord is found by a checksum and nothing behind it is tried. So pickles, JSON,
tables, message packs and protocol buffers are taken apart, changed, and put together again with checksums that are
right. All of it is drawn from one `random.Random`: the same seed gives the same change.
"""

import copy
import io
import json
import math
import pickletools
import random
import re
import struct
import zipfile
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgpack

from checkpoints.sources.metrics.tensorboard import masked_crc

Change = Callable[[bytes, random.Random], bytes]

LIES = [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1]
"""Lengths, offsets and counts that are not so."""

INSTRUCTIONS = [bytes([code]) for code in b"().0}]l}eutsabRQ2N\x81\x85\x86\x87\x88\x8f\x90\x91\x92\x93\x94"] + [
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"cbuiltins\nbytearray\n",
    b"ctorch\nload\n",
    b"cpickle\nloads\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nSize\n",
    b"X\xff\xff\xff\x7f",
    b"B\xff\xff\xff\x7f",
    b"r\xff\xff\xff\xff",
]

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**25, 10**400, 0.0, -0.5, 1e308, 1e-320, math.nan, math.inf,
    "", "x", "step", "\0", "\ud800", "../../etc/passwd", "1e400", "nan", "-1", "٣", "a" * 5000, [], {}, [[]], [None],
    {"a": {"b": {}}}, [0, 10**25], ["F32"], {"step": {}}, [1, 2, 3, 4, 5],
]  # fmt: skip
"""What may stand in place of any value."""


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """One to three changes of bytes, small and large."""
    changes = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changes) + 1)
        match rng.randrange(6):
            case 0 if changes:
                changes[min(at, len(changes) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del changes[at : at + rng.choice([1, 4, 50])]
            case 2:
                changes[at:at] = changes[at : at + rng.choice([1, 4, 50])]
            case 3:
                width = rng.choice([1, 2, 4, 8])
                changes[at : at + width] = (rng.choice(LIES) % (1 << 8 * width)).to_bytes(
                    width, rng.choice(["little", "big"])
                )
            case 4:
                changes[at:] = b""
            case _:
                changes[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(changes)


def pickle_changed(content: bytes, rng: random.Random) -> bytes:
    """A pickle with instructions left out, doubled, put elsewhere or replaced."""
    starts = [at for _, _, at in pickletools.genops(content)] + [len(content)]
    parts = [content[a:b] for a, b in pairwise(starts)]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(1, len(parts))
        match rng.randrange(5):
            case 0:
                del parts[at : at + 1]
            case 1:
                parts[at:at] = [rng.choice(parts)] * rng.choice([1, 2, 300])
            case 2:
                parts[at:at] = [rng.choice(INSTRUCTIONS)]
            case 3:
                parts[at : at + 1] = [b"\x8a\x08" + rng.choice(LIES).to_bytes(8, "little")]
            case _:
                parts[at : at + 1] = [bytes_changed(parts[min(at, len(parts) - 1)], rng)]
    return b"".join(parts)


def any_pickle_changed(content: bytes, rng: random.Random) -> bytes:
    """The same of a file that may be something else."""
    return pickle_changed(content, rng) if content[:1] == b"\x80" else bytes_changed(content, rng)


def in_archive(ending: str, change: Change) -> Change:
    """A change of one record of a zip archive, put together again with its checksum right."""

    def changed(content: bytes, rng: random.Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            records = {name: file.read(name) for name in file.namelist()}
        chosen = rng.choice([name for name in records if name.endswith(ending)])
        records[chosen] = change(records[chosen], rng)
        if rng.random() < 0.05:
            del records[rng.choice(list(records))]
        return zipped(records)

    return changed


def zipped(records: dict[str, bytes]) -> bytes:
    """Records as a zip archive, stored as they are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in records.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tree_changed(tree: Any, rng: random.Random, values: list[Any] = VALUES) -> Any:
    """A tree of tables and lists with one to three of its places changed; the tree itself stays as it is."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return rng.choice(values)
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice(["", "step", "x" * 300, str(key) + " ", "__proto__", "\ud800"])] = holder[key]
            case 1:
                holder.insert(key, copy.deepcopy(holder[rng.randrange(len(holder))]))
            case 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = rng.choice([-holder[key], holder[key] + 1, holder[key] * 1000, str(holder[key])])
            case 3:
                other_holder, other = rng.choice(places)
                holder[key] = copy.deepcopy(other_holder[other])
            case _:
                holder[key] = copy.deepcopy(rng.choice(values))
    return tree


def _places(tree: Any) -> Any:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])


def json_changed(content: bytes, rng: random.Random) -> bytes:
    """JSON with a value changed, brackets without end, a name twice, or bytes changed."""
    match rng.randrange(16):
        case 0 | 1:
            return bytes_changed(content, rng)
        case 2 | 3:
            at = rng.randrange(len(content))
            deep = rng.choice([b"[", b'{"a":']) * rng.choice([50, 3000, 100_000])
            return content[:at] + deep + content[at:]
        case 4 | 5:
            return content.replace(b"{", b'{"step": 1, "step": [],', rng.randint(1, 2))
        case 6:
            return re.sub(rb"(?<=[ ,:\[])\d+(?=[],}])", b"9" * 5000, content, count=rng.randint(1, 3))
        case 7:
            return rng.choice(
                [b"", b"null", b"[]", b"{}", b"3", b'""', b"\xff\xfe", b"NaN", b"[" * 9, b"\xef\xbb\xbf{}"]
            )
        case _:
            try:
                tree = json.loads(content)
            except ValueError:
                return bytes_changed(content, rng)
            return json.dumps(tree_changed(tree, rng)).encode("utf-8", "surrogatepass")


def lines_changed(content: bytes, rng: random.Random) -> bytes:
    """JSON lines with one of them changed, left out, doubled or put elsewhere."""
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        case 2:
            lines = [line for line in lines for _ in range(rng.randint(0, 3))]
        case 3:
            rng.shuffle(lines)
        case _:
            lines[at] = json_changed(lines[at].rstrip(b"\n"), rng) + rng.choice([b"\n", b"\n", b"", b"\r\n", b"\0"])
    return b"".join(lines)


def csv_changed(content: bytes, rng: random.Random) -> bytes:
    """A table with fields changed, columns renamed, or rows of other lengths."""
    if rng.random() < 0.2:
        return bytes_changed(content, rng)
    between = b"\t" if b"\t" in content else b","
    rows = [line.split(between) for line in content.split(b"\n")]
    for _ in range(rng.randint(1, 3)):
        row = rng.choice(rows)
        at = rng.randrange(len(row))
        match rng.randrange(5):
            case 0:
                del row[at]
            case 1:
                row.insert(at, rng.choice(rng.choice(rows) or [b""]))
            case 2:
                row[at] = rng.choice([b'"', b'"\n"', b"", b"\xff\xfe", b"\0", b"#", b" ", b"\r"])
            case _:
                row[at] = json.dumps(rng.choice(VALUES)).encode("utf-8", "surrogatepass")
        rows = [row for row in rows if row] or [[b""]]
    return b"\n".join(between.join(row) for row in rows)


def header_changed(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file with its table of contents changed and its length right."""
    (length,) = struct.unpack("<Q", content[:8])
    text = json_changed(content[8 : 8 + length], rng)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def packed_changed(content: bytes, rng: random.Random) -> bytes:
    """A message pack with one of its places changed, the arrays within it too."""
    tree = msgpack.unpackb(content, raw=False, strict_map_key=False)
    simple = [value for value in VALUES if not isinstance(value, int) or -(2**63) <= value < 2**64]
    simple = [value for value in simple if value != "\ud800"]
    more = [msgpack.ExtType(rng.randrange(128), rng.randbytes(rng.randrange(9))), rng.randbytes(4), {1: 2}]
    for name, value in list(tree.get("params", {}).items()):
        if isinstance(value, msgpack.ExtType) and rng.random() < 0.3:
            array = msgpack.unpackb(value.data, raw=False)
            tree["params"][name] = msgpack.ExtType(value.code, _packed(tree_changed(array, rng, simple)))
    return _packed(tree_changed(tree, rng, [*simple, *more]))


def _packed(tree: Any) -> bytes:
    try:
        return msgpack.packb(tree, use_bin_type=True)
    except (ValueError, OverflowError):  # a number beyond 64 bits
        return b"\xc1"


def events_changed(content: bytes, rng: random.Random) -> bytes:
    """An event file of TensorBoard with one event changed and its checksums right, or bytes changed."""
    if rng.random() < 0.3:
        return bytes_changed(content, rng)
    records, at = [], 0
    while at < len(content):
        (length,) = struct.unpack("<Q", content[at : at + 8])
        records.append(content[at + 12 : at + 12 + length])
        at += 16 + length
    chosen = rng.randrange(len(records))
    records[chosen] = bytes_changed(records[chosen], rng)
    return b"".join(_record(record) for record in records)


def _record(content: bytes) -> bytes:
    head = struct.pack("<Q", len(content))
    return head + struct.pack("<I", masked_crc(head)) + content + struct.pack("<I", masked_crc(content))
