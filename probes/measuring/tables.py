"""The tidy table, one row per number: its columns, its file, and the shapes in which people want to see it.

    run, step, layer, head, circuit, probe, component, value, why_missing

A number that does not exist is NaN and why_missing says why. Where a series of checkpoints has several stages, `stage`
stands beside the step; where a model has several stacks of layers (encoder and decoder, text and vision), `tower`
stands beside the layer. In parquet, what every probe means and where the numbers
come from (`table.attrs`) travels in the file's metadata, under the key "checkpoint-probes", as JSON.
"""

import html
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["run", "step", "layer", "head", "circuit", "probe", "component", "value", "why_missing"]
OPTIONAL = ("stage", "tower")
"""Columns that a table has where there are several of these."""

_ORDER = ["run", "step", "stage", "tower", *COLUMNS[2:]]
_KEY = b"checkpoint-probes"
_REASONS = 5
_SMALL = 5_000_000  # rows that a table may have however small its file is
_TO_DRAW = (
    "<p>To draw it: <code>probes.plot.heads(table)</code> (all heads as a map), <code>probes.plot.curves(table)</code> "
    "(chosen heads over all others), <code>probes.plot.compare(table)</code> (several runs)</p>"
)
_TYPES = {
    **dict.fromkeys(("step", "layer", "head", "component"), pa.int64()),
    **dict.fromkeys(("run", "stage", "tower", "circuit", "probe", "why_missing"), pa.string()),
    "value": pa.float64(),
}


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns of a table that has these, in order, without what is not a table's."""
    there = {*names}
    return [name for name in _ORDER if name in there]


def schema_of(names: Iterable[str]) -> pa.Schema:
    """The types of those columns, as Arrow has them."""
    return pa.schema([(name, _TYPES[name]) for name in columns_of(names)])


class ProbeTable(pd.DataFrame):
    """A DataFrame that says what is in it before it shows its first rows, as long as it has the columns for it."""

    @property
    def _constructor(self) -> "type[ProbeTable]":
        return ProbeTable

    def summary(self) -> str:
        """Runs, steps, layers and heads, circuits and probes; how many numbers there are, and why some are missing."""
        if self.empty:
            return "no numbers"
        steps = [int(step) for step in self["step"].unique()]
        heads = {*zip(*(self[name].tolist() for name in head_columns(self)), strict=True)}
        several = {f"{name}s": ", ".join(self[name].dropna().unique()) for name in OPTIONAL if name in self.columns}
        lines = [
            f"{', '.join(self['run'].unique())}: {len(steps)} checkpoints, steps {min(steps)} to {max(steps)}; "
            f"{len({place[:-1] for place in heads})} layers, {len(heads)} heads"
            + "".join(f"; {what} {names}" for what, names in several.items()),
            f"circuits {', '.join(self['circuit'].unique())}; probes {', '.join(self['probe'].unique())}",
        ]
        missing = self["why_missing"].value_counts()
        lines.append(f"{len(self)} numbers, {missing.sum()} of them missing" + (":" if len(missing) else ""))
        lines += [f"  {count} x {reason}" for reason, count in missing.head(_REASONS).items()]
        if len(missing) > _REASONS:
            lines.append(f"  and {len(missing) - _REASONS} other reasons, see why_missing")
        return "\n".join(lines)

    def __repr__(self) -> str:
        said = f"{self.summary()}\n" if self._is_whole else ""
        return said + repr(pd.DataFrame(self))

    def _repr_html_(self) -> str:
        said = f"<pre>{html.escape(self.summary())}</pre>{_TO_DRAW}" if self._is_whole and len(self) else ""
        return said + pd.DataFrame(self)._repr_html_()  # pyright: ignore

    @property
    def _is_whole(self) -> bool:
        return {*COLUMNS} <= {*self.columns}


def as_table(columns: dict[str, Sequence[Any] | np.ndarray], attrs: dict[str, Any] | None = None) -> pd.DataFrame:
    """Columns as a table with the right types."""
    table = pd.DataFrame({name: columns[name] for name in columns_of([*COLUMNS, *columns])})
    return _typed(table, attrs or {})


def _typed(table: pd.DataFrame, attrs: dict[str, Any]) -> pd.DataFrame:
    types = {"step": "int64", "layer": "int64", "head": "int64", "component": "Int64", "value": "float64"}
    texts = [name for name, kind in _TYPES.items() if kind == pa.string() and name in table.columns]
    table = ProbeTable(table.astype({**types, **dict.fromkeys(texts, "str")}))
    table.attrs.clear()
    table.attrs.update(attrs)
    return table


def write_table(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table as parquet, whole or not at all, with its attrs in the metadata."""
    schema = schema_of([*COLUMNS, *table.columns])
    write_arrow(pa.Table.from_pandas(table[schema.names], schema=schema, preserve_index=False), path, table.attrs)


def write_arrow(content: pa.Table, path: str | Path, attrs: Mapping[Any, Any]) -> None:
    """The same of a table as Arrow has it."""
    path = Path(path)
    content = content.replace_schema_metadata({_KEY: json.dumps(dict(attrs), default=str).encode()})
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        pq.write_table(content, temporary, compression="zstd", write_page_checksum=True)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(f"{path} could not be written: {error}. Nothing of it is left behind") from error


def read_table(path: str | Path) -> pd.DataFrame:
    """A table that `write_table` wrote, with its attrs."""
    content = read_arrow(path, keep_attrs=True)
    try:
        attrs = json.loads((content.schema.metadata or {}).get(_KEY, b"{}"))
        return from_arrow(content, dict(attrs))
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise ValueError(f"{path} is damaged: {str(error)[:200]}. Copy it again, or measure again") from None


def read_arrow(path: str | Path, *, keep_attrs: bool = False) -> pa.Table:
    """The same as Arrow has it, by default without the attrs."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not Path(path).is_file():
        raise ValueError(f"{path} is not a parquet file")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            names, rows = file.schema_arrow.names, file.metadata.num_rows
            missing = [name for name in COLUMNS if name not in names]
            is_plausible = rows <= _SMALL + 4 * Path(path).stat().st_size
            content = file.read(columns_of(names)) if not missing and is_plausible else None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a parquet file, or damaged: {str(error)[:300]}") from None
    if missing:
        raise ValueError(f"{path} is not a table of probes: it lacks {', '.join(missing)}")
    if content is None:
        raise ValueError(f"{path} says that it has {rows} rows, far more than a file of its size should")
    content = content.select(columns_of(names))
    return content if keep_attrs else content.replace_schema_metadata(None)


def from_arrow(content: pa.Table, attrs: dict[str, Any]) -> pd.DataFrame:
    """A table of these columns as pandas has it."""
    return _typed(content.to_pandas(), attrs)


def joined(tables: Sequence[pd.DataFrame], attrs: dict[str, Any]) -> pd.DataFrame:
    """Several tables as one, in this order."""
    return _typed(pd.concat(tables, ignore_index=True), attrs)


def by_head(table: pd.DataFrame, probe: str, circuit: str, component: int | None = None) -> pd.DataFrame:
    """One probe of one circuit: a row per step, a column per head.

    Columns are (layer, head), with the tower before the layer where there are towers and the run before that where
    there are several runs.
    """
    rows = _selected(table, probe, circuit, component)
    columns = head_columns(table) if len(rows["run"].unique()) == 1 else ["run", *head_columns(table)]
    twice = rows.duplicated(["step", *columns])
    if twice.any():
        first = rows.loc[twice].iloc[0]
        raise ValueError(
            f"the table has {probe} of {circuit} more than once for run {first['run']!r}, step {first['step']}, layer "
            f"{first['layer']}, head {first['head']}: tables of two runs with one name? Give each its own: "
            'table.assign(run="...")'
        )
    pivoted = rows.pivot(index="step", columns=columns, values="value")  # noqa: PD010 (pivot_table would average)
    return pivoted.sort_index(axis=1)


def head_columns(table: pd.DataFrame) -> list[str]:
    """What tells one head of a run from another: (layer, head), or (tower, layer, head) where there are towers."""
    return ["tower", "layer", "head"] if "tower" in table.columns else ["layer", "head"]


def mean_over_heads(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over the heads of each layer that have a number: run, step, layer, circuit, probe, component, value."""
    return _mean(table, without=("head",))


def mean_over_layers(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over all heads of all layers (of a tower) that have a number: run, step, circuit, probe, component."""
    return _mean(table, without=("layer", "head"))


def with_metrics(table: pd.DataFrame, metrics: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The table with the run's scalars beside it: those logged last at or before each step, NaN before the first.

    Of a table with several runs, metrics are by the name of the run: {run.name: run.metrics, ...}.
    """
    runs = [str(name) for name in table["run"].unique()]
    if isinstance(metrics, pd.DataFrame):
        if len(runs) > 1:
            raise ValueError(f"the table has the runs {', '.join(runs)}: pass {{name of the run: its metrics}}")
        metrics = dict.fromkeys(runs, metrics)
    lacking = [name for name in runs if name not in metrics]
    if lacking:
        raise ValueError(f"there are no metrics of {', '.join(lacking)}; there are those of {', '.join(metrics)}")
    parts = [_beside(table.loc[table["run"] == name], metrics[name]) for name in runs]
    joined = pd.concat(parts, ignore_index=True) if parts else table.copy()
    joined.attrs.update(table.attrs)
    return joined


def _beside(rows: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    clash = [name for name in metrics.columns if name in COLUMNS]
    logged = metrics.sort_index().ffill().rename(columns={name: f"{name}_metric" for name in clash}).reset_index()
    return pd.merge_asof(rows.sort_values("step", kind="stable"), logged, on="step")


def _selected(table: pd.DataFrame, probe: str, circuit: str, component: int | None) -> pd.DataFrame:
    rows = table.loc[(table["probe"] == probe) & (table["circuit"] == circuit)]
    if rows.empty:
        there = table[["probe", "circuit"]].drop_duplicates()
        known = ", ".join(f"{p} of {c}" for p, c in there.itertuples(index=False))
        raise ValueError(f"the table has no {probe!r} of {circuit!r}; it has {known}")
    if component is None and rows["component"].notna().any():
        raise ValueError(f"{probe} has components {sorted(rows['component'].unique())}: say which one")
    return rows if component is None else rows.loc[rows["component"] == component]


def _mean(table: pd.DataFrame, without: tuple[str, ...]) -> pd.DataFrame:
    by = [name for name in columns_of(table.columns) if name not in (*without, "value", "why_missing")]
    return pd.DataFrame(table.groupby(by, dropna=False, as_index=False)["value"].mean())
