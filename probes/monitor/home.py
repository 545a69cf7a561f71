"""One folder for everything about a monitored run, from which monitoring also goes on after a kill.

    metrics.jsonl, step-*.safetensors   as every run has them (see `checkpoints.layout`)
    probes.csv, events.jsonl            what was measured and announced
    looks.jsonl                         what each look at a series has learned: one line per look

A process that begins at step s drops what is there of s and later, and knows again what was known before it: the series
are read back from metrics.jsonl and probes.csv, and what detectors know from looks.jsonl.
"""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from checkpoints import Run, RunWriter
from checkpoints.files.checkpoint import abridged
from checkpoints.layout import METRICS_FILE, RUN_FILE
from checkpoints.sources.run_directory import metric_lines
from probes.measuring.rows import CheckpointValues, RowIndex
from probes.monitor.measured_table import MeasuredTable
from probes.monitor.sinks.lines import Lines
from probes.monitor.sinks.run_directory import EVENTS_FILE, PROBES_FILE, RunDirectory, read_event
from probes.monitor.tracked_scalars import TrackedScalars
from probes.series.online import Detector, Event
from probes.series.online.state import apply_look, as_plain, from_plain, look_state
from probes.series.transitions.transition import Transition

logger = logging.getLogger("probes.monitor")

LOOKS_FILE = "looks.jsonl"
Item = TypeVar("Item")


class Home:
    """The run directory of a monitor: made here from a path, or by a `RunWriter` of somebody who also closes it."""

    def __init__(self, run: str | Path | RunWriter, step: int, model: Run) -> None:
        self._is_ours = not isinstance(run, RunWriter)
        self.writer = run if isinstance(run, RunWriter) else _opened(Path(run), step, model)
        self.sink = RunDirectory(self.writer)
        self._looks = Lines(self.writer.path / LOOKS_FILE, lambda line: json.loads(line)["step"])

    def looked_at(self, name: str, step: int, detector: Detector) -> None:
        """Keep what a look has learned."""
        self._looks.add(json.dumps({"step": step, "metric": name, "state": as_plain(look_state(detector))}) + "\n")
        self._looks.flush()

    def restore(self, step: int, tracked: TrackedScalars, rows: RowIndex, measured: MeasuredTable) -> list[Event]:
        """Bring back what was known when `step` updates had been made, and drop what came later; the events."""
        self._looks.begin(step)
        self.sink.at(step)
        if step == 0:
            return []
        self._restore_scalars(step, tracked)
        self._restore_measurements(tracked, rows, measured)
        for name, state in _lines(self._looks.path, _look):
            if name in tracked.detectors:
                apply_look(tracked.detectors[name], state)
        events = _lines(self.writer.path / EVENTS_FILE, read_event)
        for name, detector in tracked.detectors.items():
            detector.events = [event for event in events if event.metric == name]
        tracked.forget_alarms(events)
        return events

    def flush(self) -> None:
        """Bring everything to the disk."""
        self.sink.close()
        self.writer.flush(to_disk=True)

    def close(self) -> None:
        """Nothing more comes."""
        if self._is_ours:
            self.writer.close()

    def _restore_scalars(self, step: int, tracked: TrackedScalars) -> None:
        path, last = self.writer.path / METRICS_FILE, -1
        for _, scalars in metric_lines(path) if path.exists() else ():
            at = int(scalars["step"])
            numbers = {name: math.nan if value is None else value for name, value in scalars.items() if name != "step"}
            if at < step:
                last = max(last, at)
                for name, value in numbers.items():  # of a name that came twice at a step the first counts, as live
                    if name not in tracked.records or at > (tracked.records[name].last or -1):
                        tracked.add(at, {name: value})
        if last < step - 1:
            logger.warning(
                "%s has scalars up to step %d, and training goes on at step %d: what came in between was lost with the "
                "process that measured it. monitor.state_dict(), called where a checkpoint is saved, keeps it",
                self.writer.path,
                last,
                step,
            )

    def _restore_measurements(self, tracked: TrackedScalars, rows: RowIndex, measured: MeasuredTable) -> None:
        path = self.writer.path / PROBES_FILE
        table = _measurements(path) if path.exists() else pd.DataFrame({"step": []})
        for at, found in table.groupby("step", sort=True):
            if len(found) != len(rows):
                logger.warning("%s, step %s: other probes or heads than now; it is left out here", path, at)
                continue
            why = {row: reason for row, reason in enumerate(found["why_missing"]) if isinstance(reason, str)}
            numbers = np.array([float(value) for value in found["value"]])  # to the last digit, as they were written
            values = CheckpointValues(int(str(at)), numbers, why)
            measured.add(values)
            tracked.add(values.step, rows.means(values), are_probes=True)


def _measurements(path: Path) -> pd.DataFrame:
    """The rows of probes.csv, values as they are written; anything else is damage, and the file is named."""
    try:
        table = pd.read_csv(path, dtype={"value": object})
        table["value"].astype(float)
        return table
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({str(error)[:200]}). Move it away") from None


def _opened(path: Path, step: int, model: Run) -> RunWriter:
    """The run at a path: new at step 0, and one that is there when training goes on."""
    if step == 0 and (path / RUN_FILE).exists():
        raise FileExistsError(
            f"{path} already holds a run, and this monitor begins at step 0: pass Monitor(..., step=...) with the "
            "updates made so far to go on with it (what it has from there on is dropped), or choose another folder"
        )
    config = json.loads(json.dumps(dict(model.config), default=str))
    writer = RunWriter(path, config, family=model.family, circuits=model.circuits, resume=step > 0)
    if step > 0:
        writer.go_back(step)
    return writer


def _lines(path: Path, read: Callable[[str], Item]) -> list[Item]:
    """What the lines of a file say; one that says something else is damage, and the file is named."""
    found: list[Item] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else (), start=1):
        try:
            found.append(read(line))
        except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError) as error:
            raise ValueError(f"{path} is damaged in line {number} ({str(error)[:200]}). Move it away") from None
    return found


def _look(line: str) -> tuple[str, dict[str, Any]]:
    """The series of a look, and what was learned: numbers by name, and the transitions that are known."""
    look = json.loads(line)
    state = from_plain(look["state"])
    if state.keys() != look_state(Detector("")).keys():
        raise ValueError(f"what was learned is {abridged(list(map(str, state)))}")
    is_known = isinstance(state["_known"], list) and all(isinstance(one, Transition) for one in state["_known"])
    others = [value for name, value in state.items() if name != "_known"]
    if not is_known or not all(value is None or type(value) in (int, float) for value in others):
        raise ValueError("what was learned is no numbers and transitions")
    return str(look["metric"]), state
