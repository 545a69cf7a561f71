"""Events as a table: one row each, and beside it, in its attrs, all that they rest on.

findings      every finding of every event: which panel or metric, where, how strong, how sure
members       every head of every finding in the weights, with its own evidence
furthest      the heads by how far their QK stable rank went in each event
searched, not_searched, notes   where could be looked, what could not and why, what was left out
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from probes.events.findings import Finding
from probes.events.panels import Panel
from probes.events.ranking import ways

COLUMNS = {
    "run": "str",
    "step": "float64",
    "low": "float64",
    "high": "float64",
    "kind": "str",
    "direction": "str",
    "circuit": "str",
    "probe": "str",
    "component": "Int64",
    "members": "object",
    "strength": "float64",
    "p_value": "float64",
    "q_value": "float64",
    "rests_on": "str",
    "together_with": "object",
    "shared_with_controls": "boolean",
    "headline": "bool",
}

TELLING = "qk.stable_rank"
"""The panel in which heads that begin to match prefixes go furthest; `rank_heads` says how often they did."""

_TO_DRAW = (
    "<p>To draw it: <code>probes.plot.events(events)</code>; as a page with all that it rests on: "
    "<code>probes.report(run, table, events)</code></p>"
)


@dataclass(frozen=True)
class Event:
    """Findings at one time; the first is the one it is named after.

    shared: whether controls do the same, and of each finding whether one shows it; None without controls.
    """

    findings: tuple[Finding, ...]
    shared: bool | None = None
    headline: bool = False
    shared_findings: tuple[bool, ...] | None = None

    @property
    def named_after(self) -> Finding:
        """The surest finding in heads, then in other matrices, then in metrics; what controls show too, last."""
        return self.findings[0]

    def order(self, one: Finding) -> str | None:
        """Whether a finding in the weights lies before or after the largest change of a metric, where it can be told.

        It can where their stretches do not overlap. None of metrics, and where no metric takes part.
        """
        metrics = [other for other in self.findings if other.circuit is None]
        if not metrics or one.circuit is None:
            return None
        main = max(metrics, key=lambda other: other.strength)
        return "before" if one.high < main.low else "after" if one.low > main.high else "cannot be told"


class EventTable(pd.DataFrame):
    """A DataFrame of events that says, where notebooks show it, how it is drawn."""

    @property
    def _constructor(self) -> "type[EventTable]":
        return EventTable

    def _repr_html_(self) -> str:
        said = _TO_DRAW if len(self) and {*COLUMNS} <= {*self.columns} else ""
        return said + pd.DataFrame(self)._repr_html_()  # pyright: ignore


@dataclass(frozen=True)
class Search:
    """What one run shows, and where it was looked at."""

    run: str
    events: list[Event]
    searched: dict[str, list[tuple[float, float]]]
    not_searched: dict[str, str]
    notes: list[str]
    panels: int
    telling: tuple[Panel, ...] = ()  # those called TELLING, one for each tower


def as_event_table(
    events: list[Event], searches: list[Search], alpha: float, notes: list[str], controls: list[str]
) -> pd.DataFrame:
    """One row per event, and all else in the attrs."""
    table = EventTable(pd.DataFrame([_row(event) for event in events], columns=list(COLUMNS)).astype(COLUMNS))
    several = len(searches) > 1
    table.attrs["findings"] = _findings(events)
    table.attrs["members"] = _members(events)
    table.attrs["furthest"] = _furthest(events, {s.run: s.telling for s in searches})
    table.attrs["searched"] = _named({s.run: s.searched for s in searches}, several)
    table.attrs["not_searched"] = _named({s.run: s.not_searched for s in searches}, several)
    table.attrs["notes"] = notes + [f"{s.run}: {note}" if several else note for s in searches for note in s.notes]
    table.attrs["tests"] = {s.run: len(s.searched) for s in searches}
    table.attrs["panels"] = {s.run: s.panels for s in searches}
    table.attrs["alpha"] = alpha
    table.attrs["controls"] = controls
    return table


def _named(by_run: dict[str, dict], several: bool) -> dict:
    if not several:
        return next(iter(by_run.values()), {})
    return {f"{run}: {name}": value for run, found in by_run.items() for name, value in found.items()}


def _row(event: Event) -> dict[str, object]:
    first = event.named_after
    others = [f"{one.name} at {one.step:.0f}" for one in event.findings[1:]]
    return {
        "run": first.run,
        "step": first.step,
        "low": first.low,
        "high": first.high,
        "kind": first.kind,
        "direction": first.direction,
        "circuit": first.circuit or "metric",
        "probe": first.probe or first.name,
        "component": first.component,
        "members": head_names(event.findings),
        "strength": first.strength,
        "p_value": first.p_value,
        "q_value": first.q_value,
        "rests_on": first.rests_on,
        "together_with": others,
        "shared_with_controls": event.shared,
        "headline": event.headline,
    }


def head_names(findings: Sequence[Finding]) -> list[str]:
    """The heads that take part in the first of these."""
    first = findings[0]
    tower = f"{first.tower}:" if first.tower else ""
    return [f"{tower}{one.name}" for one in first.taking_part]


def _members(events: Sequence[Event]) -> pd.DataFrame:
    """Every head of every finding in the weights: what it did, and how sure it is that it took part."""
    rows = [
        {
            "event": number,
            "run": one.run,
            "circuit": member.circuit,
            "probe": one.probe,
            "component": one.component,
            "tower": one.tower,
            "name": member.name,
            "layer": member.layer,
            "head": member.head,
            "statistic": member.speed,
            "change": member.change,
            "p_value": member.p_value,
            "q_value": member.q_value,
            "takes_part": member.takes_part,
        }
        for number, event in enumerate(events)
        for one in event.findings
        for member in one.members
    ]
    columns = ["event", "run", "circuit", "probe", "component", "tower", "name", "layer", "head"]
    return pd.DataFrame(rows, columns=[*columns, "statistic", "change", "p_value", "q_value", "takes_part"])


def _furthest(events: Sequence[Event], telling: Mapping[str, Sequence[Panel]]) -> pd.DataFrame:
    """Every head in every event of the weights, by how far its QK stable rank went there."""
    rows = [
        {"event": number, "run": event.named_after.run, "tower": panel.tower, "name": head.name, "way": float(way)}
        for number, event in enumerate(events)
        if event.named_after.circuit is not None
        for panel in telling.get(event.named_after.run, ())
        if (panel.stage, panel.tower) == (event.named_after.stage, event.named_after.tower)
        for head, way in zip(panel.heads, ways(panel, event.named_after.low, event.named_after.high), strict=True)
    ]
    found = pd.DataFrame(rows, columns=["event", "run", "tower", "name", "way"])
    return found.sort_values(["event", "way"], ascending=[True, False], ignore_index=True)


def _findings(events: Sequence[Event]) -> pd.DataFrame:
    rows = [
        {
            "event": number,
            "run": one.run,
            "name": one.name,
            "is_metric": one.circuit is None,
            "step": one.step,
            "low": one.low,
            "high": one.high,
            "kind": one.kind,
            "direction": one.direction,
            "strength": one.strength,
            "p_value": one.p_value,
            "q_value": one.q_value,
            "rests_on": one.rests_on,
            "is_resolved": one.is_resolved,
            "order": event.order(one),
            "shared_with_controls": None if event.shared_findings is None else event.shared_findings[place],
            "members": head_names([one]),
        }
        for number, event in enumerate(events)
        for place, one in enumerate(event.findings)
    ]
    columns = ["event", "run", "name", "is_metric", "step", "low", "high", "kind", "direction", "strength", "p_value"]
    columns += ["q_value", "rests_on", "is_resolved", "order", "shared_with_controls", "members"]
    return pd.DataFrame(rows, columns=columns)
