"""The loss over log steps, with the events as bands; the learning rate, and what was changed by hand, below.

Thousands of values are drawn as their median and range in as many columns as an eye can tell apart: the file stays
small, and nothing that stands out is lost.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from checkpoints import Run
from probes.plot.bands import draw_event_bands, events_of
from probes.plot.canvas import (
    GREY,
    PALETTE,
    SMALL,
    TROUBLE,
    axes_for,
    counted,
    footnote,
    legend_name,
    plain,
    said_instead,
    short_number,
    step_axis,
    titled,
    two_axes,
    unit_label,
    value_label,
)
from probes.plot.source import as_numbers
from probes.series.logged import interventions_of, learning_rate_name, loss_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

COLUMNS = 400


def loss(
    run: Run | pd.DataFrame,
    events: pd.DataFrame | None = None,
    *,
    metric: str | None = None,
    interventions: Sequence[float] = (),
    log: bool = True,
    ax: Axes | None = None,
    below: Axes | None = None,
) -> Axes:
    """The loss of a run, or of its metrics, over log steps.

        probes.plot.loss(run, events)
        probes.plot.loss(run.metrics, ax=upper, below=lower)

    events are those of `find_events`, drawn as bands with their numbers (the index of the table): orange where they are
    headlines, blue where not. metric is another scalar than the loss. interventions are steps at which you changed
    something; abrupt changes of a learning rate among the metrics are found besides. Learning rate and interventions
    are drawn into `below`: with axes of your own only if you give it. Returns the upper axes.
    """
    metrics, unit, name = (run.metrics, run.step_unit, run.name) if isinstance(run, Run) else (run, "step", None)
    if ax is None and below is not None:
        raise ValueError("below is given and ax is not: give both, or none")
    chosen = _chosen(metrics, metric)
    rate = _learning_rate(metrics)
    changed = sorted({*(float(step) for step in interventions), *interventions_of(metrics)})
    if ax is None and (rate is not None or changed):
        ax, below = two_axes(6.6, 3.6, 3.2)
    ax = axes_for(ax, 6.6, 3.0)
    of_run = events_of(events, name)
    steps = metrics.index.to_numpy(dtype=np.float64)
    step_axis(ax, steps, unit_label(unit), log=log)
    notes = []
    if chosen is None:
        said_instead(
            ax, f"No loss: {counted(len(metrics.columns), 'metric')} logged, none called a loss. metric= names one."
        )
        ax.set_yticks([])
    else:
        values = as_numbers(metrics[chosen])
        notes += _draw_curve(ax, steps, values, legend_name(chosen), _lost(metrics, values))
    draw_event_bands(ax, of_run)
    where = f" of {plain(name)}" if name else ""
    titled(ax, f"{plain(chosen) if chosen else 'No loss'}{where}{_events_said(of_run)}")
    if below is not None:
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
        step_axis(below, steps, unit_label(unit), log=log)
        _draw_below(below, rate, changed)
        draw_event_bands(below, of_run, numbered=False)
    elif changed:
        _mark(ax, changed)
    footnote(below if below is not None else ax, notes)
    return ax


def _events_said(events: pd.DataFrame | None) -> str:
    if events is None:
        return ""
    if events.empty:
        return "; no event found"
    headlines = int(np.count_nonzero(events["headline"]))
    apart = f" (orange: {counted(headlines, 'headline')})" if headlines else ""
    return f"; bands: {counted(len(events), 'event')}{apart}"


def _chosen(metrics: pd.DataFrame, metric: str | None) -> str | None:
    names = [str(name) for name in metrics.columns]
    if metric is not None:
        if metric not in names:
            raise ValueError(f"no metric is called {metric!r}; there are {', '.join(names) or 'none'}")
        return metric
    return loss_name(metrics)


def _learning_rate(metrics: pd.DataFrame) -> pd.Series | None:
    name = learning_rate_name(metrics)
    if name is None:
        return None
    series = pd.Series(as_numbers(metrics[name]), metrics.index).dropna()
    return series if len(series) and series.min() >= 0 else None


def _lost(metrics: pd.DataFrame, values: np.ndarray) -> np.ndarray:
    """Where a value was logged that is no number: an infinite one, or NaN where nothing else was logged either.

    A NaN beside other scalars may as well mean that this one was not due at that step.
    """
    logged = np.column_stack([~np.isnan(as_numbers(metrics[name])) for name in metrics.columns])
    return np.isinf(values) | (np.isnan(values) & ~logged.any(axis=1))


def _draw_curve(ax: Axes, steps: np.ndarray, values: np.ndarray, label: str, is_lost: np.ndarray) -> list[str]:
    """The values, and what has to be said of them."""
    value_label(ax, label)
    finite, notes = np.isfinite(values), []
    lost = steps[is_lost]
    if len(lost):
        are = counted(len(lost), "value is", "values are")
        notes.append(f"{are} not finite, the first at {short_number(lost[0])} (triangles)")
        marked = lost[np.unique(np.linspace(0, len(lost) - 1, 200).astype(int))]
        heights = np.full(len(marked), 0.03)
        ax.plot(marked, heights, "^", color=TROUBLE, markersize=5, transform=ax.get_xaxis_transform())
    if not finite.any():
        said_instead(ax, f"{label}: {counted(len(values), 'step')}, no finite value.")
        ax.set_yticks([])
        return notes
    last, usual = steps[finite][-1], np.max(np.diff(steps[finite]), initial=0.0)
    if steps[-1] - last > 3 * usual and not is_lost[steps > last].any():
        notes.append(
            f"There is no {label} after {short_number(last)}, though others are logged until {short_number(steps[-1])}"
        )
    at, there = steps[finite], values[finite]
    if there.min() > 0 and there.max() > 30 * there.min():
        ax.set_yscale("log")
    if len(at) <= 2 * COLUMNS:
        few = len(at) <= 40
        shown = is_lost | finite
        ax.plot(
            steps[shown],
            np.where(finite, values, np.nan)[shown],
            color=PALETTE[0],
            linewidth=1.4,
            marker="o" if few else None,
            markersize=3,
        )
        return notes
    place = ax.transData.transform(np.column_stack([at, np.full(len(at), there[0])]))[:, 0]
    left, right = (ax.transData.transform((edge, there[0]))[0] for edge in ax.get_xlim())
    column = np.clip(((place - left) / (right - left) * COLUMNS).astype(int), 0, COLUMNS - 1)
    groups = pd.DataFrame({"step": at, "value": there}).groupby(column)
    drawn = groups.agg(step=("step", "median"), low=("value", "min"), middle=("value", "median"), high=("value", "max"))
    means, low, middle, high = drawn.to_numpy().T
    ax.fill_between(means, low, high, color=PALETTE[0], alpha=0.3, linewidth=0)
    ax.plot(means, middle, color=PALETTE[0], linewidth=1.4)
    notes.append(
        f"Median and range of {len(at):,} values in {len(means)} stretches of "
        f"{ax.get_xscale().replace('sym', '')} steps"
    )
    return notes


def _draw_below(ax: Axes, rate: pd.Series | None, changed: Sequence[float]) -> None:
    if rate is not None:
        at = rate.index.to_numpy(dtype=np.float64)
        kept = np.unique(np.linspace(0, len(at) - 1, 2000).astype(int))  # a rate is smooth but where it jumps
        jumps = np.searchsorted(at, changed)
        kept = np.unique(np.concatenate([kept, jumps, np.maximum(jumps - 1, 0)])).clip(0, len(at) - 1)
        ax.plot(at[kept], rate.to_numpy(dtype=np.float64)[kept], color=GREY, linewidth=1.4)
        ax.set_ylabel("learning\nrate", fontsize=SMALL)
        ax.set_ylim(bottom=0)
    else:
        ax.set_yticks([])
        ax.set_ylabel("changed\nby hand", fontsize=SMALL)
    _mark(ax, changed)


def _mark(ax: Axes, changed: Sequence[float]) -> None:
    """Ticks where something was changed."""
    if changed:
        heights = np.full(len(changed), 0.12)
        label = "intervention"
        ax.plot(changed, heights, "v", color=TROUBLE, markersize=6, transform=ax.get_xaxis_transform(), label=label)
        ax.legend(fontsize="x-small", loc="best", frameon=False)
