"""The loss over log steps as a still picture: event bands over it, learning rate and interventions below.

SVG inside the page, so that print, mail previews and readers without scripts have it. Its colours are words of the
page's style sheet (`var(--ink)`): it is drawn with stand-in colours, which are then replaced, so that it follows dark
mode. The same numbers give the same bytes: no date, and ids from a fixed salt.
"""

import re
from collections.abc import Sequence
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd

from probes.reporting.logged import finite, interventions_of, learning_rate_name
from probes.reporting.page_data import EventData

_COLOURS = {"#010101": "var(--ink)", "#020202": "var(--muted)", "#030303": "var(--line)", "#040404": "var(--accent)"}
_COLOURS |= {"#050505": "var(--event)", "#060606": "var(--event-shared)", "#070707": "var(--warn)"}
_INK, _MUTED, _LINE, _ACCENT, _EVENT, _SHARED, _WARN = _COLOURS

_BINS = 300


def loss_svg(
    metrics: pd.DataFrame | None, loss: str | None, events: Sequence[EventData], unit: str = "step"
) -> tuple[str, str]:
    """The picture and a sentence for those who do not see it; no picture where there is no loss."""
    if metrics is None or loss is None:
        said = "No loss was logged, so there is no curve." if metrics is None else "No metric is called a loss."
        return "", said
    at, values, bad = finite(metrics, loss)
    if len(values) < 2:
        return "", f"{loss} has {len(values)} finite values after step 0: there is no curve to draw."
    rate_name = learning_rate_name(metrics)
    rate = finite(metrics, rate_name)[:2] if rate_name else (np.empty(0), np.empty(0))
    changes = interventions_of(metrics)
    svg = _drawn((at, values), loss, rate if len(rate[0]) > 1 else None, events, changes, unit)
    sentence = (
        f"{loss} from {values[0]:.3g} at {unit} {at[0]:,.0f} to {values[-1]:.3g} at {unit} {at[-1]:,.0f}, "
        f"over the logarithm of the {unit}, with {len(events)} event{'s' * (len(events) != 1)} marked"
    )
    sentence += f"; {bad} values that are not finite are left out" if bad else ""
    sentence += "; the learning rate was not logged" if rate_name is None else ""
    sentence += f"; interventions at {', '.join(f'{step:,.0f}' for step in changes[:6])}" if changes else ""
    return svg, sentence + "."


def _drawn(
    curve: tuple[np.ndarray, np.ndarray],
    loss: str,
    rate: tuple[np.ndarray, np.ndarray] | None,
    events: Sequence[EventData],
    changes: Sequence[float],
    unit: str,
) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    style: Any = {
        "svg.hashsalt": "checkpoint-probes",
        "svg.fonttype": "none",
        "font.size": 10,
        "font.family": "sans-serif",
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(11, 3.9 if rate is not None else 3.3))
        FigureCanvasSVG(figure)
        heights = [4, 1] if rate is not None else [1]
        axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        top = axes[0]
        _curve(top, *curve)
        top.set_ylabel(_short(loss), color=_INK)
        if rate is not None:
            axes[1].plot(*rate, color=_MUTED, lw=1.2)
            axes[1].set_ylabel("learning\nrate", color=_MUTED)
            axes[1].set_ylim(bottom=0)
            axes[1].ticklabel_format(axis="y", scilimits=(-2, 3))
        for axis in axes:
            axis.set_xscale("log")
            axis.set_xlim(curve[0][0], curve[0][-1])
            axis.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
            for side in ("left", "bottom"):
                axis.spines[side].set_color(_LINE)
            axis.tick_params(which="both", color=_LINE, labelcolor=_MUTED)
            axis.yaxis.get_offset_text().set_color(_MUTED)
            for step in changes:
                axis.axvline(step, color=_WARN, lw=1, ls=":")
        for event in events:
            colour = _SHARED if event.shared else _EVENT
            for axis in axes:
                axis.axvspan(event.low, event.high, color=colour, alpha=0.16, lw=0)
            top.axvline(event.step, color=colour, lw=1.2)
            top.annotate(
                str(event.number),
                (event.step, 1.0),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                color=colour,
                fontsize=10,
                fontweight="bold",
            )
        axes[-1].set_xlabel(f"{unit}, on a logarithmic scale", color=_MUTED)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.93, bottom=0.15, hspace=0.12)
        written = StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _for_the_page(written.getvalue())


def _curve(axis: Any, at: np.ndarray, values: np.ndarray) -> None:
    """Means over bins of ln(step), and behind them all that the values cover."""
    edges = np.geomspace(at[0], at[-1] * (1 + 1e-9), _BINS + 1)
    place = np.searchsorted(edges, at, side="right")
    starts = np.flatnonzero(np.append(True, np.diff(place) > 0))
    count = np.diff(np.append(starts, len(at)))
    middle = np.exp(np.add.reduceat(np.log(at), starts) / count)
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    axis.fill_between(middle, low, high, color=_ACCENT, alpha=0.25, lw=0)
    axis.plot(middle, np.add.reduceat(values, starts) / count, color=_ACCENT, lw=1.8)
    if values.min() > 0 and values.max() > 20 * values.min():
        axis.set_yscale("log")


def _short(name: str) -> str:
    """A name as it fits beside an axis, with nothing that matplotlib would take for mathematics."""
    plain = "".join(one if one.isprintable() else " " for one in name).replace("$", r"\$")
    return plain if len(plain) <= 30 else f"{plain[:29]}…"


def _for_the_page(svg: str) -> str:
    """Only the drawing, in the page's colours, as wide as there is room."""
    drawing = svg[svg.index("<svg") :]
    for stand_in, colour in _COLOURS.items():
        drawing = drawing.replace(stand_in, colour)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r"\s*(width|height)=\"[\d.]+pt\"", "", drawing, count=2)
    drawing = re.sub(r"\n\s*", "\n", drawing)
    return drawing.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
