"""Sections 4.2 and 4.3 of paper 002: what the trained head does when the test prompts differ from the training ones.

Uses the runs of `merged_weights_errors` and `merged_weights_flow` (20 s if they are not there yet) and samples prompts
(10 s). Expect: task and query shifts cost what Eq 4.6 says; a scaled covariance scales the answer by less than c² at
finite N; random covariances shrink it to 1/3 or 2/3, by how the query is drawn; a query orthogonal to the prompt is
answered with zero only if the covariance is isotropic.
"""

from pathlib import Path

import numpy as np

from analyses.paper_002_merged_weights.runs import RUNS, Group, of_context, random_covariances
from analyses.tools.draw import EXACT, MEASURED, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict, judge, percent, spread
from models.merged_weights.errors import (
    covariate_shift_slope,
    exponential_slope,
    linear_law,
    prediction_error,
    shifted_query_error,
)
from models.merged_weights.theory import gamma

TASK = np.array([1.0, -1.0, 0.5, 2.0, 0.3])
LENGTH = 50  # M
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0)
DRAWS = {"toy": 2000, "quick": 40000, "paper": 200000}
SHIFTED_TASKS = {"w as in training": 1.0, "w ten times larger": 10.0}


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    fixed, random = of_context(20, size, runs), random_covariances(size, runs)
    draws = DRAWS[size]
    scaled = covariate_shift(fixed, draws)
    exponential = random_shift(random, draws)
    return Page(
        "merged_weights_shifts",
        "Task, query and covariate shift (sections 4.2 and 4.3)",
        "Other tasks and other queries are answered as well as Eq 4.6 says; other covariances are not, since the head divides by "
        "the training covariance. Three statements need more than is printed: the c² of a scaled covariance needs long training "
        "prompts, the 1/3 of random covariances a query drawn independently, the zero for orthogonal queries isotropy.",
        f"{fixed.facts}; M = {LENGTH}; random: {random.facts}; {draws} prompts a point",
        draw(fixed, scaled, random, exponential),
        "Left: slope of the answer against the truth when the test inputs are scaled by c; points are trained heads, N = 20. "
        "Middle: after training on Exponential(1) covariances, the slope for queries drawn with the covariance of their prompt "
        "and independently of it, against N; points are trained heads. Right: answers to queries orthogonal to a prompt of three examples, "
        "by the size of the query, as a share of those to ordinary ones.",
        judgements(fixed, scaled, random, exponential, draws),
    )


def covariate_shift(group: Group, draws: int) -> dict[float, np.ndarray]:
    """Slope of the answer against the truth for inputs scaled by c, for every seed; least squares through zero."""
    rng, s, found = np.random.default_rng(0), np.array(group.config.eigenvalues), {}
    for c in SCALES:
        mean, query = _linear_prompts(c**2 * s, TASK, LENGTH, draws, rng)
        truth = query @ TASK
        found[c] = np.array([_slope(((mean @ p) * query).sum(-1), truth) for p in group.products])
    return found


def random_shift(group: Group, draws: int) -> dict[str, np.ndarray]:
    """The same for new Exponential(1) covariances, with the query drawn jointly with them or independently."""
    rng, d = np.random.default_rng(1), len(group.config.eigenvalues)
    covariance, w = rng.exponential(size=(draws, d)), rng.standard_normal((draws, d))
    mean = covariance * w  # a test prompt without end, as below Eq 4.12
    queries = {
        "joint": rng.standard_normal((draws, d)) * np.sqrt(covariance),
        "independent": rng.standard_normal((draws, d)) * np.sqrt(rng.exponential(size=(draws, d))),
    }
    return {
        name: np.array([_slope(((mean @ p) * query).sum(-1), (w * query).sum(-1)) for p in group.products])
        for name, query in queries.items()
    }


def orthogonal_answers(inverse: np.ndarray, eigenvalues: np.ndarray, examples: int, draws: int) -> float:
    """Size of the answers to queries orthogonal to the examples, by the size of the query, over that of ordinary ones."""
    rng = np.random.default_rng(2)
    d = len(eigenvalues)
    x = rng.standard_normal((draws, examples, d)) * np.sqrt(eigenvalues)
    query, w = rng.standard_normal((draws, d)) * np.sqrt(eigenvalues), rng.standard_normal((draws, d))
    mean = np.einsum("knd,kne,ke->kd", x, x, w, optimize=True) / examples
    basis = np.linalg.qr(x.transpose(0, 2, 1))[0]
    across = query - np.einsum("kdn,ken,ke->kd", basis, basis, query, optimize=True)
    gains = [(((mean @ inverse) * q).sum(-1) ** 2).mean() / (q**2).sum(-1).mean() for q in (across, query)]
    return float(np.sqrt(gains[0] / gains[1]))


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
        ax.plot(factor, share, "o", color=MEASURED)
    ax.axhline(0, **PRINTED, label="printed, 0")
    ax.set(xlabel="condition number of the covariance", ylabel="answer / |query|, share of an ordinary one")
    ax.set_title("(C) query orthogonal to the prompt")
    ax.legend()
    return figure


def judgements(fixed: Group, scaled: dict, random: Group, exponential: dict, draws: int) -> list[Verdict]:
    """The claims of sections 4.2 and 4.3."""
    rng, s, n = np.random.default_rng(3), np.array(fixed.config.eigenvalues), fixed.config.context
    tasks = {}
    for name, factor in SHIFTED_TASKS.items():
        mean, query = _linear_prompts(s, factor * TASK, LENGTH, draws, rng)
        errors = np.array(
            [np.mean((((mean @ p) * query).sum(-1) - query @ (factor * TASK)) ** 2) for p in fixed.products]
        )
        tasks[name] = errors / prediction_error(s, n, LENGTH, linear_law(s, factor * TASK))
    queries = {
        "uniform on a cube": rng.uniform(-3, 3, (draws, len(s))),
        "along e5 only": np.eye(5)[[4]] * rng.standard_normal((draws, 1)),
    }
    shifted = {}
    for name, query in queries.items():
        mean, _ = _linear_prompts(s, TASK, LENGTH, draws, rng)
        errors = np.array([np.mean((((mean @ p) * query).sum(-1) - query @ TASK) ** 2) for p in fixed.products])
        shifted[name] = errors / shifted_query_error(s, n, LENGTH, linear_law(s, TASK), query.T @ query / draws)
    orthogonal = {
        "trained": np.array([orthogonal_answers(p, s, 3, draws // 10) for p in fixed.products]),
        "isotropic": orthogonal_answers(np.eye(5), np.ones(5), 3, draws // 10),
    }
    corrected = {c: v / covariate_shift_slope(s, n, TASK, c) for c, v in scaled.items()}
    d = len(random.config.eigenvalues)
    slopes = {name: exponential_slope(d, random.config.context, joint=name == "joint") for name in exponential}
    return [
        Verdict(
            "task shifts are tolerated: any w is answered as Theorem 4.2 says",
            "section 4.2",
            f"trained error / Eq 4.6 at M = {LENGTH}: " + "; ".join(f"{k}: {percent(v)}" for k, v in tasks.items()),
            judge(max(abs(float(v.mean()) - 1) for v in tasks.values()), 0.05, 0.2),
            "the answer is linear in w: the error scales with its square",
        ),
        Verdict(
            "query shifts are tolerated if the query does not depend on the prompt",
            "section 4.2",
            "trained error / general formula: " + "; ".join(f"{k}: {percent(v)}" for k, v in shifted.items()),
            judge(max(abs(float(v.mean()) - 1) for v in shifted.values()), 0.1, 0.3),
            "the error goes to zero with M and N for every query distribution; at finite N the bias is largest along small "
            "eigenvalues",
        ),
        Verdict(
            "a query orthogonal to all examples is answered with zero",
            "section 4.2",
            f"answers to orthogonal queries / to ordinary ones, three examples: trained {spread(orthogonal['trained'], 2)}; "
            f"control, isotropic covariance {orthogonal['isotropic']:.0e}",
            judge(float(orthogonal["trained"].mean()), 0.02, 0.5),
            "only if Gamma is a multiple of the identity: Gamma^-1 turns the examples out of their span",
        ),
        Verdict(
            "inputs scaled by c scale the answer by c²",
            "section 4.2",
            "slope / c²: " + "; ".join(f"c = {c:g}: {spread(v / c**2, 2)}" for c, v in scaled.items()),
            judge(max(abs(float((v / c**2).mean()) - 1) for c, v in scaled.items()), 0.05, 0.3),
            f"the limit of long training prompts; at N = {n} the slope is smaller by w^T L Gamma^-1 L w / (w^T L w)",
        ),
        Verdict(
            "(ours) the slope is c² w^T L Gamma^-1 L w / (w^T L w)",
            "Eq 4.3 at finite N",
            "measured / this: " + "; ".join(f"c = {c:g}: {percent(v)}" for c, v in corrected.items()),
            judge(max(abs(float(v.mean()) - 1) for v in corrected.values()), 0.02, 0.1),
            "no limit taken",
        ),
        Verdict(
            "covariate shifts are not tolerated, where least squares would be",
            "section 4.2",
            f"slope at c = 2: trained {spread(scaled[2.0], 2)}; least squares is exact on noiseless prompts, slope 1",
            HOLDS if scaled[2.0].mean() > 1.5 else FAILS,
            "the head divides by the training covariance instead of the prompt's own",
        ),
        Verdict(
            "trained on Exponential(1) covariances the head answers with a third of the truth",
            "below Eq 4.12",
            f"slope, query independent of the new covariance: {spread(exponential['independent'])}; drawn with it: "
            f"{spread(exponential['joint'])}, N = {random.config.context}, long test prompts",
            IN_PART if abs(exponential["independent"].mean() - 1 / 3) < 0.1 else FAILS,
            "needs N without end and a query independent of the prompt's covariance, though the text draws both from it; "
            "drawn jointly the limit is 2/3",
        ),
        Verdict(
            "(ours) the slope is 2 / [6 (N+1)/N + (6 + 2 (d-1))/N], twice that for a joint query",
            "Eq 4.11 at finite N",
            "measured / this: " + "; ".join(f"{k}: {percent(exponential[k] / slopes[k])}" for k in exponential),
            judge(max(abs(float((exponential[k] / slopes[k]).mean()) - 1) for k in exponential), 0.05, 0.15),
            "the same weights, without the limit",
        ),
    ]


def _linear_prompts(
    eigenvalues: np.ndarray, w: np.ndarray, length: int, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of y x over prompts of `length` examples, and queries of the same covariance."""
    x = rng.standard_normal((draws, length, len(eigenvalues))) * np.sqrt(eigenvalues)
    mean = np.einsum("knd,kn->kd", x, x @ w) / length
    return mean, rng.standard_normal((draws, len(eigenvalues))) * np.sqrt(eigenvalues)


def _slope(answer: np.ndarray, truth: np.ndarray) -> float:
    return float((answer * truth).sum() / (truth**2).sum())
