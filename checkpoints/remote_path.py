"""A file or folder in a store, in the words of `pathlib`: what recognises a run on a disk recognises it there as well.

A folder is listed once, when it is first looked into, and remembered; nothing of a file is read before it is asked for.
Only reading is offered. It is no `os.PathLike`: what needs a file on this disk fails, and does not open another one.
"""

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from checkpoints.files.byte_source import ByteSource


@dataclass(frozen=True)
class Found:
    """What a listing says of one name. What it does not say is None."""

    is_dir: bool
    size: int | None = None
    version: str | None = None
    """What changes with the content: an ETag, a generation, a date."""
    hash: str | None = None
    """What two files of one content share, and others do not, where the store gives it: an ETag or MD5."""


class Shelf(ABC):
    """A place with names in folders, and bytes behind the names."""

    def __init__(self) -> None:
        self._listed: dict[str, dict[str, Found]] = {}

    @abstractmethod
    def label(self, path: str) -> str:
        """How a path is shown: never with a credential."""

    @abstractmethod
    def _list(self, path: str) -> dict[str, Found]:
        """What a folder holds; nothing where there is none."""

    @abstractmethod
    def look(self, path: str) -> Found | None:
        """What one path is, with its size and version where it is a file; None where there is nothing."""

    @abstractmethod
    def open(self, path: str) -> ByteSource:
        """The bytes of a file."""

    def listing(self, path: str) -> dict[str, Found]:
        """What a folder holds, by name; asked for once."""
        if path not in self._listed:
            folder, _, name = path.rpartition("/")
            is_absent = folder in self._listed and name not in self._listed[folder]
            self._listed[path] = {} if is_absent else self._list(path)
        return self._listed[path]

    def found(self, path: str) -> Found | None:
        """What one path is, by the listing of its folder where that is known."""
        folder, _, name = path.rpartition("/")
        if folder in self._listed:
            return self._listed[folder].get(name)
        return self.look(path)


class RemotePath:
    """One path of a shelf. `/`, name, suffix, parent, iterdir, glob, is_file, read_bytes ... are those of `Path`."""

    def __init__(self, shelf: Shelf, path: str) -> None:
        self.shelf, self._path = shelf, path.rstrip("/")

    def __str__(self) -> str:
        """The address, without credentials."""
        return self.shelf.label(self._path)

    def __repr__(self) -> str:
        """The address, without credentials."""
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        """Whether it is the same address."""
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        """By the address."""
        return hash(str(self))

    def __lt__(self, other: "RemotePath") -> bool:
        """By the address."""
        return str(self) < str(other)

    def __truediv__(self, name: str | PurePath) -> "RemotePath":
        """A path below this one."""
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts:
            raise ValueError(f"{str(name)!r} does not lie below {self}")
        return RemotePath(self.shelf, "/".join([self._path, *parts]))

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self._path)

    @property
    def name(self) -> str:
        """The last part."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The ending of the last part."""
        return self._pure.suffix

    @property
    def parent(self) -> "RemotePath":
        """The folder that this lies in."""
        return RemotePath(self.shelf, str(self._pure.parent))

    @property
    def parents(self) -> list["RemotePath"]:
        """The folders that this lies in, the nearest first."""
        return [RemotePath(self.shelf, str(folder)) for folder in self._pure.parents if folder.name]

    def with_name(self, name: str) -> "RemotePath":
        """Another name in the same folder."""
        return self.parent / name

    def relative_to(self, other: "RemotePath") -> PurePosixPath:
        """The part of the path below another."""
        return self._pure.relative_to(other._pure)

    def resolve(self) -> "RemotePath":
        """The same: a store has no links."""
        return self

    def absolute(self) -> "RemotePath":
        """The same: an address is never relative."""
        return self

    def exists(self) -> bool:
        """Whether there is anything."""
        return self.shelf.found(self._path) is not None

    def is_file(self) -> bool:
        """Whether it is a file."""
        found = self.shelf.found(self._path)
        return found is not None and not found.is_dir

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        found = self.shelf.found(self._path)
        return found is not None and found.is_dir

    def is_symlink(self) -> bool:
        """False: a store has no links."""
        return False

    def iterdir(self) -> Iterator["RemotePath"]:
        """What a folder holds."""
        return iter([self / name for name in self.shelf.listing(self._path)])

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """What below a folder matches; one part of the pattern for each part of the path, `**` is not known."""
        first, _, rest = pattern.partition("/")
        if first == "**":
            raise NotImplementedError(f"{self}: folders of a store are not searched to the bottom")
        for path in self.iterdir():
            if fnmatchcase(path.name, first):
                if not rest:
                    yield path
                elif path.is_dir():
                    yield from path.glob(rest)

    def byte_source(self) -> ByteSource:
        """The content, by ranges."""
        return self.shelf.open(self._path)

    def read_bytes(self) -> bytes:
        """All of the content."""
        source = self.byte_source()
        return source.read(0, source.size).tobytes()

    def read_text(self, encoding: str = "utf-8") -> str:
        """All of the content as text."""
        return self.read_bytes().decode(encoding)

    def open(self, mode: str = "r", encoding: str = "utf-8", **_: Any) -> Any:
        """The content as an open file, fetched whole."""
        if mode not in ("r", "rt", "rb"):
            raise ValueError(f"{self}: mode {mode!r} writes, and what is in a store is only read")
        content = io.BytesIO(self.read_bytes())
        return content if mode == "rb" else io.TextIOWrapper(content, encoding=encoding)

    @property
    def version(self) -> str:
        """Changes when the content does: of a file its size and what the store gives for it, of a folder all of them.

        "" where the store gives nothing but a size for one of them.
        """
        found = self.shelf.found(self._path)
        if found is None or not found.is_dir:
            found = found if found and found.version else self.shelf.look(self._path)
            return f"{found.size} {found.version}" if found and found.version else ""
        parts = [(path.name, path.version) for path in sorted(self.iterdir())]
        if not all(version for _, version in parts):
            return ""
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @property
    def content_hash(self) -> str | None:
        """What files of the same content share, with the size; None where the store gives nothing of the kind."""
        found = self.shelf.found(self._path)
        found = found if found and found.hash else self.shelf.look(self._path)
        return f"{found.size} {found.hash}" if found and found.hash else None


Place = Path | RemotePath
"""Where a run may lie."""


def path_below(place: Place, folder: Place) -> str:
    """The part of a path that lies below a folder: `step10/model.pt`."""
    if isinstance(place, RemotePath):
        assert isinstance(folder, RemotePath)
        return place.relative_to(folder).as_posix()
    assert isinstance(folder, Path)
    return place.relative_to(folder).as_posix()
