"""The run directory that the trainer writes: scalars in metrics.jsonl, measurements and events beside it.

    probes.csv     the columns of `probes.measuring.tables` and the tower, one line per number
    events.jsonl   one line per event, with the columns of `Monitor.events` in their order

So that everything about a run is in one place, and `probes watch` shows it while it grows.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from checkpoints import RunWriter
from probes.monitor.sinks.csv import CSV_COLUMNS, RowsAsCSV, csv_lines
from probes.monitor.sinks.lines import Lines
from probes.monitor.sinks.values import finite_scalars
from probes.series.online import Event

PROBES_FILE = "probes.csv"
EVENTS_FILE = "events.jsonl"


class RunDirectory(RowsAsCSV):
    """Beside what a `RunWriter` writes, which stays open: whoever made it closes it. Of a path, one is made and closed.

    resume goes with a path: go on with the run that is there. config, family and circuits of it are then those it has,
    so that a run of which checkpoints are written as well is better made with a `RunWriter` that knows them.

    Where the writer goes on with an earlier run, what was measured and detected from the first step on that comes is
    dropped, as `RunWriter.go_back` does with metrics. Log scalars here or with `writer.log`, not both: the last counts.
    """

    def __init__(self, writer: RunWriter | str | Path, *, resume: bool = False) -> None:
        if not isinstance(writer, RunWriter | str | Path):
            raise TypeError(f"RunDirectory of a {type(writer).__name__}: a path or a RunWriter is expected")
        if resume and isinstance(writer, RunWriter):
            raise ValueError("resume goes with a path: a RunWriter knows by itself whether it goes on with a run")
        self._is_own = not isinstance(writer, RunWriter)
        self.writer = writer if isinstance(writer, RunWriter) else RunWriter(writer, resume=resume)
        self._rows = csv_lines(self.writer.path / PROBES_FILE, CSV_COLUMNS, "step")
        self._events = Lines(self.writer.path / EVENTS_FILE, lambda line: json.loads(line)["detected_at"])

    def begin(self, step: int) -> None:
        """Drop what is there of this step and later ones."""
        if self._is_own:
            self.writer.go_back(step)
        self._rows.begin(step)
        self._events.begin(step)

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """A line of metrics.jsonl, by the writer."""
        self.at(step)
        self.writer.log(step, **scalars)

    def event(self, event: Event) -> None:
        """A line of events.jsonl, written at once: somebody may wait for it."""
        self.at(event.detected_at)
        self._events.add(event_as_json(event))
        self._events.flush()

    def flush(self) -> None:
        """Write what is still buffered, by the writer too."""
        self.writer.flush()
        self.close()

    def close(self) -> None:
        """Write what is still buffered, and close the writer if it was made here."""
        for lines in (self._rows, self._events):
            lines.flush()
        if self._is_own:
            self.writer.close()


def event_as_json(event: Event) -> str:
    """A line of JSON; a number that is not finite is null."""
    numbers = {name: value for name, value in asdict(event).items() if not isinstance(value, str)}
    missing = dict.fromkeys(numbers.keys() - finite_scalars(numbers).keys())
    return json.dumps({**asdict(event), **missing}) + "\n"


def read_event(line: str) -> Event:
    """An event from its line; null is NaN again. Raises ValueError or TypeError where it is none."""
    try:
        fields: dict[str, Any] = json.loads(line)
    except RecursionError:
        raise ValueError("brackets without end") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{line[:40]!r} is no event")
    fields.update(dict.fromkeys([name for name, value in fields.items() if value is None], math.nan))
    fields.setdefault("direction", "fall")  # of every event, before lines said which
    for name, value in fields.items():
        if not isinstance(value, str) if name in ("kind", "direction", "metric") else type(value) not in (int, float):
            raise ValueError(f"the {name} of an event is {str(value)[:40]!r}")
    return Event(**fields)
