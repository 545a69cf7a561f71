"""The figure of `grokking`: behaviour, ranks, and where and how fast things move, with the controls in the same axes."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import probes
from analyses.paper_000_exact_dynamics.grokking_study import GENERALISED, Grokking, autocorrelation
from analyses.paper_000_exact_dynamics.mode_reach import draw_reach
from analyses.tools.draw import mode_colours, panels
from analyses.tools.study import Curve, curve, first_above, metric, shade, show, show_heads
from analyses.tools.verdicts import average

COLOURS = {"grokking": "#1f6fb4", "random labels": "#d1603d", "weight decay 0": "#777777"}
AXIS = "step / step of 99 % test accuracy"


def draw(studies: dict[str, list[Grokking]], modes: dict[str, list[pd.DataFrame]]) -> Figure:
    """Three rows: behaviour, ranks, and where and how fast things move."""
    figure, axes = panels(3, 4, height=3.3)
    grokking, random = studies["grokking"], studies["random labels"]
    grid = np.geomspace(8 / grokking[0].anchor, max(s.steps[-1] / s.anchor for s in grokking), 250)

    def by_kind(ax, values: Callable[[Grokking], Curve], linestyle: str = "-", *, labels: bool = True) -> None:
        for name, group in studies.items():
            show(ax, group, values, grid, COLOURS[name], name if labels else None, linestyle)

    def log_metric(name: str) -> Callable[[Grokking], Curve]:
        return lambda s: _log10(pd.Series(metric(s.run, name).rolling(5, min_periods=1).median()))

    ax = axes[0, 0]
    by_kind(ax, log_metric("test_loss"))
    by_kind(ax, log_metric("loss"), ":", labels=False)
    ax.set(title="(A) loss: training (dots), test (solid)", ylabel="log10 of cross-entropy (nats)")
    ax = axes[0, 1]
    by_kind(ax, lambda s: curve(100 * metric(s.run, "test_accuracy")))
    by_kind(ax, lambda s: curve(100 * metric(s.run, "accuracy")), ":", labels=False)
    ax.set(title="(B) accuracy: training (dots), test (solid)", ylabel="%")
    ax = axes[0, 2]
    for name, colour, label in (
        ("restricted_loss", "#3a923a", "restricted, test"),
        ("excluded_loss", "#8a5a00", "excluded, training"),
        ("test_loss", COLOURS["grokking"], "test"),
    ):
        show(ax, grokking, lambda s, name=name: _log10(pd.Series(s.progress[name])), grid, colour, label)
    ax.set(title="(C) the Fourier circuit forms (grokking)", ylabel="log10 of cross-entropy (nats)")
    draw_reach(axes[0, 3], modes)
    axes[0, 3].set_title("(D) shapes of OV and QK modes")

    for ax, circuit, letter in ((axes[1, 0], "ov", "E"), (axes[1, 1], "qk", "F")):
        by_kind(ax, lambda s, circuit=circuit: s.rank(circuit))
        ax.set(title=f"({letter}) {circuit.upper()} effective rank", ylabel="mean over heads")
    ax = axes[1, 2]
    for k, colour in enumerate(mode_colours(5)):
        show(ax, grokking, lambda s, k=k: s.rank("ov", k), grid, colour, f"{k} removed")
        show(ax, random, lambda s, k=k: s.rank("ov", k), grid, colour, None, ":")
    ax.set(title="(G) OV marginalized rank (dots: random labels)", ylabel="mean over heads")
    ax = axes[1, 3]
    show_heads(ax, grokking[0], "marginalized_effective_rank.0", "ov")
    ax.set(title="(H) OV effective rank by head, seed 0", ylabel="effective rank")

    ax = axes[2, 0]
    for end, style in zip(grokking[0].ends(), ("--", "-.", "-"), strict=True):
        show(
            ax, grokking, lambda s, end=end: s.distance(end), grid, COLOURS["grokking"], f"grokking, end: {end}", style
        )
    show(ax, random, lambda s: s.distance("run's end"), grid, COLOURS["random labels"], "random labels, run's end")
    config = grokking[0].run.config
    level = probes.random_subspace_level(config["d_head"], config["d_model"])
    ax.axhline(level, color="black", linewidth=1)
    ax.text(1.1 * grid[0], level + 0.01, "random subspace", fontsize=8, va="bottom")
    ax.set(title="(I) OV subspace distance from the end", ylabel="share of ||M(end)||", ylim=(0, 1))
    by_kind(axes[2, 1], lambda s: s.drift())
    axes[2, 1].set(
        title=f"(J) OV drift per {grokking[0].spacing} steps", ylabel="movement of the row space", yscale="log"
    )
    by_kind(axes[2, 2], lambda s: s.norm_curvature())
    axes[2, 2].set(title="(K) norm curvature of OV", ylabel="d²||M|| / d(ln step)²")
    ax = axes[2, 3]
    by_kind(ax, lambda s: autocorrelation(metric(s.run, "loss")), ":")
    show(ax, grokking, lambda s: autocorrelation(s.test_loss), grid, COLOURS["grokking"], "grokking, test loss")
    ax.set(title="(L) loss autocorrelation, curvature (dots: training)", ylabel="share of its range")

    timed = [ax for ax in axes.flat if ax is not axes[0, 3]]
    for ax in timed:
        label = AXIS if ax is not axes[2, 3] else AXIS.replace("step", "lag", 1)
        ax.set(xscale="log", xlim=(grid[0], grid[-1]), xlabel=label)
        ax.legend(fontsize=7)
    shade(
        timed,
        *(
            average([first_above(metric(s.run, "test_accuracy"), x) / s.anchor for s in grokking])
            for x in (0.5, GENERALISED)
        ),
    )
    return figure


def _log10(values: pd.Series) -> Curve:
    return values.index.to_numpy(), np.log10(values.to_numpy())
