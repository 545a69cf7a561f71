"""The singular values of one head over training, with the modes of its last checkpoint followed back in time."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from checkpoints import Run, open_run
from probes.measuring.head_spectrum import head_spectrum, layer_named
from probes.plot.bands import draw_event_bands, events_of
from probes.plot.canvas import GREY, axes_for, counted, footnote, plain, said_instead, step_axis, titled, unit_label
from probes.plot.source import Head

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any


def spectrum(
    run: Run | str | pd.DataFrame,
    head: Head | None = None,
    *,
    circuit: str = "ov",
    modes: int = 6,
    table: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The spectrum of one head: what its effective rank is made of.

        probes.plot.spectrum(run, "1.0", circuit="qk", table=table)

    The weights of that head are read at every checkpoint (a table of `probes.measuring.head_spectrum` will do too).
    Coloured: u_k' M v_k, the modes of the last checkpoint followed back, in absolute value, each under its own name.
    Grey: the sorted singular values. Where the two part, modes overtake one another or turn. table is the run's: steps
    that its audit condemned are left out.
    """
    if isinstance(run, pd.DataFrame):
        found = run
    else:
        opened = open_run(run) if isinstance(run, str) else run
        if head is None:
            raise ValueError('whose spectrum? A head is expected, such as head="1.0" or head=(1, 0)')
        layer, number = layer_named(head if isinstance(head, str) else _named(head))
        condemned = [int(step) for step in (table.attrs.get("condemned", {}) if table is not None else {})]
        found = head_spectrum(opened, layer, number, circuit, modes=modes, without=condemned)
    attrs = found.attrs
    ax = axes_for(ax, 6.6, 3.6)
    steps = np.array(sorted(found["step"].unique()), dtype=np.float64)
    step_axis(ax, steps, unit_label(str(attrs.get("step_unit", "step"))), log=log)
    _draw(ax, found, steps)
    draw_event_bands(ax, events_of(events, attrs.get("run")))
    what = f"{plain(attrs.get('circuit', circuit))} of head {plain(attrs.get('layer'))}.{attrs.get('head')}"
    titled(
        ax,
        f"Singular values of {what}, {plain(attrs.get('run', ''))}",
        f"colour: modes of step {int(attrs.get('last', steps[-1])):,} followed back, |u' M v|; grey: sorted",
    )
    footnote(ax, _notes(found, table is not None or isinstance(run, pd.DataFrame), table))
    return ax


def _named(head: Any) -> str:
    name = ".".join(str(part) for part in head[-2:])
    return f"{head[0]}:{name}" if len(head) == 3 else name


def _draw(ax: Axes, found: pd.DataFrame, steps: np.ndarray) -> None:
    from matplotlib import colormaps

    ordered = found.pivot(index="step", columns="mode", values="singular_value").sort_index().to_numpy()  # noqa: PD010
    followed = np.abs(found.pivot(index="step", columns="mode", values="followed").sort_index().to_numpy())  # noqa: PD010
    if not np.isfinite(ordered).any():
        said_instead(ax, f"No number: {plain(found['why_missing'].dropna().iloc[0], 200)}")
        return
    mark = "o" if np.isfinite(ordered[:, 0]).sum() <= 40 else None
    colours = colormaps["viridis"](np.linspace(0.1, 0.85, ordered.shape[1]))
    for k, colour in enumerate(colours):
        ax.plot(steps, ordered[:, k], color=GREY, linewidth=1.0, alpha=0.8, zorder=1.5)
        ax.plot(steps, followed[:, k], color=colour, linewidth=1.8, label=f"mode {k}", marker=mark, markersize=2.5)
    seen = ordered[np.isfinite(ordered) & (ordered > 0)]
    if len(seen) and seen.max() > 100 * np.quantile(seen, 0.05):
        ax.set_yscale("log")
        ax.set_ylim(bottom=np.quantile(seen, 0.01) / 3)
    else:
        ax.set_ylim(bottom=0)
    ax.set_ylabel("singular value [weights]")
    ax.legend(fontsize="x-small", loc="best", frameon=False, ncols=2 if len(colours) > 4 else 1)


def _notes(found: pd.DataFrame, is_audited: bool, table: pd.DataFrame | None) -> list[str]:
    notes = []
    shown, whole = found["mode"].nunique(), found.attrs.get("modes_in_all")
    if whole and whole > shown:
        notes.append(f"The {shown} leading of {whole} modes")
    missing = found.loc[found["why_missing"].notna()]
    if len(missing):
        count = missing["step"].nunique()
        notes.append(f"{counted(count, 'checkpoint')} without numbers: {plain(missing['why_missing'].iloc[0], 90)}")
    condemned = table.attrs.get("condemned", {}) if table is not None else {}
    if condemned:
        notes.append(f"{counted(len(condemned), 'checkpoint')} left out, condemned by the audit")
    if not is_audited:
        notes.append("The weights were not audited: table= leaves out what its audit condemned")
    return notes
