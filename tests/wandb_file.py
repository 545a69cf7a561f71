"""Reads the rows of a .wandb file: a LevelDB log of protocol buffers behind a header of seven bytes."""

import json
import struct
from pathlib import Path

_BLOCK, _HEADER = 32768, struct.Struct("<IHB")
_FULL, _LAST = 1, 4


def records(file: Path) -> list:
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, found, piece = file.read_bytes(), 7, [], b""
    while at + _HEADER.size <= len(content):
        if _BLOCK - at % _BLOCK < _HEADER.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        piece += content[at : at + length]
        at += length
        if kind in (_FULL, _LAST):
            found.append(Record.FromString(piece))
            piece = b""
    return found


def history(file: Path) -> list[dict]:
    """Every row that was logged, without W&B's own columns."""
    rows = []
    for record in records(file):
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            rows.append({name: value for name, value in items.items() if not name.startswith("_")})
    return rows
