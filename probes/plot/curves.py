"""Chosen heads over the grey band of all heads: is what one head does unusual, and do controls do it too?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from probes.events.controls import Tables, as_tables
from probes.plot.bands import draw_event_bands, draw_spread, events_of, on_grid
from probes.plot.canvas import (
    GREY,
    PALETTE,
    axes_for,
    counted,
    footnote,
    plain,
    said_instead,
    step_axis,
    titled,
    unit_label,
    value_label,
)
from probes.plot.source import Head, HeadSeries, TableOrRun, find_row, read_heads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

MOST_HEADS = 8
"""Heads in one picture: as many as there are colours."""

FEW = 3
"""Heads that are chosen where none is named and no event says which."""


def curves(
    table: TableOrRun,
    heads: Sequence[Head] | None = None,
    *,
    circuit: str | None = None,
    probe: str | None = None,
    events: pd.DataFrame | None = None,
    controls: Tables | None = None,
    seeds: Tables | None = None,
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One probe of chosen heads, over the quantiles of all heads of the run.

        probes.plot.curves(table, ["1.0", "1.1"], circuit="qk", events=events, controls=control_tables)

    heads are (layer, head) or their names, at most eight; without them, those that take part in the surest event of
    this probe, else the three that change most. Bands are 5 to 95 % and the middle half of all heads of the circuit,
    the line is their median. controls and seeds (tables of other runs) are bands of all their heads in the same axes.
    """
    if circuit is None and events is not None and probe is None:
        circuit = _surest_circuit(events_of(events, None))
    series = read_heads(table, probe, events=events).of_circuit(circuit)
    of_run = events_of(events, series.run)
    chosen, why = _chosen(series, heads, of_run)
    ax = axes_for(ax, 6.6, 3.6)
    step_axis(ax, series.steps, unit_label(series.step_unit), log=log)
    notes = []
    draw_spread(
        ax, series.steps, series.values, GREY, f"all {len(series.rows)} heads" if len(series.rows) > 1 else None
    )
    for given, name, colour, dashes in ((controls, "control", "#8C6D31", "--"), (seeds, "other run", "#7F7FCF", "-.")):
        if given is not None:
            notes += _draw_others(ax, as_tables(given, f"{name}s"), series, name, colour, dashes)
    for number, i in enumerate(chosen):
        values, marked = series.values[:, i], np.isfinite(series.values[:, i]).sum() <= 40
        ax.plot(
            series.steps, values, color=PALETTE[number], linewidth=1.8, label=f"head {plain(series.rows[i].name, 24)}",
            marker="o" if marked else None, markersize=3,
        )  # fmt: skip
    if not np.isfinite(series.values).any():
        said_instead(ax, "No head has a number here. " + " ".join(series.missing_said()))
    draw_event_bands(ax, of_run)
    value_label(ax, series.label)
    what = f"{plain(series.circuits[0])} {series.name.replace('_', ' ')} of {plain(series.run)}"
    crowd = f"; grey: 5-95 % and middle half of all {len(series.rows)} heads" if len(series.rows) > 1 else ""
    titled(ax, what, f"{why}{crowd}")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="x-small", loc="best", frameon=False)
    footnote(ax, [*notes, *series.missing_said()])
    return ax


def _surest_circuit(events: pd.DataFrame | None) -> str | None:
    of_weights = events.loc[events["circuit"] != "metric"] if events is not None else None
    if of_weights is None or of_weights.empty:
        return None
    return str(of_weights.sort_values(["headline", "q_value"], ascending=[False, True])["circuit"].iloc[0])


def _chosen(series: HeadSeries, heads: Sequence[Head] | None, events: pd.DataFrame | None) -> tuple[list[int], str]:
    """Which rows are drawn, and how they were chosen."""
    if heads is not None:
        given = [heads] if isinstance(heads, str) else list(heads)
        if len(given) > MOST_HEADS:
            raise ValueError(f"{len(given)} heads: at most {MOST_HEADS} can be told apart in one picture")
        return list(dict.fromkeys(find_row(series, head) for head in given)), "heads as chosen"
    of_event = _taking_part(series, events)
    if of_event:
        number, rows = of_event
        some = rows[:MOST_HEADS]
        more = f" (the first {MOST_HEADS} of {len(rows)})" if len(rows) > MOST_HEADS else ""
        return some, f"heads that take part in event {number}{more}"
    spans = np.nan_to_num(series.ranges, nan=-1.0)
    rows = [int(i) for i in np.argsort(-spans, kind="stable")[:FEW] if spans[i] >= 0]
    everything = len(rows) == len(series.rows)
    return rows, "every head" if everything else f"the {counted(len(rows), 'head')} that change most"


def _taking_part(series: HeadSeries, events: pd.DataFrame | None) -> tuple[Any, list[int]] | None:
    if events is None or events.empty or "findings" not in events.attrs:
        return None
    findings = events.attrs["findings"]
    panels = {series.panel(row) for row in series.rows}
    here = findings.loc[findings["name"].isin(panels) & findings["event"].isin(events.index)]
    if here.empty:
        return None
    surest = here.sort_values("q_value").iloc[0]
    names = [row.name for row in series.rows]
    rows = [names.index(name) for name in surest["members"] if name in names]
    return (surest["event"], rows) if rows else None


def _draw_others(
    ax: Axes, tables: dict[str, pd.DataFrame], series: HeadSeries, name: str, colour: str, dashes: str
) -> list[str]:
    """All heads of the other runs as one band, at the steps of this one; which runs lack the probe is said."""
    columns, lacking, count = [], [], 0
    for run, table in tables.items():
        try:
            other = read_heads(table, series.name, run=run).of_circuit(series.rows[0].circuit)
        except ValueError:
            lacking.append(plain(run, 30))
            continue
        count += 1
        columns += [on_grid(other.steps, values, series.steps) for values in other.values.T]
    if columns:
        label = f"{counted(count, name)}, {counted(len(columns), 'head')}"
        draw_spread(ax, series.steps, np.column_stack(columns), colour, label, linestyle=dashes)
    return [f"Without this probe and circuit, and not in the band: {', '.join(lacking)}"] if lacking else []
