"""Sections 4.2 and 4.3 of paper 002: what the trained head does when the test prompts differ from the training ones.

Uses the runs of `merged_weights_errors` and `merged_weights_flow` (20 s if they are not there yet) and samples prompts
(15 s). Expect: task and query shifts cost what Eq 4.6 says; a scaled covariance scales the answer by less than c² at
finite N; random covariances shrink it to 1/3 or 2/3, by how the query is drawn; a query orthogonal to the prompt is
answered with zero only if the covariance is isotropic.
"""

from pathlib import Path

import numpy as np

from analyses.paper_002_merged_weights.runs import RUNS, Group
from analyses.paper_002_merged_weights.shift_measures import (
    LENGTH,
    SCALES,
    SHIFTED_TASKS,
    TASK,
    Seen,
    a_third,
    at_finite_n,
    gather,
    in_the_limit,
    least_squares_beside,
    orthogonal_answers,
    orthogonal_isotropic,
    orthogonal_queries,
    other_queries,
    other_tasks,
    queries_in_the_limit,
    scaled_inputs,
)
from analyses.tools.claims import Claim, judged, judged_again
from analyses.tools.draw import EXACT, MEASURED, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Close, Small, Together
from analyses.tools.source import Source
from models.merged_weights.errors import covariate_shift_slope, exponential_slope
from models.merged_weights.theory import gamma


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "merged_weights_shifts",
        "Task, query and covariate shift (sections 4.2 and 4.3)",
        "Other tasks and other queries are answered as well as Eq 4.6 says; other covariances are not, since the head divides by "
        "the training covariance. Three statements need more than is printed: the c² of a scaled covariance needs long training "
        "prompts, the 1/3 of random covariances a query drawn independently, the zero for orthogonal queries isotropy.",
        f"{seen.fixed.facts}; M = {LENGTH}; random: {seen.random.facts}; {seen.draws} prompts a point",
        draw(seen.fixed, seen.scaled, seen.random, seen.exponential),
        "Left: slope of the answer against the truth when the test inputs are scaled by c; points are trained heads, N = 20. "
        "Middle: after training on Exponential(1) covariances, the slope for queries drawn with the covariance of their prompt "
        "and independently of it, against N; points are trained heads. Right: answers to queries orthogonal to a prompt of three examples, "
        "by the size of the query, as a share of those to ordinary ones.",
        judged_again(CLAIMS, seen, gather(source.fresh)) if source.fresh else judged(CLAIMS, seen),
    )


def draw(fixed: Group, scaled: dict, random: Group, exponential: dict):
    """Slopes under shift, and orthogonal queries."""
    figure, axes = panels(1, 3, height=4.2)
    ax, s = axes[0, 0], fixed.config.eigenvalues
    fine = np.linspace(SCALES[0], SCALES[-1], 60)
    ax.plot(fine, fine**2, **PRINTED, label="printed, c²")
    ax.plot(fine, [covariate_shift_slope(s, 20, TASK, c) for c in fine], **EXACT, label="at finite N")
    for c, slopes in scaled.items():
        label = "trained heads" if c == SCALES[0] else None
        ax.plot(np.full(len(slopes), c), slopes, "o", color=MEASURED, markersize=5, alpha=0.7, label=label)
    ax.set(
        xlabel="scale c of the test inputs", ylabel="slope of the answer against the truth", title="(A) covariate shift"
    )
    ax.legend()
    ax = axes[0, 1]
    lengths, d = np.geomspace(3, 3000, 60), len(random.config.eigenvalues)
    for (name, slopes), colour in zip(exponential.items(), mode_colours(3), strict=False):
        ax.plot(
            lengths,
            [exponential_slope(d, n, joint=name == "joint") for n in lengths],
            color=colour,
            label=f"{name} query",
        )
        ax.plot(np.full(len(slopes), random.config.context), slopes, "o", color=colour, markersize=5, alpha=0.7)
    ax.axhline(1 / 3, **PRINTED, label="printed, 1/3")
    ax.set(xscale="log", ylim=(0, 0.8), xlabel="training length N", ylabel="slope of the answer against the truth")
    ax.set_title("(B) random covariances")
    ax.legend(loc="lower right")
    ax = axes[0, 2]
    spreads = np.linspace(1, 6, 12)
    for factor in spreads:
        s = np.geomspace(1, 1 / factor, 5)
        share = orthogonal_answers(np.diag(1 / gamma(s, 1e9)), s, 3, 4000)
        ax.plot(factor, share, "o", color=MEASURED, label="head of Eq 4.1" if factor == spreads[0] else None)
    ax.axhline(0, **PRINTED, label="printed, 0")
    ax.set(xlabel="condition number of the covariance", ylabel="answer / |query|, share of an ordinary one")
    ax.set_title("(C) query orthogonal to the prompt")
    ax.legend()
    return figure


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "task shifts are tolerated: any w is answered as Theorem 4.2 says",
        "section 4.2, Theorem 4.2",
        other_tasks,
        Together([Close(0.05, 0.2)] * 2, list(SHIFTED_TASKS)),
        "the answer is linear in w: the error scales with its square",
    ),
    Claim(
        "query shifts cost what Theorem 4.2 says, with the query's own covariance",
        "section 4.2, Eq 4.7",
        other_queries,
        Together([Close(0.1, 0.3)] * 2, ["uniform on a cube", "along e5 only"]),
        "at finite N the bias is largest along small eigenvalues",
    ),
    Claim(
        "very general query shifts are tolerated if the query does not depend on the prompt",
        "section 4.2",
        queries_in_the_limit,
        Small(0.01, 0.1),
        "in the limit of long prompts, of which the text speaks",
    ),
    Claim(
        "a query orthogonal to all examples is answered with zero",
        "section 4.2",
        orthogonal_queries,
        Small(0.02, 0.1),
        "Gamma^-1 turns the examples out of their span, unless it is a multiple of the identity",
        set_before=False,
    ),
    Claim(
        "(ours) it is if the covariance is isotropic",
        "section 4.2, for Λ = I",
        orthogonal_isotropic,
        Small(1e-10, 1e-3),
        "the answer is then a mean of products with the examples",
    ),
    Claim(
        "inputs scaled by c scale the answer by c²",
        "section 4.2",
        scaled_inputs(False),
        Close(0.05, 0.3),
        "the limit of long training prompts; at finite N the slope is smaller by w^T L Gamma^-1 L w / (w^T L w)",
    ),
    Claim(
        "(ours) the slope is c² w^T L Gamma^-1 L w / (w^T L w)",
        "Eq 4.3 at finite N",
        scaled_inputs(True),
        Close(0.02, 0.1),
        "no limit taken",
    ),
    Claim(
        "covariate shifts are not tolerated, where least squares would be",
        "section 4.2",
        least_squares_beside,
        AboveControls(),
        "the head divides by the training covariance instead of the prompt's own; the controls are least squares",
    ),
    Claim(
        "trained on Exponential(1) covariances the head answers with a third of the truth, N = 20",
        "below Eq 4.12",
        a_third("independent"),
        Close(0.05, 0.3),
        "the query independent of the new covariance, as the mean below Eq 4.12 takes it; a third is the limit of long training prompts",
    ),
    Claim(
        "in the limit it does, the query independent of the new covariance",
        "Eq 4.12 and below",
        in_the_limit("independent"),
        Close(0.01, 0.1),
        "from Eq 4.11, with N as large as one likes",
    ),
    Claim(
        "in the limit it does, the query drawn with the new covariance",
        "Eq 4.12 and below, as the text draws it",
        in_the_limit("joint"),
        Close(0.01, 0.1),
        "E[λ²] then takes the place of E[λ]²: directions of large variance have large queries too",
    ),
    Claim(
        "(ours) the slope is 2 / [6 (N+1)/N + (6 + 2 (d-1))/N], twice that for a joint query",
        "Eq 4.11 at finite N",
        at_finite_n,
        Together([Close(0.05, 0.15)] * 2, ["joint", "independent"]),
        "the same weights, without the limit",
    ),
]
