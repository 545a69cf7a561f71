"""Ranges of remote files, kept on disk under what identifies their content; bounded, and shared by processes.

    ROOT/KEY/START-STOP        bytes START to STOP of the file whose content KEY stands for
    ROOT/KEY/validator         the ETag that came with them

A range whose download was cut off is kept as START-STOP.partial and taken up where it broke, by this process or a later
one; only one process writes to it, the others wait for its lock. Where the system has no such locks (Windows) every
process fetches into a file of its own, START-STOP.WHO.partial: what several want at once is then fetched several times,
and what a killed process began is not taken up. Files not read for the longest time go first when the cache is full.
"""

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import UInt8

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from checkpoints.download import ContentChangedError, NoRangesError
from checkpoints.files import WeightsError
from checkpoints.files.byte_source import ByteSource

CLOSE = 65_536
"""Ranges nearer to each other than this many bytes, and than a twentieth of what they hold, are fetched as one."""

LIMIT = 20 * 2**30
"""Bytes that a cache may hold unless somebody says otherwise."""

VALIDATOR = "validator"
_RANGE = re.compile(r"(\d+)-(\d+)")

Append = Callable[[BinaryIO, int, int, str | None, Callable[[str], None]], None]
"""Append bytes start to stop of a file to what is open; given the validator of its other bytes, and whom to tell it."""


def default_cache() -> Path:
    """Where ranges are kept unless somebody says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checkpoint-probes"


class RangeCache:
    """A folder of ranges, of limited size."""

    def __init__(self, root: Path, limit: int = LIMIT) -> None:
        self.root, self.limit = root, limit
        self._kept: int | None = None

    def covering(self, key: str, start: int, stop: int) -> Path | None:
        """A kept range that holds this one."""
        folder = self.root / key
        for kept in folder.iterdir() if folder.is_dir() else ():
            match = _RANGE.fullmatch(kept.name)
            if match and int(match[1]) <= start and stop <= int(match[2]):
                return kept
        return None

    def fetched(
        self, key: str, start: int, stop: int, append: Append, check: Callable[[Path], None] | None = None
    ) -> Path:
        """This range, after `append` fetched what is missing of it. check raises where the content is not right."""
        target = self.root / key / f"{start}-{stop}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(_partial(target), "ab") as partial:
            if fcntl:
                fcntl.flock(partial, fcntl.LOCK_EX)  # another process may be fetching the same range
            if target.is_file():
                return target
            if not _is_at(partial, partial.name):  # dropped while we waited for the lock
                return self.fetched(key, start, stop, append, check)
            try:
                append(partial, start, stop, self.validator(key), lambda validator: self._remember(key, validator))
            except ContentChangedError:
                self.forget(key)
                raise
            except (NoRangesError, WeightsError):  # what came is not to be believed
                partial.close()
                Path(partial.name).unlink(missing_ok=True)
                raise
            partial.flush()
            if not fcntl:
                partial.close()  # Windows renames no open file, and nobody else writes to this one
            if check is not None:
                try:
                    check(Path(partial.name))
                except WeightsError:
                    self.forget(key)
                    raise
            os.replace(partial.name, target)
        self._make_room(stop - start)
        return target

    def validator(self, key: str) -> str | None:
        """What came with the bytes that are kept of this file, None if there are none."""
        try:
            return (self.root / key / VALIDATOR).read_text(encoding="utf-8") or None
        except (OSError, ValueError):
            return None

    def _remember(self, key: str, validator: str) -> None:
        (self.root / key / VALIDATOR).write_text(validator, encoding="utf-8")

    def forget(self, key: str) -> bool:
        """Drop what is kept of a file; whether there was anything."""
        there = (self.root / key).is_dir()
        shutil.rmtree(self.root / key, ignore_errors=True)
        return there

    def _make_room(self, added: int) -> None:
        """Keep the cache below its limit: what was not read for the longest time goes."""
        if self._kept is not None and self._kept + added <= self.limit:
            self._kept += added
            return
        files = []
        for path in self.root.rglob("*"):
            with suppress(FileNotFoundError):  # another process may have renamed or removed it
                if path.is_file() and path.name != VALIDATOR:
                    files.append((path.stat(), path))
        kept = sum(info.st_size for info, _ in files)
        for info, path in sorted(files, key=lambda item: item[0].st_mtime)[:-1]:
            if kept <= self.limit:
                break
            path.unlink(missing_ok=True)
            kept -= info.st_size
        self._kept = kept


class CachedBytes(ByteSource):
    """One remote file as a source of bytes: what is asked for is fetched once, neighbours together, and kept.

    append fetches; check judges the content of the whole file, where it was fetched whole. offline forbids to fetch.
    """

    def __init__(
        self,
        cache: RangeCache,
        key: str,
        size: int,
        label: str,
        append: Append,
        *,
        check: Callable[[Path], None] | None = None,
        offline: bool = False,
    ) -> None:
        self.cache, self.key, self.label = cache, key, label
        self._size, self._append, self._check, self._offline = size, append, check, offline
        self._was_read = False

    @property
    def size(self) -> int:
        """Bytes in all, as the server lists the file."""
        return self._size

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """The bytes of start <= position < stop."""
        if not 0 <= start <= stop <= self.size:
            raise WeightsError(f"{self.label} has {self.size} bytes: {start} to {stop} is outside")
        if start == stop:
            return np.empty(0, np.uint8)
        kept = self._kept(start, stop)
        self._was_read = True
        content = np.empty(stop - start, np.uint8)
        with open(kept, "rb") as cached:
            cached.seek(start - int(kept.name.split("-")[0]))
            length = cached.readinto(content.data)
        if length != stop - start:  # somebody cut it short: fetch it again
            kept.unlink()
            return self.read(start, stop)
        os.utime(kept)
        return content

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch what will be read, neighbours together."""
        for start, stop in merged([(a, b) for a, b in ranges if a < b]):
            self._kept(start, stop)

    def whole(self) -> Path:
        """All of it, as a file in the cache."""
        kept = self._kept(0, self.size)
        os.utime(kept)
        return kept

    def forget(self) -> bool:
        """Drop what is kept of this file; whether there was anything, so that reading it again may give another."""
        return not self._offline and self.cache.forget(self.key)

    def _kept(self, start: int, stop: int) -> Path:
        kept = self.cache.covering(self.key, start, stop)
        if kept is not None:
            return kept
        if self._offline:
            raise FileNotFoundError(
                f"{self.label}: bytes {start} to {stop} are not in the cache {self.cache.root}, and this is offline"
            )
        try:
            return self._fetched(start, stop)
        except ContentChangedError:
            if self._was_read:
                raise  # what was read belongs to the former content
            return self._fetched(start, stop)  # only the cache knew the former content, and has dropped it
        except NoRangesError:
            return self._fetched(0, self.size)

    def _fetched(self, start: int, stop: int) -> Path:
        check = self._check if stop - start == self.size else None
        return self.cache.fetched(self.key, start, stop, self._append, check)


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges with close neighbours joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start - joined[-1][1] <= min(CLOSE, (stop - joined[-1][0]) // 20):
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _is_at(file: BinaryIO, path: str) -> bool:
    """Whether an open file is still the one of that name."""
    return os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path))


def _partial(target: Path) -> Path:
    """Where a range is fetched into: one file for all where it can be locked, else one for each that fetches."""
    own = "" if fcntl else f".{os.getpid()}-{threading.get_ident()}"
    return target.with_name(f"{target.name}{own}.partial")
