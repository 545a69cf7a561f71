"""What happened when: one line per panel and metric that shows something, from low to high, event by event."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from probes.plot.bands import events_of
from probes.plot.canvas import (
    GREY,
    HEADLINE,
    OTHER_EVENT,
    PALETTE,
    axes_for,
    counted,
    footnote,
    plain,
    said_instead,
    step_axis,
    titled,
    unit_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

MOST = 40
"""Lines; how many there are besides is said."""

_MARKS = {"rise": "^", "fall": "v", "mixed": "D"}


def events(
    found: pd.DataFrame, *, run: str | None = None, step_unit: str = "step", most: int = MOST, ax: Axes | None = None
) -> Axes:
    """The events of one run on a log step axis.

        probes.plot.events(probes.find_events(table, run.metrics))

    One line per finding: the stretch in which it happens, a triangle (up, down) where it is fastest, the heads that
    take part. Findings at one time are one event, with its number (the index of the table) and its band. The thin grey
    line is where that panel or metric could be searched at all. run chooses among several; step_unit is
    `run.step_unit`.
    """
    names = list(found.attrs.get("tests", {})) or list(found["run"].unique())
    if run is None and len(names) > 1:
        raise ValueError(f"these are the events of {', '.join(names)}: say which with run=, or use probes.plot.compare")
    run = run if run is not None else (names[0] if names else None)
    if run is not None and run not in names:
        raise ValueError(f"no run is called {run!r}; there are {', '.join(names)}")
    of_run = events_of(found, run)
    assert of_run is not None
    where = _of_run(found.attrs.get("searched", {}), run, len(names))
    lines = _lines(found, of_run)
    shown = lines.head(most)
    ax = axes_for(ax, 7.2, 1.5 + 0.21 * max(3, len(shown)))
    ends = [edge for stretches in where.values() for stretch in stretches for edge in stretch]
    steps = [*ends, *lines["low"], *lines["high"]]
    step_axis(ax, [step for step in steps if step > 0], unit_label(step_unit))
    if lines.empty:
        said = (
            f"Nothing found in {counted(len(where), 'panel or metric', 'panels and metrics')}."
            if where
            else ("Could not look: no panel and no metric can be searched.")
        )
        said_instead(ax, said)
        ax.set_yticks([])
    else:
        _draw(ax, shown, of_run, where)
    alpha = found.attrs.get("alpha")
    rate = f", at most {100 * alpha:g} % expected to be false" if alpha else ""
    titled(ax, f"{counted(len(of_run), 'event')} in {plain(run) if run else 'no run'}{rate}")
    footnote(ax, _notes(found, run, len(names), where, lines, len(shown)))
    return ax


def _of_run(named: dict[str, Any], run: str | None, runs: int) -> dict[str, Any]:
    if runs <= 1:
        return dict(named)
    start = f"{run}: "
    return {name[len(start) :]: value for name, value in named.items() if name.startswith(start)}


def _lines(found: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """One row per finding, events in order of time; events alone where a table brings no findings."""
    if "findings" not in found.attrs:
        names = events["circuit"].str.cat(events["probe"].astype(str), ".").str.removeprefix("metric.")
        plain_events = events.assign(event=events.index, name=names, is_metric=events["circuit"] == "metric")
        return plain_events.sort_values("step")
    findings = found.attrs["findings"]
    findings = findings.loc[findings["event"].isin(events.index)]
    when = findings["event"].map(events["step"])
    return findings.assign(when=when).sort_values(["when", "event", "is_metric", "step"], kind="stable")


def _draw(ax: Axes, lines: pd.DataFrame, events: pd.DataFrame, where: dict[str, Any]) -> None:
    circuits = list(dict.fromkeys(str(name).rsplit(".", 1)[0] for name in lines.loc[~lines["is_metric"], "name"]))
    kinds = list(dict.fromkeys(_circuit(name) for name in circuits))
    left, right = ax.get_xlim()
    for y, line in enumerate(lines.to_dict("records")):
        for low, high in where.get(str(line["name"]), ()):
            ax.plot([low, high], [y, y], color=GREY, linewidth=0.6, alpha=0.6, zorder=1, solid_capstyle="butt")
        kind = _circuit(str(line["name"]))
        colour = GREY if line["is_metric"] else PALETTE[kinds.index(kind) % len(PALETTE)]
        ax.plot([line["low"], line["high"]], [y, y], color=colour, linewidth=5, alpha=0.75, solid_capstyle="butt")
        mark = _MARKS.get(str(line["direction"]), "o")
        ax.plot(
            [line["step"]],
            [y],
            mark,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.8,
            markersize=7,
            zorder=4,
        )
        members = list(line["members"]) if isinstance(line["members"], list | tuple | np.ndarray) else []
        if members:
            text = ", ".join(plain(name, 16) for name in members[:4]) + f" +{len(members) - 4}" * (len(members) > 4)
            outside = line["high"] > left * (right / left) ** 0.78
            ax.annotate(
                text, (line["low"] if outside else line["high"], y), xytext=(-4 if outside else 4, 0),
                textcoords="offset points", ha="right" if outside else "left", va="center", fontsize="x-small",
            )  # fmt: skip
    ax.set_yticks(range(len(lines)), [plain(name, 40) for name in lines["name"]])
    ax.tick_params(axis="y", labelsize="x-small", length=0)
    ax.set_ylim(len(lines) - 0.4, -0.6)
    numbers = lines["event"].tolist()
    for start in (i for i, number in enumerate(numbers) if i == 0 or number != numbers[i - 1]):
        number = numbers[start]
        stop = start + numbers.count(number)
        event = events.loc[[number]].to_dict("records")[0]
        colour = HEADLINE if event["headline"] else OTHER_EVENT
        ax.fill_between([event["low"], event["high"]], start - 0.5, stop - 0.5, color=colour, alpha=0.18, linewidth=0)
        ax.axhline(start - 0.5, color=GREY, linewidth=0.5, alpha=0.7)
        ax.annotate(
            f"{number}", (1, start - 0.35), xycoords=("axes fraction", "data"), xytext=(-3, 0),
            textcoords="offset points", ha="right", va="top", fontsize="small", fontweight="bold",
        )  # fmt: skip


def _circuit(name: str) -> str:
    return name.split(".", 1)[0]


def _notes(found: pd.DataFrame, run: str | None, runs: int, where: dict, lines: pd.DataFrame, shown: int) -> list[str]:
    notes = []
    if len(lines) > shown:
        notes.append(f"{len(lines) - shown} more findings are not drawn")
    silent = len(where) - len(set(lines["name"]) & set(where))
    if silent > 0 and len(lines):
        notes.append(
            f"{counted(silent, 'other panel or metric was', 'other panels and metrics were')} searched and show nothing"
        )
    refused = _of_run(found.attrs.get("not_searched", {}), run, runs)
    twice = [name for name, why in refused.items() if str(why).startswith("the same numbers")]
    others = [name for name in refused if name not in twice]
    if others:
        names = ", ".join(plain(name, 40) for name in others[:3]) + " …" * (len(others) > 3)
        notes.append(f"Not searched: {names} ({plain(refused[others[0]], 90)})")
    if len(lines):
        notes.append("Thin line: where it could be searched. Orange: headline. Triangles: up, down; heads at the right")
    return notes
