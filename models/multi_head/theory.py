"""What several linear heads of rank R should do (paper 001): the plateaus of the loss, and the whole flow.

Head i answers with v_i beta^T (sum_r k_ir q_ir^T) x_q. The loss is L = E (y - y_hat)^2 and the flow is minus *half* its
gradient (tau = 1), so time is learning rate x step for SGD on half of the squared error. In the eigenbasis of Lambda,
with M = sum_i v_i sum_r k_ir q_ir^T and a_d the eigenvalues of E[Lambda_hat^2] (Eqs 16-18),

    L(M) = sum_d lambda_d - 2 sum_d lambda_d^2 M_dd + sum_de a_d M_de^2 lambda_e

Context lengths enter only through E(1/N), here `inverse_context`. A mode is an eigenvector of Lambda and its amplitude
M_dd, which ends at lambda_d / a_d.

`PopulationFlow` integrates Eq 45 (Eq 24 for R = 1) from given weights; the paper's reduction of it is in `reduced`.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Float64
from scipy.integrate import solve_ivp

from models.flows import path

Numbers = Sequence[float] | np.ndarray  # what callers hand in
Modes = Float64[np.ndarray, " d"]
Times = Float64[np.ndarray, " times"]


def second_moment(eigenvalues: Numbers, inverse_context: float) -> Modes:
    """a_d, the eigenvalues of E[Lambda_hat^2] (Eqs 16, 18)."""
    s = check_eigenvalues(eigenvalues)
    if not 0 <= inverse_context <= 1:
        raise ValueError(f"inverse_context is {inverse_context}: E(1/N) of lengths N >= 1, from 0 to 1, is expected")
    return s**2 + inverse_context * (s + s.sum()) * s


def mean_inverse_length(longest: int) -> float:
    """E(1/N) for lengths uniform on 1 .. longest, as in the next-token loss: the harmonic number over `longest`."""
    if longest < 1:
        raise ValueError(f"longest is {longest}: at least one example is needed")
    return float((1 / np.arange(1, longest + 1)).mean())


def fixed_point(eigenvalues: Numbers, inverse_context: float) -> Modes:
    """lambda_d / a_d: what the heads together write along each learned eigenvector (Eq 4)."""
    return check_eigenvalues(eigenvalues) / second_moment(eigenvalues, inverse_context)


def loss_of_subset(eigenvalues: Numbers, inverse_context: float, learned: Iterable[int]) -> float:
    """L(M(S)) with the eigenvectors of S learned (Eq 29)."""
    s = check_eigenvalues(eigenvalues)
    gain = s**2 * fixed_point(s, inverse_context)
    return float(s.sum() - gain[list(learned)].sum())


def plateau_losses(eigenvalues: Numbers, inverse_context: float) -> Float64[np.ndarray, " d_plus_1"]:
    """L(M_m) for m = 0 .. D eigenvectors learned, the largest first (Eqs 5, 12)."""
    d = len(check_eigenvalues(eigenvalues))
    return np.array([loss_of_subset(eigenvalues, inverse_context, range(m)) for m in range(d + 1)])


def loss_of(eigenvalues: Numbers, inverse_context: float, matrix: np.ndarray) -> np.ndarray | np.float64:
    """L(M) for matrices [..., d, d] in the eigenbasis."""
    s, a = check_eigenvalues(eigenvalues), second_moment(eigenvalues, inverse_context)
    learned = np.einsum("...dd,d->...", matrix, s**2)
    return s.sum() - 2 * learned + np.einsum("...de,d,e->...", matrix**2, a, s)


class PopulationFlow:
    """Eq 45, integrated numerically from given weights in the eigenbasis (Eq 24 for rank one)."""

    name = "population flow"
    PATIENCE = 1e4  # in units of 1 / (lambda_1^2 |start|), the quickest escape there can be

    def __init__(
        self,
        eigenvalues: Numbers,
        inverse_context: float,
        value: Float64[np.ndarray, " heads"],
        key: Float64[np.ndarray, "heads rank d"],
        query: Float64[np.ndarray, "heads rank d"],
    ) -> None:
        self.eigenvalues, self.inverse_context = check_eigenvalues(eigenvalues), inverse_context
        self.second = second_moment(self.eigenvalues, inverse_context)
        self.heads, self.rank, d = key.shape
        if query.shape != key.shape or value.shape != (self.heads,) or d != len(self.eigenvalues):
            raise ValueError(
                f"value {value.shape}, key {key.shape} and query {query.shape}: [heads] and twice [heads, rank, "
                f"{len(self.eigenvalues)}] are expected"
            )
        check_rank(self.rank, d)
        parts = (value[:, None], key.reshape(self.heads, -1), query.reshape(self.heads, -1))
        self.start = np.concatenate(parts, axis=1).ravel()

    @property
    def learned(self) -> np.ndarray:
        """Which modes the heads have room for, as booleans: the H R largest."""
        return np.arange(len(self.eigenvalues)) < self.heads * self.rank

    @property
    def fixed_point(self) -> Modes:
        """lambda / a where there is room, else 0 (Eqs 4, 48)."""
        return np.where(self.learned, self.eigenvalues / self.second, 0.0)

    def weights(self, times: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """value [times, heads], key and query [times, heads, rank, d]."""
        return self.split(path(self._velocity, self.start, times, rtol=1e-8, atol=1e-10))

    def matrices(self, times: Numbers) -> Float64[np.ndarray, "times d d"]:
        """M(t), the sum over heads of v k q^T."""
        return np.einsum("th,thri,thrj->tij", *self.weights(times))

    def modes(self, times: Numbers) -> Float64[np.ndarray, "times d"]:
        """Amplitudes M_dd(t), the diagonal of M in the eigenbasis."""
        return np.einsum("tdd->td", self.matrices(times))

    def loss(self, times: Numbers) -> Times:
        """The expected loss L(t) of M(t)."""
        return np.asarray(loss_of(self.eigenvalues, self.inverse_context, self.matrices(times)))

    def conserved(self, times: Numbers) -> Float64[np.ndarray, "times quantities"]:
        """v^2 - sum_r |k_r|^2 of every head, then v^2 - sum_r |q_r|^2 (Eqs 44, 50)."""
        value, key, query = self.weights(times)
        return np.concatenate([value**2 - (part**2).sum((-2, -1)) for part in (key, query)], axis=1)

    @property
    def half_times(self) -> Modes:
        """When each mode first reaches half of its fixed point; infinity if it has not within `PATIENCE`."""
        return self._half_times

    @cached_property
    def _half_times(self) -> Modes:
        half, targets = np.full(len(self.eigenvalues), np.inf), self.fixed_point / 2
        start = self._amplitudes(self.start)
        half[self.learned & (start >= targets)] = 0.0
        waiting = np.flatnonzero(self.learned & (start < targets))
        horizon = self.PATIENCE / (self.eigenvalues[0] ** 2 * np.sqrt((self.start**2).sum()))
        events = [lambda _, state, k=k: self._amplitudes(state)[k] - targets[k] for k in waiting]

        def beyond_half(_: float, state: np.ndarray) -> float:
            return float((self._amplitudes(state)[waiting] / targets[waiting]).min()) - 1.2

        beyond_half.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
        events += [beyond_half] if len(waiting) else []
        found = solve_ivp(self._velocity, (0.0, horizon), self.start, "LSODA", events=events, rtol=1e-8, atol=1e-10)
        for k, reached in zip(waiting, found.t_events or (), strict=False):
            half[k] = reached[0] if len(reached) else np.inf
        return half

    def _amplitudes(self, state: np.ndarray) -> Modes:
        value, key, query = (part[0] for part in self.split(np.asarray(state)[None]))
        return (value[:, None, None] * key * query).sum((0, 1))

    def split(self, path: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """States [times, all weights] as value [times, heads], key and query [times, heads, rank, d]."""
        count, d = len(path), len(self.eigenvalues)
        path = path.reshape(count, self.heads, -1)
        key, query = np.split(path[..., 1:], 2, axis=-1)
        shape = (count, self.heads, self.rank, d)
        return path[..., 0], key.reshape(shape), query.reshape(shape)

    def _velocity(self, _: float, state: np.ndarray) -> np.ndarray:
        return self.velocity(state)

    def velocity(self, state: np.ndarray) -> np.ndarray:
        """Eq 45: minus half the gradient of the loss, at weights in the order of `start`."""
        d = len(self.eigenvalues)
        state = state.reshape(self.heads, -1)
        value = state[:, 0, None, None]
        pairs = state[:, 1:].reshape(self.heads, 2, self.rank, d)
        key, query = pairs[:, 0], pairs[:, 1]
        matrix = (value * key).reshape(-1, d).T @ query.reshape(-1, d)
        drive = np.diag(self.eigenvalues**2) - self.second[:, None] * matrix * self.eigenvalues
        pulled = np.stack((query @ drive.T, key @ drive), axis=1)
        velocity = np.empty_like(state)
        velocity[:, 0] = (key * pulled[:, 0]).sum((1, 2))
        velocity[:, 1:] = (value[..., None] * pulled).reshape(self.heads, -1)
        return velocity.ravel()


def check_eigenvalues(eigenvalues: Numbers) -> Modes:
    """The eigenvalues as an array, or a ValueError that says what is wrong with them."""
    s = np.atleast_1d(np.asarray(eigenvalues, dtype=np.float64))
    if s.ndim != 1 or len(s) == 0 or not np.isfinite(s).all() or (s <= 0).any():
        raise ValueError(f"eigenvalues {s.tolist()}: a covariance is positive, so all of them must be above 0")
    if (np.diff(s) > 0).any():
        raise ValueError(f"eigenvalues {s.tolist()}: the largest first, in descending order, is expected")
    return s


def check_rank(rank: int, d: int) -> None:
    """Keys and queries of d dimensions have rank 1 to d."""
    if not 1 <= rank <= d:
        raise ValueError(f"rank is {rank}: keys and queries of {d} dimensions have rank 1 to {d}")
