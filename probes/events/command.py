"""What `probes events` does: runs and tables in, measured where need be, an answer out.

A run is measured once. Its table is kept in `tables`, as NAME.parquet, and used again as long as its files and settings
are the same and it holds what is asked for; results of single checkpoints are kept beside it while it is being made, so
that a killed command goes on. Beside the circuits of the heads, embeddings and feed-forward matrices are measured where
they are small; where they are not, that is said.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from probes.events.compare import set_apart
from probes.events.find import find_events
from probes.measuring.tables import read_table, write_table

ROLES = ("embed", "unembed", "mlp_in", "mlp_gate", "mlp_gate_in", "mlp_out")
"""Matrices that are no heads and are searched too."""

MOST_WORK = 3e9
"""Multiplications for the spectra of those at one checkpoint: about a second. Beyond, they must be asked for."""


class Given(NamedTuple):
    """What the command was asked: how to open a run, where tables are kept, which circuits and metrics."""

    open_run: Callable[[str], Any]
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
    logged = {one.name: _chosen(one.metrics, given.metrics) for one in opened.values() if one.metrics is not None}
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


def circuits_to_search(run: Any) -> tuple[list[str], list[str]]:
    """What is measured of a run if nobody says so, and what is left out for being large."""
    from probes.circuits import default_circuits

    names = list(default_circuits(run))
    others = [name for name in ROLES if name in run.matrices and name not in names]
    if run.circuits is not None or not {"ov", "qk"} & set(names) or not others:
        return names, []
    stored = run.representative_checkpoint().stored
    tensors = [one for name in others for layer in run.matrices[name].tensors.values() for one in layer]
    work = sum(math.prod(stored[one].shape) * min(stored[one].shape[-2:]) for one in tensors)
    if work > MOST_WORK:
        return names, [
            f"{', '.join(others)} of {run.name} are large and were not measured: --circuits "
            f"{','.join([*names, *others])} does it"
        ]
    return names + others, []


def _records(table: pd.DataFrame) -> list[dict]:
    return json.loads(pd.DataFrame(table).to_json(orient="records") or "[]")


def _opened(source: str, given: Given) -> _Opened:
    from checkpoints import open_run

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


def _measured(run: Any, given: Given) -> tuple[pd.DataFrame, list[str]]:
    from probes.measuring.measure import identity, measure
    from probes.measuring.partial_results import remove_partial_results

    wanted, notes = (list(given.circuits), []) if given.circuits is not None else circuits_to_search(run)
    kept = given.tables / f"{run.name.replace('/', '-')}.parquet"
    if kept.exists():
        table = read_table(kept)
        is_same = table.attrs.get("source") == run.source and table.attrs.get("files") == identity(run)
        if is_same and list(table.attrs.get("circuits", [])) == wanted and not table.attrs.get("failed"):
            return table, notes + _said(table)
    given.tables.mkdir(parents=True, exist_ok=True)
    parts = kept.with_name(kept.name + ".parts")
    table = measure(run, wanted, resume_dir=parts, progress=given.progress)
    write_table(table, kept)
    if not table.attrs["failed"]:
        remove_partial_results(parts)
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


def _logged(run: Any) -> pd.DataFrame | None:
    metrics = run.metrics
    return None if metrics is None or metrics.empty else metrics


def _chosen(metrics: pd.DataFrame, wanted: Sequence[str] | None) -> pd.DataFrame:
    if wanted is None:
        return metrics
    unknown = [name for name in wanted if name not in metrics.columns]
    if unknown:
        raise ValueError(f"no metric is called {', '.join(unknown)}; there are {', '.join(map(str, metrics.columns))}")
    return pd.DataFrame(metrics[list(wanted)])
