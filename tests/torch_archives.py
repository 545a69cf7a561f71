"""Archives of torch.save, taken apart and put together again with something else inside."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np

from checkpoints.files.byte_source import ByteSource


class Bytes(ByteSource):
    """Bytes in memory that remember which ranges were asked for."""

    def __init__(self, content: bytes, label: str = "memory.pt") -> None:
        self.content, self.label, self.asked = content, label, []

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= len(self.content)
        self.asked.append((start, stop))
        return np.frombuffer(bytearray(self.content[start:stop]), np.uint8)


def archive(data_pkl: bytes, records: dict[str, bytes] | None = None, *, method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive as torch.save writes it, of this pickle and these storages."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("archive/data.pkl", data_pkl)
        for key, content in (records or {}).items():
            file.writestr(key if "/" in key else f"archive/data/{key}", content)
    return buffer.getvalue()


def contents(path: Path) -> dict[str, bytes]:
    """The records of an archive by name."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewritten(path: Path, change) -> None:
    """The archive with each record passed through `change(name, content)`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in contents(path).items():
            file.writestr(name, change(name, content))
    path.write_bytes(buffer.getvalue())


def tensor_pickle(shape: bytes, stride: bytes, count: bytes = b"K\x01") -> bytes:
    """The pickle of {"w": a tensor of a float storage "0"}; shape, stride and count are instructions."""
    return (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + count + b"tQK\x00" + shape + stride + b"\x89ccollections\n"
        b"OrderedDict\n)RtRs."
    )


def number(value: int) -> bytes:
    """The instruction that pushes a whole number."""
    return pickle.dumps(value, 2)[2:-1]
