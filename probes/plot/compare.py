"""Several runs in one picture: seeds, depths, controls; over the step, or each over the step of its own event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from checkpoints import Run
from probes.events.panels import MOST_MISSING
from probes.measuring.tables import COLUMNS
from probes.plot.bands import on_grid
from probes.plot.canvas import (
    GREY,
    PALETTE,
    axes_for,
    counted,
    footnote,
    legend_name,
    plain,
    said_instead,
    short_number,
    step_axis,
    titled,
    unit_label,
    value_label,
)
from probes.plot.source import HeadSeries, as_numbers, read_heads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

One = pd.DataFrame | Run
Several = pd.DataFrame | Sequence[One] | Mapping[str, One]

POINTS = 300
"""Of a curve; a dense metric is drawn as its medians in as many stretches."""

_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class _Curve:
    """What is drawn of one run."""

    run: str
    group: str
    steps: np.ndarray
    values: np.ndarray
    label: str
    step_unit: str
    circuit: str | None = None
    probe: str | None = None
    left_out: str = ""


def compare(
    runs: Several,
    *,
    controls: Several | None = None,
    groups: Mapping[str, str] | None = None,
    circuit: str | None = None,
    probe: str | None = None,
    metric: str | None = None,
    align: str | Mapping[str, float] | pd.DataFrame = "step",
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One number per run over training: a probe, as the mean over all heads of a circuit, or a metric.

        probes.plot.compare(tables, controls=control_tables, probe="effective_rank", circuit="qk")
        probes.plot.compare(runs, metric="loss", align=events)

    runs are tables of `measure`, runs, or metrics (for `metric`), each under its name; a table may hold several. groups
    says which run is of which kind ({"s0": "2 layers", ...}); each has a colour, its median as a line and its range as
    a band. align is "step"; events of all these runs, to divide each run's steps by that of its own event
    (`own_event`); or these steps by run. A run without one is drawn over the median of the others', and that is said.
    """
    curves, lacking = _curves(runs, controls, groups, circuit, probe, metric)
    ax = axes_for(ax, 6.6, 3.8)
    if not curves:
        said_instead(ax, f"None of {counted(len(lacking), 'run')} has this: {next(iter(lacking.values()), 'no run')}")
        return ax
    anchors, borrowed = _anchors([curve.run for curve in curves], align)
    at = {curve.run: curve.steps / anchors.get(curve.run, 1.0) for curve in curves}
    unit = curves[0].step_unit
    label = unit_label(unit) if not anchors else f"{unit} / {unit} of each run's own event"
    step_axis(ax, np.concatenate([*at.values()]), label, log=log)
    if anchors:
        ax.axvline(1, color=GREY, linewidth=1, linestyle="--", zorder=0.5)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    kinds = list(dict.fromkeys(curve.group for curve in curves))
    if groups is None and controls is None and len(curves) <= len(PALETTE):
        for number, curve in enumerate(curves):
            ax.plot(at[curve.run], curve.values, color=PALETTE[number], label=legend_name(curve.run), **_line(curve))
    else:
        for number, kind in enumerate(kinds):
            _draw_group(ax, [c for c in curves if c.group == kind], at, kind, number, log)
    value_label(ax, curves[0].label)
    ax.legend(fontsize="x-small", loc="best", frameon=False)
    aligned = "aligned by each run's own event" if anchors else f"aligned by {unit}"
    shown = "; lines: medians, bands: lowest to highest run" if len(kinds) > 1 or groups else ""
    mean = "" if metric else ", mean over heads,"
    titled(ax, f"{curves[0].label}{mean} in {counted(len(curves), 'run')}, {aligned}{shown}")
    notes = _notes(anchors, borrowed, lacking, unit, {curve.step_unit for curve in curves})
    left_out = [curve.left_out for curve in curves if curve.left_out]
    if left_out:
        more = f", and of {counted(len(left_out) - 1, 'other run')}" if len(left_out) > 1 else ""
        notes.append(f"Without a number at some steps, and left out: {left_out[0]}{more}")
    footnote(ax, notes)
    return ax


def own_event(events: pd.DataFrame, run: str) -> float | None:
    """The step of the event that a run is aligned by; None where it has no event."""
    index = own_event_index(events, run)
    return None if index is None else float(events.loc[[index], "step"].iloc[0])


def own_event_index(events: pd.DataFrame, run: str) -> Any:
    """Which row of the events it is: the surest of those with a loss, else of the headlines, else of all."""
    rows = events.loc[events["run"] == run]
    if rows.empty:
        return None
    findings = events.attrs.get("findings")
    if findings is not None:
        of_loss = findings.loc[findings["is_metric"] & findings["name"].str.lower().str.contains("loss")]
        with_loss = rows.loc[rows.index.isin(of_loss["event"])]
        rows = with_loss if len(with_loss) else rows
    return rows.sort_values(["headline", "q_value"], ascending=[False, True]).index[0]


def _anchors(runs: list[str], align: str | Mapping[str, float] | pd.DataFrame) -> tuple[dict[str, float], list[str]]:
    """The step that each run's steps are divided by, and which runs have only that of the others."""
    if isinstance(align, str):
        if align != "step":
            raise ValueError(f'align is {align!r}: "step", a table of events, or steps by the name of the run')
        return {}, []
    if isinstance(align, pd.DataFrame):
        own = {run: own_event(align, run) for run in runs}
    else:
        own = {run: align.get(run) for run in runs}
    known = {run: float(step) for run, step in own.items() if step is not None and np.isfinite(step) and step > 0}
    if not known:
        raise ValueError(f"none of {', '.join(runs[:5])} has an event to be aligned by: leave align out")
    usual = float(np.exp(np.median(np.log(list(known.values())))))
    return {run: known.get(run, usual) for run in runs}, [run for run in runs if run not in known]


# --- what is drawn of each


def _curves(
    runs: Several,
    controls: Several | None,
    groups: Mapping[str, str] | None,
    circuit: str | None,
    probe: str | None,
    metric: str | None,
) -> tuple[list[_Curve], dict[str, str]]:
    found, lacking = [], {}
    given = [(name, one, "runs") for name, one in _by_name(runs).items()]
    given += [(name, one, "controls") for name, one in (_by_name(controls) if controls is not None else {}).items()]
    names = [name for name, _, _ in given]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"two runs are called {twice[0]!r}: give each its own name, {{name: run, ...}}")
    for name, one, kind in given:
        group = groups.get(name, kind) if groups is not None else kind
        try:
            found.append(
                _of_metric(name, one, group, metric) if metric else _of_probe(name, one, group, circuit, probe)
            )
        except ValueError as error:
            lacking[name] = str(error)
        if found and not metric:  # all others show what the first did
            circuit, probe = found[0].circuit, found[0].probe
    return found, lacking


def _by_name(given: Several) -> dict[str, One]:
    if isinstance(given, Mapping):
        return {str(name): one for name, one in given.items()}
    found: dict[str, One] = {}
    for one in [given] if isinstance(given, pd.DataFrame) else given:
        parts: dict[str, One] = {}
        if isinstance(one, Run):
            parts[one.name] = one
        elif "run" in one.columns:
            parts = {str(name): rows for name, rows in one.groupby("run", sort=False)}
        else:
            raise ValueError("metrics have no name: pass {name of the run: its metrics, ...}")
        for name, part in parts.items():
            if name in found:
                raise ValueError(f'two runs are called {name!r}: give each its own, table.assign(run="...")')
            found[name] = part
    if not found:
        raise ValueError("no run is given")
    return found


def _of_probe(name: str, one: One, group: str, circuit: str | None, probe: str | None) -> _Curve:
    if isinstance(one, pd.DataFrame) and not {*COLUMNS} <= {*one.columns}:
        raise ValueError(
            f"{name!r} is a table of metrics: metric= says which one to draw, or give a table of `measure`"
        )
    series = read_heads(one, probe).of_circuit(circuit)
    at, mean, left_out = _mean(series)
    label = f"{plain(series.circuits[0])} {series.label}"
    return _Curve(name, group, at, mean, label, series.step_unit, series.circuits[0], series.name, left_out)


def _mean(series: HeadSeries) -> tuple[np.ndarray, np.ndarray, str]:
    """Over the same heads at every step shown: a mean over fewer of them would be a step in the curve.

    Left out, and said, are heads without any number, then steps at which more than a tenth of the others lack one, then
    heads that still lack one.
    """
    known = np.isfinite(series.values)
    some = known.any(0)
    if not some.any():
        raise ValueError(f"{series.name} of {series.run!r} has no numbers: {'; '.join(series.missing_said())}")
    steps = (~known[:, some]).mean(1) <= MOST_MISSING
    kept = known[steps].all(0) & some
    if not steps.any() or not kept.any():
        raise ValueError(f"{series.name} of {series.run!r}: no head has numbers at the same steps as others")
    without = [counted(int((~kept).sum()), "head")] * bool((~kept).any())
    without += [counted(int((~steps).sum()), "checkpoint")] * bool((~steps).any())
    mean = series.values[steps][:, kept].mean(1)
    return series.steps[steps], mean, f"{' and '.join(without)} of {plain(series.run, 30)}" if without else ""


def _of_metric(name: str, one: One, group: str, metric: str | None) -> _Curve:
    metrics = one.metrics if isinstance(one, Run) else one
    unit = one.step_unit if isinstance(one, Run) else str(one.attrs.get("step_unit", "step"))
    if metric not in metrics.columns or "why_missing" in metrics.columns:
        raise ValueError(f"{name!r} has no metric {metric!r}; it has {', '.join(map(str, metrics.columns)) or 'none'}")
    numbers, steps = as_numbers(metrics[metric]), metrics.index.to_numpy(dtype=np.float64)
    finite = np.isfinite(numbers)
    if not finite.any():
        raise ValueError(f"{metric} of {name!r} has no finite value")
    steps, numbers = steps[finite], numbers[finite]
    if len(steps) > 2 * POINTS:
        place = np.log1p(steps)
        column = ((place - place[0]) / (place[-1] - place[0]) * POINTS).astype(int)
        thinned = pd.DataFrame({"step": steps, "value": numbers}).groupby(column).median()
        steps, numbers = thinned["step"].to_numpy(), thinned["value"].to_numpy()
    return _Curve(name, group, steps, numbers, plain(metric), unit)


def _line(curve: _Curve) -> dict[str, Any]:
    return {"linewidth": 1.6, "marker": "o" if len(curve.steps) <= 40 else None, "markersize": 3}


def _draw_group(
    ax: Axes, curves: list[_Curve], at: Mapping[str, np.ndarray], kind: str, number: int, log: bool
) -> None:
    """One kind of runs: each thin, their median thick, lowest to highest as a band where all are known."""
    colour, dashes = PALETTE[number % len(PALETTE)], _DASHES[number % len(_DASHES)]
    label = legend_name(f"{kind} ({len(curves)})" if len(curves) > 1 else kind)
    if len(curves) == 1:
        ax.plot(at[curves[0].run], curves[0].values, color=colour, linestyle=dashes, label=label, **_line(curves[0]))
        return
    grid = np.unique(np.concatenate([at[curve.run] for curve in curves]))
    if len(grid) > 4 * POINTS:
        grid = grid[np.linspace(0, len(grid) - 1, 4 * POINTS).astype(int)]
    values = np.column_stack([on_grid(at[curve.run], curve.values, grid, log=log) for curve in curves])
    everywhere = np.isfinite(values).all(1)
    for curve in curves:
        ax.plot(at[curve.run], curve.values, color=colour, linewidth=0.6, alpha=0.5)
    low, middle, high = values.min(1), np.median(values, axis=1), values.max(1)
    ax.fill_between(grid, low, high, where=everywhere.tolist(), color=colour, alpha=0.2, linewidth=0)
    ax.plot(grid[everywhere], middle[everywhere], color=colour, linewidth=2.0, linestyle=dashes, label=label)


def _notes(
    anchors: Mapping[str, float], borrowed: list[str], lacking: Mapping[str, str], unit: str, units: set[str]
) -> list[str]:
    notes = []
    if anchors:
        own = [step for run, step in anchors.items() if run not in borrowed]
        notes.append(f"Own events at {unit} {short_number(min(own))} to {short_number(max(own))}")
    if borrowed:
        names = ", ".join(plain(run, 30) for run in borrowed[:3]) + " …" * (len(borrowed) > 3)
        notes.append(f"No event of theirs is given; over the median of the others: {names}")
    if lacking:
        run, why = next(iter(lacking.items()))
        notes.append(f"{counted(len(lacking), 'run is', 'runs are')} not drawn, {plain(run, 30)}: {plain(why, 90)}")
    if len(units) > 1:
        notes.append(f"Steps are not all counted in the same unit: {', '.join(sorted(units))}")
    return notes
