"""A range of a file from a server, appended to what is there already and taken up again after every break.

Most of what goes wrong between here and a server passes: a broken connection, or one that is busy or restarting. It is
tried again, with pauses that double, for as long as something comes; what does not pass is raised at once.
"""

import importlib
import time
from dataclasses import dataclass, field
from typing import BinaryIO

from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from checkpoints.files import WeightsError

ATTEMPTS = 6
"""Tries without any progress before a download is given up."""


@dataclass(frozen=True)
class Download:
    """Bytes start to stop of what is at a url. wait is the first pause, in seconds, before it is taken up again."""

    url: str
    start: int
    stop: int
    is_whole: bool
    """Whether that is all of the file."""
    label: str
    endpoint: str
    token: str | bool | None = field(repr=False)
    wait: float

    def append_to(self, partial: BinaryIO) -> bool:
        """Append what is missing, taking up after every break. False if the server sends only whole files."""
        idle, start, stop = 0, self.start, self.stop
        while (have := partial.tell()) < stop - start:
            headers = build_hf_headers(token=self.token)
            headers |= {"Range": f"bytes={start + have}-{stop - 1}", "Accept-Encoding": "identity"}
            failure: Exception | None = None
            try:
                with get_session().stream("GET", self.url, headers=headers, follow_redirects=True) as response:
                    if response.status_code >= 400:
                        response.read()
                    hf_raise_for_status(response)
                    if response.status_code != 206:
                        if not self.is_whole:
                            return False
                        partial.truncate(0)
                        partial.seek(0)
                    elif not response.headers.get("Content-Range", "").startswith(f"bytes {start + have}-"):
                        raise WeightsError(f"{self.label}: the server sent another range than was asked for")
                    for chunk in response.iter_bytes():
                        partial.write(chunk[: stop - start - partial.tell()])
                        if partial.tell() == stop - start:
                            break
            except (HfHubHTTPError, *transport_errors()) as error:
                if not may_pass(error):
                    raise unavailable(self.label, self.endpoint, error) from error
                failure = error
            finally:
                partial.flush()
            idle = 0 if partial.tell() > have else idle + 1
            if idle >= ATTEMPTS:
                raise unavailable(self.label, self.endpoint, failure or WeightsError("it sends less than it announces"))
            if partial.tell() < stop - start:
                time.sleep(self.wait * 2**idle)
        return True


def transport_errors() -> tuple[type[Exception], ...]:
    """What a broken connection raises: in the HTTP library that this release of huggingface-hub uses, or below it."""
    library = importlib.import_module(type(get_session()).__module__.split(".")[0])
    return (library.TransportError, ConnectionError, TimeoutError)


def may_pass(error: Exception) -> bool:
    """Whether trying again may help: a broken connection, or a server that is busy or restarting."""
    if not isinstance(error, HfHubHTTPError):
        return True
    return error.response is not None and error.response.status_code in (408, 429, 500, 502, 503, 504)


def unavailable(what: str, endpoint: str, error: Exception) -> OSError:
    """What is raised where trying again does not help."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return OSError(f"{what} cannot be fetched from {endpoint}: {reason}. What was fetched is kept; try again")
