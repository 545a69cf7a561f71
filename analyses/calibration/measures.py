"""All that is measured, as one tidy table: what, where, how many of how many, and the 95 % interval.

The same table of an earlier release of the detector (`before.csv`) stands beside it in the figure and in CALIBRATION.md.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import pandas as pd

from analyses.calibration.judge import (
    Outcome,
    Rate,
    coverage,
    false_alarms,
    inside_searched,
    precision,
    recall,
    recall_by_evidence,
    timing_errors,
)
from analyses.calibration.panels import NULLS, POWERS, PanelOutcome, member_precision
from analyses.calibration.panels import level as panel_level
from analyses.calibration.panels import power as panel_power

EVIDENCE_EDGES = (0.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0, np.inf)
"""Standard errors of the height of a transition, between which recall is counted."""
EVIDENCE = (
    *(f"evidence {low:g} to {high:g} se" for low, high in pairwise(EVIDENCE_EDGES[:-1])),
    "evidence 40 se and more",
)
P_LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
COLUMNS = ("measure", "where", "value", "low", "high", "hits", "of")

Grouping = Callable[[Outcome], str]


def measures(outcomes: Sequence[Outcome], panels: Sequence[PanelOutcome] = ()) -> pd.DataFrame:
    """Every measure of a campaign."""
    part = {
        name: [o for o in outcomes if o.cell.split("/")[0] == name] for name in {o.cell.split("/")[0] for o in outcomes}
    }
    level, quiet, benign = (part.get(name, []) for name in ("level", "quiet", "benign"))
    truth, dips, sgd = (part.get(name, []) for name in ("truth", "dips", "sgd"))
    everything = [*truth, *sgd]
    rows = []
    rows += _by("false alarms, smooth drift", level, lambda o: o.cell.removeprefix("level/"), false_alarms)
    rows += _by("looked at, smooth drift", level, lambda o: o.cell.removeprefix("level/"), _looked)
    rows += _by("false alarms, quiet", quiet, lambda o: "all", false_alarms)
    rows += _by("false alarms, quiet", quiet, lambda o: o.family, false_alarms)
    rows += _by("false alarms, quiet", quiet, lambda o: o.schedule, false_alarms)
    rows += _by("false alarms, benign", benign, lambda o: o.family, false_alarms)
    rows += _by("spikes called spikes", [o for o in benign if "spike" in o.allowed], lambda o: o.family, _named_spike)
    for where in (_all, _schedule, _noise, _family):
        rows += _by("recall of visible transitions", everything if where in (_all, _family) else truth, where, recall)
        rows += _by("coverage of 95 % intervals", everything, where, coverage)
        rows += _by("precision", everything if where in (_all, _family) else truth, where, precision)
        rows += _errors(everything, where)
    rows += _by_direction(truth)
    rows += _by_evidence(everything)
    for measure, function in (("recall of visible dips", recall), ("coverage of dips", coverage)):
        rows += _by(measure, dips, lambda o: "all", function)
        rows += _by(measure, dips, lambda o: o.schedule, function)
    rows += _by("power inside searched", part.get("power", []), lambda o: o.schedule, _power)
    rows += [
        _plain("share of the record searched", s, _shares(os)) for s, os in _grouped(part.get("power", []), _schedule)
    ]
    for limit in ("noise", "spacing", "points"):
        rows += _by(f"recall by {limit}", part.get(f"limits {limit}", []), _rest, lambda os: recall(os, visible=False))
    rows += _reliability(part.get("reliability", []))
    rows += _panels(panels)
    return pd.DataFrame(rows, columns=list(COLUMNS))


@dataclass(frozen=True)
class Measured:
    """One row of the table."""

    where: str
    value: float
    low: float
    high: float
    of: int


def rows_of(table: pd.DataFrame, measure: str) -> list[Measured]:
    """The rows of one measure."""
    found = table[table["measure"] == measure]
    columns = (found[name].tolist() for name in ("where", "value", "low", "high", "of"))
    return [Measured(str(w), float(v), float(a), float(b), int(n)) for w, v, a, b, n in zip(*columns, strict=True)]


def value_of(table: pd.DataFrame, measure: str, where: str) -> tuple[float, float, float]:
    """A measure with its interval; NaN where it was not measured."""
    found = next((row for row in rows_of(table, measure) if row.where == where), None)
    return (found.value, found.low, found.high) if found else (np.nan, np.nan, np.nan)


def _all(_: Outcome) -> str:
    return "all"


def _schedule(outcome: Outcome) -> str:
    return outcome.schedule


def _noise(outcome: Outcome) -> str:
    return outcome.noise + (f" {outcome.memory:g}" if outcome.noise == "ar" else "")


def _family(outcome: Outcome) -> str:
    return outcome.family


def _rest(outcome: Outcome) -> str:
    return outcome.cell.split("/", 1)[1]


def _grouped(outcomes: Iterable[Outcome], where: Grouping) -> list[tuple[str, list[Outcome]]]:
    """In the order in which the groups first appear."""
    first: dict[str, int] = {}
    for outcome in (outcomes := list(outcomes)):
        first.setdefault(where(outcome), len(first))
    ordered = sorted(outcomes, key=lambda o: first[where(o)])
    return [(name, list(group)) for name, group in groupby(ordered, key=where)]


def _by(
    measure: str, outcomes: Sequence[Outcome], where: Grouping, rate: Callable[[list[Outcome]], Rate]
) -> list[dict]:
    return [_row(measure, name, rate(group)) for name, group in _grouped(outcomes, where)]


def _row(measure: str, where: str, rate: Rate) -> dict:
    return {
        "measure": measure,
        "where": where,
        "value": rate.value,
        "low": rate.low if rate.of else np.nan,
        "high": rate.high if rate.of else np.nan,
        "hits": rate.hits,
        "of": rate.of,
    }


def _plain(measure: str, where: str, values: Sequence[float] | np.ndarray, middle: Callable = np.mean) -> dict:
    """A number that is no share: its mean or median, and how many are behind it."""
    value = float(middle(values)) if len(values) else np.nan
    return {
        "measure": measure,
        "where": where,
        "value": value,
        "low": np.nan,
        "high": np.nan,
        "hits": 0,
        "of": len(values),
    }


def _errors(outcomes: Sequence[Outcome], where: Grouping) -> list[dict]:
    found = [(name, timing_errors(group)) for name, group in _grouped(outcomes, where)]
    return [_plain("median |ln(step / true step)|", name, errors, np.median) for name, errors in found]


def _by_direction(outcomes: Sequence[Outcome]) -> list[dict]:
    found = []
    for way in ("fall", "rise"):
        pairs = [(row is not None) for o in outcomes for t, row, seen in o.paired() if seen and t.direction == way]
        found.append(_row("recall of visible transitions", f"{way}s", Rate(sum(pairs), len(pairs))))
    for kind in ("cliff", "stage"):
        rate = recall(outcomes, kinds=(kind,))
        found.append(_row("recall of visible transitions", f"{kind}s", rate))
    return found


def _by_evidence(outcomes: Sequence[Outcome]) -> list[dict]:
    return [
        _row("recall of visible transitions", name, recall_by_evidence(outcomes, *span))
        for name, span in zip(EVIDENCE, pairwise(EVIDENCE_EDGES), strict=True)
    ]


def _looked(outcomes: Sequence[Outcome]) -> Rate:
    return Rate(sum(not o.refused for o in outcomes), len(outcomes))


def _named_spike(outcomes: Sequence[Outcome]) -> Rate:
    return Rate(sum(any(row.kind == "spike" for row in o.rows) for o in outcomes), len(outcomes))


def _power(outcomes: Sequence[Outcome]) -> Rate:
    inside = [row is not None for o in outcomes for truth, row, _ in o.paired() if inside_searched(o, truth)]
    return Rate(sum(inside), len(inside))


def _shares(outcomes: Sequence[Outcome]) -> list[float]:
    """Of the places at which a drop was put: those inside `searched`, and none of a record that was refused."""
    return [float(inside_searched(o, truth)) for o in outcomes for truth in o.truths]


def _reliability(outcomes: Sequence[Outcome]) -> list[dict]:
    rows = []
    for name, group in _grouped(outcomes, _rest):
        looked = [o for o in group if not o.refused]
        for level in P_LEVELS:
            rows.append(_row(f"P(p <= {level:g})", name, Rate(sum(o.lowest_p <= level for o in looked), len(looked))))
    return rows


def _panels(outcomes: Sequence[PanelOutcome]) -> list[dict]:
    """By kind of panel, and by kind and schedule."""
    rows = []
    for measure, rate, kinds in (
        ("panels: false alarms", panel_level, NULLS),
        ("panels: shared steps found", panel_power, tuple(POWERS)),
        ("panels: members that did step", member_precision, tuple(POWERS)),
    ):
        schedules = list(dict.fromkeys(o.schedule for o in outcomes))
        for what in kinds:
            for where, here in [("all", outcomes), *((s, [o for o in outcomes if o.schedule == s]) for s in schedules)]:
                chosen = [o for o in here if o.what == what]
                rows += [_row(measure, f"{what}, {where}", rate(chosen))] if chosen else []
    return rows
