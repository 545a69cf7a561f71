"""One file, folder or DataFrame of metrics, of any of the kinds that people have."""

import io
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from checkpoints.remote_path import Place
from checkpoints.run import SMALL_TABLE, SPARSEST, require_dense, require_text
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
    if not path.is_dir() and not path.is_file():
        raise ValueError(f"metrics: {path} is neither a file nor a folder")
    if path.is_dir() or "tfevents" in path.name:
        files = event_files(path) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"metrics: {path} holds no event files ({EVENT_FILES})")
        if unit != "step" and unit != "number":
            raise NoStepsError(f"{path} is by steps, and the run counts {unit}s: its metrics cannot be put beside it")
        return read_events(files)
    try:
        return as_metrics(table_in(path), str(path), unit)
    except (ValueError, TypeError, OverflowError) as error:  # pandas does not know which file it was
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} cannot be read as metrics: {str(error)[:200]}") from None


def event_files(folder: Place) -> list[Place]:
    """The event files in a folder, the earliest first: their names begin with the time."""
    return sorted((file for file in folder.glob(EVENT_FILES) if file.is_file()), key=lambda file: file.name)


def table_in(path: Place) -> pd.DataFrame:
    """A file as a table of whatever is in it."""
    if path.suffix in (".csv", ".tsv"):
        whole, between = _whole_lines(path), "\t" if path.suffix == ".tsv" else ","
        lines, fields = whole.count(b"\n"), whole.count(between.encode())
        require_dense(lines, whole.partition(b"\n")[0].count(between.encode()) + 1, lines + fields, str(path))
        try:
            with warnings.catch_warnings():  # rows longer than the header would be moved by a column, or cut
                warnings.simplefilter("error", pd.errors.ParserWarning)
                return pd.read_csv(io.BytesIO(whole), sep=between, low_memory=False, index_col=False)
        except (ValueError, pd.errors.ParserWarning) as error:
            raise ValueError(f"{path} is not a table: {str(error)[:300]}") from None
    if path.suffix in (".jsonl", ".ndjson"):
        return _table_of(_lines(path), path)
    if path.suffix == ".json":
        return _table_of(_rows(path), path)
    if path.suffix == ".parquet":
        return _parquet(path)
    raise ValueError(
        f"metrics: {path} has none of the endings {', '.join(ENDINGS)}, and is no event file of TensorBoard"
    )


def _table_of(rows: list[dict[str, Any]], path: Place) -> pd.DataFrame:
    names = {name for row in rows for name in row}
    require_dense(len(rows), len(names), sum(map(len, rows)), str(path))
    require_text(names, str(path))
    return pd.DataFrame(rows)


def _whole_lines(path: Place) -> bytes:
    """The lines that have an end: the last number of one that has none may be cut short, and still be a number."""
    content = path.read_bytes()
    whole, _, rest = content.rpartition(b"\n")
    if not rest or content.endswith(b"\r"):
        return content
    warnings.warn(
        f"{path}: its last line has no end and is left out, for it may have been cut short: {rest[:60]!r}", stacklevel=2
    )
    return whole + b"\n"


def _parquet(path: Place) -> pd.DataFrame:
    """A parquet file, by pyarrow, which raises all kinds of errors on a damaged one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            table = pq.ParquetFile(file, page_checksum_verification=True)
            size = file.seek(0, io.SEEK_END)
            rows, names = table.metadata.num_rows, table.schema_arrow.names
            if rows * len(names) < SMALL_TABLE + SPARSEST * size:
                content = table.read()
                content.validate(full=True)  # texts too, which pandas would look at only later
                return content.to_pandas()
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is not a table: {str(error)[:200]}. Copy it again") from None
    raise ValueError(
        f"{path} says that it has {rows} rows of {len(names)} names, far more than its {size} bytes can hold"
    )


def _lines(path: Place) -> list[dict[str, Any]]:
    """JSON lines; a last one cut short is left out."""
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: {error}") from None
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line, parse_constant=_not_finite)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{path}, line {number}: not JSON ({str(error)[:200]})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: {line[:40]!r} is not a table of scalars")
        rows.append(row)
    return rows


def _rows(path: Place) -> list[dict[str, Any]]:
    """A JSON list of rows, or what the Hugging Face Trainer keeps under log_history."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {str(error)[:200]}") from None
    rows = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is neither a list of rows nor a Trainer's state with log_history")
    return rows


def _not_finite(name: str) -> float:
    return {"Infinity": math.inf, "-Infinity": -math.inf}.get(name, math.nan)
