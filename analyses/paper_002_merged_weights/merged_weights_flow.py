"""Theorems 4.1 and 4.5 of paper 002: where gradient flow takes the merged weights, and whether SGD gets there.

Trains one covariance (six seeds, about 6 s on one core), random covariances (12 s) and one setting with the rows in
training, with its control (10 s), and as many fresh seeds. Expect: the flow within 1e-9 of its limit; u U of SGD within 1 % of Gamma^-1; the balance of u and U kept
by the flow and lost by SGD, quickly so if the rows are trained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyses.paper_002_merged_weights.runs import RUNS, Group, of_context, random_covariances, with_rows, without_rows
from analyses.tools.claims import Claim, Measured, judged, judged_again
from analyses.tools.draw import EXACT, band, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Small
from analyses.tools.source import Source
from analyses.tools.verdicts import percent, spread
from models.merged_weights.theory import MergedFlow, largest_init, moments_of_fixed

LONG = 1e4  # far beyond every relaxation


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    fixed, random, rows = seen.fixed, seen.random, seen.rows
    return Page(
        "merged_weights_flow",
        "Gradient flow of merged weights and its limit",
        "Gradient flow ends where Theorems 4.1 and 4.5 say, and SGD computes the same function. How the function is shared "
        "between u and U is kept by the flow alone: the noise of SGD moves it.",
        f"{fixed.facts}. Random: {random.facts}. Rows: batch {rows.config.batch}, {rows.runs[0].steps[-1]} steps",
        draw(fixed, random, rows, seen.control),
        "Left and second: diagonal of u U in the eigenbasis, mean and standard deviation over seeds (colour) and the flow "
        "from the start of seed 0 (black), for one covariance and for random ones. Third: u itself; the line is its limit in "
        "the flow. Right: norms of the two rows that the flow leaves at zero, if SGD trains them.",
        judged_again(CLAIMS, seen, gather(source.fresh)) if source.fresh else judged(CLAIMS, seen),
    )


@dataclass(frozen=True)
class Seen:
    """Runs of one covariance, of random ones, with the rows in training, and the control of those without."""

    fixed: Group
    random: Group
    rows: Group
    control: Group


def gather(source: Source) -> Seen:
    """Train or load."""
    return Seen(of_context(20, source), random_covariances(source), with_rows(source), without_rows(source))


def trajectories(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Times, and measured modes [seeds, times, modes]."""
    tables = [a.trajectories.pivot_table(index="time", columns="mode", values="measured") for a in group.alignments]
    return tables[0].index.to_numpy(), np.stack([table.to_numpy() for table in tables])


def values(group: Group) -> np.ndarray:
    """u at every checkpoint: [seeds, times]."""
    return np.stack([np.sqrt(a.weights["value"].to_numpy()) for a in group.alignments])


def draw(fixed: Group, random: Group, rows: Group, control: Group):
    """Modes, u, and rows."""
    figure, axes = panels(1, 4, height=4.0)
    for ax, group, title in ((axes[0, 0], fixed, "one covariance"), (axes[0, 1], random, "random covariances")):
        times, measured = trajectories(group)
        fine = np.geomspace(times[1], times[-1], 300)
        flow = group.flows[0].modes(fine)
        for k, colour in enumerate(mode_colours(measured.shape[-1])):
            band(ax, times[1:], measured[:, 1:, k], colour, f"trained, mode {k + 1}")
            ax.plot(fine, flow[:, k], **EXACT, label="flow, seed 0" if k == 0 else None)
        ax.set(xscale="log", xlabel="time (learning rate x step)", ylabel="u U, diagonal", title=title)
        ax.legend(fontsize=7)
    ax = axes[0, 2]
    shown = (
        (fixed, "u and U trained", "#1f6fb4"),
        (control, "smaller batch", "#8ab17d"),
        (rows, "and rows", "#d1603d"),
    )
    for group, label, colour in shown:
        times = trajectories(group)[0]
        band(ax, times[1:], values(group)[:, 1:], colour, label)
    ax.axhline(fixed.flows[0].final_value, **EXACT, label="limit of the flow")
    ax.set(xscale="log", xlabel="time (learning rate x step)", ylabel="u", title="how the product is shared")
    ax.legend(fontsize=8, loc="lower right")
    ax = axes[0, 3]
    times = trajectories(rows)[0]
    band(ax, times[1:], np.stack([a.weights["null"].to_numpy()[1:] for a in rows.alignments]), "#d1603d", "both rows")
    ax.set(xscale="log", xlabel="time (learning rate x step)", ylabel="norm", title="rows w_21 under SGD")
    ax.legend(fontsize=8, loc="upper left")
    return figure


def flow_ends_there(which: str) -> Callable[[Seen], Measured]:
    """How far the flow from each run's start is from its printed limit."""

    def measure(seen: Seen) -> Measured:
        off = np.array([_distance_to_limit(one) for one in getattr(seen, which).flows])
        return Measured(f"flow at t = {LONG:g}: largest difference from it {off.max():.0e}", off)

    return measure


def sgd_product(seen: Seen) -> Measured:
    """u U of SGD against Gamma^-1."""
    off = _relative(seen.fixed)
    return Measured(f"||u U - Gamma^-1|| / ||Gamma^-1||: {spread(off)}", off)


def least_loss(seen: Seen) -> Measured:
    """The loss above the least one, from starts just below the bound; larger starts are told."""
    bound = largest_init(seen.fixed.config.eigenvalues, seen.fixed.config.context)
    above = {
        k: np.array([_above_least(flow, k * bound / seen.fixed.config.init) for flow in seen.fixed.flows])
        for k in (0.9, 2.0, 5.0)
    }
    told = ", ".join(f"from {k:g} x the bound at most {np.abs(v).max():.0e}" for k, v in above.items())
    return Measured(f"bound sigma < {bound:.2f}; loss above the least one at t = {LONG:g}: {told}", np.abs(above[0.9]))


def share_of_u(seen: Seen) -> Measured:
    """u of SGD against its limit; beside it a flow that starts out of balance."""
    flow = seen.fixed.flows[0]
    moments = moments_of_fixed(seen.fixed.config.eigenvalues, seen.fixed.config.context)
    elsewhere = MergedFlow(moments, 1.5, flow.start[1:].reshape(flow.moments.cost.shape))
    u = _value_ratio(seen.fixed)
    text = (
        f"u of SGD / Eq 4.1: {percent(u)}. Flow from u(0) = 1.5, not balanced: u / Eq 4.1 = "
        f"{elsewhere.weights([LONG])[0][0] / flow.final_value:.3f}, product {_product_error(elsewhere):.0e} off"
    )
    return Measured(text, u)


def balance_of_the_flow(seen: Seen) -> Measured:
    """How much u^2 - ||U||^2 changes along the flow; SGD beside it."""
    change = np.array([float(np.ptp(one.conserved([0.0, 5.0, 50.0, LONG]))) for one in seen.fixed.flows])
    random = np.array([float(np.ptp(one.conserved([0.0, 5.0, 50.0, LONG]))) for one in seen.random.flows])
    drift, smaller, rows = (
        np.array([a.conserved_drift for a in g.alignments]) for g in (seen.fixed, seen.control, seen.rows)
    )
    text = (
        f"flow: changes by {change.max():.0e}, with random covariances {random.max():.0e}. SGD, change / (u² + ||U||²): {spread(drift)} (batch {seen.fixed.config.batch}), "
        f"{spread(smaller)} (batch {seen.control.config.batch}); rows in training too: {spread(rows)}"
    )
    return Measured(text, np.concatenate((change, random)))


def rows_stay(seen: Seen) -> Measured:
    """The rows beside u and U at the end."""
    null = np.array([a.null_growth for a in seen.rows.alignments])
    text = (
        f"SGD, norm of both / norm of u and U at the end: {spread(null)}; u / Eq 4.1 with them in training: "
        f"{percent(_value_ratio(seen.rows))}, control without: {percent(_value_ratio(seen.control))}"
    )
    return Measured(text, null)


def half_times(seen: Seen) -> Measured:
    """Of every mode of every run, against the flow from its start."""
    half = seen.fixed.per_seed("half_time_ratio")
    text = "half-time, measured / flow, by mode: " + "; ".join(percent(column) for column in half.T)
    worst = half[:, int(np.abs(half.mean(0) - 1).argmax())]
    return Measured(text, worst)


def random_ends(seen: Seen) -> Measured:
    """Where SGD on random covariances ends, of the mode furthest off."""
    ratio = seen.random.per_seed("measured_end") / seen.random.flows[0].fixed_point
    text = "SGD / Eq 4.11, by mode: " + "; ".join(percent(column) for column in ratio.T)
    return Measured(text, ratio[:, int(np.abs(ratio.mean(0) - 1).argmax())])


def in_order(seen: Seen) -> Measured:
    """Whether the modes were half learned one after another."""
    right = np.array([bool((np.diff(row) > 0).all()) for row in seen.fixed.per_seed("measured_half_time")], dtype=float)
    return Measured(f"half-times of SGD in order in {right.sum():.0f} of {len(right)} seeds", right)


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "gradient flow converges to the limit of Theorem 4.1",
        "Theorem 4.1, Eqs 4.1, 5.9, Lemma 5.4",
        flow_ends_there("fixed"),
        Small(1e-8, 1e-4),
        "by integration from the start of each run; the loss is not convex",
    ),
    Claim(
        "(ours) SGD computes the function of that limit",
        "Eq 4.1",
        sgd_product,
        Small(0.05, 0.2),
        "the product u U, not its factors (below)",
    ),
    Claim(
        "from sigma² ||Gamma|| sqrt(d) < 2 gradient flow converges to a global minimum",
        "Theorem 4.1",
        least_loss,
        Small(1e-8, 1e-4),
        "judged just below the bound; that larger starts get there too would make it sufficient, not necessary",
    ),
    Claim(
        "u ends at tr(Gamma^-2)^(1/4), U with the same norm",
        "Eqs 4.1, 5.9",
        share_of_u,
        Close(0.03, 0.2),
        "needs the balanced start of Assumption 3.3 and no noise: either moves u along the valley of equal functions",
    ),
    Claim(
        "u² - ||U||² stays zero along the way",
        "Lemmas A.3, C.5",
        balance_of_the_flow,
        Small(1e-7, 1e-3),
        "a law of the flow, judged on the flow; the noise of SGD is no part of it",
    ),
    Claim(
        "w_21 of W^PV and of W^KQ stay zero from zero",
        "Lemma 5.2",
        rows_stay,
        Small(0.05, 0.2),
        "their expected gradient vanishes; what SGD makes of them, and of u meanwhile, has no theory here",
    ),
    Claim(
        "(ours) SGD follows Eq 5.4 in time, mode by mode",
        "Lemma 5.2, Eqs 3.7, 3.8, 3.9, 5.4",
        half_times,
        Close(0.05, 0.2),
        "judged by the mode that is furthest off; no free parameter: the flow starts where each run starts",
    ),
    Claim(
        "with random covariances the limit is Eq 4.11",
        "Theorem 4.5, Eq 4.11",
        flow_ends_there("random"),
        Small(1e-8, 1e-4),
        "by integration",
    ),
    Claim(
        "(ours) SGD on random covariances ends there",
        "Eq 4.11",
        random_ends,
        Close(0.05, 0.2),
        "judged by the mode that is furthest off; Exponential(1) eigenvalues have heavy tails, so SGD needs a small step",
    ),
    Claim(
        "eigendirections of larger variance are learned first",
        "(ours, from Eq 5.4)",
        in_order,
        Every(in_part=0.5, chance=1 / 120),
        "U grows at the rate u lambda²; with one u for all modes there are no plateaus",
    ),
]


def _distance_to_limit(flow: MergedFlow) -> float:
    """Largest entry by which u and U at the end differ from Eqs 4.1 / 4.11."""
    value, key_query = (part[0] for part in flow.weights([LONG]))
    root = np.sqrt(np.linalg.norm(flow.fixed_point))
    return float(max(abs(value - root), np.abs(key_query - np.diag(flow.fixed_point) / root).max()))


def _product_error(flow: MergedFlow) -> float:
    value, key_query = (part[0] for part in flow.weights([LONG]))
    return float(np.abs(value * key_query - np.diag(flow.fixed_point)).max())


def _relative(group: Group) -> np.ndarray:
    target = np.diag(group.flows[0].fixed_point)
    return np.linalg.norm(group.products - target, axis=(1, 2)) / np.linalg.norm(target)


def _above_least(flow: MergedFlow, grow: float) -> float:
    """How far above the least loss the flow ends from its start made larger."""
    other = MergedFlow(flow.moments, grow * flow.start[0], grow * flow.start[1:].reshape(flow.moments.cost.shape))
    return float(other.loss([LONG])[0] - other.final_loss)


def _value_ratio(group: Group) -> np.ndarray:
    """u at the end of each run against its limit in the flow."""
    return values(group)[:, -1] / np.array([one.final_value for one in group.flows])
