"""Fig 1a of paper 001: the loss waits at D values and falls between them, one eigenvector after the other.

Trains six seeds at once (about 6 s on one core), and six fresh ones, and integrates the flow from 48 starts (7 s).
Expect: every clear plateau within 1.1 % of Eq 5; drops where the population flow says within 3 %; often fewer than D
visible cliffs.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import probes
from analyses.paper_001_multi_head.plateau_measures import (
    CLEAR,
    by_plateau,
    clear_plateaus,
    cliffs_of,
    falls_of_flow,
    plateaus,
    rank_ratios,
    worst,
)
from analyses.paper_001_multi_head.runs import NAMES, RUNS, Group, figure_1, flows_from, starts, which_seeds
from analyses.paper_001_multi_head.seed_rules import SpreadRises
from analyses.tools.claims import Claim, Measured, by_group, judged, judged_again
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Small
from analyses.tools.source import Source
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, percent
from models.multi_head.many_flows import ManyFlows
from models.multi_head.theory import plateau_losses

END = {"toy": 700.0, "quick": 20000.0, "paper": 60000.0}  # of the flows
D = 4


@dataclass(frozen=True)
class Seen:
    """The trained runs, and flows from many starts."""

    group: Group
    flows: ManyFlows

    @cached_property
    def half_times(self) -> np.ndarray:
        """Of the flows: [starts, modes]."""
        return self.flows.half_times

    @cached_property
    def cliffs(self) -> list[tuple[int, int]]:
        """Of each trained run: cliffs found, and how many of them are at a half-learned mode."""
        return [cliffs_of(self.group, i) for i in self.group.seeds]


def gather(source: Source) -> Seen:
    """Train or load, and integrate."""
    group = figure_1(source)
    return Seen(group, flows_from(group.config, starts(source), END[source.size], 2.0))


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "multi_head_plateaus",
        "Plateaus and drops of the loss of several heads (Fig 1a)",
        "Trained by minibatches, the loss stops at the values of Eq 5 and falls when the next eigenvector is learned, the "
        "largest first. How long it stops is a matter of the start: two neighbouring drops are often so close that one "
        "cliff is seen, and a later plateau can be shorter than an earlier one.",
        f"{seen.group.facts}. Flow: {seen.flows.matrices.shape[1]} starts, those of the trained seeds among them. {which_seeds(source)}",
        draw(seen),
        "Left: expected loss of the weights, one curve per trained seed, and the plateaus of Eq 5 (dashes). Middle: when each "
        "eigenvector is half learned, along the population flow from many starts (dots) and in the trained runs (rings). "
        "Right: standard deviation of that time over the starts, by its mean, with 95 % intervals.",
        judged_again(CLAIMS, seen, gather(source.fresh), NAMES) if source.fresh else judged(CLAIMS, seen),
    )


def draw(seen: Seen):
    """Loss, half-times and their spread."""
    figure, axes = panels(1, 3, height=4.4)
    group, ax = seen.group, axes[0, 0]
    for loss in group.loss:
        ax.plot(group.times[1:], loss[1:], color="#1f6fb4", linewidth=0.8, alpha=0.8)
    for m, level in enumerate(group.levels):
        ax.axhline(level, **PRINTED, label="Eq 5" if m == 0 else None)
        ax.text(group.times[-1], level, f" {m}", va="center", fontsize=8)
    ax.plot([], [], color="#1f6fb4", label=f"trained, {len(group.runs)} seeds")
    ax.set(xscale="log", xlim=(5, group.times[-1]), xlabel="time (learning rate x step)", ylabel="expected loss")
    ax.set_title("(A) loss; right: eigenvectors learned")
    ax.legend(fontsize=8, loc="upper right")
    ax, half = axes[0, 1], seen.half_times
    shift = np.linspace(-0.25, 0.25, len(half))
    for d, colour in enumerate(mode_colours(D)):
        ax.plot(d + 1 + shift, half[:, d], ".", color=colour, label="flow, one start each" if d == 0 else None)
        rings = group.half_times[:, d]
        ax.plot(d + 1 + shift[: len(rings)], rings, "o", mfc="none", color="black", label="trained" if d == 0 else None)
    ax.set(yscale="log", xlabel="eigenvector", ylabel="half learned at time", xticks=range(1, D + 1))
    ax.set_title("(B) when each eigenvector is learned")
    ax.legend(fontsize=8, loc="upper left")
    ax, known = axes[0, 2], half[np.isfinite(half).all(1)]
    drawn = known[np.random.default_rng(0).integers(0, len(known), (2000, len(known)))]
    low, high = np.percentile(drawn.std(1) / drawn.mean(1), [2.5, 97.5], axis=0)
    middle = known.std(0) / known.mean(0)
    ax.errorbar(
        range(1, D + 1), middle, yerr=[np.maximum(middle - low, 0), np.maximum(high - middle, 0)], fmt="o", capsize=3
    )
    ax.set(xlabel="eigenvector", ylabel="standard deviation / mean", xticks=range(1, D + 1), ylim=(0, None))
    ax.set_title("(C) spread of that time over starts")
    return figure


def at_eq_5(seen: Seen) -> Measured:
    """The clear plateaus of every trained run, by the one furthest off; those of the flow are told."""
    found = plateaus(seen.group)
    flow = [
        clear_plateaus(seen.flows.times, loss, half, seen.group.levels)
        for loss, half in zip(seen.flows.loss, seen.half_times, strict=True)
    ]
    text = f"{sum(map(len, found))} clear plateaus of trained runs, measured / Eq 5: {by_group(by_plateau(found), percent)}"
    return Measured(f"{text}. Flow: {by_group(by_plateau(flow), percent)}", worst(found))


def size_of_drops(seen: Seen) -> Measured:
    """What Eq 5 says of each drop beside lambda; no run is needed once Eq 5 holds."""
    s, n = np.array(seen.group.config.eigenvalues), seen.group.config.context
    ratios, longer = (-np.diff(plateau_losses(s, 1 / k)) / s for k in (n, 511))
    told = ", ".join(f"{r:.2f}" for r in ratios)
    text = f"drop of Eq 5 / lambda, m = 1 .. {D}: {told} (N = {n}); {', '.join(f'{r:.2f}' for r in longer)} (N = 511)"
    return Measured(text, ratios, n=f"{D} drops, by Eq 5")


def visible_drops(seen: Seen) -> Measured:
    """Whether the loss falls as often as there are eigenvectors, along each flow; cliffs of trained runs are told."""
    fallen = falls_of_flow(seen.flows.times, seen.flows.loss)
    shares = ", ".join(f"{k} falls: {(fallen == k).sum()}" for k in np.unique(fallen))
    cliffs = ", ".join(str(found) for found, _ in seen.cliffs)
    text = f"starts by the number of falls along the flow: {shares}. Cliffs in the minibatch loss of trained runs: {cliffs}"
    return Measured(text, (fallen == D).astype(float))


def cliffs_at_drops(seen: Seen) -> Measured:
    """Whether all cliffs of a trained run are at half-learned modes."""
    text = f"{sum(n for _, n in seen.cliffs)} of {sum(n for n, _ in seen.cliffs)} cliffs within 20 % of a half-learned mode"
    return Measured(text, np.array([float(near == found > 0) for found, near in seen.cliffs]))


def largest_first(seen: Seen) -> Measured:
    """Whether modes are half learned in the order of their eigenvalues."""
    return _share_in_order("in order", seen.group.half_times, seen.half_times)


def later_is_longer(seen: Seen) -> Measured:
    """Whether each plateau lasts longer than the one before."""
    trained, flow = (np.diff(half, axis=1, prepend=0) for half in (seen.group.half_times, seen.half_times))
    return _share_in_order("each longer than the one before", trained, flow)


def times_of_the_flow(seen: Seen) -> Measured:
    """Half-times of SGD against the flow from the same start, of the mode furthest off."""
    ratio = seen.group.half_times / np.stack([flow.half_times for flow in seen.group.flows])
    text = "half-time, measured / flow, by mode: " + "; ".join(percent(column) for column in ratio.T)
    return Measured(text, ratio[:, int(np.abs(ratio.mean(0) - 1).argmax())])


def timing(seen: Seen) -> Measured:
    """When each mode is half learned, from every start."""
    missing = int((~np.isfinite(seen.half_times)).any(1).sum())
    text = f"half-times along the flow; mean by mode {', '.join(f'{np.mean(x[np.isfinite(x)]):.0f}' for x in seen.half_times.T)}"
    left_out = f"; {missing} starts left out that do not get there by t = {seen.flows.times[-1]:.0f}" if missing else ""
    return Measured(text + left_out, seen.half_times.T.ravel(), n=f"{len(seen.half_times)} starts")


def ranks(seen: Seen) -> Measured:
    """The effective rank of the product at clear plateaus, by the one furthest off."""
    found, ends = rank_ratios(seen.group), seen.group.flows[0].fixed_point
    own = ", ".join(f"{probes.effective_rank(np.diag(ends[:m])):.2f}" for m in range(1, D + 1))
    text = f"measured / effective rank of Eq 4 at the clear plateaus: {by_group(by_plateau(found), percent)}; Eq 4 has rank {own}"
    return Measured(text, worst(found))


def _share_in_order(what: str, trained: np.ndarray, flow: np.ndarray) -> Measured:
    """Whether the numbers of each start rise from mode to mode; those of trained runs are told."""
    of_runs, of_starts = ((np.diff(rows, axis=1) > 0).all(1) for rows in (trained, flow))
    text = (
        f"{what} from {of_starts.sum()} of {len(flow)} starts, and in {of_runs.sum()} of {len(trained)} trained seeds"
    )
    return Measured(text, of_starts.astype(float))


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "the loss at each plateau is L(M_m) of Eq 5",
        "Eqs 5, 30, Fig 1a",
        at_eq_5,
        Small(0.02, 0.05),
        f"judged by the plateau furthest off in each run; clear: the next drop at least {CLEAR:g} times as late. The noise "
        "of SGD lifts the loss, which the flow does not",
    ),
    Claim(
        "the loss decreases by approximately lambda_m in the m-th drop",
        "section 3.2, below Eq 5",
        size_of_drops,
        Close(0.1, 0.3),
        "the limit of long prompts, as the paper says; the drop is lambda_m / (1 + (1 + tr / lambda_m) / N), so that the "
        "smallest eigenvalue falls short most",
    ),
    Claim(
        "the loss goes through D abrupt drops",
        "section 3.2, Fig 1a",
        visible_drops,
        Every(0.5, 0.2),
        {
            HOLDS: "as many as there are eigenvectors, whatever the start",
            IN_PART: "where two eigenvectors are learned within a factor two of time one cliff is seen",
            FAILS: "where two eigenvectors are learned within a factor two of time one cliff is seen, and that is usual",
        },
    ),
    Claim(
        "(ours) the cliffs that are seen are the learning of eigenvectors",
        "Fig 1a",
        cliffs_at_drops,
        Every(5 / 6, 0.5),
        "found in the noisy minibatch loss alone, without the theory",
    ),
    Claim(
        "eigenvectors are learned one after another, the largest eigenvalue first",
        "section 3.2",
        largest_first,
        Every(0.9, 1 / 24),
        "rates go as the square of the eigenvalue; a start in which the head of a later one is far ahead could reverse two",
    ),
    Claim(
        "later plateaus last longer",
        "section 3.2, Figs 1a, 6",
        later_is_longer,
        Every(0.5, 1 / 24),
        "the rate falls with lambda², but what the next head has grown to meanwhile is chance",
    ),
    Claim(
        "(ours) the population flow of Eq 24 from each run's start gives the time of every drop",
        "Eqs 17, 22-24",
        times_of_the_flow,
        Close(0.1, 0.25),
        "judged by the mode furthest off; no free parameter, what is left is the noise of minibatches",
    ),
    Claim(
        "the variance of the time of a drop increases with m",
        "below Eq 43, Fig 1a",
        timing,
        SpreadRises(D, relative=False),
        "what is later varies more if only because it is later: the next row",
    ),
    Claim(
        "(ours) also by its own size the time of a later drop varies more between seeds",
        "below Eq 43, read strictly",
        timing,
        SpreadRises(D, relative=True),
        {
            HOLDS: "at every step, beyond being later",
            IN_PART: "not at every step, but the last drop more than the first: it depends on all that came before",
            FAILS: "a later drop is as certain, for its time, as the first",
        },
        set_before=False,
    ),
    Claim(
        "(ours) the effective rank of what the heads do together counts the eigenvectors learned",
        "Eq 4, Roy & Vetterli's rank",
        ranks,
        Small(0.1, 0.3),
        "seen in the weights alone, without the theory's basis",
    ),
]
