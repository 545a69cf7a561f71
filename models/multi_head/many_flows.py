"""The flow of Eq 45 from many starts at once, in equal steps of Runge and Kutta: dozens of seeds for the price of two.

`theory.PopulationFlow` integrates one start with error control, and is what this is checked against. Equal steps are
enough because nothing in the flow is faster than a few lambda_1^2 v; they are also all it can do: from much smaller
starts the plateaus last too long for them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from models.multi_head.theory import Modes, Numbers, Times, check_eigenvalues, fixed_point, loss_of, second_moment

Weights = tuple[np.ndarray, np.ndarray, np.ndarray]  # value [starts, heads], key and query [starts, heads, rank, d]


@dataclass(frozen=True)
class ManyFlows:
    """What became of every start: M(t) at every step, and the weights at some of them."""

    eigenvalues: Modes
    inverse_context: float
    times: Times
    matrices: Float64[np.ndarray, "times starts d d"]
    kept_times: Float64[np.ndarray, " kept"]
    value: Float64[np.ndarray, "kept starts heads"]
    key: Float64[np.ndarray, "kept starts heads rank d"]
    query: Float64[np.ndarray, "kept starts heads rank d"]

    @property
    def fixed_point(self) -> Modes:
        """lambda / a of every mode."""
        return fixed_point(self.eigenvalues, self.inverse_context)

    @property
    def modes(self) -> Float64[np.ndarray, "times starts d"]:
        """Amplitudes M_dd(t)."""
        return np.einsum("tsdd->tsd", self.matrices)

    @property
    def loss(self) -> Float64[np.ndarray, "starts times"]:
        """The expected loss along each flow."""
        return np.asarray(loss_of(self.eigenvalues, self.inverse_context, self.matrices)).T

    @property
    def half_times(self) -> Float64[np.ndarray, "starts d"]:
        """When each mode first reaches half of its fixed point; infinity if it has not by the last time."""
        above = self.modes - self.fixed_point / 2
        first = (above >= 0).argmax(0)
        after = np.take_along_axis(above, first[None], 0)[0]
        before = np.take_along_axis(above, np.maximum(first - 1, 0)[None], 0)[0]
        share = np.where(first > 0, after / np.where(first > 0, after - before, 1.0), 0.0)  # of the last step
        between = self.times[first] - share * self._step
        return np.where((above >= 0).any(0), between, np.inf)

    @property
    def conserved(self) -> Float64[np.ndarray, "kept starts quantities"]:
        """v^2 - sum_r |k_r|^2 of every head, then v^2 - sum_r |q_r|^2 (Eqs 44, 50)."""
        squares = [self.value**2 - (part**2).sum((-2, -1)) for part in (self.key, self.query)]
        return np.concatenate(squares, axis=-1)

    @property
    def _step(self) -> float:
        return float(self.times[1] - self.times[0])


def many_flows(
    eigenvalues: Numbers, inverse_context: float, start: Weights, end: float, step: float = 1.0, kept: int = 150
) -> ManyFlows:
    """Integrate until `end`; weights are kept at about `kept` times that are even in ln(time), and at the start."""
    s, second = check_eigenvalues(eigenvalues), second_moment(eigenvalues, inverse_context)
    count = max(1, int(np.ceil(end / step)))
    marks = {0, *np.unique(np.round(np.geomspace(1, count, kept)).astype(int)).tolist()}
    value, key, query = (np.array(part, dtype=np.float64) for part in start)
    rank = key.shape[-2]
    state: Weights = value, _flat(key), _flat(query)
    matrices, saved = np.empty((count + 1, len(value), len(s), len(s))), []
    for i in range(count + 1):
        first, matrices[i] = _velocity(state, s, second, rank)
        if i in marks:
            saved.append((i * step, *state))
        state = _one_step(state, first, step, s, second, rank)
    if not np.isfinite(matrices[-1]).all():
        raise RuntimeError(
            f"the flow blew up in steps of {step:g}: the weights are too large for them, try smaller steps"
        )
    at, value, key, query = (np.stack(column) for column in zip(*saved, strict=True))
    shape = (*value.shape, rank, len(s))
    return ManyFlows(
        s,
        inverse_context,
        step * np.arange(count + 1),
        matrices,
        at,
        value,
        key.reshape(shape),
        query.reshape(shape),
    )


def _one_step(state: Weights, first: Weights, step: float, s: Modes, second: Modes, rank: int) -> Weights:
    """Runge and Kutta's fourth order, with the velocity at the start of the step already known."""
    slopes = [first]
    for share in (0.5, 0.5, 1.0):
        value, key, query = (x + share * step * slope for x, slope in zip(state, slopes[-1], strict=True))
        slopes.append(_velocity((value, key, query), s, second, rank)[0])
    a, b, c, d = slopes
    parts = zip(state, a, b, c, d, strict=True)
    value, key, query = (x + step / 6 * (p + 2 * q + 2 * r + t) for x, p, q, r, t in parts)
    return value, key, query


def _velocity(state: Weights, s: Modes, second: Modes, rank: int) -> tuple[Weights, np.ndarray]:
    """Eq 45 for all starts, and M. value is [starts, heads], key and query [starts, heads x rank, d]."""
    value, key, query = state
    wide = np.repeat(value, rank, axis=1)[..., None]
    matrix = (wide * key).swapaxes(1, 2) @ query
    drive = np.diag(s**2) - second[:, None] * matrix * s
    to_key, to_query = query @ drive.swapaxes(1, 2), key @ drive
    pull = (key * to_key).sum(-1).reshape(*value.shape, rank).sum(-1)
    return (pull, wide * to_key, wide * to_query), matrix


def _flat(part: np.ndarray) -> np.ndarray:
    starts, heads, rank, d = part.shape
    return part.reshape(starts, heads * rank, d)
