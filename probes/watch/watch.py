"""`probes watch RUN`: one view and done, or a view that stays alive until Ctrl-C.

Reading happens in a thread, because a slow file system may take its time: the view goes on and says how old it is.
"""

import threading
import time
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from probes.watch.reader import Reader
from probes.watch.serve import ServedPage
from probes.watch.snapshot import Snapshot
from probes.watch.view import view

_REDRAW = 0.25  # seconds


def once(path: str | Path, *, measures: bool = True) -> Snapshot:
    """All that is there now; raises FileNotFoundError if nothing is."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist")
    reader = Reader(path, measures=measures)
    while not (snapshot := reader.poll(waits=True)).is_complete:
        pass
    return snapshot


def watch(
    path: str | Path,
    console: Console,
    *,
    interval: float,
    measures: bool = True,
    log_steps: bool = True,
    page: ServedPage | None = None,
) -> None:
    """Show what is at the path, and go on showing it as it changes, until Ctrl-C; and a page on it, if there is one."""
    polled = Polled(Reader(path, measures=measures), interval)
    polled.start()
    if page is not None:
        page.start()
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                shown = polled.view(log_steps)
                live.update(shown if page is None else Group(shown, Text(page.state, style="dim")), refresh=True)
                time.sleep(_REDRAW)
    except KeyboardInterrupt:
        pass
    finally:
        polled.stop()
        if page is not None:
            page.stop()


class Polled:
    """A reader that is polled in a thread, whatever happens."""

    def __init__(self, reader: Reader, interval: float) -> None:
        self.reader, self.interval = reader, interval
        self.snapshot: Snapshot | None = None
        self.failure: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> None:
        """Begin to poll, at once and then at every interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the poll that is going on; it is not waited for, since it may hang on a dead file system."""
        self._stopped.set()

    def view(self, log_steps: bool) -> RenderableType:
        """The last snapshot and how old it is."""
        snapshot = self.snapshot
        if snapshot is None:
            return Text(self.failure or f"reading {self.reader.path} for the first time ...")
        age = time.monotonic() - snapshot.read_at
        note = f"read {age:.0f} s ago, every {self.interval:g} s; Ctrl-C to leave"
        if not snapshot.is_complete:
            note = "still reading what was logged so far; " + note
        if age > 3 * self.interval + 2:
            note = "the file system is slow or hangs: " + note
        parts = [Text(), Text(note, style="dim")]
        if self.failure:
            parts.append(Text(self.failure, style="red"))
        return Group(view(snapshot, log_steps=log_steps), *parts)

    def _poll(self) -> None:
        """Keep the newest snapshot, or why there is none, until `stop`; in the thread."""
        while not self._stopped.is_set():
            try:
                self.snapshot = self.reader.poll()
                self.failure = None
            except Exception as error:  # the view outlives whatever a file may hold
                self.failure = f"{type(error).__name__}: {error}"
            if self.snapshot is None or self.snapshot.is_complete or self.failure:
                self._stopped.wait(self.interval)
