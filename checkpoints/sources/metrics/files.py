"""One file, folder or DataFrame of metrics, of any of the kinds that people have."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from checkpoints.remote_path import Place
from checkpoints.sources.metrics.tables import NoStepsError, as_metrics, joined
from checkpoints.sources.metrics.tensorboard import read_events

Metrics = str | Place | pd.DataFrame
EVENT_FILES = "*tfevents*"
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


def read_metrics(source: Metrics | Sequence[Metrics], unit: str = "step") -> pd.DataFrame:
    """Metrics by step from a CSV, JSON lines, trainer_state.json, event files, parquet or a DataFrame.

    Several are segments of one run, in the order in which they were logged. unit is what the run's numbers count.
    """
    if isinstance(source, str | Place | pd.DataFrame):
        return _read(source, unit)
    return joined([_read(one, unit) for one in source], "metrics")


def _read(source: Metrics, unit: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame):
        return as_metrics(source, "metrics", unit)
    path = Path(source) if isinstance(source, str) else source
    if not path.exists():
        raise FileNotFoundError(f"metrics: {path} does not exist")
    if path.is_dir() or "tfevents" in path.name:
        files = event_files(path) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"metrics: {path} holds no event files ({EVENT_FILES})")
        if unit != "step" and unit != "number":
            raise NoStepsError(f"{path} is by steps, and the run counts {unit}s: its metrics cannot be put beside it")
        return read_events(files)
    return as_metrics(table_in(path), str(path), unit)


def event_files(folder: Place) -> list[Place]:
    """The event files in a folder, the earliest first: their names begin with the time."""
    return sorted(folder.glob(EVENT_FILES), key=lambda file: file.name)


def table_in(path: Place) -> pd.DataFrame:
    """A file as a table of whatever is in it."""
    if path.suffix in (".csv", ".tsv"):
        try:
            with path.open("rb") as file:
                return pd.read_csv(file, sep="\t" if path.suffix == ".tsv" else ",", low_memory=False)
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a table: {error}") from None
    if path.suffix in (".jsonl", ".ndjson"):
        return pd.DataFrame(_lines(path))
    if path.suffix == ".json":
        return pd.DataFrame(_rows(path))
    if path.suffix == ".parquet":
        with path.open("rb") as file:
            return pd.read_parquet(file)
    raise ValueError(
        f"metrics: {path} has none of the endings {', '.join(ENDINGS)}, and is no event file of TensorBoard"
    )


def _lines(path: Place) -> list[dict[str, Any]]:
    """JSON lines; a last one cut short is left out."""
    rows = []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line, parse_constant=_not_finite)
        except json.JSONDecodeError as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: {line[:40]!r} is not a table of scalars")
        rows.append(row)
    return rows


def _rows(path: Place) -> list[dict[str, Any]]:
    """A JSON list of rows, or what the Hugging Face Trainer keeps under log_history."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_finite)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    rows = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is neither a list of rows nor a Trainer's state with log_history")
    return rows


def _not_finite(name: str) -> float:
    return {"Infinity": math.inf, "-Infinity": -math.inf}.get(name, math.nan)
