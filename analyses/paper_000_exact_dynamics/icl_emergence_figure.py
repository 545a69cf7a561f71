"""The figure of `icl_emergence`: behaviour, ranks, where and how fast things move, and single heads of one run."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import probes
from analyses.paper_000_exact_dynamics.icl_emergence_study import (
    CONTROL,
    HORIZONS,
    Emergence,
    accuracy,
    emergence,
    layers,
    smooth,
)
from analyses.paper_000_exact_dynamics.mode_reach import draw_reach
from analyses.tools.draw import mode_colours, panels
from analyses.tools.study import Curve, curve, drops, metric, shade, show, show_heads
from analyses.tools.verdicts import average
from probes.series.growth import fit_growth

AXIS = "step / step of emergence"


def _colours(depths: list[int]) -> dict[int, tuple | str]:
    others = [depth for depth in depths if depth != CONTROL]
    return {CONTROL: "#777777"} | dict(zip(others, mode_colours(len(others)), strict=True))


def draw(studies: dict[int, list[Emergence]], modes: dict[str, list[pd.DataFrame]]) -> Figure:
    """Four rows: behaviour, ranks, where and how fast things move, and single heads of one run."""
    figure, axes = panels(4, 4, height=3.3)
    colours, control, two = _colours(list(studies)), studies[CONTROL], studies[2]
    grid = np.linspace(0.02, min(s.steps[-1] / s.anchor for group in studies.values() for s in group), 300)

    def by_depth(ax, values: Callable[[Emergence], Curve], linestyle: str = "-", *, labels: bool = True) -> None:
        for depth, group in studies.items():
            show(ax, group, values, grid, colours[depth], layers(depth) if labels else None, linestyle)

    by_depth(axes[0, 0], lambda s: curve(accuracy(s.run)))
    axes[0, 0].set(title="(A) accuracy on repeated tokens", ylabel="share right", ylim=(0, 1))
    for depth in (CONTROL, 2):
        for name, style in (("repeated", "-"), ("new", ":")):
            label = f"{name}, {layers(depth)}"
            show(
                axes[0, 1],
                studies[depth],
                lambda s, n=name: curve(smooth(s.run, f"loss_{n}")),
                grid,
                colours[depth],
                label,
                style,
            )
    axes[0, 1].set(title="(B) loss on new and repeated tokens", ylabel="cross-entropy (nats)")
    by_depth(axes[0, 2], lambda s: s.best_score("prefix_matching"))
    by_depth(axes[0, 2], lambda s: s.best_score("previous_token"), ":", labels=False)
    axes[0, 2].set(
        title="(C) best induction (solid) and\nprevious-token head (dots)", ylabel="share of attention", ylim=(0, 1)
    )
    draw_reach(axes[0, 3], modes)
    axes[0, 3].set_title("(D) shapes of OV and QK modes")

    for ax, letter, circuit, k in zip(axes[1], "EFG", ("qk", "qk", "ov"), (0, 4, 0), strict=False):
        by_depth(ax, lambda s, circuit=circuit, k=k: _from_one(s.rank(circuit, k)))
        name = f"{circuit.upper()} effective rank" + (f", {k} removed" if k else "")
        ax.set(title=f"({letter}) {name}", ylabel="mean over heads / at the start")
    for k, colour in enumerate(mode_colours(5)):
        show(axes[1, 3], two, lambda s, k=k: s.rank("qk", k), grid, colour, f"{k} removed")
        show(axes[1, 3], control, lambda s, k=k: s.rank("qk", k), grid, colour, None, ":")
    axes[1, 3].set(title="(H) QK marginalized rank,\n2 layers (dots: 1 layer)", ylabel="mean over heads")

    ax = axes[2, 0]
    by_depth(ax, lambda s: s.distance(HORIZONS[-1]))
    for horizon, style in zip(HORIZONS[:-1], (":", "--"), strict=True):
        show(ax, two, lambda s, h=horizon: s.distance(h), grid, colours[2], f"2 layers, end: {horizon:g} x", style)
    config = two[0].run.config
    level = probes.random_subspace_level(config["d_head"], config["d_model"])
    ax.axhline(level, color="black", linewidth=1)
    ax.text(grid[-1], level + 0.01, "random subspace", fontsize=8, va="bottom", ha="right")
    ax.set(
        title=f"(I) subspace distance, end: {HORIZONS[-1]:g} x", ylabel="share of ||M(end)||, OV and QK", ylim=(0, 0.85)
    )
    by_depth(axes[2, 1], lambda s: s.drift())
    axes[2, 1].set(
        title=f"(J) drift per {two[0].spacing} steps, OV and QK", ylabel="movement of the row space", yscale="log"
    )
    by_depth(axes[2, 2], lambda s: s.norm_curvature())
    axes[2, 2].set(title="(K) norm curvature of OV and QK", ylabel="d²||M|| / d(ln step)²")
    by_depth(axes[2, 3], lambda s: s.autocorrelation)
    axes[2, 3].set(title="(L) loss autocorrelation, curvature", ylabel="d²A / d(ln lag)²")

    _draw_heads(axes[3], studies)
    timed = [ax for ax in axes.flat if ax is not axes[0, 3]]
    for ax in timed:
        label = AXIS if ax is not axes[2, 3] else AXIS.replace("step", "lag", 1)
        ax.set(xlim=(0, grid[-1]), xlabel=label)
        ax.legend(fontsize=7)
    learned = [s for depth, group in studies.items() if depth != CONTROL for s in group]
    shade(timed, *(average([emergence(s.run, x) / s.anchor for s in learned]) for x in (0.1, 0.9)))
    return figure


def _draw_heads(axes: np.ndarray, studies: dict[int, list[Emergence]]) -> None:
    """Single heads: what they attend to, their ranks, how the modes of the induction head grow; and the loss."""
    study, deepest = studies[2][0], studies[max(studies)][0]
    found = deepest.heads("prefix_matching")
    shades = mode_colours(max(studies))
    for (layer, head), values in found.items():
        label = f"layer {layer}" if head == 0 else None
        axes[0].plot(values.index / deepest.anchor, values, color=shades[layer], linewidth=1.5, label=label)
    axes[0].set(
        title=f"(M) induction by head, {layers(max(studies))}, seed 0", ylabel="prefix-matching score", ylim=(0, 1)
    )

    show_heads(axes[1], study, "marginalized_effective_rank.4", "qk")
    axes[1].set(title="(N) QK effective rank, 4 removed,\nby head, 2 layers, seed 0", ylabel="effective rank")

    layer, head = study.best("prefix_matching")
    modes = study.alignment.trajectories
    modes = modes.query("circuit == 'qk' and layer == @layer and head == @head")
    for (mode, values), colour in zip(modes.groupby("mode"), mode_colours(4), strict=True):
        fit = fit_growth(values["measured"].to_numpy(), values["step"].to_numpy())["logistic"]
        axes[2].plot(
            values["step"] / study.anchor,
            values["measured"],
            color=colour,
            linewidth=2.2,
            alpha=0.85,
            label=f"mode {mode}, R² {fit.r2:.3f}",
        )
        axes[2].plot(values["step"] / study.anchor, fit.curve, color="black", linewidth=0.9)
    axes[2].set(
        title="(O) QK modes of the induction head and\ntheir logistics (black), 2 layers, seed 0", ylabel="u_k' M v_k"
    )

    colours = _colours(list(studies))
    for depth in (CONTROL, 2):
        one = studies[depth][0]
        loss = smooth(one.run, "loss")
        axes[3].plot(loss.index / one.anchor, loss, color=colours[depth], label=layers(depth))
        events = probes.find_transitions(metric(one.run, "loss"))
        for _, event in drops(events).iterrows():
            axes[3].axvline(
                event["step"] / one.anchor,
                color=colours[depth],
                linestyle="--",
                linewidth=1.2,
                label=f"cliff found, {layers(depth)}",
            )
    axes[3].set(
        title="(P) loss over all tokens and what\nfind_transitions finds in it, seed 0", ylabel="cross-entropy (nats)"
    )


def _from_one(values: Curve) -> Curve:
    return values[0], values[1] / values[1][0]
