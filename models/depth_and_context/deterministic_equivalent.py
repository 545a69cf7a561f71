"""The loss at finite width and context: the two-point deterministic equivalent (paper 003, Result 7), corrected.

With Pi a random projection of rank N (the width) and S = X X^T / P the covariance seen in a context of length P, the
loss of a depth-L model at Gamma = gamma I is

    loss = E Tr Omega [(I - gamma Pi S / L)^L]^T Lambda (I - gamma Pi S / L)^L,

and by Cauchy's formula a double contour integral of C(z, z') = E Tr Omega (z + Pi S)^-T Lambda (z' + Pi S)^-1 around
the negative spectrum of Pi S. Three averages give C. Write T = Tr Lambda (kappa + Lambda)^-1.

1. Over the rotation of Pi, one point:  (z + Pi S)^-1 ~ (z + psi S)^-1,  psi = (N - T)/(D - T)    (Eqs 33-37, with
   tau = T/D and the projection's omega_B = N/T - 1).
2. Over the Wishart matrix S, one point:  (kappa_S + S)^-1 ~ (kappa + Lambda)^-1 / s,  kappa_S = kappa s,  s = 1 - T/P.
   So z = kappa psi s.
3. Two points. A rotation adds chi I between the resolvents (Eq 40 with chi = -Psi_chichi), and the Wishart average
   adds a rank-one part. With g = (kappa + Lambda)^-1 and df2 = Tr Lambda^2 g g',

       G A G' ~ [ g A g' + g Lambda g' Tr(A Lambda g g') / (P - df2) ] / (s s').

   For A = Lambda this is g Lambda g' / (s s' (1 - df2/P)), which closes C:

       C = [ Tr Lambda Omega g g' + chi Tr Lambda g g' ] / [ (1 - df2/P) psi s psi' s' ].

   For A = I it gives S^2 G G' = (1 - kappa_S G)(1 - kappa_S' G') ~ Lambda^2 g g' + kappa kappa' c Lambda g g' with
   c = Tr Lambda g g' / (P - df2). Its traces with and without Omega are n and a, and Eq 38 (in which the step to Eq 39
   has the sign of Psi_chichi and B inverted) becomes chi = Q (n + chi a), where

       Q = D/(T T') - 1/(D psi psi' B) = (1 - N/D) / [ N (1 - (T + T')/D) + T T'/D ].

As printed, Eq 15 has Lambda where the covariance of the context belongs (right only for P = infinity), Eq 16 the
inverse of (1 - tau)/tau and Psi = i omega / i omega of the projection rather than of S.

Traces here are sums over directions, not means. Numerically, C is tabulated once on an ellipse around the spectrum;
any depth and gamma then cost one quadratic form.
"""

from functools import cached_property

import numpy as np
from jaxtyping import Complex128, Float64

from models.depth_and_context.spectrum import Spectrum

_CHUNK = 256  # nodes at a time, so that [nodes, modes] tables stay small


class DeterministicEquivalent:
    """The averaged loss of a width and a context length (infinity for no bottleneck), up to gamma = `gamma_max`."""

    def __init__(self, spectrum: Spectrum, width: float = np.inf, context: float = np.inf, *, gamma_max: float) -> None:
        if not width >= 1 or (np.isfinite(width) and width > spectrum.dimension):
            raise ValueError(
                f"width is {width}: from 1 to the {spectrum.dimension:g} directions there are, or infinity"
            )
        if not context >= 1:
            raise ValueError(f"context is {context}: at least one example is needed, or infinity")
        if not 0 < gamma_max < np.inf:
            raise ValueError(f"gamma_max is {gamma_max}: a positive number is needed")
        self.spectrum, self.context, self.gamma_max = spectrum, float(context), float(gamma_max)
        self.width = min(float(width), spectrum.dimension)
        self._per_example = 1 / self.context  # 0 for infinity

    def loss(self, gamma: float, depth: int) -> float:
        """The loss at Gamma = gamma I."""
        check_depth(depth)
        if not 0 <= gamma <= self.gamma_max * (1 + 1e-9):
            raise ValueError(f"gamma is {gamma}: from 0 to the gamma_max of {self.gamma_max} is expected")
        weights = self._weights * (1 + gamma * self.nodes / depth) ** depth
        return float((weights @ self.correlation @ weights).real)

    @cached_property
    def edge(self) -> float:
        """The largest eigenvalue of Pi S: where -z(kappa) is smallest left of the spectrum."""
        from scipy.optimize import fminbound

        top = float(self.spectrum.eigenvalues.max())

        def height(log_gap: float) -> float:
            return -float(self._z(np.array([-top * (1 + np.exp(log_gap)) + 0j]))[0].real)

        grid = np.linspace(-12, 12, 97)
        heights = np.array([height(x) for x in grid])
        # beyond a pole of psi or s the formula leaves the branch that belongs to large |z|
        start = len(grid) - 1
        while start > 0 and 0 < heights[start - 1] < heights[start]:
            start -= 1
        low, high = grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)]
        return height(float(np.squeeze(fminbound(height, low, high, xtol=1e-10))))

    @cached_property
    def nodes(self) -> Complex128[np.ndarray, " nodes"]:
        """Points z on the ellipse, close enough to the spectrum that (1 + gamma z / L)^L stays moderate on it."""
        return self._ellipse(self._radius)

    @cached_property
    def correlation(self) -> Complex128[np.ndarray, "nodes nodes"]:
        """C(z, z') at the nodes."""
        trace = self._trace(self._kappa)
        return self._correlation(self._kappa, self._psi(trace) * self._s(trace), self._per_example)

    def _correlation(self, kappa: np.ndarray, scale: np.ndarray, per_example: float) -> np.ndarray:
        """C from resolvents 1 / (scale (kappa + lambda)); per_example = 0 leaves the Wishart average out."""
        spectrum, width, dimension = self.spectrum, self.width, self.spectrum.dimension
        lam, omega, count = spectrum.eigenvalues, spectrum.task_power, spectrum.multiplicity
        g = 1 / (kappa[:, None] + lam)

        def pair(values: np.ndarray) -> np.ndarray:
            return (g * (values * count)) @ g.T

        first, second = pair(lam * omega), pair(lam)
        shared = 1 - pair(lam**2) * per_example
        if width == dimension:
            return first / (shared * np.outer(scale, scale))
        noise = np.outer(kappa, kappa) * second * per_example / shared
        n, a = pair(omega * lam**2) + noise * first, pair(lam**2) + noise * second
        trace = self._trace(self._kappa)
        q = (1 - width / dimension) / (
            width * (1 - np.add.outer(trace, trace) / dimension) + np.outer(trace, trace) / dimension
        )
        chi = q * n / (1 - q * a)
        return (first + chi * second) / (shared * np.outer(scale, scale))

    @property
    def _radius(self) -> float:
        return 1 + np.sqrt(8 / (self.gamma_max * self.edge))

    @cached_property
    def _weights(self) -> Complex128[np.ndarray, " nodes"]:
        """dz / (2 pi i) of the trapezoidal rule in the angle of zeta."""
        zeta = self._zeta(self._radius)
        return self.edge / 4 * (zeta - 1 / zeta) / len(zeta)

    def _zeta(self, radius: float) -> np.ndarray:
        count = max(64, 2 * int(np.ceil(16 / np.log(self._radius))))
        return radius * np.exp(2j * np.pi * (np.arange(count) + 0.5) / count)

    def _ellipse(self, radius: float) -> np.ndarray:
        zeta = self._zeta(radius)
        return -self.edge / 2 + self.edge / 4 * (zeta + 1 / zeta)

    @cached_property
    def _kappa(self) -> np.ndarray:
        """kappa(z) at the nodes, by Newton's method carried inward from far away, where kappa = z D / N."""
        far = max(60.0, 4 * (self._radius - 1))
        steps = int(np.ceil(3 * np.log(far / (self._radius - 1)))) + 1
        kappa = None
        for gap in np.geomspace(far, self._radius - 1, max(steps, 2)):
            z = self._ellipse(1 + gap)
            kappa = z * self.spectrum.dimension / self.width if kappa is None else kappa
            for _ in range(12):
                value, slope = self._z_and_slope(kappa)
                step = (value - z) / slope
                kappa = kappa - step
                if np.abs(step).max() < 1e-13 * np.abs(kappa).max():
                    break
        assert kappa is not None
        if np.abs(self._z(kappa) - self.nodes).max() > 1e-8 * self.edge:
            raise RuntimeError(
                f"kappa(z) did not converge at width {self.width:g}, context {self.context:g}: try a smaller gamma_max "
                f"than {self.gamma_max:g}"
            )
        return kappa

    def _trace(self, kappa: np.ndarray) -> np.ndarray:
        lam = self.spectrum.eigenvalues
        parts = [self.spectrum.total(lam / (k[:, None] + lam)) for k in _chunks(kappa)]
        return np.concatenate(parts)

    def _psi(self, trace: np.ndarray) -> np.ndarray:
        if self.width == self.spectrum.dimension:
            return np.ones_like(trace)
        return (self.width - trace) / (self.spectrum.dimension - trace)

    def _s(self, trace: np.ndarray) -> np.ndarray:
        return 1 - trace * self._per_example

    def _z(self, kappa: np.ndarray) -> np.ndarray:
        trace = self._trace(kappa)
        return kappa * self._psi(trace) * self._s(trace)

    def _z_and_slope(self, kappa: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lam, dimension = self.spectrum.eigenvalues, self.spectrum.dimension
        trace = self._trace(kappa)
        fall = -np.concatenate([self.spectrum.total(lam / (k[:, None] + lam) ** 2) for k in _chunks(kappa)])
        psi, s = self._psi(trace), self._s(trace)
        psi_slope = 0.0 if self.width == dimension else (self.width - dimension) / (dimension - trace) ** 2
        return kappa * psi * s, psi * s + kappa * fall * (psi_slope * s - psi * self._per_example)


class PrintedEquivalent(DeterministicEquivalent):
    """Eq 15 as printed, with Lambda in the resolvents where the covariance of the context belongs.

    tau and psi are the right ones here, not those of Eq 16 with its signs as printed, so that only the missing Wishart
    average is judged. The same as the corrected form at infinite context.
    """

    @cached_property
    def correlation(self) -> Complex128[np.ndarray, "nodes nodes"]:
        """C(z, z') at the nodes."""
        trace = self._trace(self._kappa)
        return self._correlation(self._kappa * self._s(trace), self._psi(trace), 0.0)


def width_bottleneck(spectrum: Spectrum, width: float) -> float:
    """The loss left at infinite depth, time and context: kappa sum lambda omega / (kappa + lambda), T(kappa) = width.

    The limit z -> 0 of z z' C above. The printed Eq 113 keeps only the part kappa^2 sum lambda omega/(kappa + lambda)^2
    in its first form and so decays too fast when the source exponent is above 1.
    """
    kappa = _kappa_for(spectrum, width, "width")
    lam = spectrum.eigenvalues
    return float(kappa * spectrum.total(lam * spectrum.task_power / (kappa + lam)))


def context_bottleneck(spectrum: Spectrum, context: float) -> float:
    """The same at finite context and full width: kappa^2 sum lambda omega / (kappa + lambda)^2 / (1 - df2 / P).

    The printed Eq 116 leaves out the last factor, which does not change the exponent.
    """
    kappa = _kappa_for(spectrum, context, "context")
    lam = spectrum.eigenvalues
    shared = 1 - float(spectrum.total((lam / (kappa + lam)) ** 2)) / context
    return float(kappa**2 * spectrum.total(lam * spectrum.task_power / (kappa + lam) ** 2)) / shared


def printed_bottleneck(spectrum: Spectrum, resource: float) -> float:
    """Eqs 113 (first form) and 116, which are the same sum with width or context in it."""
    kappa = _kappa_for(spectrum, resource, "resource")
    lam = spectrum.eigenvalues
    return float(kappa**2 * spectrum.total(lam * spectrum.task_power / (kappa + lam) ** 2))


def check_depth(depth: float) -> int:
    """A whole number of layers, at least one."""
    if not np.isfinite(depth) or int(depth) != depth or depth < 1:
        raise ValueError(f"depth is {depth}: at least one layer is needed")
    return int(depth)


def _kappa_for(spectrum: Spectrum, resource: float, name: str) -> float:
    """kappa with sum lambda / (kappa + lambda) = resource."""
    from scipy.optimize import brentq

    if not 0 < resource < spectrum.dimension:
        raise ValueError(f"{name} is {resource}: above 0 and below the {spectrum.dimension:g} directions there are")
    lam = spectrum.eigenvalues

    def excess(log_kappa: float) -> float:
        return float(spectrum.total(lam / (np.exp(log_kappa) + lam))) - resource

    low, high = np.log(lam.min()) - 60, np.log(lam.max() * spectrum.dimension / resource) + 1
    root = brentq(excess, low, high, xtol=1e-14)
    assert isinstance(root, float)
    return float(np.exp(root))


def _chunks(values: Float64[np.ndarray, " n"] | Complex128[np.ndarray, " n"]) -> list[np.ndarray]:
    return [values[i : i + _CHUNK] for i in range(0, len(values), _CHUNK)]
