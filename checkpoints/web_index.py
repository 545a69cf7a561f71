"""A web server with index pages as a store: what Apache, nginx or `python -m http.server` show for a folder.

A folder is the links of its page that lead to something directly in it (or nginx' listing as JSON); a name that ends in
a slash is a folder. Size and version of a file are asked for by a request for its first byte, which also shows whether
the server sends parts of files; where it does not, files are fetched whole, and that is said.
"""

import json
from collections.abc import Mapping
from functools import partial
from html.parser import HTMLParser
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urljoin, urlsplit

from checkpoints.download import Download, NoRangesError, validator
from checkpoints.files import WeightsError
from checkpoints.patience import StatusError, answer, opened, retried
from checkpoints.range_cache import CachedBytes
from checkpoints.remote_path import Found, Shelf
from checkpoints.store import Store, warn_of_whole_files


class WebShelf(Shelf):
    """Files and folders of one web server. query belongs to one signed address and is never shown."""

    def __init__(
        self, origin: str, shown: str, query: dict[str, str], store: Store, headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.origin, self.shown, self.store = origin, shown, store
        self._query, self._headers = query, dict(headers)
        self._whole_files_only = False
        self._looked: dict[str, Found | None] = {}

    @classmethod
    def at(cls, url: str, store: Store, headers: Mapping[str, str]) -> tuple["WebShelf", str]:
        """The server of an address, and the path there."""
        parts = urlsplit(url)
        path = unquote(parts.path).rstrip("/")
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        query = {path: parts.query} if parts.query else {}
        return cls(f"{parts.scheme}://{parts.netloc}", shown, query, store, headers), path

    def label(self, path: str) -> str:
        """How a path is shown: without user, password and signature."""
        return f"{self.shown}{path}"

    def _url(self, path: str, *, folder: bool = False) -> str:
        query = f"?{self._query[path]}" if path in self._query else ""
        return f"{self.origin}{quote(path)}{'/' * folder}{query}"

    def _list(self, path: str) -> dict[str, Found]:
        return self._asked(path, lambda: self._page(path), {})

    def _page(self, path: str) -> dict[str, Found]:
        content, response = answer(self._url(path, folder=True), self._headers, self.store.patience)
        if "json" in response.headers.get("Content-Type", ""):
            return _from_json(content)
        if "html" not in response.headers.get("Content-Type", ""):
            raise WeightsError("there is no index page: a page with links, or a listing as JSON, is expected")
        return _from_links(content.decode("utf-8", "replace"), str(response.url))

    def look(self, path: str) -> Found | None:
        """What one path is, by a request for its first byte."""
        if path not in self._looked:
            self._looked[path] = self._asked(path, lambda: self._first_byte(path), None)
        return self._looked[path]

    def _first_byte(self, path: str) -> Found:
        headers = {**self._headers, "Range": "bytes=0-0", "Accept-Encoding": "identity"}
        try:
            with opened(self._url(path), headers, self.store.patience) as response:
                if "text/html" in response.headers.get("Content-Type", "") or str(response.url).endswith("/"):
                    return Found(True)
                if response.status_code == 206:
                    size = response.headers["Content-Range"].rpartition("/")[2]
                else:
                    self._no_ranges()
                    size = response.headers["Content-Length"]
                return Found(False, int(size), validator(response))
        except StatusError as error:
            if error.status == 416:  # nothing has no first byte
                return Found(False, 0)
            raise

    def _asked(self, path: str, ask: Any, nothing: Any) -> Any:
        def asked() -> Any:
            try:
                return ask()
            except StatusError as error:
                if error.status in (404, 410):
                    return nothing
                raise

        return retried(self.label(path), self.shown, self.store.patience, asked)

    def open(self, path: str) -> CachedBytes:
        """The bytes of a file, by ranges."""
        found = self.look(path)
        if found is None:
            raise FileNotFoundError(f"{self.label(path)} does not exist")
        if found.is_dir:
            raise WeightsError(
                f"{self.label(path)}: {self.shown} answers with a web page instead of the file. Is it a folder, or is "
                "there a log-in page, a proxy or a captive portal between here and there? Nothing of it is kept"
            )
        return self.store.kept(self.label(path), found, partial(self._append, path, found))

    def _append(
        self, path: str, found: Found, file: BinaryIO, start: int, stop: int, _known: str | None, remember: Any
    ) -> None:
        assert found.size is not None
        if self._whole_files_only and stop - start < found.size:
            raise NoRangesError
        download = Download(
            self._url(path),
            start,
            stop,
            found.size,
            self.label(path),
            self.shown,
            lambda: self._headers,
            self.store.patience,
        )
        try:
            download.append_to(file, found.version, remember)
        except NoRangesError:
            self._no_ranges()
            raise

    def _no_ranges(self) -> None:
        if not self._whole_files_only:
            self._whole_files_only = True
            warn_of_whole_files(self.shown)


class _Links(HTMLParser):
    """Where the links of a page lead."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a link."""
        if tag == "a":
            self.targets += [value for name, value in attrs if name == "href" and value]


def _from_links(page: str, url: str) -> dict[str, Found]:
    """The links that lead to something directly in the folder of this page."""
    links = _Links()
    links.feed(page)
    folder = urlsplit(url)
    base = folder.path if folder.path.endswith("/") else f"{folder.path}/"
    listed: dict[str, Found] = {}
    for target in links.targets:
        try:
            parts = urlsplit(urljoin(f"{folder.scheme}://{folder.netloc}{base}", target))
        except ValueError:
            continue
        if (parts.scheme, parts.netloc) != (folder.scheme, folder.netloc) or parts.query:
            continue
        name = unquote(parts.path.removeprefix(base)) if parts.path.startswith(base) else ""
        is_dir, name = name.endswith("/"), name.removesuffix("/")
        if name and "/" not in name and name not in (".", ".."):
            listed[name] = Found(is_dir)
    return listed


def _from_json(content: bytes) -> dict[str, Found]:
    """nginx' `autoindex_format json`: a list of names with their types."""
    try:
        return {
            entry["name"]: Found(entry["type"] == "directory")
            for entry in json.loads(content)
            if "/" not in entry["name"] and entry["name"] not in ("", ".", "..")
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        raise WeightsError("its index is JSON, but no list of names with types") from None
