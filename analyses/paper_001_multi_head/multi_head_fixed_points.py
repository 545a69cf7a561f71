"""Sections 3.1, D.1, D.3, E.1 and E.3 of paper 001: the 2^D fixed points, which of them are visited, and zero blocks.

Looks for fixed points from random weights (10 s on one core), follows the flow from 48 starts and from 8 smaller ones
(10 s), and trains six seeds with the zero blocks in training (20 s), and as many fresh ones. Expect: all of the 2^D and
no other; D + 1 of them visited by a small start, fewer by a larger one, and no other by any.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from analyses.paper_001_multi_head.fixed_point_measures import (
    VISITED,
    gradient_of_blocks,
    look_for_one,
    matrix_of,
    member,
    subsets,
    visits,
)
from analyses.paper_001_multi_head.head_measures import flows_of_small_starts
from analyses.paper_001_multi_head.multi_head_plateaus import END
from analyses.paper_001_multi_head.runs import (
    FIGURE_1,
    NAMES,
    RUNS,
    Group,
    figure_1,
    flows_from,
    starts,
    starts_of,
    which_seeds,
    with_blocks,
)
from analyses.tools.claims import Claim, Measured, judged, judged_again
from analyses.tools.draw import band, panels
from analyses.tools.page import Page
from analyses.tools.rules import Every, Small, Together
from analyses.tools.source import Source
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, percent, spread
from models.multi_head.many_flows import ManyFlows
from models.multi_head.theory import PopulationFlow, loss_of_subset, plateau_losses, second_moment

D = 4
SETS = subsets(D)
IN_TURN = [SETS.index(tuple(range(m))) for m in range(D + 1)]  # M_0 .. M_D among them
MODELS = {"R = 1": FIGURE_1, "R = 2": replace(FIGURE_1, rank=2)}
PUSH = 0.05  # of every weight, away from a fixed point
SEARCHES = {"toy": 6, "quick": 40, "paper": 240}


@dataclass(frozen=True)
class Seen:
    """Flows from many starts and, smaller, from fewer; runs with and without the zero blocks in training."""

    source: Source
    group: Group
    blocks: Group
    flows: ManyFlows
    smaller: np.ndarray  # M of the fewer: [times, starts, d, d]

    @cached_property
    def visited(self) -> dict[str, np.ndarray]:
        """By the size of the start: whether each start comes near each fixed point."""
        ways = {"as trained": self.flows.matrices, "10 times smaller": self.smaller}
        return {name: visits(matrices, self.group.config) for name, matrices in ways.items()}

    @property
    def rng(self) -> np.random.Generator:
        """One for each measure, so that none depends on the others."""
        return np.random.default_rng(starts(self.source)[0])


def gather(source: Source) -> Seen:
    """Train or load, and integrate."""
    group, blocks = figure_1(source), with_blocks(source)
    flows = flows_from(group.config, starts(source), END[source.size], 2.0)
    small = flows_of_small_starts(group.config, starts_of(group.config, starts(source, 6)), 0.1)
    times = np.geomspace(10, 10 * END[source.size], 3000)
    return Seen(source, group, blocks, flows, np.stack([flow.matrices(times) for flow in small], axis=1))


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "multi_head_fixed_points",
        "Fixed points, which are visited, and zero blocks (sections 3.1, D, E)",
        "The flow has the 2^D fixed points that are printed and, looked for from random weights, no other. A start comes near "
        "the D + 1 that learn the largest eigenvectors first, or jumps over some of them if it is not small; it comes near "
        "none of the rest. The blocks that are set to zero stay there in the mean, and under SGD within its noise.",
        f"{seen.group.facts}. Flow: {seen.flows.value.shape[1]} starts, {seen.smaller.shape[1]} that are 10 times smaller. "
        f"Blocks: batch {seen.blocks.config.batch}, {seen.blocks.runs[0].steps[-1]} steps. {which_seeds(source)}",
        draw(seen),
        "Left: loss along the flow from 12 starts, the levels of all 16 fixed points (grey) and of those that learn the largest "
        "eigenvectors first (dashes). Middle: the share of starts that come near each fixed point, named by the eigenvectors "
        f"it has learned; near is within {100 * VISITED:.0f} % of the size of M_D. Right: norm of the blocks that should stay "
        "at zero beside that of the other weights, trained by SGD (mean and spread over seeds).",
        judged_again(CLAIMS, seen, gather(source.fresh), NAMES) if source.fresh else judged(CLAIMS, seen),
    )


def draw(seen: Seen):
    """Losses among the levels, visits, and zero blocks."""
    figure, axes = panels(1, 3, height=4.4)
    ax, c = axes[0, 0], seen.group.config
    for i, s in enumerate(SETS):
        level = loss_of_subset(c.eigenvalues, c.inverse_context, s)
        style = {"color": "black", "linestyle": "--"} if i in IN_TURN else {"color": "#ccc"}
        ax.axhline(level, linewidth=0.9, **style)
    for loss in seen.flows.loss[:12]:
        ax.plot(seen.flows.times[1:], loss[1:], color="#1f6fb4", linewidth=0.9, alpha=0.8)
    ax.set(xscale="log", xlim=(5, seen.flows.times[-1]), xlabel="time", ylabel="expected loss")
    ax.set_title("(A) loss among the levels of all fixed points")
    ax = axes[0, 1]
    for offset, (name, near), colour in zip((-0.2, 0.2), seen.visited.items(), ("#8ab17d", "#1f6fb4"), strict=True):
        ax.barh(np.arange(len(SETS)) + offset, near.mean(0), height=0.38, color=colour, label=f"start {name}")
    names = ["none" if not s else " ".join(f"e{d + 1}" for d in s) for s in SETS]
    ax.set(yticks=range(len(SETS)), yticklabels=names, xlabel="share of starts that come near", xlim=(0, 1.02))
    ax.invert_yaxis()
    ax.tick_params(axis="y", labelsize=7)
    ax.set_title("(B) which fixed points are visited")
    ax.legend(fontsize=8, loc="center", bbox_to_anchor=(0.6, 0.47))
    ax = axes[0, 2]
    tables = [a.weights for a in seen.blocks.alignments]
    times = seen.blocks.config.learning_rate * np.array(seen.blocks.runs[0].steps)
    shown = (("null", "zero blocks", "#d1603d"), ("rest", "v, keys and queries", "#1f6fb4"))
    for name, label, colour in shown:
        curves = [t["null"].to_numpy() if name == "null" else _size_of_rest(t) for t in tables]
        band(ax, times[1:], np.stack(curves)[:, 1:], colour, label)
    ax.set(xscale="log", xlabel="time (learning rate x step)", ylabel="norm")
    ax.set_title("(C) zero blocks under SGD")
    ax.legend(fontsize=8, loc="upper left")
    return figure


def _size_of_rest(table) -> np.ndarray:
    """The norm of value, key and query together, from their squares."""
    return np.sqrt(sum(table[name].to_numpy() for name in ("value", "key", "query")))


def at_rest(seen: Seen) -> Measured:
    """The largest velocity at random weights of each fixed point, for both ranks; and how far its loss is off Eq 29."""
    rng, speeds, off = seen.rng, [], []
    for config in MODELS.values():
        for s in SETS:
            flow = member(config, s, rng)
            speeds.append(float(np.abs(flow.velocity(flow.start)).max()))
            expected = loss_of_subset(config.eigenvalues, config.inverse_context, s)
            off.append(abs(float(flow.loss([0.0])[0]) / expected - 1))
    text = f"largest velocity {max(speeds):.0e}, loss at most {max(off):.0e} off Eqs 29, 30"
    n = f"the worst of random weights of each of {len(SETS)} fixed points, R = 1 and 2"
    return Measured(text, np.array([max(speeds)]), n=n)


def flow_of_queries(as_printed: bool) -> Callable[[Seen], Measured]:
    """The velocity of q by Eq 24c, as printed or with q k^T in place of k q^T, against minus half the gradient."""

    def measure(seen: Seen) -> Measured:
        rng, c, off = seen.rng, FIGURE_1, []
        second = np.diag(second_moment(c.eigenvalues, c.inverse_context))
        for _ in range(12):
            value, (key, query) = rng.standard_normal(c.heads), rng.standard_normal((2, c.heads, 1, D))
            flow = PopulationFlow(c.eigenvalues, c.inverse_context, value, key, query)
            matrix, s = flow.matrices([0.0])[0], np.diag(c.eigenvalues)
            drive = s @ s - s @ (matrix if as_printed else matrix.T) @ second
            theirs = value[:, None, None] * (key @ drive.T)
            ours = flow.split(flow.velocity(flow.start)[None])[2][0]
            off.append(float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours)))
        text = (
            f"difference from minus half the gradient of the expected loss, relative: {min(off):.0e} to {max(off):.0e}"
        )
        return Measured(text, np.array([max(off)]), n=f"the worst of {len(off)} random weights")

    return measure


def no_other(rank: str) -> Callable[[Seen], Measured]:
    """How far a fixed point that was found from random weights is from the nearest printed one."""

    def measure(seen: Seen) -> Measured:
        config, rng, count = MODELS[rank], seen.rng, SEARCHES[seen.source.size]
        known = np.stack([matrix_of(config, s) for s in SETS])
        found = [one for one in (look_for_one(config, rng) for _ in range(count)) if one is not None]
        distance = np.array([np.linalg.norm(one - known, axis=(1, 2)) for one in found]).reshape(-1, len(SETS))
        which = len(set(distance.argmin(1).tolist()))
        text = f"{len(found)} of {count} searches end at rest, at {which} of the {len(SETS)}; largest distance {distance.min(1).max():.0e}"
        return Measured(text, distance.min(1))

    return measure


def all_visited(seen: Seen) -> Measured:
    """Whether each start comes near all of M_0 .. M_D."""
    whole = {name: near[:, IN_TURN].all(1).astype(float) for name, near in seen.visited.items()}
    share = "; ".join(f"start {name}: {v.sum():.0f} of {len(v)}" for name, v in whole.items())
    each = seen.visited["as trained"][:, IN_TURN].mean(0)
    text = f"all D + 1 visited, {share}; as trained M_0 .. M_{D} by {', '.join(f'{x:.0%}' for x in each)}"
    few = len(whole["10 times smaller"])
    return Measured(text, np.concatenate((whole["as trained"][:few], whole["10 times smaller"])))


def none_else(seen: Seen) -> Measured:
    """Whether a start comes near none of the fixed points that leave out a larger eigenvector."""
    rest = [i for i in range(len(SETS)) if i not in IN_TURN]
    clean = np.concatenate([~near[:, rest].any(1) for near in seen.visited.values()])
    return Measured(
        f"none of the other {len(rest)} visited from {clean.sum()} of {len(clean)} starts of both sizes",
        clean.astype(float),
    )


def left_for_the_end(seen: Seen) -> Measured:
    """The loss long after a push from each fixed point, above L(M_D)."""
    c, rng, late, above = FIGURE_1, seen.rng, END[seen.source.size], []
    for s in SETS:
        still = member(c, s, rng)
        pushed = still.split((still.start + PUSH * rng.standard_normal(len(still.start)))[None])
        flow = PopulationFlow(c.eigenvalues, c.inverse_context, *(part[0] for part in pushed))
        above.append(float(flow.loss([late])[0]) / plateau_losses(c.eigenvalues, c.inverse_context)[-1] - 1)
    text = (
        f"loss above L(M_D) at t = {late:.0f} after a push of {PUSH:g} to all weights: at most {max(above):.0e} of it"
    )
    return Measured(text, np.array([max(above)]), n=f"the worst of {len(SETS)} fixed points")


def blocks_are_not_pushed(seen: Seen) -> Measured:
    """The gradient of the zero blocks beside that of the other weights, on prompts in pairs of w and -w."""
    config = MODELS["R = 2"]
    two = flows_from(config, starts(seen.source, 8), 300.0)
    one = gradient_of_blocks(seen.flows, FIGURE_1.context, 256)[: two.value.shape[1]]
    both = np.concatenate((one, gradient_of_blocks(two, config.context, 256)))
    return Measured(
        f"gradient of the zero blocks / of the rest, 512 prompts in pairs: at most {both.max():.0e}, R = 1 and 2", both
    )


def blocks_under_sgd(seen: Seen) -> Measured:
    """The zero blocks beside the other weights at the end of training them too."""
    null = np.array([a.null_growth for a in seen.blocks.alignments])
    half = seen.blocks.half_times / np.stack([flow.half_times for flow in seen.blocks.flows])
    text = f"norm / norm of the rest at the end: {spread(null)}. Half-times / flow without them, by mode: " + "; ".join(
        percent(column) for column in half.T
    )
    return Measured(text, null)


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "each of the 2^D choices of eigenvectors is a fixed point",
        "Eqs 3, 4, 25-30, 46-49",
        at_rest,
        Small(1e-10, 1e-4),
        "at random weights with conditions C1 to C3, by the velocity of Eqs 24, 45",
    ),
    Claim(
        "q moves by v (Λ² - Λ sum v k q^T E[Λ̂²]) k",
        "Eq 24c, as printed",
        flow_of_queries(True),
        Small(1e-10, 1e-2),
        "a slip: the sum has to be transposed, as in Eq 45c; without a change wherever it is symmetric",
    ),
    Claim(
        "(ours) q moves by v (Λ² - Λ sum v q k^T E[Λ̂²]) k",
        "Eq 24c, corrected; Eq 45",
        flow_of_queries(False),
        Small(1e-10, 1e-2),
        "the flow of all pages here; a test compares it with numerical derivatives of the loss",
    ),
    Claim(
        "the flow has 2^D fixed points in function space, R = 1",
        "section 3.1, Eq 3",
        no_other("R = 1"),
        Small(1e-8, 1e-3),
        "searched from random weights; that there are no others follows for distinct eigenvalues, since M must be a critical "
        "point of a low-rank approximation of Λ^(3/2) E[Λ̂²]^(-1/2)",
    ),
    Claim(
        "and the same 2^D for rank R",
        "Eqs 46-49",
        no_other("R = 2"),
        Small(1e-8, 1e-3),
        "searched from random weights, R = 2",
    ),
    Claim(
        "from small initialization the model visits D + 1 of the 2^D fixed points, M_0 to M_D",
        "section 3.2",
        all_visited,
        Together([Every(0.9, 0.5)] * 2, ["start as trained", "10 times smaller"]),
        {
            HOLDS: "from starts of either size",
            IN_PART: "two eigenvectors that are learned soon after one another are passed without a visit between them; from a smaller start they are further apart",
            FAILS: "two eigenvectors are often learned so soon after one another that the fixed point between them is passed by",
        },
        set_before=False,
    ),
    Claim(
        "and no other of them",
        "section 3.2",
        none_else,
        Every(0.9, 0.5),
        "others leave out an eigenvector that is larger than one they have",
    ),
    Claim(
        "all but M_D are unstable, and the end is M_D",
        "sections 3.2, 3.3",
        left_for_the_end,
        Small(0.001, 0.05),
        "pushed at random; where it has not arrived at the end, it is on its way",
    ),
    Claim(
        "the blocks v_i and k_ir stay zero: their gradient vanishes",
        "Appendices D.1, E.1",
        blocks_are_not_pushed,
        Small(1e-10, 1e-3),
        "odd in the task: equal and opposite for w and -w, which are equally likely",
    ),
    Claim(
        "(ours) trained by SGD they stay near zero, and the drops come when they would without them",
        "Appendices D.1, E.1",
        blocks_under_sgd,
        Small(0.05, 0.2),
        "there is no force on them in the mean; what they have is the noise of SGD",
    ),
]
