"""A hub of repositories, read by byte ranges through a cache that is bounded, can be cleared and works offline.

What is asked for is a range of a file; what is kept is that range, under the hash of the file's content:

    CACHE/SERVER/REPOSITORY/refs.json            revisions and the commits they stood for when last asked
    CACHE/SERVER/REPOSITORY/trees/COMMIT.json    the files of a commit, with size and content hash
    CACHE/SERVER/blobs/HASH/START-STOP           bytes START to STOP of a file with that content

so a shard that two revisions share is fetched once, and no name that a server sends becomes a path (how ranges are
kept: `checkpoints.range_cache`). A file that is fetched whole must have the hash that the hub lists: the sha256 of a
large file, the hash that git gives a small one. Of a range no hash is known; that all ranges are of one content is seen
by their ETag (`checkpoints.download`).
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers, validate_repo_id
from jaxtyping import UInt8

from checkpoints.download import Download, NoRangesError
from checkpoints.files import WeightsError
from checkpoints.layout import write_json
from checkpoints.patience import Patience, answer, parsed, retried
from checkpoints.range_cache import LIMIT, CachedBytes, RangeCache, default_cache

MOST_PAGES = 2000
"""Pages of a listing that are asked for; a page of the hub holds up to a thousand files."""

Result = TypeVar("Result")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,]*\brel="?next"?')


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
    the cache alone. wait is the first pause, in seconds, before a broken download is taken up (it doubles each time),
    timeout the longest silence of the server, in seconds.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        token: str | bool | None = None,
        cache: str | Path | None = None,
        limit: int = LIMIT,
        offline: bool | None = None,
        wait: float = 0.5,
        timeout: float = 30.0,
    ) -> None:
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self.token = token
        self.cache = Path(cache) if cache else default_cache()
        # one server's word for a hash must not become another's content
        self._own = self.cache / hashlib.sha256(self.endpoint.encode()).hexdigest()[:12]
        self._ranges = RangeCache(self._own / "blobs", limit)
        self.offline = constants.HF_HUB_OFFLINE if offline is None else offline
        self.patience = Patience(wait, timeout)
        self._whole_files_only = False
        """Whether the server was seen to ignore ranges."""

    @property
    def limit(self) -> int:
        """Bytes that the cache may hold."""
        return self._ranges.limit

    def revisions(self, repository: str) -> dict[str, str]:
        """Branches and tags of a repository, each with its commit."""
        validate_repo_id(repository)

        def ask() -> dict[str, Any]:
            refs = self._asked(f"{self.endpoint}/api/models/{quote(repository)}/refs")[0]
            return {str(ref["name"]): ref["targetCommit"] for ref in [*refs["tags"], *refs["branches"]]}

        def checked(found: dict[str, Any]) -> dict[str, str]:
            return {name: _checked_hash(commit, repository) for name, commit in found.items()}

        return self._remembered(repository, "refs.json", ask, checked, fresh=not self.offline)

    def files(self, repository: str, commit: str) -> dict[str, HubFile]:
        """The files of a commit by path."""

        def ask() -> dict[str, Any]:
            found: dict[str, Any] = {}
            for entry in self._pages(f"{self.endpoint}/api/models/{quote(repository)}/tree/{commit}?recursive=true"):
                if entry["type"] != "file":
                    continue
                if entry["path"] in found:
                    raise WeightsError(f"its listing names {entry['path']!r:.100} twice, after {len(found)} files")
                lfs = entry.get("lfs")
                found[str(entry["path"])] = [entry["size"], lfs["oid"] if lfs else entry["oid"], bool(lfs)]
            return found

        def checked(found: dict[str, Any]) -> dict[str, HubFile]:
            for path, (size, _, _) in found.items():
                if type(size) is not int or not 0 <= size < 2**60:
                    raise WeightsError(f"{repository}/{path}: the hub lists {size!r:.100} as its size")
            return {
                path: HubFile(path, size, _checked_hash(sha, f"{repository}/{path}"), is_lfs)
                for path, (size, sha, is_lfs) in found.items()
            }

        name = f"trees/{_checked_hash(commit, repository)}.json"
        return self._remembered(repository, name, ask, checked, fresh=False)

    def open(self, repository: str, commit: str, file: HubFile) -> CachedBytes:
        """A file as a source of bytes."""
        label = f"hub:{repository}@{commit[:8]}/{file.path}"
        return CachedBytes(
            self._ranges,
            file.hash,
            file.size,
            label,
            partial(self._append, repository, commit, file, label),
            check=partial(_require_content, file, label),
            offline=self.offline,
        )

    def read(self, repository: str, commit: str, file: HubFile, start: int, stop: int) -> UInt8[np.ndarray, " n"]:
        """A range of a file, from the cache or the server."""
        return self.open(repository, commit, file).read(start, stop)

    def prefetch(self, repository: str, commit: str, file: HubFile, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch ranges that will be read, neighbours together."""
        self.open(repository, commit, file).prefetch(ranges)

    def clear(self) -> int:
        """Empty the cache; how many bytes that freed."""
        freed = sum(path.stat().st_size for path in self.cache.rglob("*") if path.is_file())
        shutil.rmtree(self.cache, ignore_errors=True)
        self._ranges = RangeCache(self._ranges.root, self._ranges.limit)
        return freed

    def _headers(self) -> dict[str, str]:
        return build_hf_headers(token=self.token)

    def _asked(self, url: str) -> tuple[Any, str | None]:
        """An answer of the API, and where it goes on."""
        content, response = answer(url, self._headers(), self.patience)
        link = _NEXT.search(response.headers.get("Link", ""))
        return parsed(content, response), link[1] if link else None

    def _pages(self, url: str) -> Iterable[Any]:
        """The entries of a listing, page by page; raises where it does not come to an end."""
        seen: set[str] = set()
        count = 0
        following: str | None = url
        while following:
            if following in seen or len(seen) >= MOST_PAGES:
                raise WeightsError(f"its listing has no end: {count} files on {len(seen)} pages so far")
            if urlsplit(following)[:2] != urlsplit(self.endpoint)[:2]:
                raise WeightsError(f"its listing goes on at another server, after {count} files")
            seen.add(following)
            entries, following = self._asked(following)
            if not isinstance(entries, list) or (following and not entries):
                raise WeightsError(f"its listing breaks off after {count} files: a page without any")
            count += len(entries)
            yield from entries

    def _remembered(
        self,
        repository: str,
        name: str,
        ask: Callable[[], dict[str, Any]],
        checked: Callable[[dict[str, Any]], Result],
        *,
        fresh: bool,
    ) -> Result:
        """An answer of the server, checked and then kept; asked for again if it may have changed or is damaged."""
        file = self._own / repository.replace("/", "--") / name
        if file.is_file() and not fresh:
            try:
                return checked(json.loads(file.read_text(encoding="utf-8")))
            except (ValueError, TypeError, AttributeError, RecursionError):
                file.unlink(missing_ok=True)  # damaged: ask again
        if self.offline:
            raise FileNotFoundError(
                f"hub:{repository}: {name} is not in the cache {self.cache} and this is offline. "
                "Open the run once with a connection, and read what you will need"
            )
        found = retried(f"hub:{repository} ({name})", self.endpoint, self.patience, ask)
        result = checked(found)
        if found:  # an empty answer may be a passing fault
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, found)
        return result

    def _append(
        self,
        repository: str,
        commit: str,
        file: HubFile,
        label: str,
        open_file: BinaryIO,
        start: int,
        stop: int,
        known: str | None,
        remember: Any,
    ) -> None:
        if self._whole_files_only and stop - start < file.size:
            raise NoRangesError
        url = f"{self.endpoint}/{quote(repository)}/resolve/{commit}/{quote(file.path)}"
        download = Download(
            url, start, stop, file.size, label, self.endpoint, self._headers, self.patience, listed=file.hash
        )
        try:
            download.append_to(open_file, known, remember)
        except NoRangesError:
            if not self._whole_files_only:
                self._whole_files_only = True
                warnings.warn(f"{self.endpoint} sends no parts of files: they are fetched whole", stacklevel=2)
            raise


def _checked_hash(text: Any, label: str) -> str:
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise WeightsError(f"{label}: the hub names {text!r:.100} where the hash of a commit or a file is expected")
    return text


def _require_content(file: HubFile, label: str, path: Path) -> None:
    """Raise where a file that was fetched whole has not the hash that the hub lists for it."""
    with open(path, "rb") as content:
        if file.is_sha256:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        else:
            digest = hashlib.new("sha1" if len(file.hash) == 40 else "sha256", usedforsecurity=False)
            digest.update(b"blob %d\0" % file.size)  # as git does
            while chunk := content.read(2**20):
                digest.update(chunk)
            found = digest.hexdigest()
    if found != file.hash:
        raise WeightsError(
            f"{label}: its content has the hash {found[:12]}, the hub lists {file.hash[:12]}; deleted. Try again: "
            "if it stays so, the repository or something between here and there is damaged"
        )
