"""Fig 9 of paper 001: eigenvalues that are equal in pairs, at every rank.

Trains six seeds of rank one (6 s on one core) and follows the flow from 48 starts for ranks 1 to 4
(12 s). Expect: the plateau between two equal eigenvalues there in some seeds and skipped in others, and gone where all
heads start alike.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analyses.paper_001_multi_head.multi_head_ranks import CONSPICUOUS, draw_loss
from analyses.paper_001_multi_head.plateau_measures import Staircase, stays
from analyses.paper_001_multi_head.runs import FIGURE_1, FIGURE_9, NAMES, RUNS, Group, repeated, starts, which_seeds
from analyses.paper_001_multi_head.seed_rules import BySeed
from analyses.tools.claims import Claim, Measured, by_group, judged, judged_again
from analyses.tools.draw import panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Small, Together
from analyses.tools.source import Source
from analyses.tools.verdicts import percent, spread
from models.multi_head.theory import PopulationFlow, plateau_losses

RANKS = (1, 2, 3, 4)
END = {"toy": 200.0, "quick": 8000.0, "paper": 16000.0}  # of the flows
RESTS = 0.3  # in ln(time), at a level
BETWEEN_EQUALS = (1, 3)  # m with one of two equal eigenvalues learned


@dataclass(frozen=True)
class Seen:
    """The trained runs of rank one, if these are not the fresh seeds, and flows by rank."""

    group: Group | None
    flows: dict[int, Staircase]


def gather(source: Source) -> Seen:
    """Train or load, and integrate."""
    init = {"toy": 1.0}.get(source.size, FIGURE_9.init)
    flows = {
        r: Staircase.of_flow(replace(FIGURE_9, rank=r, init=init), starts(source), END[source.size], 2.0) for r in RANKS
    }
    return Seen(None if source.is_fresh else repeated(source), flows)


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "multi_head_repeated",
        "Repeated eigenvalues at every rank (Fig 9)",
        "Between two equal eigenvalues a loss of rank-one heads can rest or not: it depends on the start, and on it alone. For "
        "larger ranks the rule of distinct eigenvalues stays: it rests where a new head has to grow.",
        f"{seen.group.facts if seen.group else ''}. Flow: {len(seen.flows[1].loss)} starts a rank. {which_seeds(source)}",
        draw(seen),
        "Expected loss along the flow from 12 starts, ranks 1 to 4, with the levels of Eq 5; dark dashes where m is divisible "
        "by R. The second and the fourth level from above are those between two equal eigenvalues.",
        judged_again(CLAIMS, seen, gather(source.fresh), NAMES) if source.fresh else judged(CLAIMS, seen),
    )


def draw(seen: Seen):
    """Losses by rank."""
    figure, axes = panels(1, 4, height=3.6)
    for ax, (rank, stairs) in zip(axes[0], seen.flows.items(), strict=True):
        draw_loss(ax, stairs)
        ax.set_title(f"R = {rank}, flow")
    return figure


def between_equals(seen: Seen) -> Measured:
    """Whether the loss rests between two equal eigenvalues, for both pairs, at rank one."""
    stay = seen.flows[1].stays[:, BETWEEN_EQUALS]
    told = "; ".join(
        f"m = {m}: rests from {(stay[:, i] > RESTS).sum()} of {len(stay)} starts, mean stay {stay[:, i].mean():.2f}"
        for i, m in enumerate(BETWEEN_EQUALS)
    )
    if seen.group:
        trained = Staircase.of_group(seen.group).stays[:, BETWEEN_EQUALS]
        told += "; trained " + ", ".join(f"{a:.2f} and {b:.2f}" for a, b in trained)
    return Measured(f"stay in ln(time), {told}", (stay > RESTS).T.astype(float).ravel())


def only_the_start(seen: Seen) -> Measured:
    """The stay between equal eigenvalues where all heads start alike; the same start with distinct eigenvalues is told."""
    stay = {}
    for name, config in (("repeated", FIGURE_9), ("distinct", FIGURE_1)):
        aligned = 0.03 * np.eye(4)[:, None]
        flow = PopulationFlow(config.eigenvalues, config.inverse_context, np.full(4, 0.03), aligned, aligned)
        times = np.geomspace(1, 3 * flow.half_times.max(), 4000)
        levels = plateau_losses(config.eigenvalues, config.inverse_context)
        stay[name] = stays(times, flow.loss(times)[None], levels)[0, list(BETWEEN_EQUALS)]
    told = "; ".join(f"{name} eigenvalues {', '.join(f'{x:.2f}' for x in v)}" for name, v in stay.items())
    text = f"one head per eigenvector, aligned, all at 0.03: stay at m = 1, 3 in ln(time), {told}"
    return Measured(text, stay["repeated"], n="one flow, two levels")


def larger_ranks(seen: Seen) -> Measured:
    """Whether each start stays conspicuously longer where a head has to grow, R = 2 and 3."""
    ratios = {}
    for rank in (2, 3):
        stairs = seen.flows[rank]
        ratios[f"R = {rank}"] = stairs.stay_at(stairs.new_head) / np.maximum(stairs.stay_at(~stairs.new_head), 1e-9)
    text = f"mean stay at m divisible by R / at the others: {by_group(ratios, lambda v: f'median {np.median(v):.1f}')}"
    return Measured(text, np.concatenate([(v > CONSPICUOUS).astype(float) for v in ratios.values()]))


def at_once(seen: Seen) -> Measured:
    """The mean stay between the first level and the last at R = D."""
    mean = seen.flows[4].stays[:, 1:-1].mean(1)
    return Measured(f"R = 4, mean stay at m = 1, 2, 3: {spread(mean, 2)} in ln(time)", mean)


def same_end(seen: Seen) -> Measured:
    """The loss at the end by L(M_D), R > 1."""
    ratios = {f"R = {r}": s.loss[:, -1] / s.levels[-1] for r, s in seen.flows.items() if r > 1}
    return Measured(f"final loss / L(M_D): {by_group(ratios, percent)}", np.concatenate([*ratios.values()]))


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "with repeated eigenvalues R = 1 can still rest between two equal ones, or skip the plateau, by the seed",
        "Appendix E.5, Fig 9a",
        between_equals,
        Together([BySeed(), BySeed()], ["m = 1", "m = 3"]),
        f"heads start at random sizes, so their escapes differ even at equal rates; to rest is to stay {RESTS:g} in ln(time)",
    ),
    Claim(
        "the length of that plateau is determined by the random start alone",
        "Appendix E.5",
        only_the_start,
        Small(0.05, 0.2),
        "where all heads start alike two equal eigenvalues are learned at once; distinct ones are not",
    ),
    Claim(
        "larger ranks rest where m is divisible by R, as with distinct eigenvalues",
        "section 4, Figs 9b, 9c",
        larger_ranks,
        Together([Every(0.5, 0.5)] * 2, ["R = 2", "R = 3"]),
        f"the rule of section 4, which the figure is beside: conspicuous is {CONSPICUOUS:g} times as long",
    ),
    Claim(
        "R = D rests nowhere but at the start",
        "section 4, Fig 9d",
        at_once,
        Small(RESTS, 2 * RESTS),
        "one value for all eigenvectors",
    ),
    Claim(
        "the end is L(M_D) for every rank",
        "Eqs 5, 48",
        same_end,
        Close(0.01, 0.05),
        "along the flow, which has no noise",
    ),
]
