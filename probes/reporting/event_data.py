"""Events for the page: each in a sentence, with its findings, its rows in the map, and who moved first.

Order in time is told by the findings' stretches: what ends before another begins came first. Where they overlap, the
order cannot be told from one run, and that is what is said.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from probes.events.answer import sentences
from probes.events.panels import MATRICES
from probes.events.ranking import rank_heads
from probes.reporting.page_data import EventData, FindingData, Row

_MOST_NAMED = 4
_MOVERS = 3


def events_of_run(
    events: pd.DataFrame, run: str, rows: Sequence[Row], series: Mapping[tuple[str, int | None], int]
) -> list[EventData]:
    """The events of one run, in the order of their steps; `series` are places by probe and component."""
    said = sentences(events)
    place = {(row.circuit, row.head_name): number for number, row in enumerate(rows)} | _matrices(rows)
    found = []
    mine = events.loc[events["run"] == run]
    for number, (index, row) in enumerate(mine.to_dict("index").items(), start=1):
        findings = [_finding(one) for one in _of_event(events.attrs["findings"], index)]
        component = None if pd.isna(row["component"]) else int(row["component"])
        is_metric = row["circuit"] == "metric"
        heads = [str(name) for name in row["members"]]
        found.append(
            EventData(
                number=number,
                step=float(row["step"]),
                low=float(row["low"]),
                high=float(row["high"]),
                title=findings[0].name,
                sentence=said[index],
                says=_without_step(said[index]),
                circuit="" if is_metric else "all" if row["circuit"] == MATRICES else str(row["circuit"]),
                heads=heads,
                rows=[place[row["circuit"], name] for name in heads if (row["circuit"], name) in place],
                series=None if is_metric else series.get((str(row["probe"]), component)),
                q_value=float(row["q_value"]),
                shared=None if pd.isna(row["shared_with_controls"]) else bool(row["shared_with_controls"]),
                headline=bool(row["headline"]),
                findings=findings,
                first=who_moved_first(findings),
            )
        )
    return found


def movers(table: pd.DataFrame, event: EventData) -> str:
    """Of an event in matrices that are no heads, which heads changed most there: told, for none passed the test."""
    try:
        ranked = rank_heads(table, (event.low, event.high))
    except ValueError:
        return ""
    heads = ranked.loc[ranked["matrix"] == ""] if "matrix" in ranked.columns else ranked
    named = [f"{row['layer']}.{row['head']} ({row['most']})" for row in heads.head(_MOVERS).to_dict("records")]
    return f"Heads that changed most there, described and not tested: {', '.join(named)}." if named else ""


def _matrices(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Rows of matrices that are no heads, by the names that panels give them."""
    count = Counter(row.circuit for row in rows)
    return {
        (MATRICES, row.circuit if count[row.circuit] == 1 else f"{row.circuit}.{row.layer}"): number
        for number, row in enumerate(rows)
    }


def _without_step(sentence: str) -> str:
    """The sentence where the step stands above it already."""
    rest = re.sub(r"^At step [\d,.]+ \([\d,.]+-[\d,.]+\) ", "", sentence)
    return f"The {rest[4:]}" if rest.startswith("the ") else rest  # a metric keeps its name


def who_moved_first(findings: Sequence[FindingData]) -> str:
    """In words, and why not where it cannot be told."""
    if len(findings) < 2:
        return "Nothing else was found at this time."
    first = min(findings, key=lambda one: (one.high, one.low))
    later = sorted((one for one in findings if one.low > first.high), key=lambda one: one.low)
    if not later:
        return "Cannot be told from one run: the stretches overlap."
    names = [f"{one.name} (from {one.low:,.0f})" for one in later[:_MOST_NAMED]]
    more = f" and {len(later) - _MOST_NAMED} more" if len(later) > _MOST_NAMED else ""
    unclear = len(findings) - 1 - len(later)
    rest = f" {unclear} {'others overlap' if unclear > 1 else 'other overlaps'} with it." if unclear else ""
    return f"{first.name} (until {first.high:,.0f}) before {', '.join(names)}{more}.{rest}"


def _of_event(findings: pd.DataFrame, event: Any) -> list[dict]:
    return findings.loc[findings["event"] == event].to_dict("records")


def _finding(row: dict) -> FindingData:
    return FindingData(
        name=str(row["name"]),
        is_metric=bool(row["is_metric"]),
        step=float(row["step"]),
        low=float(row["low"]),
        high=float(row["high"]),
        what=f"{row['kind']}, {row['direction']}",
        strength=float(row["strength"]),
        q_value=float(row["q_value"]),
        rests_on=str(row["rests_on"]),
        heads=[str(name) for name in row["members"]],
    )
