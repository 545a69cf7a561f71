"""One number per head: the reduced equation of paper 001, and when a head leaves the first plateau.

`ScalarTheory` is Eq 7, v' = lambda^2 v^2 - lambda a v^5, in the closed form of Eq 37 (whose integrand should read
v^2 - (a / lambda) v^5).

Eq 38 takes a head to be aligned with the first eigenvector from the start, t_1 = 1 / (lambda_1^2 v(0)). It is not:
`escape_times` keeps the alignment. Before anything is learned a head follows Eq 31, and with s = int v dt each
eigendirection of k + q grows as exp(lambda^2 s), that of k - q as exp(-lambda^2 s), so

    ds/dt = v,    dv/dt = 1/4 sum_d lambda_d^2 [ (k + q)_d^2 exp(2 lambda_d^2 s) - (k - q)_d^2 exp(-2 lambda_d^2 s) ]

which reaches infinity after a finite time. Time is that of `theory`.
"""

import numpy as np
from jaxtyping import Float64
from scipy.integrate import solve_ivp

from models.multi_head.theory import Modes, Numbers, Times, check_eigenvalues, second_moment


def clock(value: np.ndarray, final_value: np.ndarray | float) -> np.ndarray:
    """lambda^2 t as a function of v, up to a constant, for a head that ends at `final_value` (last line of Eq 37)."""
    u = np.minimum(value / final_value, 1 - 1e-15)
    bracket = np.log((u**2 + u + 1) / (1 - u) ** 2) - 2 * np.sqrt(3) * np.arctan((2 * u + 1) / np.sqrt(3))
    return bracket / (6 * final_value) - 1 / value


def printed_escape_time(eigenvalue: float, value: float) -> float:
    """Eqs 38 and 43: 1 / (lambda^2 v), the time an aligned head with value v takes to leave a plateau."""
    if not (eigenvalue > 0 and value > 0):
        raise ValueError(f"eigenvalue is {eigenvalue} and value is {value}: both must be positive")
    return 1 / (eigenvalue**2 * value)


def escape_times(
    eigenvalues: Numbers,
    value: Float64[np.ndarray, " heads"],
    key: Float64[np.ndarray, "heads rank d"],
    query: Float64[np.ndarray, "heads rank d"],
) -> Float64[np.ndarray, " heads"]:
    """When each head would leave the first plateau, were it alone: where Eq 31 reaches infinity."""
    s = check_eigenvalues(eigenvalues)
    return np.array([_escape_time(s**2, *head) for head in zip(value, key, query, strict=True)])


def _escape_time(rates: Modes, value: float, key: np.ndarray, query: np.ndarray) -> float:
    growing, decaying = ((key + sign * query).reshape(-1, len(rates)) ** 2 for sign in (1, -1))
    growing, decaying = growing.sum(0), decaying.sum(0)
    if value == 0 and np.allclose(growing, decaying):
        return float("inf")

    def velocity(_: float, state: np.ndarray) -> list[float]:
        v, exponent = state[0], np.clip(2 * rates * state[1], -600, 600)
        return [float((rates * (growing * np.exp(exponent) - decaying * np.exp(-exponent))).sum()) / 4, v]

    size = max(abs(value), float(np.sqrt(growing.sum() + decaying.sum())))
    large = 1e3 * size

    def escaped(_: float, state: np.ndarray) -> float:
        return abs(state[0]) - large

    escaped.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    horizon = 1e6 / (rates.min() * size)
    found = solve_ivp(
        velocity, (0.0, horizon), np.array([value, 0.0]), "LSODA", events=escaped, rtol=1e-9, atol=1e-12 * size
    )
    # from here on it is aligned, and Eq 38 gives what is left
    return float(found.t[-1] + 1 / (rates.max() * large)) if found.status == 1 else float("inf")


class ScalarTheory:
    """Eq 7: mode d belongs to one head with v = |k| = |q|, which had the value `starts[d]` at time `since[d]`."""

    name = "reduced (Eq 7)"

    def __init__(
        self,
        eigenvalues: Numbers,
        inverse_context: float,
        starts: Numbers,
        since: Numbers | float = 0.0,
        heads: int | None = None,
    ) -> None:
        self.eigenvalues = check_eigenvalues(eigenvalues)
        self.second = second_moment(self.eigenvalues, inverse_context)
        self.fixed_point = self.eigenvalues / self.second
        self.starts = np.asarray(starts, dtype=np.float64)
        self.since = np.broadcast_to(np.asarray(since, dtype=np.float64), self.eigenvalues.shape)
        self.heads = len(self.eigenvalues) if heads is None else heads
        if (
            self.starts.shape != self.eigenvalues.shape
            or not ((self.starts > 0) & (self.starts < self.final_values)).all()
        ):
            raise ValueError(
                f"starts is {self.starts.tolist()}: one value per mode, above 0 and below where it ends, "
                f"{self.final_values.round(4).tolist()}, is expected"
            )

    @property
    def final_values(self) -> Modes:
        """(lambda / a)^(1/3) (Eq 6a)."""
        return np.cbrt(self.fixed_point)

    def values(self, times: Numbers) -> Float64[np.ndarray, "times d"]:
        """v(t) of the head of each mode; before `since` it rests."""
        times = np.atleast_1d(np.asarray(times, dtype=np.float64))
        waited = np.clip(times[:, None] - self.since, 0, None) * self.eigenvalues**2
        low, high = np.broadcast_to(self.starts, waited.shape), np.broadcast_to(self.final_values, waited.shape)
        begin = clock(self.starts, self.final_values)
        for _ in range(60):  # the clock is monotone: halve the interval until rounding
            middle = (low + high) / 2
            early = clock(middle, self.final_values) - begin < waited
            low, high = np.where(early, middle, low), np.where(early, high, middle)
        return (low + high) / 2

    def modes(self, times: Numbers) -> Float64[np.ndarray, "times d"]:
        """Amplitudes v(t)^3, one per mode."""
        return self.values(times) ** 3

    @property
    def half_times(self) -> Modes:
        """When v^3 reaches half of its end."""
        halfway = self.final_values / np.cbrt(2)
        late = clock(np.maximum(halfway, self.starts), self.final_values) - clock(self.starts, self.final_values)
        return self.since + late / self.eigenvalues**2

    def loss(self, times: Numbers) -> Times:
        """The expected loss L(t) of these amplitudes."""
        amplitudes, s = self.modes(times), self.eigenvalues
        return (s - 2 * s**2 * amplitudes + self.second * s * amplitudes**2).sum(-1)

    def conserved(self, times: Numbers) -> Float64[np.ndarray, "times quantities"]:
        """v^2 - |k|^2 and v^2 - |q|^2 of every head: zero by the ansatz."""
        return np.zeros((len(np.atleast_1d(np.asarray(times))), 2 * self.heads))
