"""What sections 4.2 and 4.3 of paper 002 are judged by: answers of trained heads to prompts of another law."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyses.paper_002_merged_weights.runs import Group, of_context, random_covariances
from analyses.tools.claims import Measured, by_group
from analyses.tools.source import Source
from analyses.tools.verdicts import percent, spread
from models.merged_weights.errors import (
    covariate_shift_slope,
    exponential_slope,
    linear_law,
    prediction_error,
    shifted_query_error,
)

TASK = np.array([1.0, -1.0, 0.5, 2.0, 0.3])
LENGTH = 50  # M
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0)
DRAWS = {"toy": 2000, "quick": 40000, "paper": 200000}
SHIFTED_TASKS = {"w as in training": 1.0, "w ten times larger": 10.0}
LIMIT = 1 / 3  # printed, of the slope on random covariances


@dataclass(frozen=True)
class Seen:
    """Runs of one covariance and of random ones, and the slopes of their answers against the truth under shift."""

    source: Source
    fixed: Group
    random: Group

    @property
    def eigenvalues(self) -> np.ndarray:
        """Of the one covariance."""
        return np.array(self.fixed.config.eigenvalues)

    @property
    def draws(self) -> int:
        """Prompts a point."""
        return DRAWS[self.source.size]

    def rng(self, stream: int) -> np.random.Generator:
        """One for each question, other ones for fresh seeds."""
        return np.random.default_rng((stream, int(self.source.is_fresh)))

    @cached_property
    def scaled(self) -> dict[float, np.ndarray]:
        """Slope for inputs scaled by c, for every seed."""
        rng, found = self.rng(0), {}
        for c in SCALES:
            mean, query = _linear_prompts(c**2 * self.eigenvalues, TASK, LENGTH, self.draws, rng)
            found[c] = np.array([_slope(((mean @ p) * query).sum(-1), query @ TASK) for p in self.fixed.products])
        return found

    @cached_property
    def exponential(self) -> dict[str, np.ndarray]:
        """The same for new Exponential(1) covariances, with the query drawn jointly with them or independently."""
        rng, shape = self.rng(1), (self.draws, len(self.random.config.eigenvalues))
        covariance, w = rng.exponential(size=shape), rng.standard_normal(shape)
        mean = covariance * w  # a test prompt without end, as below Eq 4.12
        queries = {
            "joint": rng.standard_normal(shape) * np.sqrt(covariance),
            "independent": rng.standard_normal(shape) * np.sqrt(rng.exponential(size=shape)),
        }
        return {
            name: np.array([_slope(((mean @ p) * query).sum(-1), (w * query).sum(-1)) for p in self.random.products])
            for name, query in queries.items()
        }


def gather(source: Source) -> Seen:
    """Train or load."""
    return Seen(source, of_context(20, source), random_covariances(source))


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


def other_tasks(seen: Seen) -> Measured:
    """Trained errors by Eq 4.6, for tasks as in training and larger."""
    rng, s, n, found = seen.rng(3), seen.eigenvalues, seen.fixed.config.context, {}
    for name, factor in SHIFTED_TASKS.items():
        mean, query = _linear_prompts(s, factor * TASK, LENGTH, seen.draws, rng)
        errors = _errors(seen.fixed, mean, query, query @ (factor * TASK))
        found[name] = errors / prediction_error(s, n, LENGTH, linear_law(s, factor * TASK))
    return Measured(
        f"trained error / Eq 4.6 at M = {LENGTH}: {by_group(found, percent)}", np.concatenate([*found.values()])
    )


def other_queries(seen: Seen) -> Measured:
    """Trained errors by the general formula, for queries of another law that is independent of the prompt."""
    rng, s, n, found = seen.rng(4), seen.eigenvalues, seen.fixed.config.context, {}
    queries = {
        "uniform on a cube": rng.uniform(-3, 3, (seen.draws, len(s))),
        "along e5 only": np.eye(5)[[4]] * rng.standard_normal((seen.draws, 1)),
    }
    for name, query in queries.items():
        mean, _ = _linear_prompts(s, TASK, LENGTH, seen.draws, rng)
        expected = shifted_query_error(s, n, LENGTH, linear_law(s, TASK), query.T @ query / seen.draws)
        found[name] = _errors(seen.fixed, mean, query, query @ TASK) / expected
    return Measured(f"trained error / general formula: {by_group(found, percent)}", np.concatenate([*found.values()]))


def queries_in_the_limit(seen: Seen) -> Measured:
    """The general formula at long prompts by the variance of the answers, for a query along the smallest eigenvalue."""
    s, query = seen.eigenvalues, np.diag(np.eye(5)[4])
    shares = {
        k: shifted_query_error(s, 10.0**k, 10.0**k, linear_law(s, TASK), query) / TASK[4] ** 2 for k in (2, 3, 4, 5)
    }
    told = ", ".join(f"{v:.1e} (N = M = 1e{k})" for k, v in shares.items())
    return Measured(
        f"error / square of the true answer, query along e5: {told}", np.array([shares[5]]), n="by the general formula"
    )


def orthogonal_queries(seen: Seen) -> Measured:
    """Answers of each trained head to orthogonal queries, by those to ordinary ones."""
    share = np.array([orthogonal_answers(p, seen.eigenvalues, 3, seen.draws // 10) for p in seen.fixed.products])
    return Measured(f"answers to orthogonal queries / to ordinary ones, three examples: {spread(share, 2)}", share)


def orthogonal_isotropic(seen: Seen) -> Measured:
    """The same for a head whose Gamma is a multiple of the identity."""
    share = orthogonal_answers(np.eye(5), np.ones(5), 3, seen.draws // 10)
    return Measured(f"isotropic covariance: {share:.0e}", np.array([share]), n="the head of Eq 4.1, Λ = I")


def scaled_inputs(corrected: bool) -> Callable[[Seen], Measured]:
    """Slopes by c² as printed, or with the factor of finite N, for every c and seed."""

    def measure(seen: Seen) -> Measured:
        s, n = seen.eigenvalues, seen.fixed.config.context
        ratios = {
            f"c = {c:g}": slope / (covariate_shift_slope(s, n, TASK, c) if corrected else c**2)
            for c, slope in seen.scaled.items()
        }
        text = f"slope / this: {by_group(ratios, percent)}"
        return Measured(text, np.mean([*ratios.values()], axis=0))

    return measure


def least_squares_beside(seen: Seen) -> Measured:
    """Slopes of trained heads at c = 2, and of least squares on as many prompts as the control."""
    c, rng = SCALES[-1], seen.rng(5)
    x = rng.standard_normal((len(seen.fixed.products), 2000, LENGTH + 1, 5)) * c * np.sqrt(seen.eigenvalues)
    solved = np.linalg.solve(
        x[:, :, :-1].swapaxes(-1, -2) @ x[:, :, :-1], (x[:, :, :-1].swapaxes(-1, -2) @ (x[:, :, :-1] @ TASK)[..., None])
    )[..., 0]
    control = np.array([_slope((w * q).sum(-1), q @ TASK) for w, q in zip(solved, x[:, :, -1], strict=True)])
    text = f"slope at c = {c:g}: trained {spread(seen.scaled[c], 2)}; least squares {spread(control, 2)}"
    return Measured(text, seen.scaled[c], control)


def a_third(query: str) -> Callable[[Seen], Measured]:
    """Slopes of heads trained on random covariances, by a third."""

    def measure(seen: Seen) -> Measured:
        slopes = seen.exponential[query]
        text = f"slope at N = {seen.random.config.context}, long test prompts: {spread(slopes)}"
        return Measured(text, slopes / LIMIT)

    return measure


def in_the_limit(query: str) -> Callable[[Seen], Measured]:
    """The slope for long training prompts, by a third."""

    def measure(seen: Seen) -> Measured:
        slope = exponential_slope(len(seen.random.config.eigenvalues), 1e6, joint=query == "joint")
        return Measured(f"slope as N grows: {slope:.4f}", np.array([slope / LIMIT]), n="Eq 4.11")

    return measure


def at_finite_n(seen: Seen) -> Measured:
    """Slopes by the formula of finite N, both kinds of queries."""
    d, n = len(seen.random.config.eigenvalues), seen.random.config.context
    ratios = {k: v / exponential_slope(d, n, joint=k == "joint") for k, v in seen.exponential.items()}
    return Measured(f"measured / this: {by_group(ratios, percent)}", np.concatenate([*ratios.values()]))


def _errors(group: Group, mean: np.ndarray, query: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Mean squared error of every trained head."""
    return np.array([np.mean((((mean @ p) * query).sum(-1) - truth) ** 2) for p in group.products])


def _linear_prompts(
    eigenvalues: np.ndarray, w: np.ndarray, length: int, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of y x over prompts of `length` examples, and queries of the same covariance."""
    x = rng.standard_normal((draws, length, len(eigenvalues))) * np.sqrt(eigenvalues)
    mean = np.einsum("knd,kn->kd", x, x @ w) / length
    return mean, rng.standard_normal((draws, len(eigenvalues))) * np.sqrt(eigenvalues)


def _slope(answer: np.ndarray, truth: np.ndarray) -> float:
    return float((answer * truth).sum() / (truth**2).sum())
