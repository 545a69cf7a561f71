"""The map: every circuit of every head a row, every checkpoint a column, one probe as colour.

Columns are equally wide, whatever the steps between them: nothing that was measured is too thin to be seen. What was
not measured is grey; what the audit condemned, and where no event could have been found, is hatched.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from probes.plot.bands import events_of
from probes.plot.canvas import (
    HEADLINE,
    OTHER_EVENT,
    SMALL,
    axes_for,
    counted,
    footnote,
    plain,
    short_number,
    titled,
    unit_label,
)
from probes.plot.source import HeadSeries, Row, TableOrRun, read_heads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

Order = Literal["layer", "event", "change"]

MOST_NAMED = 44
"""Rows up to which each has its name; above, layers have."""

_NOTHING = "#9a9a9a"


def heads(
    table: TableOrRun,
    probe: str | None = None,
    *,
    events: pd.DataFrame | None = None,
    order: Order = "layer",
    z_scored: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """All heads over all checkpoints, as a map.

        probes.plot.heads(table, "effective_rank", events=events, order="event")

    table is that of `measure`, or a run, which is then measured with this probe. probe is a name, a component after a
    dot; without one, that of the surest event, or the effective rank. order is by layer; by the event that a head takes
    part in first, in any probe, with the others after; or by change, the largest range in the run first. z_scored: each
    row less its mean, over its standard deviation, so that rows of different size can be compared.
    """
    series = read_heads(table, probe, events=events)
    of_run = events_of(events, series.run)
    series, firsts = _ordered(series, order, of_run)
    ax = axes_for(ax, 7.2, 2.2 + min(0.17 * len(series.rows), 6.2))
    notes = _draw_cells(ax, series, z_scored)
    notes += _hatch(ax, series, of_run)
    _name_rows(ax, series, order)
    _name_columns(ax, series)
    _mark_events(ax, series, of_run, firsts)
    if any(number is not None for number in firsts):
        notes.append("Marked at the left: takes part in an event of that colour, in any probe")
    ordered = {"layer": "by layer", "event": "by first event", "change": "largest change first"}[order]
    shape = f"{counted(len(series.rows), 'row')}, {ordered}; {counted(len(series.steps), 'checkpoint')}, equally wide"
    titled(
        ax,
        f"{series.label}{', z-scored per row' if z_scored else ''} of {plain(series.run)}",
        shape,
        above=18 if of_run is not None and len(of_run) else 4,
    )
    footnote(ax, [*notes, *series.missing_said()])
    return ax


# --- rows


def _ordered(series: HeadSeries, order: Order, events: pd.DataFrame | None) -> tuple[HeadSeries, list[Any]]:
    """Rows in order, and for each the event it takes part in first (None where in none)."""
    if order not in ("layer", "event", "change"):
        raise ValueError(f"order is {order!r}: 'layer', 'event' or 'change' is expected")
    rows = list(range(len(series.rows)))
    firsts = [_first_event(row, events) for row in series.rows]
    if order == "event":
        if events is None:
            raise ValueError("order is 'event' and no events are given: events=probes.find_events(table, run.metrics)")
        rows.sort(key=lambda i: (firsts[i] is None, events.at[firsts[i], "step"] if firsts[i] is not None else 0))
    elif order == "change":
        spans = series.ranges
        rows.sort(key=lambda i: (not np.isfinite(spans[i]), -spans[i] if np.isfinite(spans[i]) else 0))
    return series.taking(rows), [firsts[i] for i in rows]


def _first_event(row: Row, events: pd.DataFrame | None) -> Any:
    if events is None or events.empty or "members" not in events.attrs:
        return None
    members = events.attrs["members"]
    members = members.loc[members["takes_part"].astype(bool) & members["event"].isin(events.index)]
    tower = members["tower"].fillna("").astype(str)
    here = (members["layer"] == row.layer) & (members["head"] == row.head) & (members["circuit"] == row.circuit)
    found = members.loc[here & (tower == row.tower), "event"].unique()
    return min(found, key=lambda number: events.at[number, "step"]) if len(found) else None


def _name_rows(ax: Axes, series: HeadSeries, order: Order) -> None:
    rows = series.rows
    ax.set_ylim(len(rows) - 0.5, -0.5)
    several = len(series.circuits) > 1
    if len(rows) <= MOST_NAMED:
        ax.set_yticks(range(len(rows)), [plain(row.label if several else row.name, 24) for row in rows])
        ax.set_ylabel("layer.head" + " circuit" * several + ("" if several else f" of {plain(rows[0].circuit, 16)}"))
    elif order == "layer":
        blocks = _blocks([(row.tower, row.circuit, row.layer) for row in rows])
        shown = blocks[:: max(1, round(len(blocks) / 40))]
        names = [f"{tower} {circuit} {layer}".strip() for (tower, circuit, layer), _, _ in shown]
        ax.set_yticks([(start + stop - 1) / 2 for _, start, stop in shown], [plain(name, 24) for name in names])
        ax.set_ylabel("circuit and layer, heads in order")
    else:
        every = max(1, round(len(rows) / 40))
        ax.set_yticks(range(0, len(rows), every), [plain(row.label, 24) for row in rows[::every]])
        ax.set_ylabel(f"layer.head circuit, every {every}th named" if every > 1 else "layer.head circuit")
    ax.tick_params(axis="y", labelsize="x-small", length=2)
    if order == "layer":
        for _, start, _ in _blocks([(row.tower, row.circuit, row.layer) for row in rows])[1:]:
            here, before = rows[start], rows[start - 1]
            heavy = (here.tower, here.circuit) != (before.tower, before.circuit)
            ax.axhline(start - 0.5, color="white", linewidth=2.0 if heavy else 0.6)


def _blocks(keys: list) -> list[tuple[Any, int, int]]:
    """Runs of equal keys: key, start, stop."""
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    return [(keys[start], start, stop) for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True)]


# --- cells


def _draw_cells(ax: Axes, series: HeadSeries, z_scored: bool) -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, Normalize

    notes, values = [], series.values.T
    constant = series.ranges == 0
    if z_scored:
        with np.errstate(invalid="ignore", divide="ignore"):
            known = np.isfinite(values)
            values = values / np.maximum(np.abs(np.where(known, values, 0)).max(1, keepdims=True), 1e-300)
            count = np.maximum(known.sum(1, keepdims=True), 1)
            mean = np.where(known, values, 0).sum(1, keepdims=True) / count
            spread = np.sqrt(np.where(known, (values - mean) ** 2, 0).sum(1, keepdims=True) / count)
            values = np.where(constant[:, None], np.nan, (values - mean) / spread)
        norm: Any = Normalize(-3, 3)
        if constant.any():
            notes.append(f"{counted(int(constant.sum()), 'row')} that never changes has no z-score and is grey")
    else:
        norm = Normalize(0, 1)
    cells = np.ma.masked_invalid(values)
    ends, low, high = (), 0.0, 1.0
    if cells.count():
        there = cells.compressed()
        if not z_scored:
            low, high = (float(edge) for edge in np.quantile(there, (0.005, 0.995)))
            if high - low <= 1e-9 * abs(low):
                low, high = low - 0.05 * (abs(low) or 1.0), high + 0.05 * (abs(high) or 1.0)
            norm = LogNorm(low, high) if low > 0 and high > 100 * low else Normalize(low, high)
        ends = (bool(there.min() < norm.vmin), bool(there.max() > norm.vmax))
    else:
        notes.append("There is not one number to draw")
    colours = colormaps["RdBu_r" if z_scored else "viridis"].with_extremes(bad=_NOTHING)
    image = ax.imshow(cells, aspect="auto", cmap=colours, norm=norm, origin="upper")
    if cells.count():
        extend = {(): "neither", (True, True): "both", (True, False): "min", (False, True): "max"}.get(ends, "neither")
        label = "z-score [standard deviations]" if z_scored else series.label
        bar = ax.figure.colorbar(image, ax=ax, extend=extend, pad=0.01, fraction=0.04, aspect=28)
        bar.set_label(label, fontsize=SMALL)
        bar.ax.tick_params(labelsize="x-small")
    if cells.mask.any() and cells.count():
        notes.append("Grey: no number")
    return notes


def _hatch(ax: Axes, series: HeadSeries, events: pd.DataFrame | None) -> list[str]:
    """Columns that are condemned, and those in which no event could have been found."""
    notes = []
    for start, stop in _stretches([int(step) in series.condemned for step in series.steps]):
        ax.axvspan(start - 0.5, stop - 0.5, facecolor="none", edgecolor="white", hatch="xxx", linewidth=0)
    if series.condemned:
        notes.append("Crosshatched: condemned")
    if events is None:
        return notes
    searched, why = _searched(series, events)
    unsearched = [not any(low <= step <= high for low, high in searched) for step in series.steps]
    if all(unsearched):
        notes.append(f"No event could have been found in this probe: {why}" if why else "This probe was not searched")
    else:
        for start, stop in _stretches(unsearched):
            ax.axvspan(start - 0.5, stop - 0.5, facecolor="none", edgecolor="white", hatch="//", linewidth=0, alpha=0.7)
        if any(unsearched):
            notes.append("Hatched: too near the ends, or too sparse, for an event to be seen")
    return notes


def _searched(series: HeadSeries, events: pd.DataFrame) -> tuple[list[tuple[float, float]], str]:
    """Where some panel of these rows was searched, and why one was not."""
    where, refused = events.attrs.get("searched", {}), events.attrs.get("not_searched", {})
    found, why = [], ""
    for panel in dict.fromkeys(series.panel(row) for row in series.rows):
        names = [panel, f"{series.run}: {panel}"]
        reason = next((str(refused[name]) for name in names if name in refused), "")
        same = reason.removeprefix("the same numbers as ").split(",")[0] if reason.startswith("the same") else ""
        names += [same, f"{series.run}: {same}"] if same else []
        found += next((list(where[name]) for name in names if name in where), [])
        why = why or (reason if not same else "")
    return found, why


def _stretches(flags: list[bool]) -> list[tuple[int, int]]:
    return [(start, stop) for flag, start, stop in _blocks(flags) if flag]


# --- columns


def _name_columns(ax: Axes, series: HeadSeries) -> None:
    steps = series.steps
    room = max(3, int(ax.get_window_extent().width / ax.figure.dpi / 0.55))
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(room, len(steps))).round().astype(int))
    ax.set_xticks(chosen, [short_number(float(steps[column])) for column in chosen])
    ax.set_xlabel(f"{unit_label(series.step_unit)} of the checkpoint")
    ax.tick_params(axis="x", labelsize=SMALL)


def column_of(steps: np.ndarray, step: float) -> float:
    """Where a step lies between the columns, straight in ln(step)."""
    return float(np.interp(np.log1p(step), np.log1p(steps), np.arange(len(steps))))


def _mark_events(ax: Axes, series: HeadSeries, events: pd.DataFrame | None, firsts: list[Any]) -> None:
    """A bar over the map for each event, with its number; at the left, which rows take part in which first."""
    if events is None:
        return
    for number, event in events.sort_values("step").to_dict("index").items():
        colour = HEADLINE if event["headline"] else OTHER_EVENT
        low, at, high = (column_of(series.steps, float(event[name])) for name in ("low", "step", "high"))
        ax.plot(
            [low, high], [1.012, 1.012], color=colour, linewidth=4, transform=ax.get_xaxis_transform(), clip_on=False
        )
        ax.axvline(at, color=colour, linewidth=0.8, linestyle=(0, (3, 2)))
        ax.annotate(
            str(number), (at, 1), xycoords=("data", "axes fraction"), xytext=(0, 5), textcoords="offset points",
            ha="center", va="bottom", fontsize="x-small", fontweight="bold", annotation_clip=False,
        )  # fmt: skip
    for i, number in enumerate(firsts):
        if number is not None:
            colour = HEADLINE if events.at[number, "headline"] else OTHER_EVENT
            ax.plot([-0.5, -0.5], [i - 0.45, i + 0.45], color=colour, linewidth=4, clip_on=False)
