"""Reading our run directory while somebody writes it: one listing a poll, and of every file only what is new.

Whether somebody is writing it is seen from the lock on run.json, which the system frees when the writer dies.
"""

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from checkpoints import Run
from checkpoints.layout import METRICS_FILE, RUN_FILE, files_named
from checkpoints.sources.run_directory import described, read_description
from probes.monitor.sinks.run_directory import EVENTS_FILE, PROBES_FILE, read_event
from probes.series.online import Event
from probes.watch.measured import MonitorRows, NewestCheckpoint
from probes.watch.metrics import Metrics
from probes.watch.snapshot import Snapshot
from probes.watch.tail import Tail

_SPEED_OVER = 60.0  # seconds
_TOTALS = ("max_steps", "total_steps", "steps", "num_training_steps", "train_steps")  # what a config may call them


class RunDirectoryReader:
    """A run directory, polled. measures: whether to measure the newest checkpoint where no monitor does."""

    def __init__(self, path: Path, *, measures: bool) -> None:
        self.path, self.measures = path, measures
        self._description = read_description(path)
        self._config: dict[str, Any] = dict(self._description.get("config") or {})
        self._began = (path / RUN_FILE).stat()
        self._metrics, self._metrics_tail = Metrics(), Tail(path / METRICS_FILE)
        self._events: list[Event] = []
        self._events_tail = Tail(path / EVENTS_FILE)
        self._rows, self._newest = MonitorRows(path / PROBES_FILE), NewestCheckpoint()
        self._seen: deque[tuple[float, int]] = deque()
        self._has_caught_up = self._grew = False

    def poll(self, names: Sequence[str], *, waits: bool = False) -> Snapshot | None:
        """What is known now; None if this is another run than before. waits: until the newest has been measured."""
        locked, stat = is_locked(self.path / RUN_FILE)
        if (stat.st_ino, stat.st_mtime_ns) != (self._began.st_ino, self._began.st_mtime_ns):  # numbers are used again
            return None
        self._read_metrics()
        table, table_source, problem = self._measurement(names, waits)
        events, events_source = self._detected(names)
        metrics, steps = self._metrics, list(files_named(self.path, names, "step"))
        damaged = f"{METRICS_FILE}: {metrics.damaged} damaged lines are left out" if metrics.damaged else None
        return Snapshot(
            source=str(self.path),
            name=self._description["name"],
            family=self._description["family"],
            state=self._state(locked),
            read_at=time.monotonic(),
            last_step=metrics.last_step,
            speed=self._speed(),
            left=self._left(),
            written=self._metrics_tail.written or None,
            latest=dict(metrics.latest),
            main=metrics.main,
            curve=metrics.curves[metrics.main].points() if metrics.main else [],
            checkpoints=len(steps),
            last_checkpoint=steps[-1] if steps else None,
            table=table,
            table_source=table_source,
            heads=tuple((self._rows if PROBES_FILE in names else self._newest).heads.courses()),
            events=events,
            events_source=events_source,
            problems=tuple(text for text in (damaged, problem) if text),
            is_complete=not self._metrics_tail.behind,
        )

    def _read_metrics(self) -> None:
        """Take in the metrics that are new; all of them again, if their file was replaced or cut back."""
        lines = self._metrics_tail.read()
        if self._metrics_tail.began_again:
            self._metrics = Metrics()
            self._seen.clear()
        for line in lines:
            self._metrics.add_line(line)
        self._grew = bool(lines) and self._has_caught_up
        self._has_caught_up = not self._metrics_tail.behind
        now, step = time.monotonic(), self._metrics.last_step
        if step is not None and self._has_caught_up:
            self._seen.append((now, step))
            while self._seen[0][0] < now - _SPEED_OVER:
                self._seen.popleft()

    def _state(self, locked: bool | None) -> str:
        """Whether somebody is at work on it, in words."""
        if locked or self._grew:  # a lock may not be seen from another machine; what is written is
            return "being written"
        if locked is None:
            return "cannot be told on this file system; nothing new has come while watching"
        if self._metrics_tail.ends_in_mid_line:
            return "no writer: it was killed (the last line of metrics is cut short)"
        return "no writer: it has finished, was stopped or was killed"

    def _rate(self) -> tuple[float, str]:
        """Steps a second, over the last minute of watching or since the run began, and which of the two; 0: unknown."""
        if len(self._seen) > 1:
            (earlier, first), (now, last) = self._seen[0], self._seen[-1]
            if last > first:
                return (last - first) / (now - earlier), ""
        seconds = self._metrics_tail.written - self._began.st_mtime
        if self._metrics.last_step and seconds > 0.1:
            return self._metrics.last_step / seconds, " on average"
        return 0.0, ""

    def _speed(self) -> str:
        """Steps a second, in words."""
        rate, over = self._rate()
        return f"{_rate(rate)} steps/s{over}" if rate else ""

    def _left(self) -> str:
        """How long the steps that its config speaks of will take yet."""
        total = next((found for name in _TOTALS if isinstance(found := self._config.get(name), int)), None)
        done, (rate, _) = self._metrics.last_step, self._rate()
        if total is None or done is None or not rate or done + 1 >= total:
            return ""
        return f"{lasting((total - done - 1) / rate)} left of {total} steps"

    def _measurement(self, names: Sequence[str], waits: bool) -> tuple[pd.DataFrame | None, str, str | None]:
        """The latest, who made it, and why there is none."""
        if PROBES_FILE in names:
            return self._rows.table(), "by the run's monitor", None
        if not self.measures:
            return None, "", None
        run = self._run(names)
        if run.steps and self._has_caught_up:
            self._newest.measure(run) if waits else self._newest.follow(run)
        return self._newest.table, "here", self._newest.problem

    def _detected(self, names: Sequence[str]) -> tuple[tuple[Event, ...], str]:
        """Transitions, and who looked for them: the run's monitor, or else this reader."""
        if EVENTS_FILE not in names:
            return tuple(self._metrics.events), self._metrics.events_source
        lines = self._events_tail.read()
        if self._events_tail.began_again:
            self._events.clear()
        for line in lines:
            with suppress(ValueError, TypeError):  # damaged, or of a later release: the others count
                self._events.append(read_event(line))
        return tuple(self._events), "announced by the run's monitor"

    def _run(self, names: Sequence[str]) -> Run:
        """The checkpoints among these files as a run that can be measured."""
        return described(self.path, self._description, files_named(self.path, names, "step"))


def is_locked(run_file: Path) -> tuple[bool | None, os.stat_result]:
    """True or False, or None where the file system cannot say; and what the file itself looks like.

    Asking takes the lock for an instant, shared with others who ask; a writer that begins just then tries again.
    """
    with open(run_file, "rb") as file:
        stat = os.fstat(file.fileno())
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, stat
        except (ImportError, OSError):
            return None, stat
        return False, stat


def _rate(number: float) -> str:
    """Three digits, and more where they come before the point."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def lasting(seconds: float) -> str:
    """A time to come, in the largest unit of which there are at least two."""
    for unit, length in (("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
