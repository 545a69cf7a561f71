"""What the linear-attention model of paper 000 should do, twice: as printed, and exactly.

One linear head regresses R^d -> R^d in context: f(Z) = Z + W_P (Z Z^T / N) W_Q Z (Eq 1). In the eigenbasis of the
input covariance its active blocks p2, q1 are diagonal and mode alpha has amplitude a = p q. Time is
t = learning rate x number of updates, each update being one gradient of the loss averaged over tasks (with the paper's
sequential tasks: learning rate x P x epochs).

`PrintedTheory` is the closed form of Eqs 9-14. It treats the empirical covariance as diagonal, which is right to
leading order in 1/N (exactly right for an isotropic covariance).

`ExactTheory` keeps the off-diagonal noise. With m the mean over tasks of lambda^2 and T = sum_b s_b^2 q_b^2, the
expected loss is

    L = 1/2 sum_a m_a s_a [ (N+1)/N s_a^2 p_a^2 q_a^2 + p_a^2 T / N - 2 p_a q_a s_a + 1 ]

and p, q follow its gradient, integrated numerically. T couples the modes: each pays for the noise that all the others
carry, so a small mode is held back, and one with sqrt(s m) < R / (N + 1 + d) is never learned at all (R = sum of
sqrt(s m) and d = number, both over the modes that are learned).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from models.flows import path

Numbers = Sequence[float] | np.ndarray  # what callers hand in
Modes = Float64[np.ndarray, " d"]
Times = Float64[np.ndarray, " times"]
Trajectories = Float64[np.ndarray, "times d"]
Constants = Float64[np.ndarray, "times 1"]


class PrintedTheory:
    """Eqs 9-14 of paper 000: independent logistic modes. eigenvalues are those of the input covariance."""

    name = "printed (Eqs 9-14)"

    def __init__(self, eigenvalues: Numbers, context: int, init: float) -> None:
        self.eigenvalues, self.context, self.init = check_setting(eigenvalues, context, init)

    @property
    def fixed_point(self) -> Modes:
        """a_inf = 1 / ((N+1)/N s + Tr S / N) (below Eq 10)."""
        s, n = self.eigenvalues, self.context
        return 1 / ((n + 1) / n * s + s.sum() / n)

    def modes(self, times: Numbers) -> Trajectories:
        """a(t), Eq 13, from a(0) = init."""
        decay = np.exp(-2 * self.eigenvalues**2 * np.atleast_1d(np.asarray(times, dtype=np.float64))[:, None])
        return self.fixed_point * self.init / (self.init + (self.fixed_point - self.init) * decay)

    def loss(self, times: Numbers) -> Times:
        """The expected loss L(t), Eq 14."""
        s, a = self.eigenvalues, self.modes(times)
        return 0.5 * (s * (s / self.fixed_point * a**2 - 2 * s * a + 1)).sum(-1)

    @property
    def half_times(self) -> Modes:
        """t*: when a(t) = a_inf / 2. The printed t* = ln(a_inf / a_0) / (2 s^2) is this for a small start."""
        self._require_small_start()
        return np.log((self.fixed_point - self.init) / self.init) / (2 * self.eigenvalues**2)

    @property
    def loss_half_times(self) -> Modes:
        """When each mode has brought half of the loss it will bring: before t*, because loss is quadratic in a."""
        self._require_small_start()
        start = self.init / self.fixed_point
        # x = a / a_inf; the loss of a mode falls as (1 - x)^2
        halfway = 1 - (1 - start) / np.sqrt(2)
        return np.log(halfway * (1 - start) / (start * (1 - halfway))) / (2 * self.eigenvalues**2)

    def conserved(self, times: Numbers) -> Constants:
        """||p2||^2 - ||q1||^2, zero from a symmetric start."""
        return np.zeros((len(np.atleast_1d(np.asarray(times))), 1))

    def _require_small_start(self) -> None:
        if (self.init >= self.fixed_point / 2).any():
            raise ValueError(
                f"init is {self.init:g}: from half of a fixed point or more (the smallest is "
                f"{self.fixed_point.min():.3g}) there is no half-time"
            )


class ExactTheory:
    """The expected gradient flow at finite context and for a finite task set, integrated numerically.

    task_power is m, the mean over tasks of lambda^2 in each mode (1 for endless Gaussian tasks). The start is
    p = q = sqrt(init) unless p_start and q_start say otherwise.
    """

    name = "exact flow"

    def __init__(
        self,
        eigenvalues: Numbers,
        context: int,
        init: float,
        task_power: Numbers | None = None,
        p_start: Numbers | None = None,
        q_start: Numbers | None = None,
    ) -> None:
        self.eigenvalues, self.context, self.init = check_setting(eigenvalues, context, init)
        ones = np.ones_like(self.eigenvalues)
        self.task_power = ones if task_power is None else np.asarray(task_power, dtype=np.float64)
        self.p_start = np.sqrt(self.init) * ones if p_start is None else np.asarray(p_start, dtype=np.float64)
        self.q_start = np.sqrt(self.init) * ones if q_start is None else np.asarray(q_start, dtype=np.float64)
        for name in ("task_power", "p_start", "q_start"):
            if getattr(self, name).shape != self.eigenvalues.shape:
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}: one per mode, {self.eigenvalues.shape}, is expected"
                )
        if (self.task_power < 0).any():
            raise ValueError("task_power is a mean of squares and cannot be negative")

    @cached_property
    def learned(self) -> np.ndarray:
        """Which modes are ever learned, as booleans."""
        size = np.sqrt(self.eigenvalues * self.task_power)
        learned = size > 0
        while (weak := learned & (size < size[learned].sum() / (self.context + 1 + learned.sum()))).any():
            learned[np.flatnonzero(weak)[np.argmin(size[weak])]] = False
        return learned

    @property
    def fixed_point(self) -> Modes:
        """a = N / ((N+1) s) [1 - R / ((N+1+d) sqrt(s m))] over the learned modes, 0 for the others."""
        s, n = self.eigenvalues, self.context
        size = np.sqrt(s * self.task_power)
        total, count = size[self.learned].sum(), self.learned.sum()
        a = np.zeros_like(s)
        a[self.learned] = n / ((n + 1) * s[self.learned]) * (1 - total / ((n + 1 + count) * size[self.learned]))
        return a

    @cached_property
    def final_loss(self) -> float:
        """L_inf = 1/2 [ sum m s / (N+1) + N R^2 / ((N+1)(N+1+d)) ] + 1/2 sum of m s over what is never learned."""
        energy, n = self.eigenvalues * self.task_power, self.context
        total, count = np.sqrt(energy[self.learned]).sum(), self.learned.sum()
        learned = energy[self.learned].sum() / (n + 1) + n * total**2 / ((n + 1) * (n + 1 + count))
        return float(0.5 * (learned + energy[~self.learned].sum()))

    @property
    def fixed_blocks(self) -> tuple[Modes, Modes]:
        """p and q at the end of the flow: p/q goes as sqrt(s/m), the same at every N; their scale is what is conserved.

        So a symmetric start does not stay symmetric, except for one mode or equal sqrt(s/m); Eq 12 has it that it does.
        """
        s, m, a = self.eigenvalues[self.learned], self.task_power[self.learned], self.fixed_point[self.learned]
        ratio, kept = np.sqrt(s / m), float((self.p_start**2 - self.q_start**2).sum())
        up, down = (a * ratio).sum(), (a / ratio).sum()
        ratio *= (kept + np.sqrt(kept**2 + 4 * up * down)) / (2 * up)
        p, q = np.zeros_like(self.eigenvalues), np.zeros_like(self.eigenvalues)
        p[self.learned], q[self.learned] = np.sqrt(a * ratio), np.sqrt(a / ratio)
        return p, q

    @property
    def relaxation_rates(self) -> Modes:
        """Rates at which the flow approaches its end, slowest first; without the zero that the conserved norm brings.

        d - 1 of them are of order 1/N, those at which p/q finds its balance; Eq 13 has 2 s^2 alone.
        """
        learned = np.concatenate((self.learned, self.learned))
        end, step = np.concatenate(self.fixed_blocks).astype(complex), 1e-30
        columns = []
        for k in np.flatnonzero(learned):  # a polynomial: the derivative along i is exact
            moved = end.copy()
            moved[k] += 1j * step
            columns.append(-np.imag(self._velocity(0, moved))[learned] / step)
        return np.sort(np.linalg.eigvalsh(np.stack(columns)))[1:]

    def loss_of(self, p: np.ndarray, q: np.ndarray) -> np.ndarray | np.float64:
        """The expected loss of diagonal blocks p, q [..., d]."""
        s, n = self.eigenvalues, self.context
        noise = (s**2 * q**2).sum(-1, keepdims=True)
        per_mode = (n + 1) / n * s**2 * p**2 * q**2 + p**2 * noise / n - 2 * p * q * s + 1
        return 0.5 * (self.task_power * s * per_mode).sum(-1)

    def blocks(self, times: Numbers) -> tuple[Trajectories, Trajectories]:
        """The diagonals p(t) and q(t), by integration."""
        states, d = path(self._velocity, np.concatenate((self.p_start, self.q_start)), times), len(self.eigenvalues)
        return states[:, :d], states[:, d:]

    def modes(self, times: Numbers) -> Trajectories:
        """a(t) = p(t) q(t)."""
        p, q = self.blocks(times)
        return p * q

    def loss(self, times: Numbers) -> Times:
        """The expected loss L(t) of p(t) and q(t)."""
        return np.asarray(self.loss_of(*self.blocks(times)))

    @property
    def half_times(self) -> Modes:
        """When a(t) first reaches half of its fixed point; infinity for a mode that is never learned."""
        return self._half_times

    @cached_property
    def _half_times(self) -> Modes:
        if not self.learned.any():
            return np.full(len(self.eigenvalues), np.inf)
        slowest = (self.task_power * self.eigenvalues**2)[self.learned].min()
        start = max(1e-12, float(np.abs(self.p_start * self.q_start).min()))
        horizon = 2 * (2 + abs(np.log(self.fixed_point.max() / start))) / slowest
        half = np.full(len(self.eigenvalues), np.inf)
        for _ in range(6):
            times = np.linspace(0, horizon, 20001)
            a = self.modes(times)
            for k in np.flatnonzero(self.learned):
                there = np.flatnonzero(a[:, k] >= self.fixed_point[k] / 2)
                if len(there) and there[0] == 0:
                    half[k] = 0.0
                elif len(there):
                    i = there[0]
                    half[k] = np.interp(self.fixed_point[k] / 2, a[i - 1 : i + 1, k], times[i - 1 : i + 1])
            if np.isfinite(half[self.learned]).all():
                break
            horizon *= 3  # a mode close to the edge of being learned takes very long
        return half

    def conserved(self, times: Numbers) -> Constants:
        """||p2||^2 - ||q1||^2: constant in total. Per mode it is not, at any N: see `fixed_blocks`."""
        p, q = self.blocks(times)
        return (p**2 - q**2).sum(-1, keepdims=True)

    def _velocity(self, _: float, state: np.ndarray) -> np.ndarray:
        """Minus the gradient of `loss_of`."""
        s, n, m = self.eigenvalues, self.context, self.task_power
        p, q = np.split(state, 2)
        noise = (s**2 * q**2).sum()
        dp = m * s * ((n + 1) / n * s**2 * p * q**2 + p * noise / n - q * s)
        dq = m * s * ((n + 1) / n * s**2 * p**2 * q - p * s) + s**2 * q * (m * s * p**2).sum() / n
        return -np.concatenate((dp, dq))


def check_setting(eigenvalues: Numbers, context: float, init: float) -> tuple[Modes, int, float]:
    """The setting as arrays and numbers, or a ValueError that names what is wrong with it."""
    s = np.atleast_1d(np.asarray(eigenvalues, dtype=np.float64))
    if s.ndim != 1 or len(s) == 0 or not np.isfinite(s).all() or (s <= 0).any():
        raise ValueError(f"eigenvalues {s.tolist()}: a covariance is positive, so all of them must be above 0")
    if not np.isfinite(context) or int(context) != context or context < 1:
        raise ValueError(f"context is {context}: at least one example (N >= 1) is needed")
    if not init > 0:
        raise ValueError(f"init is {init}: a positive starting amplitude is needed, zero never leaves zero")
    return s, int(context), float(init)
