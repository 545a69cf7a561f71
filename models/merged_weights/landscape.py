"""How far from its saddle gradient flow of merged weights stays, and how steep it is there: the constants of paper 002.

The start is that of Assumption 3.3, u = sigma and U = sigma Theta Theta^T; only the diagonal of Theta Theta^T =
`shape` enters, through ||Lambda Theta||_F^2 = sum_i lambda_i^2 shape_ii. Where a lemma and its proof differ, both
forms are here.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from models.merged_weights.theory import MergedFlow, Modes, Numbers, check_setting, gamma

Matrix = Float64[np.ndarray, "d d"]


def least_value(eigenvalues: Numbers, context: float, sigma: float, shape: Matrix) -> float:
    """What u stays above (Lemma A.5, Eq A.14)."""
    s = check_setting(eigenvalues, context)
    d, g = len(s), gamma(s, context)
    room = 2 - np.sqrt(d) * sigma**2 * g.max()
    return float(np.sqrt(max(0.0, sigma**2 / (2 * np.sqrt(d) * s.max() ** 2) * _size(s, shape) * room)))


def pl_constant(eigenvalues: Numbers, context: float, sigma: float, shape: Matrix) -> float:
    """mu of the inequality of Polyak and Lojasiewicz (Lemma 5.4, Eq 5.7)."""
    s = check_setting(eigenvalues, context)
    g = gamma(s, context)
    return 2 * least_value(s, context, sigma, shape) ** 2 / float((1 / (g * s)).sum() * (1 / s).sum())


def steepness(flow: MergedFlow, times: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Squared gradient and loss above the least, along a flow: the two sides of Eqs 5.8 and C.14."""
    value, key_query = flow.weights(times)
    states = np.concatenate((value[:, None], key_query.reshape(len(value), -1)), axis=1)
    squares = np.array([(flow.velocity(state) ** 2).sum() for state in states])
    return squares, np.asarray(flow.loss_of(value, key_query)) - flow.final_loss


@dataclass(frozen=True)
class RandomCovariance:
    """Means over the covariances that Theorem 4.5 needs, for eigenvalues `means` times Exponential(1) variables."""

    means: Modes
    context: float
    product: float  # E ||Gamma||_op ||Lambda||_F^2, by drawing

    @classmethod
    def exponential(cls, means: Numbers, context: float, draws: int, rng: np.random.Generator) -> "RandomCovariance":
        """Draws `draws` covariances for the one mean that has no closed form."""
        m = check_setting(means, context)
        s = m * rng.exponential(size=(draws, len(m)))
        largest = s.max(1) * (1 + 1 / context) + s.sum(1) / context
        return cls(m, context, float((largest * (s**2).sum(1)).mean()))

    def mean_then_square(self, shape: Matrix) -> float:
        """||E[Lambda] Theta||_F^2, as printed in Eqs 4.10 and C.10 to C.13."""
        return _size(self.means, shape)

    def square_then_mean(self, shape: Matrix) -> float:
        """E ||Lambda Theta||_F^2, which the proof of Lemma C.6 takes to be the same."""
        return 2 * _size(self.means, shape)

    def largest_init(self, shape: Matrix) -> float:
        """Below which Theorem 4.5 promises convergence (Eq 4.10)."""
        return float(np.sqrt(2 * self.mean_then_square(shape) / (np.sqrt(len(self.means)) * self.product)))

    def least_value(self, sigma: float, shape: Matrix, *, as_stated: bool) -> float:
        """What u stays above: Eq C.12 as stated, or as the last line of its proof has it."""
        below = self.mean_then_square(shape) if as_stated else 2 * float(self.means.max()) ** 2
        return float(np.sqrt(max(0.0, sigma**2 / (2 * np.sqrt(len(self.means)) * below) * self._room(sigma, shape))))

    def pl_constant(self, flow: MergedFlow, sigma: float, shape: Matrix) -> float:
        """nu of Eq C.13; eta is the least of gamma_i and zeta_ij, the entries of `cost`."""
        return float(flow.moments.cost.min()) * self.least_value(sigma, shape, as_stated=False) ** 2

    def _room(self, sigma: float, shape: Matrix) -> float:
        return 2 * self.mean_then_square(shape) - np.sqrt(len(self.means)) * sigma**2 * self.product


def printed_final_value(flow: MergedFlow) -> float:
    """The limit of u as printed in Eq C.15, [sum xi / gamma]^(1/4); the powers of the fractions are missing."""
    return float(flow.fixed_point.sum() ** 0.25)


def _size(s: Modes, shape: Matrix) -> float:
    return float((s**2 * np.diag(shape)).sum())
