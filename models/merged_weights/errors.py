"""How far off the trained head is on a new prompt: the formulas of paper 002, section 4, for prompts of every kind.

A test prompt of M examples (x, y) and a query is summarised by a = Lambda^-1 E[x y], the best linear predictor; Sigma,
the covariance of x y; and `best`, the error of that predictor (Eq 4.5). The head answers x_q^T Gamma^-1 times the mean
of x y over the prompt (Eq 4.3), so for a query of covariance Lambda_q, independent of the prompt,

    E (y_hat - y_q)^2 = best + tr(Gamma^-1 Lambda_q Gamma^-1 Sigma) / M + || (Gamma^-1 Lambda - I) a ||^2_{Lambda_q}

which is Eq 4.6 for Lambda_q = Lambda. All matrices are in the eigenbasis of the training covariance.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from models.merged_weights.theory import Modes, Numbers, check_setting, gamma

Matrix = Float64[np.ndarray, "d d"]


@dataclass(frozen=True)
class PromptLaw:
    """What Eq 4.6 knows of a kind of prompt."""

    predictor: Modes  # a
    noise: Matrix  # Sigma
    best: float  # error of the best linear predictor


def linear_law(eigenvalues: Numbers, w: Numbers, noise: float = 0.0) -> PromptLaw:
    """y = w . x + noise x N(0, 1): Sigma = (||w||_Lambda^2 + noise^2) Lambda + Lambda w w^T Lambda."""
    s, w = check_setting(eigenvalues, 1), np.asarray(w, dtype=np.float64)
    sigma = ((s * w**2).sum() + noise**2) * np.diag(s) + np.outer(s * w, s * w)
    return PromptLaw(w, sigma, noise**2)


def quadratic_law(eigenvalues: Numbers, w: Numbers, v: Numbers) -> PromptLaw:
    """y = w . x + (v . x)^2, a nonlinear prompt whose moments are known (Isserlis)."""
    s, w, v = check_setting(eigenvalues, 1), np.asarray(w, dtype=np.float64), np.asarray(v, dtype=np.float64)
    power = float((s * v**2).sum())
    linear = linear_law(s, w)
    return PromptLaw(w, linear.noise + 3 * power**2 * np.diag(s) + 12 * power * np.outer(s * v, s * v), 3 * power**2)


def prediction_error(eigenvalues: Numbers, context: float, test_context: float, law: PromptLaw) -> float:
    """Eq 4.6, as printed: N = context in training, M = test_context."""
    s = check_setting(eigenvalues, context)
    check_setting(s, test_context)
    inverse2, a2, trace = 1 / gamma(s, context) ** 2, law.predictor**2, s.sum()
    variance = (np.diag(law.noise) * inverse2 * s).sum() / test_context
    bias = (a2 * inverse2 * (s**3 + 2 * trace * s**2 + trace**2 * s)).sum() / context**2
    return float(law.best + variance + bias)


def shifted_query_error(
    eigenvalues: Numbers, context: float, test_context: float, law: PromptLaw, query: Matrix
) -> float:
    """The same for a query of second moment `query`, independent of the prompt, whose answer is a . x_q plus `best`."""
    s = check_setting(eigenvalues, context)
    inverse = 1 / gamma(s, context)
    variance = np.trace(np.diag(inverse) @ query @ np.diag(inverse) @ law.noise) / test_context
    bias = (inverse * s - 1) * law.predictor
    return float(law.best + variance + bias @ query @ bias)


def mean_error(eigenvalues: Numbers, context: float, test_context: float) -> float:
    """Eq 4.6 for noiseless prompts, averaged over w ~ N(0, I)."""
    s = check_setting(eigenvalues, context)
    inverse2, trace = 1 / gamma(s, context) ** 2, s.sum()
    variance = (inverse2 * s**3).sum() + (inverse2 * s**2).sum() * trace
    bias = (inverse2 * s * (s + trace) ** 2).sum()
    return float(variance / test_context + bias / context**2)


def printed_bound(eigenvalues: Numbers, context: float, test_context: float) -> float:
    """The bound on `mean_error` as printed below Theorem 4.2, with d^2 kappa."""
    s = check_setting(eigenvalues, context)
    return _bound(s, context, test_context, len(s) ** 2 * s.max() / s.min())


def corrected_bound(eigenvalues: Numbers, context: float, test_context: float) -> float:
    """The same with d^2 kappa tr(Lambda), which tr(Lambda^-1) tr(Lambda)^2 is bounded by."""
    s = check_setting(eigenvalues, context)
    return _bound(s, context, test_context, len(s) ** 2 * s.max() / s.min() * s.sum())


def _bound(s: Modes, context: float, test_context: float, last: float) -> float:
    d, trace = len(s), s.sum()
    return float((d + 1) * trace / test_context + ((1 + 2 * d) * trace + last) / context**2)


def printed_lengths(eigenvalues: Numbers, error: float) -> tuple[float, float]:
    """Corollary 4.3 as printed: training and test lengths (N, M) that should bring the error below `error`."""
    s = check_setting(eigenvalues, 1)
    if not error > 0:
        raise ValueError(f"error is {error}: a positive error to reach is expected")
    d, trace, kappa = len(s), s.sum(), s.max() / s.min()
    return float(np.sqrt((2 * (1 + 2 * d) * trace + d**2 * kappa) / error)), float(2 * (d + 1) * trace / error)


def corrected_lengths(eigenvalues: Numbers, error: float) -> tuple[float, float]:
    """The same from `corrected_bound`: half of the error for each of its two terms."""
    s = check_setting(eigenvalues, 1)
    if not error > 0:
        raise ValueError(f"error is {error}: a positive error to reach is expected")
    d, trace, kappa = len(s), s.sum(), s.max() / s.min()
    return float(np.sqrt(2 * ((1 + 2 * d) + d**2 * kappa) * trace / error)), float(2 * (d + 1) * trace / error)


def first_bound(eigenvalues: Numbers, context: float, test_context: float, w: Numbers) -> float:
    """The bound for one task w below Theorem 4.2, before w is averaged over."""
    s, w2 = check_setting(eigenvalues, context), np.asarray(w, dtype=np.float64) ** 2
    size, trace = float((s * w2).sum()), s.sum()
    bias = size + 2 * w2.sum() * trace + (w2 / s).sum() * trace**2
    return float((len(s) + 1) * size / test_context + bias / context**2)


def covariate_shift_slope(eigenvalues: Numbers, context: float, w: Numbers, scale: float) -> float:
    """Slope of the answer against the truth when prompts are scaled by c: c^2 w^T L Gamma^-1 L w / (w^T L w).

    The printed c^2 is its limit for long training contexts.
    """
    s, w = check_setting(eigenvalues, context), np.asarray(w, dtype=np.float64)
    return float(scale**2 * (w**2 * s**2 / gamma(s, context)).sum() / (s * w**2).sum())


def exponential_slope(d: int, context: float, *, joint: bool) -> float:
    """Slope of the answer against the truth after training on Exponential(1) covariances (below Eq 4.12).

    With the query drawn independently of the new covariance it tends to the printed 1/3; drawn jointly, to 2/3.
    """
    check_setting([1.0] * max(d, 0), context)
    shrink = 2 / (6 * (context + 1) / context + (6 + 2 * (d - 1)) / context)
    return float(shrink * (2 if joint else 1))
