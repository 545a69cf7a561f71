"""Events in sentences: what a reader wants to know first, then what could not be looked at."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from probes.events.findings import NO_CALIBRATION

_VERBS = {
    ("stage", "rise"): "rises",
    ("stage", "fall"): "falls",
    ("stage", "mixed"): "changes, up in some heads and down in others,",
    ("cliff", "rise"): "rises",
    ("cliff", "fall"): "falls",
    ("dip", "fall"): "dips",
    ("spike", "rise"): "spikes",
}
_MOST_HEADS, _MOST_OTHERS = 6, 4


def answer(events: pd.DataFrame) -> str:
    """What the table of `find_events` says, in sentences."""
    attrs = events.attrs
    runs = list(attrs["tests"])
    lines = []
    for run in runs:
        lines += [*_of_run(run, events, attrs), ""]
    lines += _not_looked_at(attrs)
    return "\n".join(lines).rstrip() + "\n"


def sentences(events: pd.DataFrame) -> dict[Any, str]:
    """Every event of the table of `find_events` in a sentence, by its place in the table."""
    return {number: _sentence(number, row, events.attrs) for number, row in events.to_dict("index").items()}


def where_it_could_look(events: pd.DataFrame) -> list[str]:
    """Sentences: which steps were searched, what could not be, what was left out."""
    return [line.strip() for line in _not_looked_at(events.attrs)[1:]]


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
    tests = attrs["tests"][run]
    rate = f"at most {100 * attrs['alpha']:g} % of them expected to be false"
    if not tests:
        return [f"{run}: could not look: no panel and no metric of it can be searched."]
    if rows.empty:
        where = _count(tests, "panel or metric that was", "panels and metrics that were")
        return [f"{run}: nothing found in {where} searched."]
    lines = [
        f"{run}: {_count(len(rows), 'event')} in {_count(tests, 'panel or metric', 'panels and metrics')}, {rate}."
    ]
    with_metric = attrs["findings"].loc[attrs["findings"]["is_metric"], "event"]
    rows = rows.assign(first=~rows.index.isin(with_metric)).sort_values(["first", "step"])
    headlines, rest = rows.loc[rows["headline"]], rows.loc[~rows["headline"]]
    titles = (
        ("What sets it apart:", "Shared with the controls:") if attrs["controls"] else ("", "In the weights alone:")
    )
    for title, part in zip(titles, (headlines, rest), strict=True):
        if len(part):
            lines += [title] * bool(title)
            lines += [f"  {_sentence(number, row, attrs)}" for number, row in part.to_dict("index").items()]
    if attrs["controls"] and headlines.empty:
        lines.append("  Nothing sets it apart from the controls.")
    return lines


def _sentence(number: Any, row: dict[Any, Any], attrs: dict) -> str:
    findings = attrs["findings"].loc[attrs["findings"]["event"] == number]
    first, others = findings.iloc[0], findings.iloc[1:]
    where = f"At step {row['step']:,.0f} ({row['low']:,.0f}-{row['high']:,.0f})"
    verb = _VERBS.get((row["kind"], row["direction"]), "changes")
    if row["circuit"] == "metric":
        said = f"{where} {row['probe']} {verb}{_size(row)}; q = {_rate(row['q_value'])}"
        return f"{said}; no heads can be named{_also(others, 'with')}. {_backing(row)}."
    heads = _heads(row["members"], len(attrs["members"].query("event == @number")[["layer", "head"]].drop_duplicates()))
    said = f"{where} the {first['name'].replace('.', ' ', 1)} {verb} in {heads}{_size(row)}"
    metrics, weights = others.loc[others["is_metric"]], others.loc[~others["is_metric"]]
    said += _also(metrics, "together with")
    said += f"; q = {_rate(row['q_value'])}"
    if len(weights):
        names = weights["name"].tolist()
        said += f". Seen by {_listed(names[:_MOST_OTHERS], len(names))} too"
    return f"{said}. {_backing(row)}."


def _backing(row: dict[Any, Any]) -> str:
    if row["rests_on"] == NO_CALIBRATION:
        return "The calibration has no row for a record like this"
    return f"Rests on {row['rests_on']} of the calibration"


def _heads(names: Sequence[str], total: int) -> str:
    if len(names) == total > 1:
        return f"all {total} heads ({_listed(names[:_MOST_HEADS], total)}, the fastest first)"
    return f"head{'s' * (len(names) > 1)} {_listed(names[:_MOST_HEADS], len(names))}"


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


def _rate(value: float) -> str:
    return f"{value:.1g}" if value >= 1e-6 else "1e-6 or less"


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _not_looked_at(attrs: dict) -> list[str]:
    lines, several = [], len(attrs["tests"]) > 1
    for stretches, names in _by_stretches(attrs["searched"], several).items():
        spans = ", ".join(f"{low:,.0f} to {high:,.0f}" for low, high in stretches) or "nowhere"
        lines.append(f"  Searched at steps {spans}: {_listed(names[:3], len(names))}.")
    refused = _once(attrs["not_searched"].items(), several)
    twice = [name for name, reason in refused if reason.startswith("the same numbers")]
    if twice:
        lines.append(f"  Counted once, because another probe has the same numbers: {_listed(twice[:3], len(twice))}.")
    lines += [f"  Not searched: {name}, {reason}." for name, reason in refused if name not in twice]
    lines += [f"  {note}." for note in dict.fromkeys(_without_run(note, attrs["tests"]) for note in attrs["notes"])]
    return ["Where it could look, and what was left out:", *lines] if lines else []


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
    """Names by where they were searched: two significant digits are enough to be the same."""
    found: dict[tuple, list[str]] = {}
    for name, stretches in _once(searched.items(), several):
        key = tuple((float(f"{low:.2g}"), float(f"{high:.2g}")) for low, high in stretches)
        names = found.setdefault(key, [])
        names += [name] * (name not in names)
    return found
