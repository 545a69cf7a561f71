"""Events in sentences: what a reader wants to know first, then how far it can be trusted and what was not looked at."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from probes.events.findings import NO_CALIBRATION
from probes.events.panels import MATRICES

_VERBS = {
    ("stage", "rise"): "rises",
    ("stage", "fall"): "falls",
    ("stage", "mixed"): "changes, up in some and down in others,",
    ("cliff", "rise"): "rises",
    ("cliff", "fall"): "falls",
    ("dip", "fall"): "dips",
    ("spike", "rise"): "spikes",
}
_MOST_HEADS, _MOST_OTHERS = 6, 4


def answer(events: pd.DataFrame) -> str:
    """What the table of `find_events` says, in sentences."""
    attrs = events.attrs
    lines = []
    for run in attrs["tests"]:
        lines += [*_of_run(run, events, attrs), ""]
    lines += [*_trust(attrs), *_not_looked_at(attrs)]
    return "\n".join(lines).rstrip() + "\n"


def sentences(events: pd.DataFrame) -> dict[Any, str]:
    """Every event of the table of `find_events` in a sentence, by its place in the table."""
    return {number: _sentence(number, row, events.attrs) for number, row in events.to_dict("index").items()}


def where_it_could_look(events: pd.DataFrame) -> list[str]:
    """Sentences: which steps were searched, what could not be, what was left out."""
    return [line.strip() for line in _not_looked_at(events.attrs, grouped=False)[1:]]


def answer_apart(apart: pd.DataFrame | None) -> str:
    """What the table of `set_apart` says: the panels told apart best, and what so many runs can show at all."""
    if apart is None:
        return ""
    runs, controls, least = len(apart.attrs["runs"]), len(apart.attrs["controls"]), apart.attrs["smallest_p"]
    lines = ["", f"{runs} runs against {controls} controls, by the fastest change that all heads make together:"]
    for _, row in apart.head(_MOST_OTHERS).iterrows():
        lines.append(
            f"  {row['panel']} {row['times']:.2g} times as fast ({row['low']:.2g}-{row['high']:.2g}); of all ways to "
            f"divide these runs, {100 * row['p_value']:.2g} % differ as much, {100 * row['p_any']:.2g} % in some panel."
        )
    lines.append(f"  With {runs} against {controls} no share can be below {100 * least:.2g} %.")
    return "\n".join(lines) + "\n"


def _of_run(run: str, events: pd.DataFrame, attrs: dict) -> list[str]:
    rows = events.loc[events["run"] == run]
    panels = attrs["panels"][run]
    metrics = attrs["tests"][run] - panels
    if not attrs["tests"][run]:
        return [f"{run}: could not look: no panel and no metric of it can be searched. Why, is said below."]
    where = f"{_count(panels, 'panel')} of weights and {_count(metrics, 'metric')}"
    if rows.empty:
        return [f"{run}: nothing found in {where} that could be searched."]
    rate = f"at most {100 * attrs['alpha']:g} % expected to be false"
    lines = [f"{run}: {_count(len(rows), 'event')} in {where}, {rate}."]
    with_metric = attrs["findings"].loc[attrs["findings"]["is_metric"], "event"]
    of_metrics = rows["circuit"] == "metric"
    if attrs["controls"]:
        parts = {
            "What sets it apart:": rows.loc[rows["headline"] & ~of_metrics],
            "In the metrics alone, and not in the controls:": rows.loc[rows["headline"] & of_metrics],
            "Shared with the controls:": rows.loc[~rows["headline"]],
        }
    else:
        both = rows.index.isin(with_metric) & ~of_metrics
        parts = {
            "Weights and metrics together:": rows.loc[both],
            "Weights alone:": rows.loc[~both & ~of_metrics],
            "Metrics alone (no heads can be named):": rows.loc[of_metrics],
        }
    for title, part in parts.items():
        part = part.assign(later=~part.index.isin(with_metric)).sort_values(["later", "step"])
        if len(part):
            lines += [title, *(f"  {_sentence(number, row, attrs)}" for number, row in part.to_dict("index").items())]
    if attrs["controls"] and not rows["headline"].any():
        lines.append("Nothing sets it apart from the controls.")
    return lines


def _sentence(number: Any, row: dict[Any, Any], attrs: dict) -> str:
    findings = attrs["findings"].loc[attrs["findings"]["event"] == number]
    first, others = findings.iloc[0], findings.iloc[1:]
    where = f"At step {row['step']:,.0f} ({row['low']:,.0f}-{row['high']:,.0f})"
    metrics = others.loc[others["is_metric"]].sort_values("strength", ascending=False)
    weights = others.loc[~others["is_metric"]]
    if row["circuit"] == "metric":
        said = f"{where} {row['probe']} {_verb(row)}{_size(row)}{_also(metrics, 'with')}; {_sure(row)}."
        return said + (" " + _seen(weights, "What the weights do there, the controls do too") if len(weights) else "")
    members = attrs["members"].loc[attrs["members"]["event"] == number]
    of_first = members["circuit"] == row["circuit"] if row["circuit"] != MATRICES else members["probe"] == row["probe"]
    total = members.loc[of_first, "name"].nunique()
    heads = _heads(row["members"], total, row["circuit"] == MATRICES)
    said = f"{where} the {_name(first['name'])} {_verb(row)} in {heads}{_size(row)}"
    is_resolved = bool(findings["is_resolved"].tolist()[0])
    said += f"{_also(metrics, 'together with')}; {'its curves show no noise' if is_resolved else _sure(row)}."
    is_shared = pd.Series([one is True for one in weights["shared_with_controls"]], weights.index, dtype=bool)
    if row["shared_with_controls"] is True:  # said above all of them
        is_shared[:] = False
    own, also = weights.loc[~is_shared], weights.loc[is_shared]
    said += f" {_seen(own, 'Seen by')}" if len(own) else ""
    said += f" {_seen(also, 'There the controls change too')}" if len(also) else ""
    return said + _furthest(number, attrs) + _order(findings)


def _furthest(number: Any, attrs: dict) -> str:
    """The heads whose QK stable rank went furthest, with the factor that it went by, up and down together."""
    heads = attrs["furthest"].loc[attrs["furthest"]["event"] == number].head(_MOST_OTHERS)
    named = [f"{name} (x {np.exp(way):.2g})" for name, way in zip(heads["name"], heads["way"], strict=True) if way > 0]
    return f" The QK stable rank goes furthest in {', '.join(named)}." if named else ""


def _seen(weights: pd.DataFrame, how: str) -> str:
    names, colon = list(dict.fromkeys(weights["name"])), "" if how == "Seen by" else ":"
    return f"{how}{colon} {_listed(names[:_MOST_OTHERS], len(names))}{' too' * (not colon)}."


def _order(findings: pd.DataFrame) -> str:
    """Which probes come before or after the largest change of a metric, where that can be told."""
    said = findings.loc[findings["order"].isin(["before", "after"])]
    if said.empty:
        return " Which moved first cannot be told from one run." if any(findings["order"].notna()) else ""
    metrics = findings.loc[findings["is_metric"]]
    main = metrics.loc[metrics["strength"].idxmax(), "name"]
    parts = [
        f"{_listed(names[:3], len(names))} {how} {main}"
        for how in ("before", "after")
        if (names := said.loc[said["order"] == how, "name"].tolist())
    ]
    return f" In this run {' and '.join(parts)}."


def _name(name: str) -> str:
    circuit, _, probe = name.partition(".")
    return f"{probe} of the matrices" if circuit == MATRICES else f"{circuit} {probe}"


def _verb(row: Any) -> str:
    return _VERBS.get((row["kind"], row["direction"]), "changes")


def _heads(names: Sequence[str], total: int, are_matrices: bool) -> str:
    if are_matrices:
        return _listed(names[:_MOST_HEADS], len(names))
    if len(names) == total > 1:
        return f"all {total} heads ({_listed(names[:_MOST_HEADS], total)}, the fastest first)"
    return f"head{'s' * (len(names) > 1)} {_listed(names[:_MOST_HEADS], len(names))} of {total}"


def _also(metrics: pd.DataFrame, how: str) -> str:
    if metrics.empty:
        return ""
    said = [f"{row['name']} ({row['direction']} at {row['step']:,.0f})" for _, row in metrics.iterrows()]
    return f", {how} {_listed(said[:_MOST_OTHERS], len(said))}"


def _listed(names: Sequence[str], total: int) -> str:
    names = list(names)
    if total > len(names):
        return f"{', '.join(names)} and {total - len(names)} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _size(row: dict[Any, Any]) -> str:
    return f", by {100 * row['strength']:.0f} % of the range of the run"


def _sure(row: dict[Any, Any]) -> str:
    return f"q = {row['q_value']:.1g}" if row["q_value"] >= 1e-6 else "q = 1e-6 or less"


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _trust(attrs: dict) -> list[str]:
    """What the calibration says of findings such as these, by its row."""
    from probes.series.calibration import rows

    findings = attrs["findings"]
    named = findings.drop_duplicates("event")
    if named.empty:
        return []
    table, lines = rows().set_index("id"), []
    for row_id, part in named.groupby("rests_on", sort=False):
        events = _count(len(part), "event")
        if row_id == NO_CALIBRATION:
            resolved = int(part["is_resolved"].sum())
            if resolved:
                lines.append(
                    f"  {_count(resolved, 'event')}: the checkpoints show these curves without noise; that they change "
                    "is plain, what it means is not, and no calibration speaks of it."
                )
            if len(part) > resolved:
                lines.append(f"  {_count(len(part) - resolved, 'event')}: the calibration has no row for such records.")
            continue
        row = table.loc[row_id]
        recall = (
            "recall not measured" if np.isnan(row["recall"]) else f"{100 * row['recall']:.0f} % of those there found"
        )
        lines.append(
            f"  {events}: {row_id}, false alarms in {100 * row['false_alarm_rate']:.1f} % of {row['series']:.0f} "
            f"records, {recall}."
        )
    return ["How often such findings are right (probes.series.calibration):", *lines]


def _not_looked_at(attrs: dict, *, grouped: bool = True) -> list[str]:
    """Sentences with a title. grouped: what was not searched for one reason is named together."""
    lines, several = [], len(attrs["tests"]) > 1
    for stretches, names in _by_stretches(attrs["searched"], several).items():
        spans = ", ".join(f"{low:,.0f} to {high:,.0f}" for low, high in stretches) or "nowhere"
        lines.append(f"  Searched at steps {spans}: {_listed(names[:3], len(names))}.")
    refused = _once(attrs["not_searched"].items(), several)
    twice = [name for name, reason in refused if reason.startswith("the same numbers")]
    if twice:
        lines.append(f"  Counted once, because another probe has the same numbers: {_listed(twice[:3], len(twice))}.")
    left = [(name, reason) for name, reason in refused if name not in twice]
    lines += [f"  Not searched: {name}{reason}." for name, reason in (_by_reason(left) if grouped else _each(left))]
    lines += [f"  {note}." for note in dict.fromkeys(_without_run(note, attrs["tests"]) for note in attrs["notes"])]
    return ["Where it could look, and what was left out:", *lines] if lines else []


def _by_reason(refused: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    names: dict[str, list[str]] = {}
    for name, reason in refused:
        names.setdefault(reason, []).append(name)
    return [(_listed(several[:3], len(several)), f": {reason}") for reason, several in names.items()]


def _each(refused: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, f", {reason}") for name, reason in refused]


def _once(named: Iterable[tuple[str, Any]], several: bool) -> list[tuple[str, Any]]:
    """Names without their runs, where there are several, each with its value once."""
    found = []
    for name, value in named:
        short = name.split(": ", 1)[1] if several else name
        if (short, value) not in found:
            found.append((short, value))
    return found


def _without_run(note: str, runs: Iterable[str]) -> str:
    """A note with a capital letter, and without the run it is about."""
    run = next((run for run in runs if note.startswith(f"{run}: ")), None)
    said = note[len(run) + 2 :] if run else note
    return said[0].upper() + said[1:]


def _by_stretches(searched: dict, several: bool) -> dict[tuple, list[str]]:
    """Names by where they were searched: one significant digit is enough to be the same, and what all share is said."""
    found: dict[tuple, tuple[list[tuple], list[str]]] = {}
    for name, stretches in _once(searched.items(), several):
        key = tuple((float(f"{low:.1g}"), float(f"{high:.1g}")) for low, high in stretches)
        where, names = found.setdefault(key, ([], []))
        where.append(tuple(stretches))
        names += [name] * (name not in names)
    return {
        tuple((max(low for low, _ in same), min(high for _, high in same)) for same in zip(*where, strict=True)): names
        for where, names in found.values()
    }
