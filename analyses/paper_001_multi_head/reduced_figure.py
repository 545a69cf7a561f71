"""The figure of `multi_head_reduced`: values and keys of one trained seed, and the first escape from many starts."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analyses.paper_001_multi_head.head_measures import Heads, reduced_equation
from analyses.paper_001_multi_head.runs import Group
from analyses.tools.draw import EXACT, PRINTED, mode_colours, panels


def draw(group: Group, heads: Heads, first: np.ndarray, expected: Mapping[str, np.ndarray], seed: int) -> Figure:
    """heads are those of `seed`; first is when the first mode is half learned from each start, expected by whom when."""
    figure, axes = panels(1, 3, height=4.4)
    _draw_values(axes[0, 0], group, heads, seed)
    _draw_keys(axes[0, 1], group, heads, seed)
    ax = axes[0, 2]
    for (label, times), marker in zip(expected.items(), "so", strict=True):
        ax.plot(times, first, marker, markersize=5, alpha=0.7, label=label)
    limits = first.min() / 2, first.max() * 1.3
    ax.plot(limits, limits, **EXACT, label="as expected")
    ax.set(xscale="log", yscale="log", xlabel="expected end of the first plateau", ylabel="first mode half learned at")
    ax.set_title("(C) the first escape, one dot per start")
    ax.legend(fontsize=8)
    return figure


def _draw_values(ax: Axes, group: Group, heads: Heads, seed: int) -> None:
    theory = reduced_equation(group.config, heads, 1 / 3)
    fine = np.geomspace(5, group.times[-1], 600)
    flow = np.abs(group.flows[seed].weights(fine)[0])
    for d, colour in enumerate(mode_colours(len(heads.owner))):
        head = heads.owner[d]
        values = heads.values[1:, head]
        ax.plot(heads.times[1:], values, color=colour, linewidth=2.4, alpha=0.85, label=f"learns e{d + 1}")
        ax.plot(fine, flow[:, head], **EXACT, label="population flow" if d == 0 else None)
        after = fine > theory.since[d]
        ax.plot(fine[after], theory.values(fine[after])[:, d], **PRINTED, label="Eq 7" if d == 0 else None)
    ax.set(xscale="log", xlim=(5, group.times[-1]), xlabel="time (learning rate x step)", ylabel="|v| of each head")
    ax.set_title(f"(A) value weights, seed {seed}")
    ax.legend(fontsize=7, loc="upper left")


def _draw_keys(ax: Axes, group: Group, heads: Heads, seed: int) -> None:
    drops = np.concatenate(([0.0], np.sort(group.half_times[seed])))
    drops = drops[np.isfinite(drops)]
    middles = [*(drops[:-1] + 0.6 * np.diff(drops)), heads.times[-1]]
    d, count = heads.keys.shape[-1], heads.keys.shape[1]
    shown = [np.abs(heads.keys[np.searchsorted(heads.times, at).clip(max=len(heads.times) - 1)]) for at in middles]
    gap = np.full((count, 1), np.nan)
    image = np.concatenate([part for one in shown for part in (one, gap)][:-1], axis=1)
    picture = ax.imshow(image, cmap="Blues", vmin=0, aspect="auto")
    ax.set_xticks([k * (d + 1) + (d - 1) / 2 for k in range(len(shown))], [f"plateau {k}" for k in range(len(shown))])
    ax.set(yticks=range(count), yticklabels=[f"head {i}" for i in range(count)])
    ax.set_title(f"(B) |key| along e1 ... e{d}, seed {seed}")
    ax.figure.colorbar(picture, ax=ax, shrink=0.8)
