"""What Theorem 4.2 of paper 002 is judged by: errors on sampled prompts of three kinds, and what Eq 4.6 makes of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analyses.paper_002_merged_weights.runs import CONTEXTS, Group, of_context
from analyses.tools.claims import Measured
from analyses.tools.source import Source
from analyses.tools.verdicts import percent
from models.merged_weights.errors import PromptLaw, first_bound, linear_law, mean_error, prediction_error, quadratic_law
from models.merged_weights.theory import gamma

TASK = np.array([1.0, -1.0, 0.5, 2.0, 0.3])
BEND = np.array([0.6, 0.0, 0.4, 0.2, 0.5])
NOISE = 0.5
LENGTHS = (5, 10, 20, 50, 100, 200)  # M
TESTED = (5, 20, 200)  # of these, where heads of different N are compared
TOLERATED = 0.1  # epsilon of Corollary 4.3
DRAWS = {"toy": 2000, "quick": 30000, "paper": 200000}
SCALES = np.geomspace(0.1, 100, 31)  # of the covariance, for the bounds

Labels = Callable[[np.ndarray, np.random.Generator], np.ndarray]

KINDS: dict[str, tuple[Labels, Callable[[tuple[float, ...]], PromptLaw]]] = {
    "linear": (lambda x, _: x @ TASK, lambda s: linear_law(s, TASK)),
    "noisy": (
        lambda x, rng: x @ TASK + NOISE * rng.standard_normal(x.shape[:2]),
        lambda s: linear_law(s, TASK, NOISE),
    ),
    "nonlinear": (lambda x, _: x @ TASK + (x @ BEND) ** 2, lambda s: quadratic_law(s, TASK, BEND)),
}
"""Labels of a prompt [prompts, tokens, d], and what Eq 4.6 knows of them."""


@dataclass(frozen=True)
class Seen:
    """Runs by training length, and errors on fresh prompts by kind, N and M."""

    groups: dict[int, Group]
    found: dict

    @property
    def eigenvalues(self) -> np.ndarray:
        """Of the one covariance."""
        return np.array(self.groups[20].config.eigenvalues)


def gather(source: Source) -> Seen:
    """Train or load, and sample."""
    groups = {n: of_context(n, source) for n in CONTEXTS}
    return Seen(groups, sample(groups, DRAWS[source.size], int(source.is_fresh)))


def sample(groups: dict[int, Group], draws: int, seed: int) -> dict:
    """By kind, N and M: Eq 4.6, errors of every trained seed and of the limit on the same prompts, and their error."""
    rng, found = np.random.default_rng(seed), {}
    for kind, (labels, law) in KINDS.items():
        for m in LENGTHS:
            mean, query, truth = prompts(groups[20].config.eigenvalues, m, labels, draws, rng)
            for n, group in groups.items():
                s = group.config.eigenvalues
                limit = ((mean / gamma(s, n) * query).sum(-1) - truth) ** 2
                trained = [float(np.mean((((mean @ p) * query).sum(-1) - truth) ** 2)) for p in group.products]
                found[kind, n, m] = {
                    "formula": prediction_error(s, n, m, law(s)),
                    "limit": float(limit.mean()),
                    "uncertainty": float(limit.std() / np.sqrt(draws)),
                    "trained": np.array(trained),
                }
    return found


def prompts(
    eigenvalues: tuple[float, ...], length: int, labels: Labels, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of y x over the prompt, query and true answer of `draws` prompts, token by token."""
    parts = []
    for _ in range(max(1, draws * length // 2_000_000)):
        count = draws // max(1, draws * length // 2_000_000)
        x = rng.standard_normal((count, length + 1, len(eigenvalues))) * np.sqrt(eigenvalues)
        y = labels(x, rng)
        parts.append((np.einsum("knd,kn->kd", x[:, :-1], y[:, :-1]) / length, x[:, -1], y[:, -1]))
    mean, query, truth = (np.concatenate(column) for column in zip(*parts, strict=True))
    return mean, query, truth


def of_the_limit(kind: str) -> Callable[[Seen], Measured]:
    """How many standard errors the sampled error of the head of Eq 4.1 is from Eq 4.6, for every N and M."""

    def measure(seen: Seen) -> Measured:
        rows = [seen.found[kind, n, m] for n in seen.groups for m in LENGTHS]
        off = max(abs(row["limit"] / row["formula"] - 1) for row in rows)
        sigma = np.array([abs(row["limit"] - row["formula"]) / row["uncertainty"] for row in rows])
        text = f"sampled / Eq 4.6, {len(rows)} pairs of N and M: at most {100 * off:.1f} % off, {sigma.max():.1f} standard errors"
        return Measured(text, sigma, n=f"{len(rows)} pairs; those of one M share their prompts")

    return measure


def of_trained(kind: str) -> Callable[[Seen], Measured]:
    """Errors of trained heads by those of the head of Eq 4.1 on the same prompts, mean over N and M for each seed."""

    def measure(seen: Seen) -> Measured:
        ratios = np.stack([row["trained"] / row["limit"] for key, row in seen.found.items() if key[0] == kind])
        return Measured(
            f"trained / limit: {percent(ratios.mean(0))}; by N and M {percent(ratios.ravel())}", ratios.mean(0)
        )

    return measure


def beside_the_best(seen: Seen) -> Measured:
    """Trained errors on nonlinear prompts by that of the best linear predictor, long and short prompts."""
    best = KINDS["nonlinear"][1](seen.groups[20].config.eigenvalues).best
    long, short = (seen.found["nonlinear", n, m]["trained"] / best for n, m in ((80, 200), (5, 5)))
    return Measured(f"trained / best linear error, N = 80, M = 200: {percent(long)}; N = M = 5: {percent(short)}", long)


def in_the_limit(seen: Seen) -> Measured:
    """Eq 4.6 for nonlinear prompts by the best linear error, for ever longer prompts."""
    law = KINDS["nonlinear"][1](seen.groups[20].config.eigenvalues)
    ratios = {k: prediction_error(seen.eigenvalues, 10.0**k, 10.0 ** (k + 1), law) / law.best for k in (2, 3, 4, 5)}
    told = ", ".join(f"{r - 1:.1e} (N = 1e{k}, M = 1e{k + 1})" for k, r in ratios.items())
    return Measured(f"excess over the best linear error: {told}", np.array([ratios[5]]), n="by Eq 4.6")


def rate_in_m(seen: Seen) -> Measured:
    """The exponent of M: of Eq 4.6, and of sampled errors without the part that stays."""
    lengths, s = np.geomspace(1e2, 1e4, 5), seen.eigenvalues
    formula = _slope(lengths, [mean_error(s, 1e9, m) for m in lengths])
    stays = prediction_error(s, 80, 1e15, linear_law(s, TASK))
    sampled = _slope(LENGTHS[2:], [seen.found["linear", 80, m]["limit"] - stays for m in LENGTHS[2:]])
    text = f"exponent of M: Eq 4.6 {formula:.3f}; sampled from M = {LENGTHS[2]} on {sampled:.3f}"
    return Measured(text, np.array([-formula, -sampled]), n="Eq 4.6 and one sample")


def rate_in_n(seen: Seen) -> Measured:
    """The exponent of N at long test prompts."""
    lengths = np.geomspace(1e2, 1e4, 5)
    slope = _slope(lengths, [mean_error(seen.eigenvalues, n, 1e15) for n in lengths])
    return Measured(f"exponent of N at long test prompts: Eq 4.6 {slope:.3f}", np.array([-slope / 2]), n="by Eq 4.6")


def longer_training(seen: Seen) -> Measured:
    """Whether the error of trained heads falls with N in each seed, for short, middle and long test prompts."""
    errors = {m: np.stack([seen.found["linear", n, m]["trained"] for n in CONTEXTS]) for m in TESTED}
    told = "; ".join(
        f"M = {m}: " + ", ".join(f"{x:.2f} (N = {n})" for n, x in zip(CONTEXTS, e.mean(1), strict=True))
        for m, e in errors.items()
    )
    falls = [(np.diff(e, axis=0) < 0).all(0).astype(float) for e in errors.values()]
    return Measured(f"linear prompts, error at {told}", np.concatenate(falls))


def one_task_bound(seen: Seen) -> Measured:
    """The error for one task by its bound, the worst of random tasks and of scales."""
    rng, s = np.random.default_rng(0), seen.eigenvalues
    ratios = [
        prediction_error(c * s, n, m, linear_law(c * s, w)) / first_bound(c * s, n, m, w)
        for c in SCALES
        for n, m in ((5, 5), (20, 200), (100, 1e12))
        for w in rng.standard_normal((5, len(s)))
    ]
    return Measured(
        f"largest error / bound: {max(ratios):.3f}", np.array([max(ratios)]), n=f"worst of {len(ratios)} settings"
    )


def mean_bound(bound: Callable[..., float]) -> Callable[[Seen], Measured]:
    """The mean error over tasks by a bound, the worst of scales of the covariance."""

    def measure(seen: Seen) -> Measured:
        s = seen.eigenvalues
        ratio = {
            c: max(mean_error(c * s, 100, m) / bound(c * s, 100, m) for m in (2e3, 1e12)) for c in (1.0, 20.0, *SCALES)
        }
        text = f"largest error / bound, N = 100: covariance x 1: {ratio[1.0]:.2f}; x 20: {ratio[20.0]:.2f}; worst {max(ratio.values()):.2f}"
        return Measured(text, np.array([max(ratio.values())]), n=f"worst of {len(ratio)} scales, by Eq 4.6")

    return measure


def lengths_suffice(lengths: Callable[..., tuple[float, float]]) -> Callable[[Seen], Measured]:
    """The mean error at the lengths asked for, by the error to be reached, the worst of scales."""

    def measure(seen: Seen) -> Measured:
        s, reached = seen.eigenvalues, {}
        for c in (1.0, 20.0, *SCALES):
            n, m = lengths(c * s, TOLERATED)
            reached[c] = mean_error(c * s, n, m) / TOLERATED
        n, m = lengths(20 * s, TOLERATED)
        text = (
            f"error / epsilon = {TOLERATED:g}: covariance x 1: {reached[1.0]:.2f}; x 20: {reached[20.0]:.2f} (N = {n:.0f}, "
            f"M = {m:.0f}); worst {max(reached.values()):.2f}"
        )
        return Measured(text, np.array([max(reached.values())]), n=f"worst of {len(reached)} scales, by Eq 4.6")

    return measure


def conditioning(seen: Seen) -> Measured:
    """Whether the mean error rises with the condition number at every step, at one trace."""
    d, trace, errors = len(seen.eigenvalues), seen.eigenvalues.sum(), []
    numbers = np.geomspace(1, 100, 13)
    for kappa in numbers:
        s = np.geomspace(1, 1 / kappa, d)
        errors.append(mean_error(s * trace / s.sum(), 20, 50))
    rises = (np.diff(errors) > 0).astype(float)
    text = f"mean error at N = 20, M = 50, trace {trace:g}: {errors[0]:.3f} (kappa 1), {errors[6]:.3f} (10), {errors[-1]:.3f} (100)"
    return Measured(text, rises, n=f"{len(rises)} steps of kappa, by Eq 4.6")


def _slope(x: np.ndarray | tuple[int, ...], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
