"""How long a server is waited for, and what is said when that was in vain.

A server may be slow; it may not be silent, drip its answer byte by byte, or never come to an end. Every wait here has a
limit, and what reaches a limit becomes one error that says what was asked, what came so far and what to try.
"""

import importlib
import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from huggingface_hub.utils import get_session

from checkpoints.files import WeightsError

LONGEST_ANSWER = 64 * 2**20
"""Bytes of an answer that is a listing and no file."""

LONGEST_PAUSE = 120
"""First pauses; a busy server that asks for more than so many is not waited for longer before it is asked again."""

Result = TypeVar("Result")


class StatusError(Exception):
    """An answer that says no."""

    def __init__(self, status: int, said: str = "", retry_after: str | None = None) -> None:
        self.status = status
        self.retry_after = float(retry_after) if retry_after and re.fullmatch(r"\d{1,6}", retry_after) else 0.0
        known = {code.value: code.phrase for code in HTTPStatus}
        hint = {401: "is it private, or misspelt? log in, or give a token", 403: "is access granted to you?"}
        parts = [f"{status} {known.get(status, '')}".strip(), plain(said), hint.get(status, "")]
        super().__init__("; ".join(part for part in parts if part))

    @property
    def may_pass(self) -> bool:
        """Whether trying again may help: the server is busy or restarting."""
        return self.status in (408, 425, 429, 500, 502, 503, 504)


class TooSlowError(Exception):
    """What comes, comes too slowly to wait for it."""


@dataclass(frozen=True)
class Patience:
    """Limits, in seconds: the first pause before something broken is tried again (it doubles), the longest silence."""

    wait: float = 0.5
    silence: float = 30.0
    slowest: float = 1000.0
    """Bytes a second below which, over the longest silence, a server drips."""
    attempts: int = 6
    """Tries without any progress before something is given up."""

    def pause(self, tries: int, failure: Exception | None = None) -> None:
        """Wait before the next try; as long as a busy server asks for, within limits."""
        asked = failure.retry_after if isinstance(failure, StatusError) else 0.0
        time.sleep(min(max(self.wait * 2**tries, asked), LONGEST_PAUSE * self.wait))

    def pace(self) -> "Pace":
        """A clock for one answer."""
        return Pace(self)


class Pace:
    """Raises once less than the slowest acceptable comes over the longest silence."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.since, self.count = time.monotonic(), 0

    def got(self, count: int) -> None:
        """So many bytes came just now."""
        self.count += count
        passed = time.monotonic() - self.since
        if passed > self.patience.silence:
            if self.count < self.patience.slowest * passed:
                raise TooSlowError(f"it drips: {self.count} bytes in {passed:.3g} s")
            self.since, self.count = time.monotonic(), 0


@contextmanager
def opened(url: str, headers: Mapping[str, str], patience: Patience) -> Iterator[Any]:
    """The answer to a request, once its head is here; raises StatusError where it says no."""
    stream = get_session().stream("GET", url, headers=dict(headers), follow_redirects=True, timeout=patience.silence)
    response = _within(2 * patience.silence, stream.__enter__)
    try:
        if response.status_code >= 400 or response.status_code in (204, 304):
            raise StatusError(
                response.status_code, response.headers.get("X-Error-Message", ""), response.headers.get("Retry-After")
            )
        if response.status_code not in (200, 206):
            raise StatusError(response.status_code, "an answer that holds no file")
        yield response
    finally:
        stream.__exit__(None, None, None)


def answer(url: str, headers: Mapping[str, str], patience: Patience) -> tuple[bytes, Any]:
    """A whole answer, and the response it came with. Raises TooSlowError, or WeightsError where it is too long."""
    content, pace, began = bytearray(), patience.pace(), time.monotonic()
    with opened(url, headers, patience) as response:
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > LONGEST_ANSWER:
                raise WeightsError(f"its answer is longer than {LONGEST_ANSWER} bytes")
            pace.got(len(chunk))
            if time.monotonic() - began > 10 * patience.silence:
                raise TooSlowError(f"its answer did not end within {10 * patience.silence:.3g} s")
        return bytes(content), response


def parsed(content: bytes, response: Any) -> Any:
    """An answer that has to be JSON; what it is instead is said."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        kind = plain(response.headers.get("Content-Type", ""))
        page = b"<html" in content[:1000].lower() or "html" in kind
        hint = "a web page: is there a log-in page, a proxy or a captive portal?" if page else f"{type(error).__name__}"
        raise WeightsError(f"its answer is not JSON ({hint})") from None


def retried(what: str, server: str, patience: Patience, ask: Callable[[], Result]) -> Result:
    """What a server answers, asked again for as long as the failure may pass."""
    for attempt in range(patience.attempts):
        try:
            return ask()
        except WeightsError as error:
            raise WeightsError(f"{what}: {server}: {error}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise WeightsError(f"{what}: the answer of {server} makes no sense ({error!r:.200})") from None
        except StatusError as error:
            if not error.may_pass or attempt == patience.attempts - 1:
                raise unavailable(what, server, error) from error
            patience.pause(attempt, error)
        except transport_errors() as error:
            if attempt == patience.attempts - 1 or is_final(error):
                raise unavailable(what, server, error) from error
            patience.pause(attempt, error)
    raise AssertionError("unreachable")


def transport_errors() -> tuple[type[Exception], ...]:
    """What a request that fails raises: in the HTTP library that this release of huggingface-hub uses, or below it."""
    library = importlib.import_module(type(get_session()).__module__.split(".")[0])
    return (library.RequestError, library.StreamError, library.InvalidURL, ConnectionError, TimeoutError, TooSlowError)


def is_final(error: Exception) -> bool:
    """Whether the same request would end the same way: redirects in a circle or to nowhere, an answer badly packed."""
    return type(error).__name__ in ("TooManyRedirects", "UnsupportedProtocol", "InvalidURL", "DecodingError")


def unavailable(what: str, server: str, error: Exception | str, reached: str = "") -> OSError:
    """What is raised where trying again does not help."""
    reason = plain(str(error)) or type(error).__name__
    so_far = f" ({reached})" if reached else ""
    return OSError(f"{what} cannot be fetched from {server}: {reason}{so_far}. What was fetched is kept; try again")


def plain(text: str, most: int = 200) -> str:
    """The first line of what a server says, without control characters, shortened."""
    line = next(iter(text.strip().splitlines()), "")
    return "".join(char if char.isprintable() else "?" for char in line)[:most]


def _within(seconds: float, do: Callable[[], Result]) -> Result:
    """What a function returns, if it does so in time; a head that drips would hold up the caller for ever."""
    box: queue.SimpleQueue = queue.SimpleQueue()

    def run() -> None:
        try:
            box.put((do(), None))
        except BaseException as error:
            box.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = box.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.3g} s") from None
    if error is not None:
        raise error
    return result
