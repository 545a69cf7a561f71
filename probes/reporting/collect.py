"""From what was looked at and what was found to what the page knows: `Looked` and events in, `Page` out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from probes.events.answer import answer_apart, where_it_could_look
from probes.measuring.catalogue import PROBES
from probes.reporting.comparison_data import comparison_of
from probes.reporting.event_data import events_of_run, movers
from probes.reporting.job import Looked
from probes.reporting.modes import MODES, SPECTRA
from probes.reporting.nulls import null_levels
from probes.reporting.page_data import Definition, EventData, Page, RunData
from probes.reporting.series_data import (
    Cube,
    band_of,
    missing_of,
    packed_modes,
    packed_series,
    read_cube,
    shown_columns,
)
from probes.reporting.small_figures import small_figures
from probes.series.calibration import rows as calibration_rows
from probes.series.logged import finite, interventions_of, loss_name
from probes.theory import Alignment

_MOST_POINTS = 500
_MOST_METRICS = 24


def page_of(
    looked: Sequence[Looked],
    controls: Sequence[Looked],
    events: pd.DataFrame | None,
    *,
    alignment: Alignment | None,
    command: str,
    not_aligned: str = "",
    alpha: float,
    apart: pd.DataFrame | str = "",
) -> Page:
    """The whole page; events is None where nothing could be searched. apart is that of `set_apart`, or why not."""
    beside = (alignment, not_aligned), (None, "")
    runs = [run_data(one, events, len(looked) > 1, *beside[min(n, 1)]) for n, one in enumerate(looked)]
    others = [(one, "run") for one in looked[1:]] + [(one, "control") for one in controls]
    bands = [band_of(one.table, one.name, role) for one, role in others if one.table is not None]
    rests_on = {finding.rests_on for run in runs for event in run.events for finding in event.findings}
    calibration = calibration_rows()
    calibration = calibration.loc[calibration["id"].isin(list(rests_on))]
    first = next((one.table for one in looked if one.table is not None), None)
    attrs: Mapping[Any, Any] = first.attrs if first is not None else {}
    title = looked[0].name if len(looked) == 1 else f"{looked[0].name} and {len(looked) - 1} more"
    return Page(
        title=title,
        runs=runs,
        bands=bands,
        definitions=[Definition(name, said, _cannot_tell(name)) for name, said in attrs.get("definitions", {}).items()],
        calibration=[{str(key): value for key, value in row.items()} for row in calibration.to_dict("records")],
        versions=dict(attrs.get("versions", {})),
        command=command,
        alpha=alpha,
        controls=[one.name for one in controls],
        apart=answer_apart(apart).strip() if isinstance(apart, pd.DataFrame) else "",
        comparison=comparison_of(looked, controls, events, apart),
    )


def _cannot_tell(probe: str) -> str:
    known = PROBES.get(probe.split("@")[0])
    return known.cannot_tell if known is not None else ""


def run_data(
    one: Looked, events: pd.DataFrame | None, several: bool, alignment: Alignment | None, not_aligned: str = ""
) -> RunData:
    """What the page knows of one run. not_aligned is why a theory could not be laid over it."""
    table = one.table
    cube = read_cube(table) if table is not None and len(table) else None
    metrics = one.metrics
    loss, logged = loss_name(metrics), set(map(str, metrics.columns)) if metrics is not None else set()
    searched, not_searched, tests = _search_of(events, one.name, several)
    places = {key: number for number, key in enumerate(cube.series)} if cube else {}
    rows = list(cube.rows) if cube else []
    found = events_of_run(events, one.name, rows, places) if events is not None else []
    if table is not None:
        found = [_with_movers(event, table) for event in found]
    columns: list[int] = []
    if cube is not None:
        near = [step for event in found for step in (event.low, event.step, event.high)]
        per_row = len(cube.series) + (len(SPECTRA) * MODES if one.spectra is not None else 0)
        columns = shown_columns(cube.steps, per_row * len(rows), near)
    steps = [cube.steps[column] for column in columns] if cube else _steps(one)
    if not not_aligned and one.run is not None and one.run.theory is not None:
        not_aligned = "the run says how a theory reads its weights, but none was given; --theory MODULE:FUNCTION does"
    figures, not_drawn = small_figures(metrics, loss, cube, alignment, not_aligned)
    said = list(one.problems)
    if cube is not None and len(columns) < len(cube.steps):
        said.append(f"Of {len(cube.steps)} checkpoints {len(columns)} are shown; events were searched in all of them.")
    said += (
        _grouped(where_it_could_look(events))
        if events is not None
        else ["No events were searched: nothing was measured."]
    )
    said += _attrs_said(table)
    missing, reasons = missing_of(table, cube, columns) if table is not None and cube else ([], [])
    meanings = table.attrs.get("definitions", {}) if table is not None else {}
    circuits = list(dict.fromkeys(row.circuit for row in rows))
    nulls = null_levels(one.run, circuits, cube.series) if one.run and cube else {}
    return RunData(
        name=one.name,
        source=one.run.source if one.run else str(table.attrs.get("source", "")) if table is not None else "",
        facts=_facts(one, cube),
        step_unit=one.run.step_unit if one.run else "step",
        total=len(cube.steps) if cube else len(_steps(one)),
        steps=steps,
        condemned=_condemned(one),
        audit=_audit_said(one),
        faults=[(f.step, f.verdict, f.kind, f.evidence) for f in one.audit.faults] if one.audit else [],
        rows=rows,
        series=packed_series(cube, columns, meanings, searched, not_searched, nulls) if cube else [],
        modes=packed_modes(one.spectra, rows, steps),
        missing=missing,
        reasons=reasons,
        events=found,
        tests=tests,
        searched=_extent({name: one for name, one in searched.items() if name not in logged}),
        searched_metrics=_extent({name: one for name, one in searched.items() if name in logged}),
        refused=sum(not reason.startswith("the same numbers") for reason in not_searched.values()),
        not_looked_at=list(dict.fromkeys(said)),
        figures=figures,
        not_drawn=not_drawn,
        metrics=_thinned(metrics, loss),
        interventions=interventions_of(metrics),
    )


def _with_movers(event: EventData, table: pd.DataFrame) -> EventData:
    """An event in embeddings or MLPs also says which heads moved."""
    said = movers(table, event) if event.circuit == "all" else ""
    return replace(event, says=f"{event.says} {said}", sentence=f"{event.sentence} {said}") if said else event


def _grouped(sentences: Sequence[str]) -> list[str]:
    """What was not searched for the same reason in one sentence, with all its names."""
    start, names, others = "Not searched: ", {}, []
    for sentence in sentences:
        name, comma, reason = sentence.removeprefix(start).partition(", ")
        if sentence.startswith(start) and comma:
            names.setdefault(reason, []).append(name)
        else:
            others.append(sentence)
    return [f"{start}{', '.join(found)}: {reason}" for reason, found in names.items()] + others


def _search_of(
    events: pd.DataFrame | None, run: str, several: bool
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, str], int]:
    """Where panels and metrics of one run were searched, why others were not, and how many tests there were."""
    if events is None:
        return {}, {}, 0
    found: list[dict] = []
    for name in ("searched", "not_searched"):
        by_name = events.attrs[name]
        prefix = f"{run}: " if several else ""
        found.append({key.removeprefix(prefix): one for key, one in by_name.items() if key.startswith(prefix)})
    return found[0], found[1], int(events.attrs["tests"].get(run, 0))


def _extent(searched: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[float, float] | None:
    ends = [end for stretches in searched.values() for stretch in stretches for end in stretch]
    return (min(ends), max(ends)) if ends else None


def _steps(one: Looked) -> list[int]:
    return [int(step) for step in one.run.steps] if one.run else []


def _condemned(one: Looked) -> dict[int, str]:
    """By step, why its weights are not those of that step: from the audit, or from the table that was given."""
    if one.audit is not None:
        return dict(one.audit.condemned)
    attrs = one.table.attrs if one.table is not None else {}
    return {int(step): str(reason) for step, reason in attrs.get("condemned", {}).items()}


def _audit_said(one: Looked) -> str:
    if one.audit is not None:
        return one.audit.summary.removeprefix(f"{one.audit.run}: ")
    attrs = one.table.attrs if one.table is not None else {}
    return str(attrs.get("audit", "not audited")).removeprefix(f"{one.name}: ")


def _facts(one: Looked, cube: Cube | None) -> list[tuple[str, str]]:
    facts = []
    unit = one.run.step_unit if one.run else "step"
    steps = list(cube.steps) if cube else _steps(one)
    if len(steps) > 1:
        facts.append(("checkpoints", f"{len(steps):,}, {unit}s {steps[0]:,} to {steps[-1]:,}"))
    elif steps:
        facts.append(("checkpoints", f"one, {unit} {steps[0]:,}"))
    if cube is not None:
        layers = {(row.tower, row.layer) for row in cube.rows}
        heads = {(row.tower, row.layer, row.head) for row in cube.rows}
        circuits = list(dict.fromkeys(row.circuit for row in cube.rows))
        what = "head" if len(heads) > len(layers) or set(circuits) <= {"ov", "qk"} else "place"
        facts.append(("model", f"{_counted(len(layers), 'layer')}, {_counted(len(heads), what)}"))
        named = ", ".join(circuits[:6]) + (f" and {len(circuits) - 6} more" if len(circuits) > 6 else "")
        facts.append(("circuits", named))
    attrs = one.table.attrs if one.table is not None else {}
    if attrs.get("family"):
        facts.append(("family", str(attrs["family"])))
    if attrs.get("weight_processing"):
        facts.append(("weight processing", str(attrs["weight_processing"])))
    if one.run is not None:
        facts.append(("source", one.run.source))
        if one.run.seed is not None:
            facts.append(("seed", str(one.run.seed)))
    return facts


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _attrs_said(table: pd.DataFrame | None) -> list[str]:
    """What measuring left out."""
    if table is None:
        return []
    attrs = table.attrs
    said = [f"Left out: {line}." for line in attrs.get("left_out", [])]
    said += [f"Note: {line}." for line in attrs.get("notes", [])]
    failed = attrs.get("failed", {})
    if failed:
        step, reason = next(iter(failed.items()))
        said.append(f"{len(failed)} checkpoints could not be measured, the first {step}: {reason}.")
    empty = _empty_heads(table)
    if empty:
        said.append(empty)
    return said


def _empty_heads(table: pd.DataFrame) -> str:
    """Heads that have no number at any checkpoint."""
    by = ["tower", "layer", "head"] if "tower" in table.columns else ["layer", "head"]
    known = table.assign(there=np.isfinite(table["value"].to_numpy(dtype=np.float64))).groupby(by, dropna=False)[
        "there"
    ]
    empty = known.any()
    names = [".".join(str(part) for part in np.atleast_1d(place)) for place in empty.index[~empty.to_numpy()]]
    if not names:
        return ""
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"No number at any checkpoint: head{'s' * (len(names) > 1)} {', '.join(names[:6])}{more}."


def _thinned(metrics: pd.DataFrame | None, loss: str | None) -> dict[str, tuple[list[float], list[float]]]:
    """Metrics as the app's curves show them: means over bins of ln(step); the loss first."""
    if metrics is None:
        return {}
    names = [str(name) for name in metrics.columns]
    ordered = ([loss] if loss is not None else []) + [name for name in names if name != loss]
    found = {}
    for name in ordered[:_MOST_METRICS]:
        at, numbers, _ = finite(metrics, name)
        if not len(at):
            continue
        bins = np.floor(np.log(at / at[0]) / max(np.log(at[-1] / at[0]), 1e-9) * _MOST_POINTS)
        starts = np.flatnonzero(np.append(True, np.diff(bins) > 0))
        count = np.diff(np.append(starts, len(at)))
        means = np.add.reduceat(numbers, starts) / count
        found[name] = ([float(x) for x in np.add.reduceat(at, starts) / count], [float(y) for y in means])
    return found
