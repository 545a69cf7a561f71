"""Where Theorem 3.1 is exact: one task whose matrix satisfies H^2 = mu H (paper 004, H.3 and Appendix A, Fig 7).

Then g = eta^T H eta and h = rho^T H rho close among themselves, and the Riccati equation holds for any start and
without long contexts, with a = p mu. (H.3 prints a = p psi mu; psi is already in mu if it is in H, as in Eq 117.)

Appendix A has the smallest case: one coordinate of v and one of w are trained, f = v psi Lambda w, mu = psi Lambda.
"""

import numpy as np
from jaxtyping import Float64

from models.multitask_sparse.task import PowerLaw, power_law_tasks
from models.multitask_sparse.theory import RiccatiFlow

Vector = Float64[np.ndarray, " n"]
Matrix = Float64[np.ndarray, "n n"]


class IdempotentFlow(RiccatiFlow):
    """The closed form for one task with its own matrix; the rate a is given, so that others can be tried."""

    name = "closed form for H² = μ H (H.3)"

    def __init__(self, h: Matrix, strength: float, v: Vector, w: Vector, rate: float) -> None:
        tasks = power_law_tasks(PowerLaw(2.0), 1, 1.0, strength)
        super().__init__(tasks, np.zeros((1, 2)), np.zeros((1, 2)))
        eta, rho = v + w, v - w
        grows, shrinks = float(eta @ h @ eta), float(rho @ h @ rho)
        if grows <= 0:
            raise ValueError("v = -w as H sees them: the output can only shrink to 0. Start v and w on the same side")
        self.rate, self.start = np.array([rate]), np.array([(grows - shrinks) / 4])
        self.constant = np.array([grows * shrinks / 2])


def descend(
    h: Matrix, strength: float, v: Vector, w: Vector, learning_rate: float, steps: int
) -> tuple[Float64[np.ndarray, " steps"], Vector, Vector]:
    """Gradient descent on Eq 9 with one task: f before every step, and v and w at the end."""
    v, w, found = v.copy(), w.copy(), np.empty(steps)
    for k in range(steps):
        seen_v, seen_w = h @ v, h @ w
        found[k] = v @ seen_w
        pull = learning_rate * (found[k] - strength)
        v, w = v - pull * seen_w, w - pull * seen_v
    return found, v, w


def equal_eigenvalues(
    dimension: int, rank: int, value: float, generator: np.random.Generator
) -> Float64[np.ndarray, "dimension dimension"]:
    """Eq 118: `rank` random orthogonal directions, all with one eigenvalue."""
    directions, _ = np.linalg.qr(generator.standard_normal((dimension, rank)))
    return value * directions @ directions.T
