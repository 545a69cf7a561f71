"""SGD on a single layer with isotropic data (paper 003, Appendix C.1): as printed, and exactly at finite dimension.

One update adds learning rate x the mean over B contexts of u v^T, with v = S beta + n what the context shows of the
task (n its label noise), u = S* (beta - Gamma v) the error seen through K test points, S and S* Wishart matrices.
Given S, (beta, v) is Gaussian with covariances I, S and R = S^2 + c S, c = sigma^2 D / P. Isserlis' theorem for
|u|^2 |v|^2 and rotational invariance leave two numbers, g1 = Tr Gamma / D and g2 = Tr Gamma^T Gamma / D:

    g1' = g1 + eta (1 - rho g1),                                     rho = <Tr R> / D = 1 + (D + 1)/P + c
    g2' = g2 + 2 eta (g1 - rho g2) + eta^2 { (1 + (D+1)/K) V / (B D) + (1 - 1/B)(1 - 2 rho g1 + rho^2 g2) }
    V   = D <Tr R> - 2 g1 <Tr S Tr R> + g2 <(Tr R)^2> + 2 (<Tr S^2> - 2 g1 <Tr R S> + g2 <Tr R^2>)

and the in-context loss is 1 - 2 g1 + rho g2. The printed Eqs 74-79 keep the leading order in D, call
||Gamma - I||^2 / D the loss, and start C(t) at 1 instead of Gamma*^2.
"""

from functools import cache

import numpy as np
from jaxtyping import Float64


class ShallowSGD:
    """The expected course of one-layer SGD from Gamma = 0, closed exactly in g1 and g2."""

    def __init__(self, dimension: int, context: int, tests: int, batch: int, rate: float, noise: float = 0.0) -> None:
        for name, value in {"dimension": dimension, "context": context, "tests": tests, "batch": batch}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}: at least one is needed")
        if not rate > 0:
            raise ValueError(f"rate is {rate}: a positive learning rate is needed")
        self.dimension, self.context, self.tests, self.batch = dimension, context, tests, batch
        self.rate, self.noise = float(rate), float(noise)

    @property
    def rho(self) -> float:
        """<Tr R> / D."""
        return 1 + (self.dimension + 1) / self.context + self._c

    @property
    def best_loss(self) -> float:
        """1 - 1/rho: the loss of the best Gamma, to which slow learning tends."""
        return 1 - 1 / self.rho

    @property
    def growth(self) -> float:
        """By what g2 is multiplied in one update: above 1, training diverges."""
        return self._update[2]

    def losses(self, steps: int) -> Float64[np.ndarray, " steps_and_start"]:
        """The expected in-context loss, 1 - 2 g1 + rho g2, after 0, 1, ... steps updates."""
        g1, g2 = self.moments(steps)
        return 1 - 2 * g1 + self.rho * g2

    def distances(self, steps: int) -> Float64[np.ndarray, " steps_and_start"]:
        """The expected ||Gamma - I||^2 / D, which the paper calls the loss."""
        g1, g2 = self.moments(steps)
        return 1 - 2 * g1 + g2

    def moments(
        self, steps: int
    ) -> tuple[Float64[np.ndarray, " steps_and_start"], Float64[np.ndarray, " steps_and_start"]]:
        """g1 and g2 after 0, 1, ... steps updates."""
        constant, from_g1, from_g2 = self._update
        course = [(0.0, 0.0)]
        for _ in range(steps):
            g1, g2 = course[-1]
            course.append((g1 + self.rate * (1 - self.rho * g1), constant + from_g1 * g1 + from_g2 * g2))
        g1, g2 = np.array(course).T
        return g1, g2

    @property
    def _c(self) -> float:
        return self.noise * self.dimension / self.context

    @property
    def _update(self) -> tuple[float, float, float]:
        """g2' = constant + from_g1 g1 + from_g2 g2."""
        d, eta, rho, c = self.dimension, self.rate, self.rho, self._c

        def mean(*powers: int) -> float:
            return wishart_moment(powers, d, self.context)

        trace_r = mean(2) + c * mean(1)
        s_and_r = mean(1, 2) + c * mean(1, 1)
        r_and_r = mean(2, 2) + 2 * c * mean(1, 2) + c**2 * mean(1, 1)
        rs, r2 = mean(3) + c * mean(2), mean(4) + 2 * c * mean(3) + c**2 * mean(2)
        spread = (1 + (d + 1) / self.tests) / (self.batch * d)
        rest = 1 - 1 / self.batch
        constant = eta**2 * (spread * (d * trace_r + 2 * mean(2)) + rest)
        from_g1 = 2 * eta + eta**2 * (-2 * spread * (s_and_r + 2 * rs) - 2 * rest * rho)
        from_g2 = 1 - 2 * eta * rho + eta**2 * (spread * (r_and_r + 2 * r2) + rest * rho**2)
        return constant, from_g1, from_g2


def printed_losses(
    ratio: float,
    test_ratio: float,
    batch_ratio: float,
    rate: float,
    steps: int,
    noise: float = 0.0,
    *,
    start: float = 1.0,
) -> Float64[np.ndarray, " steps_and_start"]:
    """Eqs 78, 79 with alpha, kappa, tau. As printed C(0) = 1; its own definition asks for start = Gamma*^2."""
    x = (1 + noise) / ratio
    rho, t = 1 + x, np.arange(steps + 1)
    a = (1 - rate * rho) ** 2 + rate**2 / batch_ratio * (1 + 1 / test_ratio) * rho**2
    b = rate**2 / batch_ratio * (1 + 1 / test_ratio) * x
    c = start * a**t + (1 - a**t) / (1 - a) * b
    return c + 2 * x / rho**2 * (1 - rate * rho) ** t + (x / rho) ** 2


@cache
def wishart_moment(powers: tuple[int, ...], dimension: int, samples: int) -> float:
    """E of the product of Tr S^p over `powers`, S = X X^T / samples with standard normal X [dimension, samples].

    By Wick's theorem: every way to pair the factors X closes the index lines into loops, and each loop counts
    `dimension` or `samples`. 105 pairings at degree 4.
    """
    degree = sum(powers)
    rows, columns, first = [], [], 0  # which two factors share a row index, and which a column index
    for power in powers:
        factors = list(range(2 * first, 2 * (first + power)))
        columns += [(factors[i], factors[i + 1]) for i in range(0, len(factors), 2)]
        turned = factors[1:] + factors[:1]
        rows += [(turned[i], turned[i + 1]) for i in range(0, len(turned), 2)]
        first += power
    total = 0.0
    for pairing in _pairings(tuple(range(2 * degree))):
        total += float(dimension) ** _loops(pairing, rows) * float(samples) ** _loops(pairing, columns)
    return total / float(samples) ** degree


def _pairings(items: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    if not items:
        return [[]]
    first, rest = items[0], items[1:]
    return [
        [(first, other), *pairing] for i, other in enumerate(rest) for pairing in _pairings(rest[:i] + rest[i + 1 :])
    ]


def _loops(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """Closed loops made by two pairings of the same items."""
    step: list[dict[int, int]] = [{}, {}]
    for i, pairs in enumerate((one, other)):
        for a, b in pairs:
            step[i][a], step[i][b] = b, a
    seen: set[int] = set()
    count = 0
    for item in step[0]:
        if item not in seen:
            count += 1
            while item not in seen:
                seen |= {item, step[0][item]}
                item = step[1][step[0][item]]
    return count
