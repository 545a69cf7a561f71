"""Figs 6c and 9 of paper 003: softmax attention, alone and with MLPs, trained by Adam on rotated covariances.

Trains four depths of the one and three of the other, six seeds each (two minutes on one core at size quick). Expect: a
lower mean loss at every doubling of the depth, though not in every seed; MLPs change little.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from analyses.paper_003_depth_and_context.runs import RUNS, Group, train_group
from analyses.tools.claims import Claim, Measured, Unjudged, by_group, judged
from analyses.tools.draw import band, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Together
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, spread
from models.depth_and_context.softmax import SoftmaxConfig

DEPTHS = {"plain": (1, 2, 4, 8), "with_mlp": (1, 2, 4)}
LATE = 0.2  # the share of a run, at its end, over which its loss is averaged


@dataclass(frozen=True)
class Seen:
    """Runs by depth, with attention alone and with MLPs."""

    plain: dict[int, Group]
    with_mlp: dict[int, Group]


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, draw, judge."""
    hidden = {"plain": 0, "with_mlp": 32}
    seen = Seen(**{name: {n: _group(n, hidden[name], size, runs) for n in depths} for name, depths in DEPTHS.items()})
    c, one = seen.plain[1].config, seen.plain[1]
    assert isinstance(c, SoftmaxConfig)
    return Page(
        "depth_softmax",
        "Softmax attention, with and without MLPs (Figs 6c, 9)",
        "Softmax layers with weights of their own, trained by Adam on covariances that are rotated in every context, learn "
        "better in context the deeper they are. There is no theory of them; what is judged is that depth helps.",
        f"RRS, ν = {c.capacity:g}, β = {c.source:g}, D = {c.dimension}, P = {c.context}, K = {c.tests}; residual stream of {c.stream}, "
        f"MLPs of {seen.with_mlp[1].config.hidden}; Adam, learning rate {c.learning_rate:g}, batch {c.batch}, "  # pyright: ignore[reportAttributeAccessIssue]
        f"{one.runs[0].steps[-1]} steps, {len(one.runs)} seeds; the paper does not print its sizes",
        draw(seen),
        "Loss against steps for several depths, attention alone and with MLPs, mean and standard deviation over seeds; right, "
        "the loss over the last fifth of training against depth (points are seeds).",
        judged(CLAIMS, seen),
    )


def ends(groups: dict[int, Group]) -> dict[int, np.ndarray]:
    """The loss over the end of training, by depth [seeds]."""
    return {n: group.losses[:, int((1 - LATE) * group.losses.shape[1]) :].mean(1) for n, group in groups.items()}


def depth_helps(which: str) -> Callable[[Seen], Measured]:
    """ln(1 / loss) of each depth, that of half the depth as controls."""

    def measure(seen: Seen) -> Measured:
        found = ends(getattr(seen, which))
        values = [-np.log(v) for v in found.values()]
        text = "loss: " + by_group({f"L = {n}": v for n, v in found.items()}, lambda v: spread(v, 4))
        return Measured(text, np.concatenate(values[1:]), np.concatenate(values[:-1]))

    return measure


def _doublings(which: str) -> Together:
    names = [f"L = {a} to {b}" for a, b in pairwise(DEPTHS[which])]
    return Together([AboveControls()] * len(names), names)


_WHY = {
    HOLDS: "each doubling of the depth, in every seed; effects are shifts of ln(1/loss)",
    IN_PART: "not at each doubling of the depth in every seed; effects are shifts of ln(1/loss)",
    FAILS: "at no doubling of the depth; effects are shifts of ln(1/loss)",
}

CLAIMS: list[Claim[Seen] | Unjudged[Seen]] = [
    Claim("depth helps softmax attention", "section 5.3, Fig 6c", depth_helps("plain"), _doublings("plain"), _WHY),
    Claim("and softmax attention with MLPs", "G.3, Fig 9", depth_helps("with_mlp"), _doublings("with_mlp"), _WHY),
    Unjudged(
        "similar scaling behaviour holds in softmax attention",
        "section 5.3",
        "no exponent is printed for it, and D = 6 has too few directions for a power law to be seen",
    ),
]


def draw(seen: Seen):
    """Training with attention alone, with MLPs, and the end against depth."""
    figure, axes = panels(1, 3, height=4.0)
    for ax, groups, title in (
        (axes[0, 0], seen.plain, "softmax attention"),
        (axes[0, 1], seen.with_mlp, "softmax attention and MLPs"),
    ):
        for (n, group), colour in zip(groups.items(), mode_colours(len(groups)), strict=True):
            times, losses = group.binned(0.15)
            band(ax, times / group.config.learning_rate, losses, colour, f"L = {n}")
        ax.set(xscale="log", yscale="log", xlabel="step", ylabel="loss", title=title)
        ax.legend()
    ax = axes[0, 2]
    for groups, marker, label in ((seen.plain, "o", "attention"), (seen.with_mlp, "s", "and MLPs")):
        found = ends(groups)
        (line,) = ax.plot(list(found), [v.mean() for v in found.values()], "-", label=label)
        for n, values in found.items():
            ax.plot(np.full(len(values), n), values, marker, color=line.get_color(), markersize=4, alpha=0.6)
    ax.set(xscale="log", yscale="log", xlabel="depth L", ylabel="loss at the end", title="against depth")
    ax.set_xticks(DEPTHS["plain"], [str(n) for n in DEPTHS["plain"]])
    ax.minorticks_off()
    ax.legend()
    return figure


def _group(depth: int, hidden: int, size: str, runs: Path) -> Group:
    d, steps = {"toy": (3, 20), "quick": (6, 1000), "paper": (16, 10_000)}[size]
    config = SoftmaxConfig(
        data="rotated", dimension=d, depth=depth, context=4 * d, tests=2 * d, batch=4 if size == "toy" else 24,
        learning_rate=5e-3, capacity=1.0, source=1.0, stream=8 if size == "toy" else 16, hidden=hidden,
    )  # fmt: skip
    return train_group(config, steps, size, runs)
