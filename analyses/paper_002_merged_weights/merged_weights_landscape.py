"""Section 5 and Appendices A, C of paper 002: the form of the loss, its minima, and how far from the saddle the flow stays.

Follows the flow from the starts of the trained runs (20 s on one core if those are not there yet, else 5 s) and from as
large ones as the theorems allow. Expect: the constants of Lemmas 5.4, A.5, C.7 and C.8 kept with room to spare, by factors
of three to a thousand; the limit of u in Eq C.15 misprinted.
"""

from pathlib import Path

from analyses.paper_002_merged_weights.landscape_measures import (
    CLOSE_TO_BOUND,
    TIMES,
    Seen,
    every_minimum,
    floor_of,
    gather,
    inequality,
    limit_of_u,
    loss_falls_at_mu,
    mean_of_squares,
    mu_of,
    not_convex,
    quadratic_form,
    random_inequality,
    random_start,
    random_u,
    u_stays_away,
    u_stays_positive,
)
from analyses.paper_002_merged_weights.runs import RUNS
from analyses.tools.claims import Claim, judged, judged_again
from analyses.tools.draw import EXACT, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AtMost, Close, Every, Small
from analyses.tools.source import Source
from models.merged_weights.landscape import printed_final_value, steepness


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "merged_weights_landscape",
        "The loss, its minima, and the way past the saddle (section 5, Appendices A and C)",
        "The inequality that drives the proof holds along every flow that was followed, and u stays above its bound: both with "
        "much room, since u only grows from a start as small as the theorems ask for. Two lines of the appendix are "
        "misprinted, without harm to the theorems.",
        f"{seen.fixed.facts}. Random: {seen.random.facts}",
        draw(seen),
        "Left: squared gradient over the loss above the least, along the flow from the start of each run (blue) and from starts "
        "near the bound of Theorem 4.1 (green); dashes: the printed constant mu of each kind of start. Middle: u along the same flows, and "
        "what Lemma A.5 says it stays above. Right: u with random covariances, its limit as printed in Eq C.15 and with the missing squares.",
        judged_again(CLAIMS, seen, gather(source.fresh)) if source.fresh else judged(CLAIMS, seen),
    )


def draw(seen: Seen):
    """The inequality, u, and u for random covariances."""
    figure, axes = panels(1, 3, height=4.2)
    for (name, flows), colour in zip(seen.flows.items(), ("#1f6fb4", "#8ab17d"), strict=True):
        for i, flow in enumerate(flows):
            squares, above = steepness(flow, TIMES[1:])
            kept = above > 1e-9
            label = f"start {name}" if i == 0 else None
            axes[0, 0].plot(TIMES[1:][kept], squares[kept] / above[kept], color=colour, linewidth=1.2, label=label)
            axes[0, 1].plot(TIMES[1:], flow.weights(TIMES[1:])[0], color=colour, linewidth=1.2, label=label)
        axes[0, 0].axhline(mu_of(seen, flows[0]), **(PRINTED | {"color": colour}), label=f"mu, {name}")
        axes[0, 1].axhline(floor_of(seen, flows[0]), **(PRINTED | {"color": colour}), label=f"Lemma A.5, {name}")
    axes[0, 0].set(xscale="log", yscale="log", xlabel="time", ylabel="squared gradient / loss above the least")
    axes[0, 0].set_title("(A) inequality of Polyak and Lojasiewicz")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="time", ylabel="u", title="(B) u stays away from 0")
    ax = axes[0, 2]
    for flow, colour in zip(seen.random.flows, mode_colours(len(seen.random.flows)), strict=True):
        ax.plot(TIMES[1:], flow.weights(TIMES[1:])[0], color=colour, linewidth=1.2)
    ax.axhline(printed_final_value(seen.random.flows[0]), **PRINTED, label="Eq C.15, printed")
    ax.axhline(seen.random.flows[0].final_value, **EXACT, label="with the squares")
    ax.set(xscale="log", xlabel="time", ylabel="u", title="(C) u with random covariances")
    for one in axes[0]:
        one.legend(fontsize=7)
    return figure


_ROOM = "along the flow from the start of every run, and from starts that are nearly as large as is allowed"

CLAIMS: list[Claim[Seen]] = [
    Claim(
        "the answer is a quadratic form u^T H u",
        "Lemma 5.1, Eqs 3.6, 5.1, 5.2",
        quadratic_form,
        Small(1e-10, 1e-4),
        "at random weights, all blocks of Eq 3.5 filled",
    ),
    Claim(
        "H has at least d + 1 negative eigenvalues: the problem is not convex",
        "section 5.1",
        not_convex,
        Every(0.5, 0.5),
        "the query enters with both signs",
    ),
    Claim(
        "every global minimum has u U = Gamma^-1, with the value -tr(Lambda² Gamma^-1) / 2",
        "Lemmas 5.3, A.1, Corollary A.2, Eqs 5.3, 5.5, 5.6",
        every_minimum("fixed"),
        Small(1e-5, 1e-2),
        "found by quasi-Newton steps from random weights, without the flow",
    ),
    Claim(
        "with random covariances every global minimum has u U = diag(xi / gamma)",
        "Lemmas C.1, C.3, C.4, Corollary C.2",
        every_minimum("random"),
        Small(1e-5, 1e-2),
        "found by quasi-Newton steps from random weights, without the flow",
    ),
    Claim(
        "u stays above zero",
        "Lemmas A.4, C.6",
        u_stays_positive,
        Every(0.5, 0.5),
        _ROOM,
    ),
    Claim("u stays above the constant of Eq A.14", "Lemma A.5", u_stays_away, AtMost(1.0), _ROOM),
    Claim(
        "the squared gradient is at least mu times the loss above the least",
        "Lemma 5.4, Eqs 5.7, 5.8",
        inequality,
        AtMost(1.0),
        _ROOM,
    ),
    Claim(
        "so that this loss falls at least as exp(-mu t)",
        "Lemma 5.4",
        loss_falls_at_mu,
        AtMost(1.0 + 1e-9),
        "a bound, not a rate: the flow is faster by the room that the row above tells",
    ),
    Claim(
        "from a start below Eq 4.10 gradient flow on random covariances converges to a global minimum",
        "Theorem 4.5, Eqs 4.9, 4.10",
        random_start,
        Small(1e-8, 1e-4),
        f"from {CLOSE_TO_BOUND:g} of the bound; its mean over covariances was drawn, the others are exact",
    ),
    Claim("u stays above the constant of Eq C.12, as stated", "Lemma C.7", random_u(True), AtMost(1.0), _ROOM),
    Claim(
        "(ours) and above the one that the proof arrives at, with ||E Λ²|| in place of ||E Λ Θ||²",
        "Lemma C.7, last line of its proof",
        random_u(False),
        AtMost(1.0),
        "the two differ; the next lemma uses the second",
    ),
    Claim(
        "the squared gradient is at least nu times the loss above the least, for random covariances",
        "Lemma C.8",
        random_inequality,
        AtMost(1.0),
        _ROOM,
    ),
    Claim(
        "u tends to [sum xi / gamma]^(1/4)",
        "Lemma C.8, Eq C.15 as printed",
        limit_of_u(True),
        Close(0.001, 0.05),
        "a slip: xi and gamma lack their squares, as the end of the proof and Eq 4.11 have them",
    ),
    Claim(
        "(ours) u tends to [sum xi² / gamma²]^(1/4)",
        "Lemma C.8, corrected; Eq 4.11",
        limit_of_u(False),
        Close(0.001, 0.05),
        "u² = ||U|| and u U = diag(xi / gamma)",
    ),
    Claim(
        "E tr[Λ² Θ Θ^T] = ||E[Λ] Θ||²",
        "proof of Lemma C.6, as printed",
        mean_of_squares,
        Close(0.001, 0.05),
        "the mean of a square is above the square of the mean; the lemma needs no more than that",
    ),
]
