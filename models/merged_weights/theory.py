"""Where merged weights go and how they get there: gradient flow of paper 002, for fixed and for random covariances.

The answer is y_hat = u w^T Lambda_hat U x_q with u = w_22^PV and U = W_11^KQ. The loss is half the mean squared error
and time is learning rate x step. In the eigenbasis everything about the prompts enters through three moments,

    power = E tr Lambda,    gain_i = E lambda_i^2,    cost_ij = E[ Gamma_i lambda_i lambda_j ]
    Gamma = (N+1)/N Lambda + tr(Lambda)/N I

    L = 1/2 [ power - 2 u sum_i gain_i U_ii + u^2 sum_ij cost_ij U_ij^2 ]

and u, U follow its gradient (Eq 5.4; for random covariances Lemma C.1). It ends at u U = diag(gain / cost), which is
Gamma^-1 for one covariance, with u^2 = ||U||_F^2 if it started so (Eqs 4.1, 4.11). Modes are the diagonal of u U.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from models.flows import path

Numbers = Sequence[float] | np.ndarray  # what callers hand in
Modes = Float64[np.ndarray, " d"]
Times = Float64[np.ndarray, " times"]


@dataclass(frozen=True)
class Moments:
    """What the flow knows of the prompts."""

    power: float
    gain: Modes
    cost: Float64[np.ndarray, "d d"]


def gamma(eigenvalues: Numbers, context: float) -> Modes:
    """Eigenvalues of Gamma (Theorem 4.1)."""
    s = check_setting(eigenvalues, context)
    return s + (s + s.sum()) / context


def moments_of_fixed(eigenvalues: Numbers, context: float) -> Moments:
    """One covariance for all prompts."""
    s = check_setting(eigenvalues, context)
    return Moments(float(s.sum()), s**2, (gamma(s, context) * s)[:, None] * s)


def moments_of_exponential(means: Numbers, context: float) -> Moments:
    """Independent eigenvalues, each its mean times an Exponential(1) variable: E lambda^k = k! mean^k."""
    m = check_setting(means, context)
    first, second, third, n = m, 2 * m**2, 6 * m**3, context
    others = m.sum() - m
    # E[tr(Lambda) lambda_i lambda_j] for i != j: i, j and the rest of the trace
    trace = np.outer(second, first) + np.outer(first, second) + np.outer(m, m) * (others[:, None] - m)
    cost = (n + 1) / n * np.outer(second, first) + trace / n
    np.fill_diagonal(cost, (n + 1) / n * third + (third + second * others) / n)
    return Moments(float(first.sum()), second, cost)


def largest_init(eigenvalues: Numbers, context: float) -> float:
    """The initialisation below which Theorem 4.1 promises convergence: sigma^2 ||Gamma||_op sqrt(d) < 2."""
    g = gamma(eigenvalues, context)
    return float(np.sqrt(2 / (g.max() * np.sqrt(len(g)))))


class MergedFlow:
    """The flow from u = value and U = key_query in the eigenbasis, integrated numerically."""

    name = "gradient flow (Eq 5.4)"
    PATIENCE = 200.0  # how many times the slowest relaxation at the end to wait for half-times

    def __init__(self, moments: Moments, value: float, key_query: Float64[np.ndarray, "d d"]) -> None:
        self.moments = moments
        d = len(moments.gain)
        if key_query.shape != (d, d):
            raise ValueError(f"key_query is {key_query.shape}: ({d}, {d}), one row and column per mode, is expected")
        self.start = np.concatenate(([value], key_query.ravel()))

    @property
    def fixed_point(self) -> Modes:
        """gain / cost: Gamma^-1 for one covariance (Eqs 4.1, 4.11, 5.6)."""
        return self.moments.gain / np.diag(self.moments.cost)

    @property
    def final_value(self) -> float:
        """u at the end, from u U = diag(fixed_point) and the conserved u^2 - ||U||^2, which is 0 in the paper."""
        c = float(self.conserved([0.0])[0, 0])
        size = float((self.fixed_point**2).sum())
        return float(np.sqrt((c + np.sqrt(c**2 + 4 * size)) / 2))

    @property
    def final_loss(self) -> float:
        """The least loss that this model can reach."""
        return 0.5 * (self.moments.power - float((self.moments.gain * self.fixed_point).sum()))

    def weights(self, times: Numbers) -> tuple[Times, Float64[np.ndarray, "times d d"]]:
        """u(t) and U(t), by integration."""
        states, d = path(self._velocity, self.start, times), len(self.moments.gain)
        return states[:, 0], states[:, 1:].reshape(-1, d, d)

    def modes(self, times: Numbers) -> Float64[np.ndarray, "times d"]:
        """Amplitudes u(t) U_ii(t), one per mode."""
        value, key_query = self.weights(times)
        return value[:, None] * np.einsum("tii->ti", key_query)

    def loss(self, times: Numbers) -> Times:
        """The expected loss L(t) of u(t) and U(t)."""
        value, key_query = self.weights(times)
        return np.asarray(self.loss_of(value, key_query))

    def loss_of(self, value: np.ndarray, key_query: np.ndarray) -> np.ndarray:
        """L of values [...] and matrices [..., d, d]."""
        m = self.moments
        gained = value * np.einsum("...ii,i->...", key_query, m.gain)
        return 0.5 * (m.power - 2 * gained + value**2 * (m.cost * key_query**2).sum((-2, -1)))

    def conserved(self, times: Numbers) -> Float64[np.ndarray, "times 1"]:
        """u^2 - ||U||_F^2 (the balance behind Lemma 5.4)."""
        value, key_query = self.weights(times)
        return (value**2 - (key_query**2).sum((1, 2)))[:, None]

    @property
    def half_times(self) -> Modes:
        """When each mode first reaches half of its fixed point; infinity if it has not within `PATIENCE`."""
        return self._half_times

    @cached_property
    def _half_times(self) -> Modes:
        slowest = (self.final_value**2 * self.moments.cost).min()
        horizon = self.PATIENCE / slowest / max(1e-3, min(1.0, abs(self.start[0])))
        times = np.concatenate(([0.0], np.geomspace(1e-6 * horizon, horizon, 12000)))
        progress = self.modes(times) - self.fixed_point / 2
        half = np.full(len(self.fixed_point), np.inf)
        for k, curve in enumerate(progress.T):
            there = int(np.argmax(curve >= 0))
            if there > 0:
                half[k] = np.interp(0, curve[there - 1 : there + 1], times[there - 1 : there + 1])
            elif curve[0] >= 0:
                half[k] = 0.0
        return half

    def _velocity(self, _: float, state: np.ndarray) -> np.ndarray:
        return self.velocity(state)

    def velocity(self, state: np.ndarray) -> np.ndarray:
        """Eq 5.4: minus the gradient of the loss, at weights in the order of `start`."""
        m, value = self.moments, state[0]
        key_query = state[1:].reshape(m.cost.shape)
        du = (m.gain * np.diag(key_query)).sum() - value * (m.cost * key_query**2).sum()
        dU = value * np.diag(m.gain) - value**2 * m.cost * key_query
        return np.concatenate(([du], dU.ravel()))


def check_setting(eigenvalues: Numbers, context: float) -> Modes:
    """The eigenvalues as an array, or a ValueError that says what is wrong."""
    s = np.atleast_1d(np.asarray(eigenvalues, dtype=np.float64))
    if s.ndim != 1 or len(s) == 0 or not np.isfinite(s).all() or (s <= 0).any():
        raise ValueError(f"eigenvalues {s.tolist()}: a covariance is positive, so all of them must be above 0")
    if not context >= 1:
        raise ValueError(f"context is {context}: at least one example (N >= 1) is needed")
    return s
