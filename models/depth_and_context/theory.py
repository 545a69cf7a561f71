"""How Gamma grows under gradient flow (paper 003, sections 3 and 5), as printed and corrected.

The reduced model of depth L takes L steps of preconditioned gradient descent inside its context, so after training by
gradient flow from Gamma = 0 only a few numbers are left to follow:

    isotropic data (ISO)            Gamma = gamma I     Eqs 7, 8, with the Marchenko-Pastur law
    fixed covariance (FS)           gamma_k per mode    Eq 10, which has a closed form at every depth
    rotated covariances (RRS)       Gamma = gamma I     Eq 13

All weights of linear attention in training are in `attention_theory.py`.

Time is t = learning rate x updates, where an update moves Gamma by -learning rate x D/2 x gradient of the mean squared
error (the form of Eq 62, whose mean gradient is Eq 7). Losses are Tr / D; for scaling laws the un-normalised sum is
meant, `per_direction=False`.

Where the printed formulas are off: the final ISO loss at L = 1 is 1/(1 + alpha), not (1 + alpha)^-2 (that is
||Gamma - I||^2 / D); the solution of Eq 10 for infinite depth has 2 where 4 is printed; the best gamma of a deep model
tends to 2 L / lambda_1, not L / lambda_1 (Eq 99).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from models.depth_and_context.deterministic_equivalent import check_depth
from models.depth_and_context.spectrum import Spectrum
from models.flows import path

Numbers = Sequence[float] | np.ndarray
Modes = Float64[np.ndarray, " modes"]
Times = Float64[np.ndarray, " times"]
Trajectories = Float64[np.ndarray, "times modes"]
Nodes = tuple[Float64[np.ndarray, " nodes"], Float64[np.ndarray, " nodes"]]


class GammaFlow(ABC):
    """One number gamma that grows from 0 at the pace d gamma / dt = velocity(gamma) until that vanishes."""

    name = "gradient flow"
    directions = 1  # how many equal modes to speak of: gamma is every eigenvalue of Gamma
    layers = 1  # how many equal matrices Gamma^l the modes are summed over (untied layers, section 5.1)

    @abstractmethod
    def loss_of(self, gamma: float) -> float:
        """The expected loss at Gamma = gamma I."""

    @abstractmethod
    def velocity(self, gamma: float) -> float:
        """-1/2 d loss / d gamma."""

    @cached_property
    def best_gamma(self) -> float:
        """Where the flow stops: the first zero of the velocity."""
        from scipy.optimize import brentq

        def bounded(gamma: float) -> float:
            return float(np.clip(self.velocity(gamma), -1e300, 1e300))

        high = 1.0
        while bounded(high) > 0:
            high *= 1.3
            if high > 1e12:
                return np.inf
        root = brentq(bounded, high / 1.3 if high > 1 else 0.0, high, xtol=1e-13)
        assert isinstance(root, float)
        return root

    @property
    def final_loss(self) -> float:
        """The loss where the flow stops."""
        return self.loss_of(self.best_gamma)

    @property
    def fixed_point(self) -> Modes:
        """The final gamma, once per direction."""
        return np.full(self.directions, self.layers * self.best_gamma)

    @cached_property
    def _half_time(self) -> float:
        if not np.isfinite(self.best_gamma):
            return np.inf
        grid = np.linspace(0, self.best_gamma / 2, 2001)
        return float(np.trapezoid([1 / self.velocity(float(gamma)) for gamma in grid], grid))

    @property
    def half_times(self) -> Modes:
        """When gamma reaches half of its end."""
        return np.full(self.directions, self._half_time)

    def modes(self, times: Numbers) -> Trajectories:
        """gamma(t), once per direction."""
        return np.repeat(self.layers * self.gamma(times)[:, None], self.directions, 1)

    def conserved(self, times: Numbers) -> Float64[np.ndarray, "times none"]:
        """This flow conserves nothing: no columns."""
        return np.zeros((len(check_times(times)), 0))

    def gamma(self, times: Numbers) -> Times:
        """gamma(t) from gamma(0) = 0."""
        return path(lambda _, state: np.array([self.velocity(float(state[0]))]), np.zeros(1), times)[:, 0]

    def loss(self, times: Numbers) -> Times:
        """The expected loss L(t) along gamma(t)."""
        return np.array([self.loss_of(float(gamma)) for gamma in self.gamma(times)])


class IsoFlow(GammaFlow):
    """Isotropic inputs and tasks at context ratio alpha = P / D, label noise sigma^2 (Eqs 7, 8, 83).

    Without noise the best gamma is L alpha / (1 + alpha) at every depth: lambda times the Marchenko-Pastur density is
    even about 1 + 1/alpha, so that the odd power in Eq 7 integrates to zero there. `spectrum` replaces that law by
    other eigenvalues and weights: those of a finite dimension, say (`wishart_spectrum`).
    """

    name = "Marchenko-Pastur flow"

    def __init__(self, depth: float, ratio: float, noise: float = 0.0, spectrum: Nodes | None = None) -> None:
        self.depth, self.noise = check_depth(depth), float(noise)
        if not 0 < ratio < np.inf:
            raise ValueError(f"ratio (alpha) is {ratio}: a positive number of examples per dimension is needed")
        if not 0 <= noise < np.inf:
            raise ValueError(f"noise (sigma^2) is {noise}: zero or a positive number is needed")
        self.ratio = float(ratio)
        self._lam, self._weight = spectrum or marchenko_pastur(self.ratio)

    @property
    def _steps(self) -> float:
        """By what gamma is divided in one step."""
        return self.depth

    def loss_of(self, gamma: float) -> float:
        """Integral of (1 - gamma lambda / L)^2L, and of the label noise that is fitted (not that of the test label)."""
        u = 1 - gamma * self._lam / self._steps
        loss = float(self._weight @ u ** (2 * self.depth))
        if self.noise:
            fitted = (1 - u**self.depth) ** 2 / np.where(self._lam > 0, self._lam, 1)
            loss += self.noise / self.ratio * float(self._weight @ fitted)
        return loss

    def velocity(self, gamma: float) -> float:
        """Eq 7; with noise, minus half the derivative of `loss_of`."""
        u = 1 - gamma * self._lam / self._steps
        with np.errstate(over="ignore"):  # far beyond the best gamma: minus infinity is meant
            pace = self._lam * u ** (2 * self.depth - 1)
            if self.noise:
                fitted = (1 - u**self.depth) * u ** (self.depth - 1)
                pace = pace - self.noise / self.ratio * np.where(self._lam > 0, fitted, 0)
        return float(self._weight @ pace)


def wishart_spectrum(context: int, dimension: int, draws: int = 2000) -> Nodes:
    """The same at a finite dimension: eigenvalues of sampled X X^T / P, always the same draws."""
    x = np.random.default_rng(0).standard_normal((draws, context, dimension))
    lam = np.linalg.eigvalsh(np.swapaxes(x, 1, 2) @ x / context).ravel().clip(0)
    return lam, np.full(len(lam), 1 / len(lam))


def marchenko_pastur(ratio: float, count: int = 2000) -> Nodes:
    """Eigenvalues and weights that integrate against the spectrum of X X^T / P at P / D = ratio.

    With lambda = 1 + 1/ratio + 2 cos(theta)/sqrt(ratio) the density is (2/pi) sin^2(theta) / lambda, smooth in theta.
    Below ratio 1 a mass 1 - ratio lies at 0.
    """
    theta = np.pi * (np.arange(count) + 0.5) / count
    lam = 1 + 1 / ratio + 2 * np.cos(theta) / np.sqrt(ratio)
    weight = 2 / count * np.sin(theta) ** 2 / lam
    if ratio < 1:
        lam, weight = np.append(lam, 0.0), np.append(weight, 1 - ratio)
    return lam, weight


def printed_iso_final_loss(ratio: float) -> float:
    """(1 + alpha)^-2, printed below Eq 8 for L = 1. It is ||Gamma - I||^2 / D there; the loss is 1 / (1 + alpha)."""
    return (1 + ratio) ** -2


class RotatedFlow(GammaFlow):
    """Covariances rotated anew in every context, at infinite context and full width (RRS, Eq 13)."""

    name = "RRS flow (Eq 13)"

    def __init__(self, spectrum: Spectrum, depth: float, *, per_direction: bool = True) -> None:
        self.spectrum = spectrum
        self.depth = depth if depth == np.inf else check_depth(depth)
        self._scale = 1 / spectrum.dimension if per_direction else 1.0

    def loss_of(self, gamma: float) -> float:
        """Tr Omega Lambda (1 - gamma Lambda / L)^2L, Eq 98."""
        lam = self.spectrum.eigenvalues
        return self._scale * float(
            self.spectrum.total(lam * self.spectrum.task_power * self._power(gamma, 2 * self.depth))
        )

    def velocity(self, gamma: float) -> float:
        """d gamma / dt, Eq 13."""
        lam = self.spectrum.eigenvalues
        power = self._power(gamma, 2 * self.depth - 1)
        return self._scale * float(self.spectrum.total(lam**2 * self.spectrum.task_power * power))

    def _power(self, gamma: float, exponent: float) -> np.ndarray:
        lam = self.spectrum.eigenvalues
        if self.depth == np.inf:
            return np.exp(-2 * gamma * lam)
        with np.errstate(over="ignore"):  # far beyond the best gamma: infinity is meant
            return (1 - gamma * lam / self.depth) ** int(exponent)


class FixedCovarianceFlow:
    """One covariance for all contexts, infinitely long ones (FS): Eq 10 in closed form at every depth.

    With u = 1 - lambda gamma / L, Eq 10 is du/dt = -(omega lambda^3 / L) u^(2L - 1), so

        u^2L = [1 + (2 - 2/L) omega lambda^3 t]^(-L/(L - 1)),

    exp(-2 omega lambda^3 t) at L = 1 and 1/(1 + 2 omega lambda^3 t) as L grows.
    """

    name = "FS flow (Eq 10)"
    _rate = 2.0

    def __init__(self, spectrum: Spectrum, depth: float, *, per_direction: bool = True) -> None:
        self.spectrum = spectrum
        self.depth = depth if depth == np.inf else check_depth(depth)
        self._scale = 1 / spectrum.dimension if per_direction else 1.0

    @property
    def fixed_point(self) -> Modes:
        """gamma_k = L / lambda_k: the covariance is whitened in one of L steps (infinite at infinite depth)."""
        return self.depth / self.spectrum.eigenvalues

    @property
    def half_times(self) -> Modes:
        """When gamma_k reaches half of that."""
        speed = self.spectrum.task_power * self.spectrum.eigenvalues**3
        if self.depth == np.inf:
            return np.full_like(speed, np.inf)
        with np.errstate(divide="ignore"):
            if self.depth == 1:
                return np.log(2) / speed
            return (2.0 ** (2 * self.depth - 2) - 1) / ((2 - 2 / self.depth) * speed)

    def modes(self, times: Numbers) -> Trajectories:
        """gamma_k(t) of every direction."""
        lam = self.spectrum.eigenvalues
        log_u2l = self._log_remaining(times)
        if self.depth == np.inf:
            return -log_u2l / (2 * lam)
        return -self.depth / lam * np.expm1(log_u2l / (2 * self.depth))

    def loss(self, times: Numbers) -> Times:
        """L(t) = Tr Omega Lambda u^2L."""
        energy = self.spectrum.eigenvalues * self.spectrum.task_power
        return self._scale * self.spectrum.total(energy * np.exp(self._log_remaining(times)))

    def conserved(self, times: Numbers) -> Float64[np.ndarray, "times none"]:
        """This flow conserves nothing: no columns."""
        return np.zeros((len(check_times(times)), 0))

    def _log_remaining(self, times: Numbers) -> Trajectories:
        """ln u^2L of every direction: the share of its loss that is left."""
        times = check_times(times)
        x = self.spectrum.task_power * self.spectrum.eigenvalues**3 * times[:, None]
        if self.depth == 1:
            return -2 * x
        inverse = 0.0 if self.depth == np.inf else 1 / self.depth
        return -np.log1p((self._rate - 2 * inverse) * x) / (1 - inverse)


class PrintedFixedCovarianceFlow(FixedCovarianceFlow):
    """The printed solution for infinite depth, below Eq 10: gamma_k = ln(1 + 4 omega lambda^3 t) / (2 lambda)."""

    name = "FS flow as printed below Eq 10"
    _rate = 4.0

    def __init__(self, spectrum: Spectrum, *, per_direction: bool = True) -> None:
        super().__init__(spectrum, np.inf, per_direction=per_direction)


def out_of_distribution_loss(
    covariance: Float64[np.ndarray, "d d"],
    new_covariance: Float64[np.ndarray, "d d"],
    new_task_covariance: Float64[np.ndarray, "d d"],
    depth: int,
) -> float:
    """Eq 11: the loss of Gamma = L covariance^-1 where the covariance is another one."""
    check_depth(depth)
    d = len(covariance)
    step = np.eye(d) - np.linalg.solve(covariance, new_covariance)
    power = np.linalg.matrix_power(step, depth)
    return float(np.trace(new_task_covariance @ power.T @ new_covariance @ power)) / d


def check_times(times: Numbers) -> Times:
    """Times as an array, or a ValueError."""
    times = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if len(times) == 0 or not np.isfinite(times).all() or times[0] < 0 or (np.diff(times) < 0).any():
        raise ValueError("times must not be empty, be finite, begin at or after 0 and not decrease")
    return times
