"""A page on a run so far, for a browser on this machine: made again as the run grows, and refreshed by itself.

Only this machine is answered: the server is bound to 127.0.0.1, and a request that was sent to another name is refused,
so that no web page can ask through the browser. Making the page takes as long as it takes, in a thread, and rests nine
times as long. While there is none yet, or the last one failed, a line says so.
"""

import html
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_REST = 9.0  # times what the page took to make

MakePage = Callable[[Path], object]
"""Writes the page to a path."""


class ServedPage:
    """A page that is made again and again, and the server that shows it. `interval`: seconds between two, at least."""

    def __init__(self, make: MakePage, folder: Path, *, interval: float = 30.0, port: int = 0) -> None:
        self.make, self.path, self.interval = make, folder / "report.html", interval
        self.problem: str | None = None
        """Why the last page could not be made."""
        self.made = 0
        self._stopped = threading.Event()
        self._server = ThreadingHTTPServer((HOST, port), _handler_of(self))
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """The port of this machine that is answered."""
        return self._server.server_port

    @property
    def address(self) -> str:
        """Where a browser on this machine finds it."""
        return f"http://{HOST}:{self.port}/"

    @property
    def state(self) -> str:
        """Where it is, and how it stands with it, in a line."""
        if self.problem:
            return f"{self.address}: the last page could not be made ({self.problem})"
        return f"{self.address}: the report so far, {f'made {self.made} times' if self.made else 'being made'}"

    def start(self) -> None:
        """Serve, and make pages, until `stop`."""
        threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True).start()
        threading.Thread(target=self._make_again, daemon=True).start()

    def stop(self) -> None:
        """Serve no more; a page that is being made is not waited for."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def make_once(self) -> float:
        """Make the page now; how long that took, in seconds. What goes wrong is shown instead."""
        began = time.monotonic()
        try:
            self.make(self.path)
            self.problem = None
            self.made += 1
        except Exception as error:  # a run that is just beginning has nothing to report
            self.problem = f"{type(error).__name__}: {error}"
        return time.monotonic() - began

    def answer(self) -> bytes:
        """The page, or why there is none."""
        if self.made and self.path.exists():
            return self.path.read_bytes()
        said = f"no page yet: {self.problem}" if self.problem else "the first page is being made"
        return f"<!doctype html><meta charset=utf-8><title>probes watch</title><p>{html.escape(said)}".encode()

    def _make_again(self) -> None:
        """In the thread."""
        while not self._stopped.is_set():
            self._stopped.wait(max(self.interval, _REST * self.make_once()))


def _handler_of(page: ServedPage) -> type[BaseHTTPRequestHandler]:
    """What answers requests for a page."""

    class Handler(BaseHTTPRequestHandler):
        """Answers GET / of this machine, and nothing else."""

        def do_GET(self) -> None:
            """The page as it is now; the browser asks again by itself."""
            port = page.port
            if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
                self.send_error(403, "only for a browser on this machine")
                return
            if self.path.split("?")[0] != "/":
                self.send_error(404)
                return
            body = page.answer()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Refresh", str(max(2, round(page.interval)) if page.made else 2))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: Any) -> None:
            """Nothing: the terminal shows the run."""

    return Handler
