"""How linear self-attention learns many sparse tasks (paper 004, section 3): exactly, and in four closed forms.

Tasks do not interact: f_s = v_s^T H_s w_s follows its own flow (Eq 9), at a pace set by the frequency p_s of its task.
Time is t = learning rate x updates.

`FullFlow` is Eq 9 itself. With eta = v + w, rho = v - w and the eigenvalues h_i of H it is one number per task:

    eta_i = eta_i(0) exp(h_i E),  rho_i = rho_i(0) exp(-h_i E),   dE/dt = p (Lambda - f),
    f(E) = 1/4 sum_i h_i [ eta_i(0)^2 exp(2 h_i E) - rho_i(0)^2 exp(-2 h_i E) ],

so t is a quadrature in E. (The paper calls Eq 9 intractable and expands it.)

`ZerothOrder` is Theorem 3.1: H replaced by psi H^0 = psi (1, Lambda)^T (1, Lambda), which leaves one direction and the
Riccati equation df/dt = a (Lambda - f) sqrt(4 f^2 + 2 C), a = p psi (Lambda^2 + 1), 2 C = g h. `Corrected` keeps the
same closed form for the leading eigenvector of H itself: a = p h_1 and the start projected on it. `FirstOrder` adds the
term of Appendix J, for the starts along (1, Lambda) to which it applies.

Eq 13 is written here with its fractions multiplied out, which removes its singular points: C = 0 (then it is Eq 14),
f(0) = Lambda (then nothing moves), and v = -w (then f shrinks to 0 and the task is never learned).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from models.multitask_sparse.task import Tasks

Numbers = Sequence[float] | np.ndarray
Values = Float64[np.ndarray, " tasks"]
Start = Float64[np.ndarray, "tasks 2"]
Times = Float64[np.ndarray, " times"]
Trajectories = Float64[np.ndarray, "times tasks"]

_NODES = 2001
_REACH = 40.0  # E has come within exp(-40) of its end


class TaskFlow:
    """What the theories share. frequency is #_s / N, the share of the data; by default the tasks' probability."""

    name = "flow of the tasks"

    def __init__(self, tasks: Tasks, v: Start, w: Start, frequency: Numbers | None = None) -> None:
        self.tasks, self.v, self.w = tasks, v, w
        self.frequency = tasks.probability if frequency is None else np.asarray(frequency, dtype=np.float64)
        count = len(tasks.rank)
        for name, found in (("v", len(v)), ("w", len(w)), ("frequency", len(self.frequency))):
            if found != count:
                raise ValueError(f"{name} has {found} rows: one per task, {count}, is expected")
        if (self.frequency < 0).any():
            raise ValueError("frequency is a share of the data and cannot be negative")

    start: Values
    """f_s(0)."""

    def modes(self, times: Numbers) -> Trajectories:
        """The output f_s(t) of every task."""
        raise NotImplementedError

    @property
    def fixed_point(self) -> Values:
        """Lambda_s; 0 for a task without data, which stays where it starts."""
        return np.where(self.frequency > 0, self.tasks.strength, 0.0)

    @cached_property
    def _half_times(self) -> Values:
        """By bisection in ln t between nothing and everything."""
        target = self.tasks.strength / 2
        scale = self.frequency * self.tasks.context * (self.tasks.strength**2 + 1) * self.tasks.strength
        found = np.where(self.start >= target, 0.0, np.inf)
        open_ = np.flatnonzero(np.isinf(found) & (self.frequency > 0))
        low, high = np.full(len(scale), -30.0), np.full(len(scale), 12.0)
        reached = self._at(np.exp(high) / np.where(scale > 0, scale, 1)) >= target
        for _ in range(60):
            middle = (low + high) / 2
            there = self._at(np.exp(middle) / np.where(scale > 0, scale, 1)) >= target
            low, high = np.where(there, low, middle), np.where(there, middle, high)
        ok = open_[reached[open_]]
        found[ok] = np.exp(high[ok]) / scale[ok]
        return found

    @property
    def half_times(self) -> Values:
        """When f_s reaches Lambda_s / 2; 0 if it starts there, infinite for a task that is never learned."""
        return self._half_times

    def loss(self, times: Numbers) -> Times:
        """The training loss, Eq 8."""
        return 0.5 * self.tasks.total(self.frequency * (self.modes(times) - self.tasks.strength) ** 2)

    def test_loss(self, times: Numbers) -> Times:
        """The test loss, Eq 15: tasks weighted by their probability, seen or not."""
        return 0.5 * self.tasks.total(self.tasks.probability * (self.modes(times) - self.tasks.strength) ** 2)

    def conserved(self, times: Numbers) -> Trajectories:
        """|v_s|^2 - |w_s|^2 of every task, at all times that at the start."""
        return np.repeat((self.v**2 - self.w**2).sum(-1)[None], len(check_times(times)), 0)

    def _at(self, times: Values) -> Values:
        """f_s at a time of its own for each task."""
        raise NotImplementedError


class FullFlow(TaskFlow):
    """Eq 9, by quadrature."""

    name = "full flow (Eq 9)"

    def __init__(self, tasks: Tasks, v: Start, w: Start, frequency: Numbers | None = None) -> None:
        super().__init__(tasks, v, w, frequency)
        values, vectors = np.linalg.eigh(tasks.moments)
        self._h, self.start = values, np.einsum("si,sij,sj->s", v, tasks.moments, w)
        self._eta, self._rho = (np.einsum("sij,si->sj", vectors, start) for start in (v + w, v - w))
        if (np.abs(self._eta).max(-1) == 0).any():
            raise ValueError("v = -w for some task: its output can only shrink to 0. Start v and w on the same side")

    def modes(self, times: Numbers) -> Trajectories:
        """The output f_s(t) of every task, by quadrature."""
        times = check_times(times)
        return np.stack([self._follow(s, p * times) for s, p in enumerate(self.frequency)], 1)

    def _at(self, times: Values) -> Values:
        return np.array([self._follow(s, p * t) for s, (p, t) in enumerate(zip(self.frequency, times, strict=True))])

    def _follow(self, task: int, ahead: np.ndarray | float) -> np.ndarray:
        """f at values of p t."""
        course = self._courses[task]
        return course(np.minimum(ahead, course.x[-1]))

    def _output(self, e: np.ndarray) -> np.ndarray:
        """f(E), E given per task [..., tasks]."""
        up, down = self._growth(e)
        return 0.25 * (self._h * (self._eta**2 * up - self._rho**2 * down)).sum(-1)

    def _slope(self, e: np.ndarray) -> np.ndarray:
        up, down = self._growth(e)
        return 0.5 * (self._h**2 * (self._eta**2 * up + self._rho**2 * down)).sum(-1)

    def _growth(self, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """exp(2 h E) and its inverse; bounded, because bisection begins far away."""
        power = np.clip(2 * self._h * e[..., None], -700, 700)
        return np.exp(power), np.exp(-power)

    @cached_property
    def _end(self) -> Values:
        """E at which f = Lambda, by bisection: f rises with E."""
        strength, h = self.tasks.strength, self._h
        grown, shrunk = 0.25 * h * self._eta**2, 0.25 * h * self._rho**2
        with np.errstate(divide="ignore"):
            # one rising term alone suffices above; below, the falling terms only help
            high = (np.log((strength + shrunk.sum(-1))[:, None] / grown) / (2 * h)).min(-1)
            low = np.log(strength / np.maximum(grown.sum(-1), strength)) / (2 * h.min(-1))
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        for _ in range(200):
            middle = (low + high) / 2
            beyond = self._output(middle) > strength
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return (low + high) / 2

    @cached_property
    def _courses(self) -> list:
        """f as a function of p t, per task: a quadrature along E = E_end (1 - exp(-u)), which has no singular end."""
        from scipy.integrate import cumulative_simpson
        from scipy.interpolate import CubicHermiteSpline

        u = np.linspace(0, _REACH, _NODES)[:, None]
        e = self._end * -np.expm1(-u)
        output = self._output(e)
        gap, left = self.tasks.strength - output, self._end * np.exp(-u)
        limit = 1 / self._slope(self._end)
        settled = np.abs(gap) < 1e-7 * self.tasks.strength
        pace = np.where(settled, limit, left / np.where(settled, 1, gap))
        clock = cumulative_simpson(pace, x=u[:, 0], axis=0, initial=0)
        speed = gap * self._slope(e)
        return [CubicHermiteSpline(*curves) for curves in zip(clock.T, output.T, speed.T, strict=True)]


class RiccatiFlow(TaskFlow):
    """The closed form of Theorem 3.1 for one direction per task: rate a, start f(0) and constant C."""

    rate: Values
    constant: Values

    def modes(self, times: Numbers) -> Trajectories:
        """Eq 13 without its singular points."""
        return self._closed_form(check_times(times)[:, None])

    def _at(self, times: Values) -> Values:
        return self._closed_form(times)

    def _closed_form(self, times: np.ndarray) -> np.ndarray:
        one_over_p, one_over_q = self._inverses
        size = self._size
        decay = np.exp(-np.minimum(self.rate * size * times, 700))
        return self.tasks.strength + size / 2 * (
            one_over_p * decay / (1 + one_over_p * decay) - one_over_q * decay / (1 + one_over_q * decay)
        )

    @property
    def _size(self) -> Values:
        """lambda_s = sqrt(4 strength^2 + 2 constant), which sets the pace of a task."""
        return np.sqrt(4 * self.tasks.strength**2 + 2 * self.constant)

    @cached_property
    def _inverses(self) -> tuple[Values, Values]:
        """1/P and 1/Q.

        With n = 4 f(0) Lambda + 2 C + lambda sqrt(4 f(0)^2 + 2 C), k = lambda + 2 Lambda and d = f(0) - Lambda, Eq 13
        has P = n k / (4 C d) and Q = -n / (2 d k). For f(0) < 0 the sum n cancels, and
        n = 8 C d^2 / m with m its conjugate.
        """
        strength, start, c = self.tasks.strength, self.start, self.constant
        d, k = start - strength, self._size + 2 * strength
        straight, root = 4 * start * strength + 2 * c, self._size * np.sqrt(4 * start**2 + 2 * c)
        n, m = straight + root, root - straight
        with np.errstate(divide="ignore", invalid="ignore"):
            one_over_p = np.where(start >= 0, 4 * c * d / (n * k), m / (2 * d * k))
            one_over_q = np.where(start >= 0, -2 * d * k / n, -k * m / (4 * c * d))
        return one_over_p, one_over_q


class ZerothOrder(RiccatiFlow):
    """Theorem 3.1 (Eqs 13, 14)."""

    name = "zeroth order (Eqs 13, 14)"

    def __init__(self, tasks: Tasks, v: Start, w: Start, frequency: Numbers | None = None) -> None:
        super().__init__(tasks, v, w, frequency)
        along = np.stack((np.ones_like(tasks.strength), tasks.strength), -1)
        self._project(along, tasks.context, self.frequency * tasks.context * (tasks.strength**2 + 1))

    def _project(self, along: Start, weight: Values, rate: Values) -> None:
        v, w = (along * self.v).sum(-1), (along * self.w).sum(-1)
        self.rate, self.start = rate, weight * v * w
        # 2 C = g h; v^2 - w^2 rather than (v + w)^2 (v - w)^2 keeps an exact zero exact
        self.constant = 0.5 * (weight * (v**2 - w**2)) ** 2
        stuck = (self.constant == 0) & (self.start == 0)
        if stuck.any():
            raise ValueError(
                f"task {int(np.flatnonzero(stuck)[0]) + 1} starts with v and w zero: zero never leaves zero"
            )

    @property
    def fixed_point(self) -> Values:
        """Lambda_s; 0 from v = -w and for a task without data."""
        return np.where((self.constant == 0) & (self.start < 0), 0.0, super().fixed_point)

    def _closed_form(self, times: np.ndarray) -> np.ndarray:
        falls = (self.constant == 0) & (self.start < 0)
        if not falls.any():
            return super()._closed_form(times)
        # v = -w: h alone is left, f = -h/4, and df/dt = -2 a (Lambda - f) f
        strength, start = self.tasks.strength, np.where(falls, self.start, -1.0)
        decay = np.exp(-np.minimum(2 * self.rate * strength * times, 700))
        shrinking = strength * start * decay / (strength - start + start * decay)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(falls, shrinking, super()._closed_form(times))


class Corrected(ZerothOrder):
    """The closed form of Theorem 3.1 on the leading eigenvector of H rather than of H^0."""

    name = "corrected closed form"

    def __init__(self, tasks: Tasks, v: Start, w: Start, frequency: Numbers | None = None) -> None:
        TaskFlow.__init__(self, tasks, v, w, frequency)
        values, vectors = np.linalg.eigh(tasks.moments)
        self._project(vectors[:, :, -1], values[:, -1], self.frequency * values[:, -1])


class FirstOrder(ZerothOrder):
    """Theorem 3.1 and the term of order 1/psi, Appendix J, with m(0) = n(0) = 0.

    The printed Eqs 150 and 151 leave the constants of integration out, and Eq 137 the factor 1/4: `PrintedFirstOrder`.
    """

    name = "first order (Appendix J)"

    def __init__(self, tasks: Tasks, v: Start, w: Start, frequency: Numbers | None = None) -> None:
        for name, start in (("v", v), ("w", w)):
            if np.abs(start[:, 1] - tasks.strength * start[:, 0]).max() > 1e-9 * np.abs(start).max():
                raise ValueError(
                    f"{name} must start along (1, Lambda) for every task: Appendix J assumes it below Eq 127"
                )
        super().__init__(tasks, v, w, frequency)
        if (self.start <= 0).any():
            raise ValueError("the first-order term needs v and w to start on the same side: f(0) > 0")

    def _closed_form(self, times: np.ndarray) -> np.ndarray:
        zeroth = super()._closed_form(times)
        r = 4 * zeroth / (self.tasks.strength**2 + 1) ** 2  # Eq 139
        m, n = self._m_and_n(times, from_zero=True)
        return zeroth + (r + 2 * (m - n)) / (4 * self.tasks.context)

    def _m_and_n(self, times: np.ndarray, *, from_zero: bool) -> tuple[np.ndarray, np.ndarray]:
        """Eqs 150, 151 divided by Q^2 and P^2; from_zero subtracts what they are at t = 0, times u(0) / u."""
        strength, c, rate = self.tasks.strength, self.constant, self.rate
        one_over_p, one_over_q = self._inverses
        lean = 2 * strength / self._size  # Lambda a / xi
        decay = np.exp(-np.minimum(rate * self._size * times, 700))
        drift = 4 * rate * times * (strength**2 + c)
        scale = (strength**2 + 1) ** 2

        def numerator(rising: np.ndarray, falling: np.ndarray, inverse: np.ndarray) -> np.ndarray:
            now = rising * strength + falling * strength * (inverse * decay) ** 2 + drift * inverse * decay
            start = rising * strength + falling * strength * inverse**2
            return (now - decay * start if from_zero else now) / (scale * (1 + inverse * decay) ** 2)

        return numerator(-(1 + lean), lean - 1, one_over_q), numerator(1 - lean, -(1 + lean), one_over_p)


class PrintedFirstOrder(FirstOrder):
    """Eq 137 as printed."""

    name = "first order as printed (Eq 137)"

    def _closed_form(self, times: np.ndarray) -> np.ndarray:
        zeroth = ZerothOrder._closed_form(self, times)
        r = 4 * zeroth / (self.tasks.strength**2 + 1) ** 2
        m, n = self._m_and_n(times, from_zero=False)
        return zeroth + (r + 2 * (m - n)) / self.tasks.context


def uniform_start(tasks: Tasks, init: float, offset: float = 0.1) -> tuple[Start, Start]:
    """v = A (1, 1) and w = (1 + offset) v for every task (Eq 106; Eq 107 with offset 0)."""
    if not init > 0:
        raise ValueError(f"init is {init}: a positive start is needed, zero never leaves zero")
    v = np.full((len(tasks.rank), 2), float(init))
    return v, (1 + offset) * v


def aligned_start(tasks: Tasks, output: float, offset: float = 0.0) -> tuple[Start, Start]:
    """v along (1, Lambda) and w = (1 + offset) v, such that f^0(0) = output x Lambda for every task."""
    if not output > 0:
        raise ValueError(f"output is {output}: a positive share of Lambda is needed, zero never leaves zero")
    along = np.stack((np.ones_like(tasks.strength), tasks.strength), -1)
    size = np.sqrt(output * tasks.strength / (tasks.context * (1 + offset))) / (tasks.strength**2 + 1)
    return size[:, None] * along, (1 + offset) * size[:, None] * along


def check_times(times: Numbers) -> Times:
    """Times as an array, or a ValueError."""
    times = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if len(times) == 0 or not np.isfinite(times).all() or (times < 0).any():
        raise ValueError("times must not be empty, be finite and not be negative")
    return times
