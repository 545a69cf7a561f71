"""What `probes events` does: runs and tables in, measured where need be, an answer out.

A run is measured once: its table is kept and used again (`measuring.kept_tables`). Beside the circuits of the heads,
embeddings and feed-forward matrices are measured where they are small (`searched_circuits`).
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from checkpoints import Run, open_run
from probes.events.compare import set_apart
from probes.events.find import find_events
from probes.events.searched_circuits import circuits_to_search
from probes.measuring.kept_tables import KeptTables
from probes.measuring.tables import read_table
from probes.series.logged import chosen_metrics


class Given(NamedTuple):
    """What the command was asked: how to open a run, where tables are kept, which circuits and metrics."""

    open_run: Callable[[str], Run]
    tables: Path
    circuits: Sequence[str] | None = None
    metrics: Sequence[str] | None = None
    progress: bool = True


class _Opened(NamedTuple):
    table: pd.DataFrame
    metrics: pd.DataFrame | None
    notes: list[str]

    @property
    def name(self) -> str:
        return str(self.table["run"].iloc[0])


def events_of(
    sources: Sequence[str], controls: Sequence[str], given: Given, *, alpha: float
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Their events, and what sets runs apart from controls where there are two or more of each."""
    opened = {source: _opened(source, given) for source in [*sources, *controls]}
    if len(opened) < len(sources) + len(controls):
        raise ValueError("a run is named twice: each may stand once, as a run or as a control")
    logged = {
        one.name: chosen_metrics(one.metrics, given.metrics) for one in opened.values() if one.metrics is not None
    }
    runs, others = [opened[source].table for source in sources], [opened[source].table for source in controls]
    events = find_events(runs, logged or None, controls=others or None, alpha=alpha)
    silent = [one.name for one in opened.values() if one.metrics is None]
    if silent:
        events.attrs["notes"].append(
            f"no metrics of {', '.join(silent)}: a table alone, or a run that logs none, so that whether "
            "a behaviour changed cannot be told (--metrics FILE reads a log that lies elsewhere)"
        )
    events.attrs["notes"] += list(dict.fromkeys(note for one in opened.values() for note in one.notes))
    return events, set_apart(runs, others) if len(runs) > 1 and len(others) > 1 else None


def as_json(events: pd.DataFrame, apart: pd.DataFrame | None) -> str:
    """All of it, for programs: rows, findings, members, where could be looked."""
    content: dict[str, Any] = {"events": _records(events)}
    for name, value in events.attrs.items():
        content[str(name)] = _records(value) if isinstance(value, pd.DataFrame) else value
    if apart is not None:
        content["set_apart"] = _records(apart)
    return json.dumps(content, indent=1)


def _records(table: pd.DataFrame) -> list[dict]:
    return json.loads(pd.DataFrame(table).to_json(orient="records") or "[]")


def _opened(source: str, given: Given) -> _Opened:
    if source.endswith(".parquet"):
        table = read_table(source)
        if table.empty:
            raise ValueError(f"{source} has no numbers")
        try:
            return _Opened(table, _logged(open_run(table.attrs["source"])), [])
        except (OSError, ValueError, KeyError):
            return _Opened(table, None, [])
    run = given.open_run(source)
    table, notes = _measured(run, given)
    return _Opened(table, _logged(run), notes)


def _measured(run: Run, given: Given) -> tuple[pd.DataFrame, list[str]]:
    wanted, notes = (list(given.circuits), []) if given.circuits is not None else circuits_to_search(run)
    kept = KeptTables(run, given.tables, progress=given.progress)
    table = kept.table(wanted, kept.audit(wanted))
    return table, notes + _said(table)


def _said(table: pd.DataFrame) -> list[str]:
    """What measuring left out: tensors, condemned steps, steps that could not be read."""
    notes = [f"not read: {line}" for line in table.attrs.get("left_out", [])]
    if table.attrs.get("condemned"):
        notes.append(f"condemned by the audit and left out: step {', '.join(table.attrs['condemned'])}")
    if table.attrs.get("failed"):
        step, reason = next(iter(table.attrs["failed"].items()))
        notes.append(f"{len(table.attrs['failed'])} steps could not be measured, the first {step}: {reason}")
    return notes


def _logged(run: Run) -> pd.DataFrame | None:
    metrics = run.metrics
    return None if metrics is None or metrics.empty else metrics
