"""The latest measurement of a run: what its monitor wrote, or else what is measured here, of the newest checkpoint.

Measuring takes as long as it takes, in a thread of its own, and rests nine times as long: somebody who watches must not
slow down the one who trains.
"""

import csv
import threading
import time
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd

from checkpoints import Run
from probes.measuring.catalogue import PROBES
from probes.measuring.measure import measure
from probes.monitor.sinks.csv import CSV_COLUMNS
from probes.watch.head_curves import HeadCurves
from probes.watch.tail import Tail

_SHARE = 0.1  # of the time
_SHOWN = 2**25  # bytes of probes.csv from its end on: the last measurements of the largest models
_PATIENCE = 30.0  # seconds until something that could not be measured is tried again


class MonitorRows:
    """The last two measurements in the probes.csv that a monitor writes."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path, only_last=_SHOWN)
        self._lines: dict[int, list[str]] = {}
        self._table: pd.DataFrame | None = None
        self.heads = HeadCurves()

    def table(self) -> pd.DataFrame | None:
        """Their rows; None if there are none."""
        lines = self._tail.read()
        if self._tail.began_again:
            self._lines.clear()
            self.heads.clear()
        for line in lines:
            fields = _fields(line)
            if len(fields) == len(CSV_COLUMNS) and fields[1].isdecimal():
                self._lines.setdefault(int(fields[1]), []).append(line)
                self._follow(fields)
        for step in sorted(self._lines)[:-2]:
            del self._lines[step]
        if lines or self._tail.began_again:
            self._table = self._parsed() if self._lines else None
        return self._table

    def _follow(self, fields: list[str]) -> None:
        """The number of one line, to the course of its head."""
        _, step, layer, head, circuit, probe, component, value, _, tower = fields
        if not component and value:
            with suppress(ValueError):
                self.heads.add(int(step), (tower, circuit, int(layer), int(head)), probe, float(value))

    def _parsed(self) -> pd.DataFrame:
        """The lines as a table; of a step that was measured twice, the later row of each number."""
        text = "\n".join(line for step in sorted(self._lines) for line in self._lines[step])
        try:
            rows = pd.read_csv(StringIO(text), names=CSV_COLUMNS, dtype={"component": "Int64", "tower": "str"})
        except TypeError as error:
            raise ValueError(f"{self._tail.path} is damaged: {error}") from None
        rows = rows.drop_duplicates(["step", "tower", "layer", "head", "circuit", "probe", "component"], keep="last")
        return rows.drop(columns="tower") if rows["tower"].isna().to_numpy().all() else rows


def _fields(line: str) -> list[str]:
    """The fields of a line, none where it is damaged."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


class NewestCheckpoint:
    """The newest checkpoint and the one before it, measured now and then."""

    def __init__(self) -> None:
        self.table: pd.DataFrame | None = None
        self.heads = HeadCurves()
        self.problem: str | None = None
        """Why the newest could not be measured."""
        self._steps: list[int] = []
        self._thread: threading.Thread | None = None
        self._not_before = 0.0

    def follow(self, run: Run) -> None:
        """Measure in the background if there is a new checkpoint and it is time."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or time.monotonic() < self._not_before or run.steps[-2:] in ([], self._steps):
            return
        self._thread = threading.Thread(target=self.measure, args=(run,), daemon=True)
        self._thread.start()

    def measure(self, run: Run) -> None:
        """Measure now. What cannot be measured is a problem to be shown, whatever it is."""
        began, steps = time.monotonic(), run.steps[-2:]
        newest = replace(run, entries=[entry for entry in run.entries if entry.step in steps])
        names = [name for name, probe in PROBES.items() if probe.reads != "current, reference"]
        try:
            self.table = measure(newest, probes=names, drift_over="previous", audit=False)
            self.problem = next(iter(self.table.attrs["failed"].values()), None)
            _follow_rows(self.heads, self.table)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
        now = time.monotonic()
        rest = (now - began) * (1 / _SHARE - 1)
        self._not_before = now + (rest if self.problem is None else max(rest, _PATIENCE))
        self._steps = steps if self.problem is None else []


def _follow_rows(heads: HeadCurves, table: pd.DataFrame) -> None:
    """The numbers of a table, to the courses of its heads."""
    rows = table.loc[table["component"].isna()]
    towers = ["" if pd.isna(one) else one for one in rows["tower"]] if "tower" in rows.columns else [""] * len(rows)
    columns = ("step", "layer", "head", "circuit", "probe", "value")
    for tower, step, layer, head, circuit, probe, value in zip(towers, *(rows[one] for one in columns), strict=True):
        heads.add(int(step), (str(tower), str(circuit), int(layer), int(head)), str(probe), float(value))
