"""Figs 1 and 2 of paper 003, drawn: isotropic data by context ratio and depth, and the landscape of gamma."""

import numpy as np

from analyses.paper_003_depth_and_context.runs import Group, scale_of
from analyses.tools.draw import EXACT, MEASURED, PRINTED, band, mode_colours, panels
from models.depth_and_context.theory import IsoFlow, printed_iso_final_loss

RATIOS = (0.5, 1.0, 2.0, 4.0)
DEPTHS = (1, 2, 4, 8)
TRAINED = DEPTHS[:3]  # at depth 8 a rare context explodes before the end, at every learning rate tried (0.05 - 0.4)


def draw(groups: dict[tuple[float, int], Group], noisy: Group, final: dict[tuple[float, int], np.ndarray], fresh: int):
    """Two rows: Fig 1 and Fig 2."""
    figure, axes = panels(2, 3, height=4.0)
    colours = mode_colours(4)
    for ax, keys, title in (
        (axes[0, 0], [(a, 4) for a in RATIOS], "training, L = 4"),
        (axes[0, 1], [(1.0, n) for n in TRAINED], "training, α = 1"),
    ):
        for colour, (a, n) in zip(colours, keys, strict=False):
            times, losses = groups[a, n].binned()
            label = f"α = {a:g}" if title.endswith("4") else f"L = {n}"
            band(ax, times, losses, colour, label)
            ax.plot(times, IsoFlow(n, a).loss(times), **EXACT)
        ax.set(xscale="log", yscale="log", xlabel="time t", ylabel="loss", title=title)
        ax.legend()
    ax = axes[0, 2]
    ratios = np.geomspace(0.3, 6, 60)
    for colour, n in zip(colours, DEPTHS, strict=True):
        ax.plot(ratios, [IsoFlow(n, a).final_loss for a in ratios], color=colour, label=f"L = {n}")
        for a in RATIOS:
            if (a, n) in final:
                ax.plot(np.full(len(final[a, n]), a), final[a, n], "o", color=colour, markersize=5, alpha=0.7)
    ax.plot(ratios, [printed_iso_final_loss(a) for a in ratios], **PRINTED, label="L = 1, printed")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="context ratio α = P/D",
        ylabel="final loss",
        title="final loss",
        ylim=(3e-3, 1),
    )
    ax.set_xticks(RATIOS, [f"{a:g}" for a in RATIOS])
    ax.minorticks_off()
    ax.legend()
    landscapes = [
        (axes[1, 0], [IsoFlow(n, 1.0) for n in DEPTHS], [f"L = {n}" for n in DEPTHS], "loss landscape, α = 1"),
        (axes[1, 1], [IsoFlow(4, a) for a in RATIOS], [f"α = {a:g}" for a in RATIOS], "loss landscape, L = 4"),
        (
            axes[1, 2],
            [IsoFlow(4, 1.0, s) for s in (0, 0.25, noisy.config.noise, 1)],
            [f"σ² = {s:g}" for s in (0, 0.25, noisy.config.noise, 1)],
            "label noise, α = 1, L = 4",
        ),
    ]
    for ax, flows, labels, title in landscapes:
        for colour, flow, label in zip(colours, flows, labels, strict=True):
            gamma = np.linspace(0, 1.4 * max(f.best_gamma for f in flows), 150)
            losses = np.array([flow.loss_of(float(g)) for g in gamma])
            ax.plot(gamma, losses, color=colour, label=label)
            ax.plot(flow.best_gamma, flow.final_loss, "o", color=colour)
        ax.set(ylim=(0, 1.2), xlabel="γ", ylabel="loss", title=title)
        ax.legend()
    for n in TRAINED:
        axes[1, 0].plot(scale_of(groups[1.0, n]), final[1.0, n], "x", color=MEASURED)
    for a in RATIOS:
        axes[1, 1].plot(scale_of(groups[a, 4]), final[a, 4], "x", color=MEASURED)
    axes[1, 2].plot(scale_of(noisy), noisy.fresh_loss(noisy.late_gamma, fresh), "x", color=MEASURED)
    return figure
