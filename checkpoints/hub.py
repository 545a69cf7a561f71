"""A hub of repositories, read by byte ranges through a cache that is bounded, can be cleared and works offline.

What is asked for is a range of a file; what is kept is that range, under the hash of the file's content:

    CACHE/SERVER/REPOSITORY/refs.json            revisions and the commits they stood for when last asked
    CACHE/SERVER/REPOSITORY/trees/COMMIT.json    the files of a commit, with size and content hash
    CACHE/SERVER/blobs/HASH/START-STOP           bytes START to STOP of a file with that content

so a shard that two revisions share is fetched once, and no name that a server sends becomes a path. A range whose
download was cut off is kept as START-STOP.partial and taken up where it broke, by this process or a later one; only one
process writes to it, the others wait for its lock. Where the system has no such locks (Windows) every process fetches
into a file of its own, START-STOP.WHO.partial: what several want at once is then fetched several times, and what a
killed process began is not taken up. Files not read for the longest time go first when the cache is full.
"""

import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id
from jaxtyping import UInt8

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from checkpoints.download import ATTEMPTS, Download, may_pass, transport_errors, unavailable
from checkpoints.files import WeightsError
from checkpoints.files.byte_source import ByteSource
from checkpoints.layout import write_json

CLOSE = 65_536
"""Ranges nearer to each other than this many bytes, and than a twentieth of what they hold, are fetched as one."""

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_RANGE = re.compile(r"(\d+)-(\d+)")


def default_cache() -> Path:
    """Where ranges are kept unless somebody says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checkpoint-probes"


@dataclass(frozen=True)
class HubFile:
    """A file of a commit: its size and the hash of its content."""

    path: str
    size: int
    hash: str
    is_sha256: bool


class Hub:
    """A server and a cache in front of it.

    endpoint and token are huggingface-hub's own unless given; limit is the size of the cache in bytes; offline asks
    the cache alone. wait is the first pause, in seconds, before a broken download is taken up; it doubles each time.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        token: str | bool | None = None,
        cache: str | Path | None = None,
        limit: int = 20 * 2**30,
        offline: bool | None = None,
        wait: float = 0.5,
    ) -> None:
        self.endpoint = endpoint or constants.ENDPOINT
        self.token = token
        self.cache = Path(cache) if cache else default_cache()
        # one server's word for a hash must not become another's content
        self._own = self.cache / hashlib.sha256(self.endpoint.encode()).hexdigest()[:12]
        self.limit = limit
        self.offline = constants.HF_HUB_OFFLINE if offline is None else offline
        self.wait = wait
        self._kept: int | None = None
        self._whole_files_only = False
        """Whether the server was seen to ignore ranges."""

    def revisions(self, repository: str) -> dict[str, str]:
        """Branches and tags of a repository, each with its commit."""
        validate_repo_id(repository)

        def ask() -> dict[str, Any]:
            refs = HfApi(self.endpoint, token=self.token).list_repo_refs(repository)
            return {ref.name: ref.target_commit for ref in [*refs.tags, *refs.branches]}

        found = self._remembered(repository, "refs.json", ask, fresh=not self.offline)
        return {name: _checked_hash(commit, repository) for name, commit in found.items()}

    def files(self, repository: str, commit: str) -> dict[str, HubFile]:
        """The files of a commit by path."""

        def ask() -> dict[str, Any]:
            tree = HfApi(self.endpoint, token=self.token).list_repo_tree(repository, recursive=True, revision=commit)
            return {
                entry.path: [entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id, entry.lfs is not None]
                for entry in tree
                if isinstance(entry, RepoFile)
            }

        found = self._remembered(repository, f"trees/{_checked_hash(commit, repository)}.json", ask, fresh=False)
        for path, (size, _, _) in found.items():
            if type(size) is not int or size < 0:
                raise WeightsError(f"{repository}/{path}: the hub lists {size!r} as its size")
        return {
            path: HubFile(path, size, _checked_hash(sha, f"{repository}/{path}"), is_lfs)
            for path, (size, sha, is_lfs) in found.items()
        }

    def read(self, repository: str, commit: str, file: HubFile, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """A range of a file, from the cache or the server."""
        if not 0 <= start <= stop <= file.size:
            raise WeightsError(f"hub:{repository}/{file.path} has {file.size} bytes: {start} to {stop} is outside")
        if start == stop:
            return np.empty(0, np.uint8)
        kept = self._covering(file, start, stop) or self._fetched(repository, commit, file, start, stop)
        content = np.empty(stop - start, np.uint8)
        with open(kept, "rb") as cached:
            cached.seek(start - int(kept.name.split("-")[0]))
            length = cached.readinto(content.data)
        if length != stop - start:  # somebody cut it short: fetch it again
            kept.unlink()
            return self.read(repository, commit, file, start, stop)
        os.utime(kept)
        return content

    def prefetch(self, repository: str, commit: str, file: HubFile, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch ranges that will be read, neighbours together."""
        for start, stop in merged([(a, b) for a, b in ranges if a < b]):
            if not self._covering(file, start, stop):
                self._fetched(repository, commit, file, start, stop)

    def whole(self, repository: str, commit: str, file: HubFile) -> Path:
        """A file in the cache, all of it, its content checked against its hash where the hub publishes one."""
        kept = self._covering(file, 0, file.size) or self._fetched(repository, commit, file, 0, file.size)
        os.utime(kept)
        return kept

    def clear(self) -> int:
        """Empty the cache; how many bytes that freed."""
        freed = sum(path.stat().st_size for path in self.cache.rglob("*") if path.is_file())
        shutil.rmtree(self.cache, ignore_errors=True)
        self._kept = None
        return freed

    def _remembered(self, repository: str, name: str, ask: Any, *, fresh: bool) -> dict[str, Any]:
        """An answer of the server, kept; asked for again if it may have changed."""
        file = self._own / repository.replace("/", "--") / name
        if file.is_file() and not fresh:
            try:
                return json.loads(file.read_text(encoding="utf-8"))
            except ValueError:
                file.unlink()  # damaged: ask again
        if self.offline:
            raise FileNotFoundError(
                f"hub:{repository}: {name} is not in the cache {self.cache} and this is offline. "
                "Open the run once with a connection, and read what you will need"
            )
        answer = self._retried(f"hub:{repository} ({name})", ask)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, answer)
        return answer

    def _retried(self, what: str, ask: Any) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except (KeyError, TypeError, AttributeError) as error:
                raise WeightsError(f"{what}: the answer of {self.endpoint} makes no sense ({error!r})") from None
            except (HfHubHTTPError, *transport_errors()) as error:
                if attempt == ATTEMPTS - 1 or not may_pass(error):
                    raise unavailable(what, self.endpoint, error) from error
            time.sleep(self.wait * 2**attempt)
        raise AssertionError("unreachable")

    def _covering(self, file: HubFile, start: int, stop: int) -> Path | None:
        """A kept range that holds this one."""
        folder = self._own / "blobs" / file.hash
        for kept in folder.iterdir() if folder.is_dir() else ():
            match = _RANGE.fullmatch(kept.name)
            if match and int(match[1]) <= start and stop <= int(match[2]):
                return kept
        return None

    def _fetched(self, repository: str, commit: str, file: HubFile, start: int, stop: int) -> Path:
        if self._whole_files_only:
            start, stop = 0, file.size
        label = f"hub:{repository}@{commit[:8]}/{file.path}"
        if self.offline:
            raise FileNotFoundError(
                f"{label}: bytes {start} to {stop} are not in the cache {self.cache}, and this is offline"
            )
        url = hf_hub_url(repository, file.path, revision=commit, endpoint=self.endpoint)
        is_whole = stop - start == file.size
        download = Download(url, start, stop, is_whole, label, self.endpoint, self.token, self.wait)
        target = self._own / "blobs" / file.hash / f"{start}-{stop}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(_partial(target), "ab") as partial:
            if fcntl:
                fcntl.flock(partial, fcntl.LOCK_EX)  # another process may be fetching the same range
            if target.is_file():
                return target
            is_range = download.append_to(partial)
            if not fcntl:
                partial.close()  # Windows renames no open file, and nobody else writes to this one
            if not is_range:
                os.unlink(partial.name)
                self._whole_files_only = True
                return self._fetched(repository, commit, file, 0, file.size)
            if is_whole and file.is_sha256:
                _require_content(Path(partial.name), file, label)
            os.replace(partial.name, target)
        self._make_room(stop - start)
        return target

    def _make_room(self, added: int) -> None:
        """Keep the cache below its limit: what was not read for the longest time goes."""
        blobs = self._own / "blobs"
        if self._kept is not None and self._kept + added <= self.limit:
            self._kept += added
            return
        files = []
        for path in blobs.rglob("*"):
            with suppress(FileNotFoundError):  # another process may have renamed or removed it
                if path.is_file():
                    files.append((path.stat(), path))
        kept = sum(info.st_size for info, _ in files)
        for info, path in sorted(files, key=lambda item: item[0].st_mtime)[:-1]:
            if kept <= self.limit:
                break
            path.unlink(missing_ok=True)
            kept -= info.st_size
        self._kept = kept


class HubBytes(ByteSource):
    """One file on the hub as a source of bytes."""

    def __init__(self, hub: Hub, repository: str, commit: str, file: HubFile) -> None:
        self._place = hub, repository, commit, file
        self.label = f"hub:{repository}@{commit[:8]}/{file.path}"

    @property
    def size(self) -> int:
        """Bytes in all, as the hub lists the file."""
        return self._place[3].size

    def read(self, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """The bytes of start <= position < stop."""
        hub, repository, commit, file = self._place
        return hub.read(repository, commit, file, start, stop)

    def prefetch(self, ranges: list[tuple[int, int]]) -> None:
        """Fetch what will be read."""
        hub, repository, commit, file = self._place
        hub.prefetch(repository, commit, file, ranges)


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges with close neighbours joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start - joined[-1][1] <= min(CLOSE, (stop - joined[-1][0]) // 20):
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _partial(target: Path) -> Path:
    """Where a range is fetched into: one file for all where it can be locked, else one for each that fetches."""
    own = "" if fcntl else f".{os.getpid()}-{threading.get_ident()}"
    return target.with_name(f"{target.name}{own}.partial")


def _checked_hash(text: Any, label: str) -> str:
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise WeightsError(f"{label}: the hub names {text!r} where the hash of a commit or a file is expected")
    return text


def _require_content(path: Path, file: HubFile, label: str) -> None:
    with open(path, "rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != file.hash:
        path.unlink()
        raise WeightsError(f"{label}: its content has the hash {found[:12]}, the hub lists {file.hash[:12]}; deleted")
