"""Bands in other plots' axes: where events lie, and how a crowd of curves spreads."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from probes.plot.canvas import HEADLINE, OTHER_EVENT, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

_LEVELS = 3
"""Heights at which numbers of events that lie close together are written."""


def events_of(events: pd.DataFrame | None, run: str | None) -> pd.DataFrame | None:
    """Those of one run, where a table has several; None where there is no table."""
    if events is None:
        return None
    lacking = [name for name in ("run", "step", "low", "high", "headline") if name not in events.columns]
    if lacking:
        raise ValueError(f"events lack {', '.join(lacking)}: a table as `probes.find_events` makes it is expected")
    return events if run is None else events.loc[events["run"] == run]


def draw_event_bands(ax: Axes, events: pd.DataFrame | None, *, numbered: bool = True) -> None:
    """A band from low to high for every event, a line where it is fastest, and its number: its index in the table."""
    if events is None:
        return
    left, right = sorted(ax.get_xlim())
    written: list[float] = []
    for number, event in events.sort_values("step").to_dict("index").items():
        low, high = max(float(event["low"]), left), min(float(event["high"]), right)
        if high < left or low > right:
            continue
        colour = HEADLINE if event["headline"] else OTHER_EVENT
        ax.axvspan(low, high, color=colour, alpha=0.22, linewidth=0, zorder=0)
        if not left <= float(event["step"]) <= right:
            continue
        ax.axvline(float(event["step"]), color=colour, linewidth=1, alpha=0.9, zorder=0.5)
        if numbered:
            place = ax.transData.transform((float(event["step"]), 0))[0]
            near = sum(abs(place - other) < 0.16 * ax.figure.dpi for other in written[-_LEVELS + 1 :])
            written.append(place)
            ax.annotate(
                str(number),
                (float(event["step"]), 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, -2 - 9 * near),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=SMALL,
                fontweight="bold",
            )


def draw_spread(ax: Axes, x: np.ndarray, values: np.ndarray, colour: str, label: str | None, **line: Any) -> None:
    """Of curves [x, curve], the middle half darker, 5 to 95 % lighter, and the median as a line. NaN are left out."""
    known = np.isfinite(values).any(1)
    if not known.any():
        return
    at, there = x[known], values[known]
    low, lower, middle, upper, high = np.nanquantile(there, (0.05, 0.25, 0.5, 0.75, 0.95), axis=1)
    if values.shape[1] > 1:
        ax.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0, zorder=1)
        ax.fill_between(at, lower, upper, color=colour, alpha=0.22, linewidth=0, zorder=1)
    drawn = {"linewidth": 1.3, "zorder": 1.5, "marker": "o" if len(at) == 1 else None, **line}
    ax.plot(at, middle, color=colour, label=label, **drawn)


def on_grid(steps: np.ndarray, values: np.ndarray, grid: np.ndarray, *, log: bool = True) -> np.ndarray:
    """A curve at other steps, straight in ln(step) (or the step) between its own; NaN beyond them."""
    known = np.isfinite(values)
    if known.sum() == 0:
        return np.full(len(grid), np.nan)
    scale = np.log1p if log else np.asarray
    return np.interp(scale(grid), scale(steps[known]), values[known], left=np.nan, right=np.nan)
