"""How the figures look: one colour per mode, dashes for the printed theory, a thin black line for the exact one."""

from functools import partial

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from probes.plot.canvas import new_figure

PRINTED = {"linestyle": "--", "color": "#888", "linewidth": 1.6}
EXACT = {"linestyle": "-", "color": "black", "linewidth": 1.0}
MEASURED = "#1f6fb4"


def mode_colours(count: int) -> list:
    """Dark for the first mode to be learned, light for the last."""
    return list(colormaps["viridis"](np.linspace(0.1, 0.85, count)))


def panels(rows: int, columns: int, height: float = 3.6) -> tuple[Figure, np.ndarray]:
    """A grid of axes, always two-dimensional."""
    figure = new_figure(4.6 * columns, height * rows)
    return figure, figure.subplots(rows, columns, squeeze=False)


def tidy_log_axes(figure: Figure) -> None:
    """Label minor ticks of short logarithmic axes at 2 and 5 alone, and of long ones not at all: they would overlap."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                low, high = axis.get_view_interval()
                is_short = high < 30 * low
                axis.set_minor_formatter(FuncFormatter(partial(_two_or_five, is_short)))


def _two_or_five(is_short: bool, value: float, _: int) -> str:
    leading = round(value / 10 ** np.floor(np.log10(value) + 1e-9), 6)
    return f"{value:g}" if is_short and leading in (2, 5) else ""


def band(axes: Axes, x: np.ndarray, values: np.ndarray, colour, label: str | None = None, linestyle: str = "-") -> None:
    """Mean over the first axis, with a band of one standard deviation."""
    mean, sd = values.mean(0), values.std(0)
    axes.plot(x, mean, color=colour, linewidth=2.2, alpha=0.85, label=label, linestyle=linestyle)
    axes.fill_between(x, mean - sd, mean + sd, color=colour, alpha=0.25, linewidth=0)
