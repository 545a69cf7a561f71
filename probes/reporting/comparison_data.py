"""Several runs and controls side by side, as plain values for the page: own events, what recurs, what differs.

    Compared     one run or control, with the event it is aligned by
    Recurring    one probe or metric, and at which steps each run shows something in it
    Apart        one panel in which runs and controls differ, by how much, and how often chance would do that
    Comparison   all of it, and what could not be told

Everything comes from `find_events` (of all runs, with the controls) and `set_apart`; nothing is computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from probes.plot.compare import own_event_index
from probes.reporting.job import Looked

MOST_ROWS = 24


@dataclass(frozen=True)
class Compared:
    """One run. own, low, high and own_name are of the event it is aligned by; own_why says why there is none.

    at is what its steps are divided by when runs are aligned: its own event, or the middle of the others'.
    """

    name: str
    role: str
    checkpoints: int
    events: int | None
    """None for a run that could not be searched, and for a control, whose own events are not listed."""
    own: float | None
    low: float | None
    high: float | None
    own_name: str
    own_why: str
    at: float | None


@dataclass(frozen=True)
class Recurring:
    """One probe or metric: by run, the steps at which it takes part in an event; None where it was not searched."""

    name: str
    is_metric: bool
    steps: Sequence[Sequence[float] | None]
    runs: int
    in_controls: str


@dataclass(frozen=True)
class Apart:
    """One panel: how many times as fast its fastest change is in the runs as in the controls."""

    panel: str
    times: float
    low: float
    high: float
    at: str
    p_value: float
    p_any: float


@dataclass(frozen=True)
class Comparison:
    """Runs first, then controls."""

    runs: Sequence[Compared]
    sentence: str
    recurring: Sequence[Recurring]
    recurring_more: int
    apart: Sequence[Apart]
    apart_more: int
    apart_said: str


def comparison_of(
    runs: Sequence[Looked], controls: Sequence[Looked], events: pd.DataFrame | None, apart: pd.DataFrame | str
) -> Comparison | None:
    """What there is to compare; None for a run alone. apart is the table of `set_apart`, or why there is none."""
    if len(runs) + len(controls) < 2:
        return None
    owns = {one.name: own_event_index(events, one.name) if events is not None else None for one in runs}
    steps = [float(events.at[own, "step"]) for own in owns.values() if own is not None and events is not None]
    usual = float(np.exp(np.median(np.log(steps)))) if steps else None
    compared = [_compared(one, "run", owns[one.name], events, usual) for one in runs]
    compared += [_compared(one, "control", None, events, usual) for one in controls]
    recurring = _recurring([one.name for one in runs], events) if events is not None else []
    rows = [] if isinstance(apart, str) else [_apart(row) for row in apart.to_dict("records")]
    return Comparison(
        runs=compared,
        sentence=_sentence(len(runs), len(controls), steps),
        recurring=recurring[:MOST_ROWS],
        recurring_more=max(0, len(recurring) - MOST_ROWS),
        apart=rows[:MOST_ROWS],
        apart_more=max(0, len(rows) - MOST_ROWS),
        apart_said=apart if isinstance(apart, str) else _limits(apart),
    )


def _compared(one: Looked, role: str, own: Any, events: pd.DataFrame | None, usual: float | None) -> Compared:
    measured = len(one.table["step"].unique()) if one.table is not None else 0
    checkpoints = len(one.run.steps) if one.run is not None else measured
    count = None
    if role == "run" and events is not None and events.attrs["tests"].get(one.name):
        count = int(np.count_nonzero(events["run"] == one.name))
    if own is None or events is None:
        why = "not listed; placed by the middle of the runs'" if role == "control" else "no event was found"
        why = "it could not be searched" if role == "run" and count is None else why
        why = "it was not measured" if one.table is None else why
        return Compared(one.name, role, checkpoints, count, None, None, None, "", why, usual)
    row = events.loc[[own]].to_dict("records")[0]
    name = row["probe"] if row["circuit"] == "metric" else f"{row['circuit']} {row['probe']}"
    step, low, high = (float(row[key]) for key in ("step", "low", "high"))
    return Compared(one.name, role, checkpoints, count, step, low, high, str(name), "", step)


def _recurring(runs: Sequence[str], events: pd.DataFrame) -> list[Recurring]:
    """Probes and metrics by how many runs show something in them, the surest first among equals."""
    findings = events.attrs["findings"]
    found = []
    for name, rows in findings.groupby("name", sort=False):
        by_run = {str(run): sorted(map(float, of_run["step"])) for run, of_run in rows.groupby("run", sort=False)}
        steps = [by_run.get(run, []) if _was_searched(events, run, name) else None for run in runs]
        shared = [events.at[event, "shared_with_controls"] for event in rows["event"].unique()]
        order = (-sum(bool(one) for one in steps), float(rows["q_value"].min()))
        one = Recurring(str(name), bool(rows["is_metric"].iloc[0]), steps, -order[0], _in_controls(shared))
        found.append((order, one))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _was_searched(events: pd.DataFrame, run: str, name: object) -> bool:
    """Whether a panel or metric of a run could be looked at; the same numbers under another name count."""
    several = len(events.attrs["tests"]) > 1
    key = f"{run}: {name}" if several else str(name)
    reason = str(events.attrs["not_searched"].get(key, ""))
    return key in events.attrs["searched"] or reason.startswith("the same numbers as")


def _in_controls(shared: Sequence[Any]) -> str:
    """Whether controls show the events that a probe takes part in, in a word."""
    known = [bool(one) for one in shared if not pd.isna(one)]
    if not known:
        return ""
    return "yes" if all(known) else "some of them" if any(known) else "no"


def _apart(row: dict[Any, Any]) -> Apart:
    at = sorted(int(step) for step in row["at"])
    numbers = {name: float(row[name]) for name in ("times", "low", "high", "p_value", "p_any")}
    return Apart(panel=str(row["panel"]), at=f"{at[0]:,} to {at[-1]:,}" if at[0] < at[-1] else f"{at[0]:,}", **numbers)


def _sentence(runs: int, controls: int, steps: Sequence[float]) -> str:
    """How many there are, and how far apart in time."""
    said = f"{runs} run{'s' * (runs != 1)}"
    said += f" and {controls} control{'s' * (controls != 1)}" if controls else ""
    if not steps:
        return f"{said}. No run has an event of its own, so they are aligned by step alone."
    if len(steps) == 1:
        return f"{said}. One run has an event of its own, at {steps[0]:,.0f}."
    ratio = max(steps) / min(steps)
    return (
        f"{said}. {'All' if len(steps) == runs else len(steps)} runs have an event of their own, from "
        f"{min(steps):,.0f} to {max(steps):,.0f}: a factor of {ratio:.2f} between the first and the last."
    )


def _limits(apart: pd.DataFrame) -> str:
    runs, controls = len(apart.attrs["runs"]), len(apart.attrs["controls"])
    return (
        f"Of every panel the fastest change that all heads make together, {runs} runs against {controls} controls. "
        f"With so many, no share of divisions can be below {100 * apart.attrs['smallest_p']:.2g} %."
    )
