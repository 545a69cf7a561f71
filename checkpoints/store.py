"""Object stores and web servers, read by byte ranges through the same kind of cache as a hub.

    Store().at("s3://bucket/run")        S3 and what speaks like it (fsspec and s3fs; credentials as s3fs finds them)
    Store().at("gs://bucket/run")        whatever else fsspec knows: az, abfs, sftp, memory ...
    Store().at("https://host/run/")      a web server with index pages (see `checkpoints.web_index`)

What is kept is kept under the address, the size and the version (ETag, generation, date of change) of a file, so that
a file that was written anew is fetched anew; a file of which the store gives no version is kept for this process alone.
A range is taken only if the file is still the listed one: S3 is asked under that condition (If-Match), web servers too
(If-Range); where fsspec offers no condition the file is looked at again afterwards.
"""

import hashlib
import secrets
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from checkpoints.download import ContentChangedError
from checkpoints.files import WeightsError
from checkpoints.patience import Patience, plain
from checkpoints.range_cache import LIMIT, CachedBytes, RangeCache, default_cache
from checkpoints.remote_path import Found, RemotePath, Shelf

AT_ONCE = 16 * 2**20
"""Bytes that are asked for at once; what came is on the disk before the next are."""

HASHES = ("ETag", "etag", "md5", "content_md5", "sha256")
"""What stores call that which two files of one content share."""

VERSIONS = ("ETag", "etag", "generation", "md5", "content_md5", "LastModified", "last_modified", "mtime", "modified")
"""What stores call that which changes with the content, the surest first."""


class Store:
    """How stores are reached, and a cache in front of them.

    options go to fsspec's file system (endpoint_url, key, anon ...), headers to web servers. limit is the size of the
    cache in bytes; wait, in seconds, the first pause before what broke is tried again, timeout the longest silence.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        cache: str | Path | None = None,
        limit: int = LIMIT,
        wait: float = 0.5,
        timeout: float = 30.0,
    ) -> None:
        self._options, self._headers = dict(options or {}), dict(headers or {})
        self.cache = Path(cache) if cache else default_cache()
        self._ranges = RangeCache(self.cache / "stores", limit)
        self.patience = Patience(wait, timeout)
        self._process = secrets.token_hex(8)

    def at(self, url: str) -> RemotePath:
        """The file or folder at an address; raises FileNotFoundError where there is nothing."""
        if urlsplit(url).scheme in ("http", "https"):
            from checkpoints.web_index import WebShelf

            place = RemotePath(*WebShelf.at(url, self, self._headers))
        else:
            system, shown, path = file_system(url, self._options)
            place = RemotePath(FsspecShelf(system, shown, self), path)
        if not place.exists():
            raise FileNotFoundError(f"{place} does not exist, or may not be listed by you")
        return place

    def kept(
        self, label: str, found: Found, append: Callable[..., None], check: Callable[[Path], None] | None = None
    ) -> CachedBytes:
        """A file as a source of bytes, its ranges kept."""
        assert found.size is not None
        version = found.version or self._process
        key = hashlib.sha256(f"{label}\n{found.size}\n{version}".encode()).hexdigest()
        return CachedBytes(self._ranges, key, found.size, label, append, check=check)


def file_system(url: str, options: Mapping[str, Any]) -> tuple[Any, str, str]:
    """fsspec's file system for an address, how its paths are shown (begin with), and the path there."""
    protocol, host = url.split("://")[0], urlsplit(url).netloc
    shown = f"{protocol}://{host.rpartition('@')[2]}"
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url, **options)
    except ImportError as error:
        raise ImportError(
            f"{protocol}:// needs a library that is not installed ({plain(str(error))}): "
            "pip install 'checkpoint-probes[remote]' brings those for S3"
        ) from None
    except ValueError as error:
        raise ValueError(f"{protocol}:// is not known: {plain(str(error))}") from None
    if "@" in host and "@" in str(path):
        raise ValueError(f"{shown}...: credentials do not belong into an address. Give them by Store(options=...)")
    system.invalidate_cache()  # one system serves all of a process, and remembers what it listed
    path = str(path).rstrip("/")
    is_in_path = path.lstrip("/").startswith(host)  # s3://bucket/run is bucket/run there, sftp://host/run is /run
    return system, f"{protocol}://" if is_in_path else shown, path


class FsspecShelf(Shelf):
    """A file system of fsspec. shown is how its paths are shown to begin."""

    def __init__(self, system: Any, shown: str, store: Store) -> None:
        super().__init__()
        self.system, self.shown, self.store = system, shown, store
        self._is_s3 = shown.split("://")[0] in ("s3", "s3a")

    def label(self, path: str) -> str:
        """How a path is shown."""
        return f"{self.shown}{path if not self.shown.endswith('/') else path.lstrip('/')}"

    def _list(self, path: str) -> dict[str, Found]:
        try:
            entries = self.system.ls(path, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:  # every store has errors of its own
            raise self._failed(path, "listed", error) from error
        listed: dict[str, Found] = {}
        for entry in entries:
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            if name and name not in (".", "..") and str(entry["name"]).rstrip("/") != path:
                listed[name] = _found(entry)
        return listed

    def look(self, path: str) -> Found | None:
        """What one path is."""
        try:
            return _found(self.system.info(path))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._failed(path, "looked at", error) from error

    def open(self, path: str) -> CachedBytes:
        """The bytes of a file, by ranges."""
        found = self.found(path)
        if found is None or found.is_dir or found.size is None:
            raise FileNotFoundError(f"{self.label(path)} is not a file that can be read by ranges")
        return self.store.kept(self.label(path), found, partial(self._append, path, found))

    def _append(
        self, path: str, found: Found, partial_file: BinaryIO, start: int, stop: int, _known: Any, _remember: Any
    ) -> None:
        """Append what is missing of a range, piece by piece."""
        if self._is_s3:
            read = partial(_from_s3, self.system, path, found.version)
        else:
            read = partial(self.system.cat_file, path)
        while (have := partial_file.tell()) < stop - start:
            first, last = start + have, min(stop, start + have + AT_ONCE)
            try:
                content = read(start=first, end=last)
            except Exception as error:
                if "PreconditionFailed" in repr(error) or "At least one of the pre-conditions" in str(error):
                    raise self._changed(path) from None
                raise self._failed(path, "read", error) from error
            if len(content) != last - first:
                raise WeightsError(
                    f"{self.label(path)}: {len(content)} bytes came where {first} to {last} were asked for: it is no "
                    "longer as long as it was listed, or the store sends no parts of files"
                )
            partial_file.write(content)
            partial_file.flush()
        if not self._is_s3:
            self._require_same(path, found)

    def _require_same(self, path: str, found: Found) -> None:
        self.system.invalidate_cache(path.rpartition("/")[0])
        now = self.look(path)
        if now is None or (now.size, now.version) != (found.size, found.version):
            raise self._changed(path)

    def _changed(self, path: str) -> ContentChangedError:
        return ContentChangedError(
            f"{self.label(path)}: it was written anew since it was listed. What was fetched of it is dropped; open the "
            "run again"
        )

    def _failed(self, path: str, done: str, error: Exception) -> OSError:
        is_refused = isinstance(error, PermissionError) or "redential" in repr(error)
        hint = (
            ". Credentials are looked for where the library of the store looks for them (for S3: the variables and "
            "files of AWS), or given by Store(options={...})"
        )
        reason = plain(str(error)) or type(error).__name__
        return OSError(f"{self.label(path)} cannot be {done}: {reason}{hint if is_refused else ''}")


def _found(entry: Mapping[str, Any]) -> Found:
    """What fsspec says of one name."""
    if entry.get("type") == "directory":
        return Found(True)
    size = entry.get("size")
    version = next((str(entry[key]) for key in VERSIONS if entry.get(key)), None)
    shared = next((str(entry[key]) for key in HASHES if entry.get(key)), None)
    return Found(False, size if isinstance(size, int) else None, version, shared)


def _from_s3(system: Any, path: str, version: str | None, *, start: int, end: int) -> bytes:
    """A range of an object, on the condition that it still is the one that was listed."""
    from fsspec.asyn import sync

    bucket, key, _ = system.split_path(path)
    condition = {"IfMatch": version} if version else {}

    async def read() -> bytes:
        answer = await system._call_s3(
            "get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}", **condition, **system.req_kw
        )
        try:
            return await answer["Body"].read()
        finally:
            answer["Body"].close()

    content = sync(system.loop, read)
    assert isinstance(content, bytes)
    return content


def warn_of_whole_files(server: str) -> None:
    """Say that a server sends no ranges."""
    warnings.warn(f"{server} sends no parts of files: they are fetched whole", stacklevel=2)
