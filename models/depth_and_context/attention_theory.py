"""All weights of linear attention in training (paper 003, Result 9 and G.2): gamma as a product of scales.

From aligned weights only scales move: w_x, w_k, w_q, w_v with gamma = w_v w_k w_q w_x^2, and w_y, w_o where labels are
read in and answers out. With w_y = w_o = 1 and a balanced start the flow is that of gamma with one number w (Eq 21);
with all six in training it is gradient flow on Eq 124.

Where print is off: Eq 21 lacks 1/L inside the power, and its gamma is 2 w^5 because W_x starts, and stays, sqrt 2 times
larger than the rest; Eq 127 gives w the exponent of w^5.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from models.depth_and_context.deterministic_equivalent import check_depth
from models.depth_and_context.spectrum import Spectrum
from models.depth_and_context.theory import GammaFlow, IsoFlow, Nodes, Numbers, RotatedFlow, Times, check_times
from models.flows import path


class FiveFactors(GammaFlow):
    """A flow of gamma in which gamma is a product of five scales, corrected (Result 9).

    gamma = w_v w_k w_q w_x^2 and each scale follows its share of the gradient, so w_x^2 - 2 w_k^2, w_k^2 - w_q^2 and
    w_k^2 - w_v^2 stay what they were. From w_x = sqrt 2 w and all others w it follows that gamma = 2 w^5 and, on
    rotated covariances,

        dw/dt = 2 w^4 Tr Lambda^2 Omega (1 - 2 w^5 Lambda / L)^(2L - 1).

    W_v moves in one direction where the others move in D, so its learning rate is the others' divided by D.
    """

    _factor = 2.0
    init: float

    def conserved(self, times: Numbers) -> Float64[np.ndarray, "times one"]:
        """||W_k||^2 - ||W_q||^2, zero from a balanced start."""
        return np.zeros((len(check_times(times)), 1))

    def scale(self, times: Numbers) -> Times:
        """The scale w(t) of all weights, from w(0) = init."""
        return path(lambda _, w: self._pace(w), np.array([self.init]), times)[:, 0]

    def gamma(self, times: Numbers) -> Times:
        """gamma(t) = 2 w(t)^5."""
        return self._factor * self.scale(times) ** 5

    @cached_property
    def _half_time(self) -> float:
        if not np.isfinite(self.best_gamma):
            return np.inf
        end = (self.best_gamma / 2 / self._factor) ** 0.2
        if end <= self.init:
            return 0.0
        log_w = np.linspace(np.log(self.init), np.log(end), 4001)
        pace = np.array([self._pace(np.array([np.exp(x)]))[0] for x in log_w])
        return float(np.trapezoid(np.exp(log_w) / pace, log_w))

    def _pace(self, w: np.ndarray) -> np.ndarray:
        return self._factor * w**4 * self.velocity(float(self._factor * w[0] ** 5))


class FullAttentionFlow(FiveFactors, RotatedFlow):
    """On rotated covariances, at infinite context."""

    name = "full attention (Eq 21, corrected)"

    def __init__(self, spectrum: Spectrum, depth: float, init: float, *, per_direction: bool = True) -> None:
        RotatedFlow.__init__(self, spectrum, depth, per_direction=per_direction)
        self.init = _check_init(init)


class PrintedFullAttentionFlow(FullAttentionFlow):
    """Eq 21 as printed: gamma = w^5, and no 1/L inside the power."""

    name = "full attention (Eq 21 as printed)"
    _factor = 1.0

    def _power(self, gamma: float, exponent: float) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (1 - gamma * self.spectrum.eigenvalues) ** int(exponent)


class IsoAttentionFlow(FiveFactors, IsoFlow):
    """On isotropic data, at context ratio alpha."""

    name = "full attention on isotropic data (Eq 21, corrected)"

    def __init__(
        self, depth: float, ratio: float, init: float, noise: float = 0.0, spectrum: Nodes | None = None
    ) -> None:
        IsoFlow.__init__(self, depth, ratio, noise, spectrum)
        self.init = _check_init(init)


class PrintedIsoAttentionFlow(IsoAttentionFlow):
    """Eq 21 as printed, for isotropic data."""

    name = "full attention on isotropic data (Eq 21 as printed)"
    _factor = 1.0

    @property
    def _steps(self) -> float:
        return 1.0


def six_scales(
    spectrum: Spectrum, depth: int, start: Sequence[float], times: Numbers
) -> Float64[np.ndarray, "times scales"]:
    """Gradient flow, dw/dt = -1/2 dL/dw, on Eq 124: w_o, w_v, w_q, w_k, w_x, w_y at these times.

    L = sum omega lambda [1 - w_o w_y (1 - (1 - g lambda / L)^L)]^2 with g = w_v w_k w_q w_x^2.
    """
    check_depth(depth)
    lam, energy = spectrum.eigenvalues, spectrum.eigenvalues * spectrum.task_power

    def velocity(_: float, w: np.ndarray) -> np.ndarray:
        o, v, q, k, x, y = w
        g = v * q * k * x**2
        left = (1 - g * lam / depth) ** (depth - 1)
        learned = 1 - left * (1 - g * lam / depth)
        gap = energy * (1 - o * y * learned)
        by_product = float(spectrum.total(gap * learned))  # -1/2 dL/d(w_o w_y)
        by_g = float(spectrum.total(gap * o * y * left * lam))  # -1/2 dL/dg
        return np.array(
            [by_product * y, by_g * q * k * x**2, by_g * v * k * x**2, by_g * v * q * x**2, 2 * by_g * v * q * k * x,
             by_product * o]
        )  # fmt: skip

    return path(velocity, np.asarray(start, dtype=np.float64), times)


def _check_init(init: float) -> float:
    if not 0 < init < np.inf:
        raise ValueError(f"init is {init}: a positive starting scale is needed, zero never leaves zero")
    return float(init)
