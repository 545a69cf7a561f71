"""The picture of the calibration: six panels, the earlier release in grey beside this one."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analyses.calibration.cells import LONGER, RHOS, SHORT
from analyses.calibration.compare import Compared, pooled
from analyses.calibration.measures import EVIDENCE, P_LEVELS, value_of
from analyses.calibration.sampling import LONG, SCHEDULES
from analyses.tools.draw import panels

BEFORE, NOW = "#b0b0b0", "#1f6fb4"
BY_RHO = ("#1f6fb4", "#e08a1e", "#b5232e")
BY_SCHEDULE = ("#1f6fb4", "#e08a1e", "#3a8a3a", "#b5232e")


def draw(now: pd.DataFrame, before: pd.DataFrame, compared: Sequence[Compared]) -> Figure:
    """False alarms, recall, coverage; peers, limits, p-values."""
    figure, axes = panels(2, 3, height=5.6)
    _false_alarms(axes[0, 0], now, before)
    _bars(axes[0, 1], now, before, "recall of visible transitions", _recall_places(), "Visible transitions found", 0.75)
    _bars(
        axes[0, 2],
        now,
        before,
        "coverage of 95 % intervals",
        _coverage_places(now),
        "True step inside the “95 %” interval",
        0.95,
    )
    _peers(axes[1, 0], compared)
    _limits(axes[1, 1], now, before)
    _reliability(axes[1, 2], now)
    return figure


def _recall_places() -> list[str]:
    noises = ("white", "sgd", "spiky", "ar 0.5", "ar 0.8", "ar 0.9")
    return ["all", *SCHEDULES, *noises, "falls", "rises", "stages", *EVIDENCE]


def _coverage_places(table: pd.DataFrame) -> list[str]:
    places = table[table["measure"] == "coverage of 95 % intervals"]["where"].tolist()
    noises = ("white", "sgd", "spiky", "ar")
    return [p for p in dict.fromkeys(places) if not p.startswith(noises) and p != "dense and 300 log-spaced"]


def _false_alarms(ax: Axes, now: pd.DataFrame, before: pd.DataFrame) -> None:
    sizes = [*SHORT, *LONGER]
    for k, (rho, colour) in enumerate(zip(RHOS, BY_RHO, strict=True)):
        for j, (spacing, marker) in enumerate((("uniform", "o"), ("log-spaced", "^"))):
            x = np.arange(len(sizes)) + (2 * k + j - 2.5) * 0.12
            for table, fill, alpha in ((before, "none", 0.6), (now, colour, 1.0)):
                points = [value_of(table, "false alarms, smooth drift", f"{spacing}/{n}/{rho:g}") for n in sizes]
                shown = [p[0] for p in points]
                label = f"ρ = {rho:g}, {spacing}" if table is now else None
                ax.plot(x, shown, marker, color=colour, ms=6, label=label, mfc=fill, alpha=alpha)
            low, high = (np.array([p[i] for p in points]) for i in (1, 2))
            raised = np.array(shown) > 0  # the interval of none in a hundred says no more than that
            ax.vlines(x[raised], low[raised], high[raised], color=colour, lw=1, alpha=0.6)
    ax.axhline(0.02, color="#444", lw=1, ls=":")
    ax.axhline(0.01, color="#444", lw=1)
    ax.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    ax.set_yscale("symlog", linthresh=0.02)
    ax.set_yticks([0, 0.01, 0.02, 0.05, 0.1, 0.2], ["0", ".01", ".02", ".05", ".1", ".2"])
    ax.set(
        xlabel="values in the record",
        ylim=(-0.002, 0.3),
        title="False alarms at α = .01, smooth drift\n(hollow: earlier release)",
    )
    ax.legend(fontsize=7, loc="upper right")


def _bars(
    ax: Axes, now: pd.DataFrame, before: pd.DataFrame, measure: str, places: list[str], title: str, line: float
) -> None:
    y = np.arange(len(places))[::-1]
    for table, colour, shift, label in ((before, BEFORE, 0.16, "earlier release"), (now, NOW, -0.16, "this release")):
        values = np.array([value_of(table, measure, place) for place in places])
        ax.hlines(y + shift, values[:, 1], values[:, 2], color=colour, lw=1.5)
        ax.plot(values[:, 0], y + shift, "o", color=colour, ms=5, label=label)
    ax.axvline(line, color="#444", lw=1, ls=":")
    ax.set_yticks(y, places, fontsize=8)
    ax.set(xlim=(-0.02, 1.02), title=title)
    ax.legend(fontsize=8, loc="upper left")


def _peers(ax: Axes, compared: Sequence[Compared]) -> None:
    rows = sorted(pooled(compared), key=lambda row: row.recall.value)
    y = np.arange(len(rows))
    ax.barh(
        y,
        [row.recall.value for row in rows],
        color=[NOW if row.method == "find_transitions" else BEFORE for row in rows],
    )
    ax.hlines(y, [row.recall.low for row in rows], [row.recall.high for row in rows], color="#444")
    for k, row in zip(y, rows, strict=True):
        says = f"  alarms {row.alarms.value:.3f}, precision {row.precision.value:.2f}"
        ax.text(max(row.recall.high, 0.02), float(k), says, va="center", fontsize=8)
    ax.set_yticks(y, [row.method.replace(" (", "\n(") for row in rows], fontsize=8)
    ax.set(
        xlim=(0, 1.5),
        xlabel="recall of visible transitions",
        title="Peers, each tuned to our false-alarm rate\nin every cell, random walks left out",
    )


def _limits(ax: Axes, now: pd.DataFrame, before: pd.DataFrame) -> None:
    noises = (0.01, 0.03, 0.1, 0.3, 0.6)
    for schedule, colour in zip(LONG, BY_SCHEDULE, strict=False):
        for table, style in ((before, ":"), (now, "o-")):
            values = [value_of(table, "recall by noise", f"{schedule}/{size:g}")[0] for size in noises]
            ax.plot(noises, values, style, color=colour, label=schedule if table is now else None)
    ratios = (1.5, 2.0, 3.0, 5.0)
    twin = ax.twiny()
    for schedule, colour in zip(LONG, BY_SCHEDULE, strict=False):
        values = [value_of(now, "recall by spacing", f"{schedule}/{ratio:g}")[0] for ratio in ratios]
        twin.plot(ratios, values, color=colour, ls="--", marker="s", ms=4, alpha=0.7)
    twin.set_xlabel("factor between two modes (squares, noise .03)", fontsize=9)
    ax.set(
        xscale="log",
        ylim=(-0.03, 1.03),
        xlabel="noise, as a share of the range (circles; dotted: earlier release)",
        ylabel="recall, two modes",
    )
    ax.legend(fontsize=8, loc="lower left")


def _reliability(ax: Axes, now: pd.DataFrame) -> None:
    for n, marker in ((50, "o"), (200, "^"), (2000, "s")):
        for rho, colour in zip(RHOS, BY_RHO, strict=True):
            shown = [value_of(now, f"P(p <= {level:g})", f"uniform/{n}/{rho:g}")[0] for level in P_LEVELS]
            ax.plot(
                P_LEVELS,
                np.maximum(shown, 5e-4),
                marker + "-",
                color=colour,
                ms=4,
                lw=0.8,
                label=f"n = {n}, ρ = {rho:g}",
            )
    ax.plot(P_LEVELS, P_LEVELS, color="#444", lw=1)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="p",
        ylabel="share of series with a p-value at most that",
        title="p-values where nothing happens\n(on or below the line is right)",
    )
    ax.legend(fontsize=7, loc=(0.02, 0.08))
