"""What `probes events` does: runs and tables in, measured where need be, an answer out.

A run is measured once. Its table is kept in `tables`, as NAME.parquet, and used again as long as its files are the
same; results of single checkpoints are kept beside it while it is being made, so that a killed command goes on.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from probes.events.compare import set_apart
from probes.events.find import find_events
from probes.measuring.tables import read_table, write_table


def events_of(
    sources: Sequence[str],
    controls: Sequence[str],
    *,
    tables: Path,
    metrics: Sequence[str] | None,
    alpha: float,
    progress: bool = True,
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Their events, and what sets runs apart from controls where there are two or more of each."""
    opened = {source: _table_and_metrics(source, tables, progress) for source in [*sources, *controls]}
    if len(opened) < len(sources) + len(controls):
        raise ValueError("a run is named twice: each may stand once, as a run or as a control")
    logged = {}
    for table, numbers in opened.values():
        if numbers is not None:
            logged[str(table["run"].iloc[0])] = _chosen(numbers, metrics)
    runs, others = [opened[source][0] for source in sources], [opened[source][0] for source in controls]
    events = find_events(runs, logged or None, controls=others or None, alpha=alpha)
    silent = [str(table["run"].iloc[0]) for table, numbers in opened.values() if numbers is None]
    if silent:
        events.attrs["notes"].append(f"no metrics of {', '.join(silent)}: tables alone, or a run that logs none")
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


def _table_and_metrics(source: str, tables: Path, progress: bool) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    from checkpoints import open_run

    if source.endswith(".parquet"):
        table = read_table(source)
        if table.empty:
            raise ValueError(f"{source} has no numbers")
        try:
            return table, _logged(open_run(table.attrs["source"]))
        except (OSError, ValueError, KeyError):
            return table, None
    run = open_run(source)
    if not run.steps:
        raise ValueError(f"{source} has no checkpoints yet")
    return _measured(run, tables, progress), _logged(run)


def _measured(run: Any, tables: Path, progress: bool) -> pd.DataFrame:
    from probes.measuring.measure import identity, measure
    from probes.measuring.partial_results import remove_partial_results

    kept = tables / f"{run.name.replace('/', '-')}.parquet"
    if kept.exists():
        table = read_table(kept)
        if table.attrs.get("source") == run.source and table.attrs.get("files") == identity(run):
            return table
    tables.mkdir(parents=True, exist_ok=True)
    parts = kept.with_name(kept.name + ".parts")
    table = measure(run, resume_dir=parts, progress=progress)
    write_table(table, kept)
    if not table.attrs["failed"]:
        remove_partial_results(parts)
    return table


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
