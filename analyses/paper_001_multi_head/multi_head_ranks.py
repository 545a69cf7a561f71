"""Figs 2, 7 and 8 of paper 001: what the rank of keys and queries does to the plateaus.

Trains eight eigenvectors with nine heads of rank 1, 2, 4, 8 (six seeds each, about 45 s on one core) and four eigenvectors
with five heads of rank 2, 3, 4 (20 s), fresh seeds at rank 2 and 4 (20 s), and follows the flow from 24 starts at every rank (40 s).
Expect: plateaus where m is divisible by R, rarely more heads grown than D / R, all ranks at the same end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from analyses.paper_001_multi_head.head_measures import heads_of_flows
from analyses.paper_001_multi_head.plateau_measures import NEAR, Staircase
from analyses.paper_001_multi_head.runs import (
    FIGURE_2,
    FIGURE_7,
    NAMES,
    RUNS,
    Group,
    flows_from,
    of_rank,
    starts,
    value_weights,
    which_seeds,
)
from analyses.tools.claims import Claim, Measured, Unjudged, by_group, judged, judged_again
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Close, Every, Small, Together
from analyses.tools.source import Source
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, percent, spread

TRAINED = (1, 2, 4, 8)
BETWEEN = (3, 5, 6, 7)
AGAIN = (2, 4)  # of which fresh seeds are trained too
VALUES = (2, 3, 4)
END = {"toy": 200.0, "quick": 8000.0, "paper": 16000.0}  # of the flows; twice that for R = 1
CONSPICUOUS = (
    2.0  # a stay at levels where a head has to grow is conspicuous if it is this many times that at the others
)


@dataclass(frozen=True)
class Seen:
    """Trained runs and flows by rank: eight eigenvectors, and four for Fig 7."""

    source: Source
    groups: dict[int, Group]
    flows: dict[int, Staircase]
    values: dict[int, Group]
    value_flows: dict[int, Staircase]

    @cached_property
    def trained(self) -> dict[int, Staircase]:
        """The losses of the trained runs."""
        return {rank: Staircase.of_group(group) for rank, group in self.groups.items()}


def gather(source: Source) -> Seen:
    """Train or load, and integrate."""
    init = {"toy": 1.0}.get(source.size, FIGURE_2.init)
    end = END[source.size]
    flows = {
        rank: Staircase.of_flow(
            replace(FIGURE_2, rank=rank, init=init),
            starts(source, 2),
            2 * end if rank == 1 else end,
            2.0 if rank < 5 else 1.0,
        )
        for rank in sorted((*TRAINED, *BETWEEN))
    }
    few = {r: Staircase.of_flow(replace(FIGURE_7, rank=r, init=init), starts(source), end, 2.0) for r in VALUES}
    values = {rank: value_weights(rank, source) for rank in VALUES if not source.is_fresh}
    trained = {rank: of_rank(rank, source) for rank in (AGAIN if source.is_fresh else TRAINED)}
    return Seen(source, trained, flows, values, few)


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "multi_head_ranks",
        "Plateaus and the rank of keys and queries (Figs 2, 7, 8)",
        "A head of rank R learns R eigenvectors: the loss rests where a new head has to grow, at m = 0, R, 2R, ..., and "
        "hardly in between. (The text has it the other way round: 'for m that divides R'.) The end is the same for every "
        "rank.",
        seen.groups[1].facts.replace("R = 1", "R = 1, 2, 4, 8")
        + f". Values: {seen.values[2].facts.split(';')[0]}, H = 5. Flow: {len(seen.flows[1].loss)} starts a rank. {which_seeds(source)}",
        draw(seen),
        "Top: expected loss of trained runs, one curve per seed, with the levels of Eq 5; dark dashes where m is divisible by R "
        "(Fig 2). Middle: the same along the population flow, for ranks that do not divide 8 (Fig 8). Below: value weights of "
        "seed 0 for four eigenvectors (Fig 7), as many of which grow as heads are needed; right, how long the flow stays at each level, "
        "with rings where m is divisible by R.",
        judged_again(CLAIMS, seen, gather(source.fresh), NAMES) if source.fresh else judged(CLAIMS, seen),
    )


def draw(seen: Seen):
    """Losses by rank, values by rank, and stays."""
    figure, axes = panels(3, 4, height=3.3)
    for row, stairs in ((0, seen.trained), (1, {rank: seen.flows[rank] for rank in BETWEEN})):
        for ax, (rank, one) in zip(axes[row], stairs.items(), strict=True):
            draw_loss(ax, one)
            ax.set_title(f"R = {rank}, D = 8, H = 9, {'trained' if row == 0 else 'flow'}")
    for ax, (rank, group) in zip(axes[2], seen.values.items(), strict=False):
        times, weights = group.weights(0)
        for head, colour in enumerate(mode_colours(group.config.heads)):
            ax.plot(times[1:], np.abs(weights["value"][1:, head]), color=colour, linewidth=1.8)
        ax.set(xscale="log", xlim=(5, times[-1]), xlabel="time (learning rate x step)", ylabel="|v| of each head")
        ax.set_title(f"value weights, R = {rank}, D = 4, H = 5")
    ax = axes[2, 3]
    for rank, colour in zip((1, 2, 3, 4), mode_colours(4), strict=True):
        mean, inner = seen.flows[rank].stays.mean(0)[1:-1], np.arange(1, len(seen.flows[rank].levels) - 1)
        ax.plot(inner, mean, ".-", color=colour, label=f"R = {rank}")
        new = seen.flows[rank].new_head
        ax.plot(inner[new], mean[new], "o", mfc="none", markersize=9, color=colour)
    ax.set(xlabel="eigenvectors m learned", ylabel="mean stay, ln(time)", title="how long the flow stays")
    ax.legend(fontsize=7)
    return figure


def draw_loss(ax, stairs: Staircase) -> None:
    """Losses among their levels."""
    for loss in stairs.loss[:12]:
        ax.plot(stairs.times[1:], loss[1:], color="#1f6fb4", linewidth=0.8, alpha=0.8)
    for m, level in enumerate(stairs.levels):
        divisible = m % stairs.rank == 0
        ax.axhline(level, **(PRINTED | ({"color": "black"} if divisible else {"color": "#bbb", "linewidth": 1.0})))
    ax.set(xscale="log", xlim=(5, stairs.times[-1]), xlabel="time (learning rate x step)", ylabel="expected loss")


def contrast(which: str, ranks: Sequence[int]) -> Callable[[Seen], Measured]:
    """Whether each run stays conspicuously longer where a head has to grow than where it does not."""

    def measure(seen: Seen) -> Measured:
        ratios = {f"R = {rank}": _contrast(getattr(seen, which)[rank]) for rank in ranks}
        text = f"mean stay at m divisible by R / at the others, {which}: {by_group(ratios, lambda v: spread(v, 1))}"
        if which == "trained":
            flow = {f"R = {rank}": _contrast(seen.flows[rank]) for rank in ranks}
            text += f". Flow: {by_group(flow, lambda v: spread(v, 1))}"
        return Measured(text, np.concatenate([(v > CONSPICUOUS).astype(float) for v in ratios.values()]))

    return measure


def as_printed(seen: Seen) -> Measured:
    """Whether each run stays longer at m that divides R (and is not divisible by it) than at m divisible by R."""
    told, longer = {}, []
    for rank in (2, 4):
        stairs, inner = seen.flows[rank], np.arange(1, len(seen.flows[rank].levels) - 1)
        there = np.maximum(stairs.stay_at(stairs.new_head), 1e-9)
        ratio = stairs.stay_at((rank % inner == 0) & ~stairs.new_head) / there
        told[f"R = {rank}"] = ratio
        longer.append(ratio > 1)
    text = "mean stay at m that divides R without being divisible by it (R = 2: m = 1; R = 4: m = 1, 2) / at m divisible by R"
    return Measured(f"{text}, flow: {by_group(told, lambda v: spread(v, 2))}", np.concatenate(longer).astype(float))


def every_level(seen: Seen) -> Measured:
    """Mean stay between the first level and the last: R = 1 beside R = D as the control."""
    if not {1, 8} <= set(seen.trained):
        return Measured("not trained", np.array([np.nan]))
    one, all_at_once = (seen.trained[rank].stays[:, 1:-1].mean(1) for rank in (1, 8))
    shortest = seen.flows[1].stays[:, 1:-1]
    text = (
        f"mean stay at m = 1 .. 7, ln(time), trained: R = 1 {spread(one, 2)}; R = 8 {spread(all_at_once, 2)}. Flow, R = 1: "
        f"by m {', '.join(f'{x:.2f}' for x in shortest.mean(0))}"
    )
    return Measured(text, one, all_at_once)


def heads_grown(seen: Seen) -> Measured:
    """Whether as many heads have grown at the end of each flow as are needed, R = 2, 3, 4."""
    told, right = [], []
    for rank, stairs in seen.value_flows.items():
        needed, counts = -(-4 // rank), stairs.grown()
        shares = ", ".join(f"{k} heads: {(counts == k).sum()}" for k in np.unique(counts))
        trained = Staircase.of_group(seen.values[rank]).grown().tolist() if rank in seen.values else []
        beside = f"; trained {', '.join(map(str, trained))}" if trained else ""
        told.append(f"R = {rank} ({needed} needed): starts by heads grown {shares}{beside}")
        right.append(counts == needed)
    return Measured(". ".join(told), np.concatenate(right).astype(float))


def same_end(seen: Seen) -> Measured:
    """The loss at the end by L(M_D), trained; R = 1 is not there yet by then. The flow is told."""
    late = {f"R = {r}": s.loss[:, -200:].mean(1) / s.levels[-1] for r, s in seen.trained.items() if r > 1}
    flow = {f"R = {r}": s.loss[:, -1] / s.levels[-1] for r, s in seen.flows.items() if r > 1}
    text = f"final loss / L(M_D), trained: {by_group(late, percent)}. Flow: {by_group(flow, percent)}"
    return Measured(text, np.concatenate([*late.values()]))


def conserved(seen: Seen) -> Measured:
    """How much the sum over r of |k_r|² - v² changes along flows of rank 2 and 4."""
    flows = {rank: seen.groups[rank].flows[:3] for rank in (2, 4)}
    change = {
        r: [float(np.ptp(f.conserved([0.0, 100.0, 1000.0]), axis=0).max()) for f in each] for r, each in flows.items()
    }
    text = "flow, largest change: " + "; ".join(f"R = {rank}: {max(v):.0e}" for rank, v in change.items())
    return Measured(text, np.array([x for v in change.values() for x in v]))


def one_head_each(seen: Seen) -> Measured:
    """Whether no eigenvector is written by two heads, with one head more than eigenvectors; the control has as many."""
    found = {}
    for heads in (4, 5, 8):
        config = replace(FIGURE_7, rank=1, heads=heads, init={"toy": 1.0}.get(seen.source.size, FIGURE_7.init))
        flows = flows_from(config, starts(seen.source), 2 * END[seen.source.size], 2.0)
        found[heads] = np.array([not h.is_shared for h in heads_of_flows(flows)], dtype=float)
    told = "; ".join(f"H = {heads}: {v.sum():.0f} of {len(v)}" for heads, v in found.items())
    return Measured(f"starts in which no two heads share an eigenvector, D = 4: {told}", found[5])


def _contrast(stairs: Staircase) -> np.ndarray:
    return stairs.stay_at(stairs.new_head) / np.maximum(stairs.stay_at(~stairs.new_head), 1e-9)


CLAIMS: list[Claim[Seen] | Unjudged[Seen]] = [
    Claim(
        "conspicuous plateaus at L(M_m) where a new head has to grow, m divisible by R",
        "section 4, Figs 2b, 2c",
        contrast("trained", (2, 4)),
        Together([Every(5 / 6, 0.5)] * 2, ["R = 2", "R = 4"]),
        f"a stay is the ln(time) within {100 * NEAR:.0f} % of the gap to the next level, conspicuous if {CONSPICUOUS:g} times as "
        "long; the first and the last level are left out",
    ),
    Claim(
        "the same for R = 3, 5, 6, 7",
        "Figs 8a-d",
        contrast("flows", BETWEEN),
        Together([Every(0.5, 0.5)] * len(BETWEEN), [f"R = {rank}" for rank in BETWEEN]),
        "for R above D / 2 there is one such level, where the second head has to grow, and what is left for it is slow anyway",
    ),
    Claim(
        "'for m that divides R'",
        "section 4 and Fig 7, as printed",
        as_printed,
        Together([Every(0.5, 0.5)] * 2, ["R = 2", "R = 4"]),
        {
            HOLDS: "as the words have it",
            IN_PART: "at one of the ranks",
            FAILS: "the words are reversed: it is R that divides m, as the paper's own examples (R = 2: m = 0, 2, 4, 6) show",
        },
    ),
    Claim(
        "R = 1 rests at every L(M_m), R = D only at the start",
        "section 4, Figs 2a, 2d",
        every_level,
        AboveControls(),
        "with one value for all eigenvectors the later ones follow at once",
    ),
    Claim(
        "a new value weight grows only where m is divisible by R",
        "Appendix E.4, Figs 7a-c",
        heads_grown,
        Together([Every(0.5, 0.5)] * len(VALUES), [f"R = {rank}" for rank in VALUES]),
        {
            HOLDS: "as many heads as are needed, from every start",
            IN_PART: "from some starts a head more than needed takes a share of the work",
            FAILS: "from most starts other heads take a share of the work",
        },
    ),
    Claim(
        "all ranks have the same fixed points in function space and end at L(M_D)",
        "Appendix E.3, Eq 48",
        same_end,
        Close(0.03, 0.1),
        "the noise of SGD lifts it; the flow has none",
    ),
    Claim(
        "the sum over r of |k_r|² - v² is conserved in each head",
        "Eqs 50, 51",
        conserved,
        Small(1e-6, 1e-3),
        "a law of the flow, judged on the flow; SGD breaks it at order learning rate / batch",
    ),
    Claim(
        "with more heads than eigenvectors each eigenvector is still learned by one head",
        "Eq 6, for H = D + 1",
        one_head_each,
        Every(0.5, 0.5),
        "two heads can leave a plateau together and then share its eigenvector; Eq 7 is off for both",
    ),
    Unjudged(
        "the released code reproduces the main results",
        "Reproducibility",
        "it cannot be fetched here. From a reading of it elsewhere: it leaves out the 1/N of the text, so that its time is "
        "2 x learning rate x N^(2/3) x epoch, and in the setting of Fig 2 it has eigenvalues proportional to d where the text has 1/d",
    ),
]
