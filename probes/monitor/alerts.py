"""Being told somewhere else: functions for `on_event` that send an alert and never keep training waiting.

    Monitor(model, on_event=Webhook("https://hooks.slack.com/services/..."))       Slack, Mattermost and the like
    Monitor(model, on_event=wandb_alert())                                         the run of W&B that is going on
    Monitor(model, on_event=several(trackio_alert(), print))

A webhook is posted by a thread of its own: one try for each event, with a time-out; what cannot be delivered is said
once, after three failures in a row it is given up, and of what waits only so much is kept. The address of a webhook is
its secret: it is in no message, table, state or repr of it. Of what went wrong the host and the reason are said.
"""

import atexit
import json
import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from probes.series.online import ALARMS, Event

if TYPE_CHECKING:
    import wandb
    from trackio.run import Run as TrackioRun

logger = logging.getLogger("probes.monitor")

OnEvent = Callable[[Event], None]

_WAITING = 100  # events that wait to be sent, at most
_GIVE_UP = 3  # failures in a row


class Webhook:
    """Posts every event as JSON: {"text": ...} as Slack reads it, or what `payload` makes of the event.

    headers may hold a token. timeout bounds each try, and how long the end of the process waits for what is unsent.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        payload: Callable[[Event], Mapping[str, Any]] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the address of a webhook begins with https:// and a host (it is not shown: it is secret)")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}: a positive number of seconds is expected")
        self.host, self.timeout, self.payload = parts.hostname, timeout, payload or as_text
        self.sent, self.lost = 0, 0
        """How many events were delivered, and how many were not."""
        fields = {"Content-Type": "application/json", **(headers or {})}
        self._request = lambda body: urllib.request.Request(url, body, dict(fields), method="POST")  # hides both
        self._waiting: queue.Queue[bytes] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._in_a_row = 0

    def __repr__(self) -> str:
        """The host; not the address, which is secret."""
        return f"Webhook({self.host}, {self.sent} sent, {self.lost} lost)"

    def __reduce__(self) -> str:
        """Not pickled: the address would go with it."""
        raise TypeError("a Webhook is not pickled: its address is secret. Make another one where it is needed")

    def __call__(self, event: Event) -> None:
        """Have an event sent; returns at once."""
        if self._in_a_row >= _GIVE_UP:
            self.lost += 1
            return
        try:
            self._waiting.put_nowait(json.dumps(dict(self.payload(event)), default=str).encode())
        except queue.Full:
            self.lost += 1
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_all, name="probes-webhook", daemon=True)
            self._thread.start()
            atexit.register(self.wait)

    def wait(self) -> None:
        """Until everything is sent or lost, or the time-out is over."""
        until = monotonic() + self.timeout
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks and (left := until - monotonic()) > 0:
                self._waiting.all_tasks_done.wait(left)

    def _send_all(self) -> None:
        """Send what waits, for ever; in the thread."""
        while True:
            body = self._waiting.get()
            try:
                if self._in_a_row < _GIVE_UP:
                    self._send(body)
                else:
                    self.lost += 1
            finally:
                self._waiting.task_done()

    def _send(self, body: bytes) -> None:
        """One try."""
        try:
            with _OPENER.open(self._request(body), timeout=self.timeout):
                self.sent, self._in_a_row = self.sent + 1, 0
        except Exception as error:  # whatever a server may do
            self.lost, self._in_a_row = self.lost + 1, self._in_a_row + 1
            reason = f"status {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
            if self.lost == 1 or self._in_a_row == _GIVE_UP:
                logger.warning(
                    "an alert could not be sent to %s (%s)%s",
                    self.host,
                    reason,
                    "; no more are tried" if self._in_a_row == _GIVE_UP else "; it is not tried again",
                )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An alert goes where it was meant to go, or nowhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Never follow."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def as_text(event: Event) -> dict[str, str]:
    """What Slack and those who read the same show: a title and the line of the event."""
    return {"text": f"*{title(event)}*\n{event}"}


def title(event: Event) -> str:
    """A few words, such as "cliff of loss at step 1200"."""
    return f"{event.kind} of {event.metric} at step {event.step:.0f}"


def as_fields(event: Event) -> dict[str, Any]:
    """All of an event, for a program at the other end."""
    return asdict(event)


def wandb_alert(run: "wandb.Run | None" = None) -> OnEvent:
    """An alert of W&B for every event, by the run handed in or the one that is going on then."""
    try:
        import wandb
    except ImportError as error:
        raise ImportError(f"pip install 'checkpoint-probes[wandb]' for its alerts ({error})") from error

    def tell(event: Event) -> None:
        going_on = run or wandb.run
        if going_on is None:
            raise RuntimeError("no W&B run is going on: wandb.init() begins one, or hand one to wandb_alert")
        level = "ERROR" if event.kind in ALARMS else "WARN"
        going_on.alert(title=title(event), text=str(event), level=level, wait_duration=0)

    return tell


def trackio_alert(run: "TrackioRun | None" = None) -> OnEvent:
    """An alert of Trackio for every event, by the run handed in or the one that is going on then.

    The Trackio sink does this by itself: use one of the two.
    """
    try:
        import trackio
        from trackio import context_vars
    except ImportError as error:
        raise ImportError(f"pip install 'checkpoint-probes[trackio]' for its alerts ({error})") from error

    def tell(event: Event) -> None:
        going_on = run or context_vars.current_run.get()
        if going_on is None:
            raise RuntimeError("no Trackio run is going on: trackio.init() begins one, or hand one to trackio_alert")
        level = trackio.AlertLevel.ERROR if event.kind in ALARMS else trackio.AlertLevel.WARN
        going_on.alert(title=title(event), text=str(event), level=level)

    return tell


def several(*listeners: OnEvent) -> OnEvent:
    """One function for `on_event` that calls all of these; what one raises is raised when all were called."""

    def tell(event: Event) -> None:
        errors = []
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    return tell
