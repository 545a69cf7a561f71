"""Three CSV files that any program reads: what was logged, what was measured, what was detected.

    scalars.csv   step, name, value: one line per scalar, so that a new scalar needs no new column
    probes.csv    the columns of `probes.measuring.tables` and the tower, one line per number
    events.csv    the columns of `Monitor.events`, one line per event, in the order in which they were detected

A missing value is an empty field.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import pandas as pd

from checkpoints.files.checkpoint import abridged
from probes.measuring.tables import COLUMNS
from probes.monitor.sinks.lines import Lines
from probes.monitor.sinks.sink import Resumable, first_step
from probes.monitor.sinks.values import finite_rows
from probes.series.online import Event

CSV_COLUMNS = [*COLUMNS, "tower"]
"""Of probes.csv; the tower is empty in a model that has one."""


class RowsAsCSV(Resumable):
    """Keeps measurements in a CSV file, `_rows`."""

    _rows: Lines

    def rows(self, table: pd.DataFrame) -> None:
        """A line per number, written at once."""
        if len(table):
            self.at(first_step(table))
            self._rows.add(table_as_csv(table))
            self._rows.flush()


class CSV(RowsAsCSV):
    """Written to a folder that is new or empty; with resume=True, to one that an earlier process wrote."""

    def __init__(self, folder: str | Path, *, resume: bool = False) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        there = sorted(entry.name for entry in self.folder.iterdir())
        if there and not resume:
            raise FileExistsError(
                f"{self.folder} holds {abridged(there)}: choose an empty or a new folder, or pass resume=True to go on"
            )
        self._scalars = csv_lines(self.folder / "scalars.csv", ["step", "name", "value"], "step")
        self._rows = csv_lines(self.folder / "probes.csv", CSV_COLUMNS, "step")
        self._events = csv_lines(self.folder / "events.csv", [field.name for field in fields(Event)], "detected_at")

    def begin(self, step: int) -> None:
        """Drop what is there of this step and later ones."""
        for lines in (self._scalars, self._rows, self._events):
            lines.begin(step)

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """A line per scalar, written within about a second."""
        self.at(step)
        self._scalars.add(as_csv((step, name, _field(value)) for name, value in scalars.items()))

    def event(self, event: Event) -> None:
        """A line, written at once: somebody may wait for it."""
        self.at(event.detected_at)
        self._events.add(as_csv([[_field(value) for value in astuple(event)]]))
        self._events.flush()

    def flush(self) -> None:
        """Write what is still buffered."""
        for lines in (self._scalars, self._rows, self._events):
            lines.flush()

    def close(self) -> None:
        """Write what is still buffered."""
        self.flush()


def csv_lines(path: Path, columns: list[str], step: str) -> Lines:
    """A CSV file with these columns, one of which is the step."""
    return Lines(path, _column(columns.index(step), len(columns)), as_csv([columns]))


def table_as_csv(table: pd.DataFrame) -> str:
    """The rows of a measurement, without the header."""
    table = finite_rows(table)
    if "tower" not in table.columns:
        table = table.assign(tower="")
    columns = [table[name].astype(object).where(table[name].notna(), "").to_list() for name in CSV_COLUMNS]
    return as_csv(zip(*columns, strict=True))


def as_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Fields as lines; an end of line inside a field becomes a space, so that every line is a row."""
    text = io.StringIO()
    flat = ([" ".join(field.split()) if isinstance(field, str) else field for field in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(flat)
    return text.getvalue()


def _field(value: Any) -> Any:
    """What is not finite is an empty field."""
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def _column(number: int, count: int) -> Callable[[str], int]:
    """Reads the step of a line, which is in the column of this number, of so many."""

    def step(line: str) -> int:
        try:
            fields = next(csv.reader([line], strict=True), [])  # strict: a quote without its end would swallow lines
        except csv.Error as error:
            raise ValueError(str(error)) from None
        if len(fields) != count:
            raise ValueError(f"{len(fields)} fields, {count} are expected")
        return int(fields[number])

    return step
