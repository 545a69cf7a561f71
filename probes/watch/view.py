"""A snapshot of a run as text for a terminal."""

import math
import time

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from probes.measuring.tables import mean_over_layers
from probes.series.online import ALARMS, Event
from probes.watch.curve import sparkline
from probes.watch.head_curves import HeadCourse
from probes.watch.snapshot import Snapshot

_WIDTH = 48  # of the sparkline
_MOST_METRICS = 12
_MOST_EVENTS = 8
_MOST_HEADS = 8
_HEAD_WIDTH = 32  # of the sparkline of a head


def view(snapshot: Snapshot, *, log_steps: bool = True) -> RenderableType:
    """Everything that is known, top down: who, how far, how well, what is inside, what happened."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    title = Text(snapshot.name or snapshot.source, style="bold")
    title.append(f"  {snapshot.family}" if snapshot.family not in ("", "unknown") else "", style="not bold dim")
    facts.add_row("run", title)
    facts.add_row("state", snapshot.state)
    if snapshot.last_step is not None:
        facts.add_row(
            "step",
            ", ".join(filter(None, (str(snapshot.last_step), snapshot.speed, snapshot.left, _written(snapshot)))),
        )
    _add_metrics(facts, snapshot, log_steps)
    if snapshot.name:
        last = "" if snapshot.last_checkpoint is None else f", the last at step {snapshot.last_checkpoint}"
        facts.add_row("checkpoints", f"{snapshot.checkpoints or 'none yet'}{last}")
    for problem in snapshot.problems:
        facts.add_row("problem", Text(problem, style="red"))
    parts: list[RenderableType] = [facts]
    if snapshot.table is not None:
        parts += [Text(), *_measurement(snapshot.table, snapshot.table_source)]
    if snapshot.heads:
        parts += [Text(), *_heads(snapshot.heads, log_steps)]
    if snapshot.events_source:
        parts += [Text(), *_events(snapshot.events, snapshot.events_source)]
    return Group(*parts)


def _written(snapshot: Snapshot) -> str:
    """How long ago metrics were last written, if it is known."""
    if snapshot.written is None:
        return ""
    return f"last logged {_ago(time.time() - snapshot.written)}"


def _ago(seconds: float) -> str:
    """In the largest unit of which there are at least two."""
    for unit, length in (("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


def _add_metrics(facts: Table, snapshot: Snapshot, log_steps: bool) -> None:
    """A line for each scalar, the main one first and with its curve."""
    others = [name for name in snapshot.latest if name != snapshot.main]
    for name in [*([snapshot.main] if snapshot.main else []), *others[:_MOST_METRICS]]:
        step, value = snapshot.latest[name]
        text = _number(value) + ("" if step == snapshot.last_step else f" (at step {step})")
        facts.add_row(name, text)
        if name == snapshot.main and len(snapshot.curve) > 1:
            facts.add_row("", sparkline(snapshot.curve, _WIDTH, log_steps=log_steps))
            facts.add_row("", Text(_axis(snapshot.curve, log_steps), style="dim"))
    if len(others) > _MOST_METRICS:
        facts.add_row("", f"and {len(others) - _MOST_METRICS} more")


def _axis(curve: list[tuple[float, float]], log_steps: bool) -> str:
    """What the ends of the curve's two axes are."""
    first, last = curve[0][0], curve[-1][0]
    low, high = min(value for _, value in curve), max(value for _, value in curve)
    scale = "log scale" if log_steps else "linear scale"
    return f"steps {first:.0f} to {last:.0f} ({scale}), from {_number(low)} to {_number(high)}"


def _measurement(table: pd.DataFrame, source: str) -> list[RenderableType]:
    """The mean over all heads of each circuit and probe, and how it changed since the measurement before."""
    means = mean_over_layers(table)
    steps = sorted(means["step"].unique().tolist())
    means = means.dropna(subset="value")
    if "tower" in means.columns:  # a column of its own for each circuit of each tower
        means = means.assign(circuit=means["tower"] + " " + means["circuit"])
    columns = ("step", "circuit", "probe", "component", "value")
    known = {
        (step, circuit, probe, -1 if pd.isna(component) else int(component)): value
        for step, circuit, probe, component, value in zip(*(means[name] for name in columns), strict=True)
    }
    circuits = list(dict.fromkeys(circuit for _, circuit, _, _ in known))
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("mean over heads")
    for circuit in circuits:
        shown.add_column(circuit, justify="right")
        shown.add_column("change", justify="right", style="dim")
    for probe, component in _rows(known, steps[-1]):
        name = probe.replace("_", " ") + (f", k={component}" if component >= 0 else "")
        cells = [[known.get((step, circuit, probe, component), math.nan) for step in steps] for circuit in circuits]
        shown.add_row(name, *(text for values in cells for text in (_number(values[-1]), _change(values))))
    since = f", change since step {steps[0]}" if len(steps) > 1 else ""
    title = Text(f"probes at step {steps[-1]}{since} (measured {source})", style="bold")
    return [title, shown, *_why_missing(table.loc[table["step"] == steps[-1]])]


def _heads(courses: tuple[HeadCourse, ...], log_steps: bool) -> list[RenderableType]:
    """The heads that went furthest, each with its course."""
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_header=False)
    for _ in range(3):
        shown.add_column(no_wrap=True)
    for course in courses[:_MOST_HEADS]:
        (first, begin), (last, end) = course.points[0], course.points[-1]
        line = sparkline(course.points, _HEAD_WIDTH, log_steps=log_steps)
        shown.add_row(course.name, line, f"{_number(begin)} at step {first:.0f} to {_number(end)} at {last:.0f}")
    more = f" of {len(courses)}" if len(courses) > _MOST_HEADS else ""
    title = f"{courses[0].probe.replace('_', ' ')} of the heads that changed most ({len(courses[:_MOST_HEADS])}{more})"
    return [Text(title, style="bold"), shown]


def _rows(known: dict[tuple, float], step: int) -> list[tuple[str, int]]:
    """Probes that have a number now, with their component; of several components the last alone."""
    last: dict[str, int] = {}
    for at, _, probe, component in known:
        if at == step:
            last[probe] = max(component, last.get(probe, -1))
    return list(last.items())


def _why_missing(rows: pd.DataFrame) -> list[RenderableType]:
    """Probes without any number, and why."""
    lost = [(str(name), probe) for name, probe in rows.groupby("probe") if np.isnan(probe["value"].to_numpy()).all()]
    return [
        Text(f"{name.replace('_', ' ')} is missing: {probe['why_missing'].iloc[0]}", style="dim")
        for name, probe in lost
    ]


def _change(values: list[float]) -> str:
    """From the first to the last value, with its sign; nothing where one of them is missing."""
    if len(values) < 2 or not all(math.isfinite(value) for value in values):
        return ""
    change = values[-1] - values[0]
    return f"{change:+.3g}" if change else "="


def _events(events: tuple[Event, ...], source: str) -> list[RenderableType]:
    """A title and a table of the latest ones; or that somebody looked and found none."""
    if not events:
        return [Text(f"no transitions so far ({source})", style="dim")]
    shown = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("kind", "metric", "step", "95 % interval", "detected at", "p"):
        shown.add_column(name, justify="left" if name in ("kind", "metric") else "right")
    for event in events[-_MOST_EVENTS:]:
        interval = f"{event.low:.0f} to {event.high:.0f}"
        shown.add_row(
            event.kind if event.direction != "rise" or event.kind in ("spike", *ALARMS) else f"{event.kind} (rise)",
            event.metric,
            f"{event.step:.0f}",
            "" if event.kind in ALARMS else interval,
            str(event.detected_at),
            "" if event.kind in ALARMS else f"{event.p_value:.1g}",
        )
    earlier = f", the last {_MOST_EVENTS} of {len(events)}" if len(events) > _MOST_EVENTS else ""
    return [Text(f"transitions ({source}{earlier})", style="bold"), shown]


def _number(value: float) -> str:
    """Four digits, or that there is none."""
    return f"{value:.4g}" if math.isfinite(value) else "missing"
