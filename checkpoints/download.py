"""A range of a file from a server, appended to what is there already and taken up again after every break.

Most of what goes wrong between here and a server passes: a broken connection, or one that is busy or restarting. It is
tried again, with pauses that double, for as long as something comes; what does not pass is raised at once. Nothing is
waited for without end, and what the server sends is believed only as far as it can be checked: every range after the
first is asked for on the condition that the content is still the same (If-Range), and a web page is never taken for
weights.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from checkpoints.files import WeightsError
from checkpoints.patience import Patience, StatusError, is_final, opened, plain, transport_errors, unavailable

ENOUGH = 4096
"""Bytes from which a connection that broke is said to have brought something."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class NoRangesError(Exception):
    """The server sends only whole files."""


class ContentChangedError(WeightsError):
    """What the server sends is no longer what it sent before."""


@dataclass(frozen=True)
class Download:
    """Bytes start to stop of the file of this size that is at a url; listed is the hash that its content must have."""

    url: str
    start: int
    stop: int
    size: int
    label: str
    endpoint: str
    headers: Callable[[], Mapping[str, str]] = field(repr=False)
    patience: Patience
    listed: str | None = None

    def append_to(self, partial: BinaryIO, known: str | None = None, remember: Callable[[str], Any] = str) -> None:
        """Append what is missing, taking up after every break.

        known is the validator (ETag) that came with other bytes of this file; remember is told the one that comes now.
        Raises NoRangesError where only whole files are sent, ContentChangedError where the validator is another.
        """
        idle, conditional = 0, True
        while (have := partial.tell()) < self.stop - self.start:
            failure: Exception | None = None
            try:
                with self._response(have, known if conditional else None) as response:
                    found = validator(response)
                    if known and found and found != known:
                        raise ContentChangedError(
                            f"{self.label}: its content changed on the server while it was being read (it was {known}, "
                            f"now it is {found}). What was fetched of it is dropped; open the run again"
                        )
                    if not self._is_range(response, have):
                        if self._is_whole:
                            partial.truncate(0)
                            partial.seek(0)
                        elif known and conditional:
                            conditional = False  # some servers take every condition for one that failed
                            continue
                        else:
                            raise NoRangesError
                    if found and not known:
                        known = found
                        remember(found)
                    self._copy(response, partial)
            except StatusError as error:
                if not error.may_pass:
                    raise unavailable(self.label, self.endpoint, error) from error
                failure = error
            except transport_errors() as error:
                if is_final(error):
                    raise unavailable(self.label, self.endpoint, error) from error
                failure = error
            finally:
                partial.flush()
            idle = 0 if partial.tell() - have >= ENOUGH else idle + 1
            if partial.tell() == self.stop - self.start:
                return
            if idle >= self.patience.attempts:
                reached = f"{partial.tell()} of {self.stop - self.start} bytes came"
                raise unavailable(self.label, self.endpoint, failure or "it sends less than it announces", reached)
            self.patience.pause(idle, failure)

    @property
    def _is_whole(self) -> bool:
        return self.stop - self.start == self.size

    @contextmanager
    def _response(self, have: int, condition: str | None) -> Iterator[Any]:
        headers = {**self.headers(), "Accept-Encoding": "identity"}
        headers["Range"] = f"bytes={self.start + have}-{self.stop - 1}"
        if condition and not condition.startswith("W/"):  # a weak validator cannot be a condition, only compared
            headers["If-Range"] = condition
        with opened(self.url, headers, self.patience) as response:
            self._require_file(response)
            yield response

    def _require_file(self, response: Any) -> None:
        """Refuse what cannot be the bytes of this file: a web page, something packed, another hash than is listed."""
        kind = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise WeightsError(
                f"{self.label}: {self.endpoint} answers with a web page instead of the file. Is there a log-in page, a "
                "proxy or a captive portal between here and there? Nothing of it is kept"
            )
        packed = response.headers.get("Content-Encoding", "identity").lower()
        if packed not in ("", "identity"):
            raise WeightsError(
                f"{self.label}: the server sends it packed ({plain(packed)}) though it was asked not to; "
                "ranges of what is packed are not ranges of the file"
            )
        said = own_hash(response)
        if self.listed and said and len(said) == len(self.listed) and said != self.listed:
            raise WeightsError(
                f"{self.label}: the server now says that its content has the hash {said[:12]}, and it listed "
                f"{self.listed[:12]}. Nothing of it is kept; open the run again"
            )

    def _is_range(self, response: Any, have: int) -> bool:
        """Whether this is the range that was asked for; False if it is the whole file, raises if it is another."""
        if response.status_code != 206:
            return False
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if not match or int(match[1]) != self.start + have or not int(match[1]) <= int(match[2]) < self.stop:
            raise WeightsError(f"{self.label}: the server sent another range than was asked for")
        if match[3] != "*" and int(match[3]) != self.size:
            raise WeightsError(
                f"{self.label}: the server says that it has {int(match[3])} bytes, and it listed {self.size}"
            )
        return True

    def _copy(self, response: Any, partial: BinaryIO) -> None:
        pace = self.patience.pace()
        for chunk in response.iter_raw():
            partial.write(chunk[: self.stop - self.start - partial.tell()])
            if partial.tell() == self.stop - self.start:
                return
            pace.got(len(chunk))


def validator(response: Any) -> str | None:
    """What tells this content from another: the ETag, else the date of its last change."""
    return plain(response.headers.get("ETag") or response.headers.get("Last-Modified") or "") or None


def own_hash(response: Any) -> str | None:
    """The hash that the hub itself gives for the content, before it sends us elsewhere for it."""
    for answer in [*response.history, response]:
        linked = answer.headers.get("X-Linked-ETag")
        if linked or answer is response:
            text = (linked or (answer.headers.get("ETag", "") if not response.history else "")).strip().strip('"')
            return text if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) else None
    return None
