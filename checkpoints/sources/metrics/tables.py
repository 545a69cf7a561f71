"""Anybody's table of scalars as metrics by step: which column is the step, which are numbers, which word counts.

A column is taken for the step by its name (STEP_COLUMNS), or because it is the named index of a DataFrame. Columns that
are no numbers are left out, and said to be. A run that was stopped and taken up again logs some steps twice: what the
later segment says counts from where it begins, and the steps concerned are said. Two runs in one table are refused.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from checkpoints.files.checkpoint import abridged
from checkpoints.run import metrics_table

STEP_COLUMNS = (
    "step", "global_step", "_step", "trainer/global_step", "train/global_step", "iteration", "iter", "iter_num",
    "update", "updates", "num_updates", "steps", "batch",
)  # fmt: skip
"""What the column of the step is called, in the order in which it is believed; upper and lower case are the same."""

OTHER_UNITS = {
    "epoch": ("epoch", "trainer/epoch", "train/epoch"),
    "token": ("tokens", "token", "tokens_seen", "num_tokens", "consumed_tokens", "total_tokens"),
}
"""The same for runs whose numbers are no updates."""

_RESTARTS = 10
_OF_A_RUN = re.compile(r"(?P<run>.+) - (?P<metric>.+)")
_EXTREME = re.compile(r"__(MIN|MAX)$")


class NoStepsError(ValueError):
    """A table whose steps cannot be told."""


def as_metrics(table: pd.DataFrame, label: str, unit: str = "step") -> pd.DataFrame:
    """Scalars by step. unit is what the run's numbers count: for epochs the last word of each epoch."""
    segments = _segments_of_an_export(table, label, unit)
    if segments is None:
        segments = list(_segments(_by_step(table, label, unit), label))
    return joined(segments, label)


def joined(segments: Sequence[pd.DataFrame], label: str) -> pd.DataFrame:
    """Segments of one run, in the order in which they were logged: each counts from where it begins."""
    whole: list[pd.DataFrame] = []
    for segment in segments:
        if not len(segment):
            continue
        start = first_step(segment)
        kept = [earlier.loc[earlier.index.to_numpy() < start] for earlier in whole]
        again = sum(map(len, whole)) - sum(map(len, kept))
        if again:
            _say(
                f"{label}: the run was taken up again at step {start}; {again} rows that were logged before, from "
                "there on, are left out: the later segment's word counts"
            )
        whole = [*kept, segment]
    if not whole:
        return metrics_table()
    return pd.concat(whole).groupby(level=0).last().sort_index().rename_axis("step")


def first_step(segment: pd.DataFrame) -> int:
    """Where a segment begins; 0 for an empty one."""
    return int(segment.index.to_numpy().min()) if len(segment) else 0


def _by_step(table: pd.DataFrame, label: str, unit: str) -> pd.DataFrame:
    """The numbers of a table under their steps, in the order of the table."""
    column = _step_column(table, label, unit)
    steps = _as_numbers(table.index if column is None else pd.Series(table[column]))
    rest = table if column is None else table.drop(columns=column)
    is_known = np.isfinite(steps)
    if not is_known.any():
        raise NoStepsError(f"{label}: column {column!r} holds no numbers, steps are expected")
    if not is_known.all():
        _say(f"{label}: {(~is_known).sum()} rows are left out, since column {column!r} says no step there")
    if unit == "epoch":
        steps = np.ceil(steps)  # epoch 0.5 belongs to the one that ends at 1
    broken = steps[is_known & (steps % 1 != 0)]
    if len(broken):
        raise NoStepsError(f"{label}: column {column!r} holds {broken[0]}; whole numbers are expected for steps")
    beyond = steps[is_known & (np.abs(steps) > 2**53)]
    if len(beyond):
        raise NoStepsError(f"{label}: column {column!r} holds {beyond[0]:.6g}, which no run has made in steps")
    index = pd.Index(steps[is_known].astype("int64"), name="step")
    return _numbers(rest, label).loc[is_known].set_axis(index, axis=0)


def _as_numbers(values: pd.Series | pd.Index) -> np.ndarray:
    """What can be read as a number, NaN for the rest."""
    if values.dtype.kind in "fiu" and isinstance(values.dtype, np.dtype):
        return values.to_numpy(dtype=np.float64)
    try:
        return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)
    except (OverflowError, TypeError):  # a whole number beyond all floats, a list or a table among them
        return np.asarray(pd.to_numeric(values.map(_as_number), errors="coerce"), dtype=np.float64)


def _as_number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) else np.nan
    except (OverflowError, ValueError):
        return np.nan


def _step_column(table: pd.DataFrame, label: str, unit: str) -> str | None:
    """The column that holds the step; None where the index does."""
    named = {str(name).lower(): str(name) for name in reversed(list(table.columns))}
    for wanted in OTHER_UNITS.get(unit, STEP_COLUMNS):
        if wanted in named:
            return named[wanted]
    if table.index.name is not None and unit not in OTHER_UNITS:
        return None
    if unit in OTHER_UNITS:
        raise NoStepsError(
            f"{label} has no column of {unit}s (of these names: {', '.join(OTHER_UNITS[unit])}), and the run counts "
            f"{unit}s: its metrics cannot be put beside it. It has {abridged(list(map(str, table.columns)))}"
        )
    raise NoStepsError(
        f"{label}: which column is the step? It has {abridged(list(map(str, table.columns)))}, and none of them is "
        f"called {', '.join(STEP_COLUMNS[:4])} ... Say it by the index: metrics=pandas.read_csv(...).set_index('name')"
    )


def _numbers(table: pd.DataFrame, label: str) -> pd.DataFrame:
    """The columns that are numbers; the others are said."""
    found, others = {}, []
    for name in table.columns:
        values = pd.Series(table[name])
        numbers = _as_numbers(values)
        unread = values.to_numpy()[np.isnan(numbers)] if values.dtype.kind not in "fiu" else ()
        if any(not pd.isna(value) and str(value).lower() != "nan" for value in unread):
            others.append(str(name))
        elif not np.isnan(numbers).all():
            found[str(name)] = numbers
    if others:
        _say(f"{label}: left out, since they are no numbers: {abridged(others)}")
    return pd.DataFrame(found, index=table.index)


def _segments(table: pd.DataFrame, label: str) -> Iterator[pd.DataFrame]:
    """What was logged between restarts: the steps go up, and back where the run was taken up again."""
    steps = table.index.to_numpy()
    backs = [place for place in range(1, len(steps)) if steps[place] < steps[place - 1]]
    if len(backs) > _RESTARTS:
        _say(f"{label} is not in the order of its steps: where a step is there twice, the lower row counts")
        backs = []
    for start, stop in pairwise([0, *backs, len(steps)]):
        yield table.iloc[start:stop]


def _segments_of_an_export(table: pd.DataFrame, label: str, unit: str) -> list[pd.DataFrame] | None:
    """The runs of a chart exported from W&B (`run - metric`, `run - metric__MIN`): segments of one, or refused."""
    columns = {name: match for name in map(str, table.columns) if (match := _OF_A_RUN.fullmatch(name))}
    columns = {name: match for name, match in columns.items() if not _EXTREME.search(name)}
    runs = list(dict.fromkeys(match["run"] for match in columns.values()))
    if not runs:
        return None
    step = _step_column(table, label, unit)
    segments = []
    for run in runs:
        names = {name: match["metric"] for name, match in columns.items() if match["run"] == run}
        part = pd.DataFrame(table[[*names] if step is None else [step, *names]]).rename(columns=names)
        segments.append(_by_step(part, label, unit).dropna(how="all"))
    segments.sort(key=first_step)
    require_segments(segments, runs, label)
    return segments


def require_segments(segments: Sequence[pd.DataFrame], names: Sequence[str], label: str) -> None:
    """Refuse runs side by side: of segments of one run, a later one repeats less than half of the earlier."""
    for earlier, later in pairwise([segment for segment in segments if len(segment)]):
        if (earlier.index.to_numpy() >= first_step(later)).mean() > 0.5:
            raise NoStepsError(
                f"{label} holds {abridged(list(names))}, side by side and not one after the other: these are several "
                "runs. Hand over the one that belongs to these checkpoints, as metrics=DataFrame indexed by step"
            )


def _say(text: str) -> None:
    warnings.warn(text, stacklevel=2)
