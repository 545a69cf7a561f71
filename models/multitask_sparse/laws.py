"""Scaling laws of multitask sparse regression (paper 004, section 4): the losses themselves, and their exponents.

One resource is scarce at a time (Eqs 64-66): a model of size D never learns the tasks s >= D, training stops at time t,
or N draws leave some tasks unseen. At fixed compute t D the best split is sought. alpha, beta and gamma are the
fall-off of frequency, context length and strength (Tables 1 and 2; Table 1 is beta = gamma = 0).

Off in print: the compute row of Table 2 has the exponents of t and D swapped, and Eq 105 should read
alpha + 2 gamma - 1, as Table 2 does. The time law of Table 2 assumes strengths far above 1; for strengths far below 1
Lambda^2 + 1 is 1 and the exponent is (alpha + 2 gamma - 1)/(alpha + beta + gamma).
"""

import numpy as np
from jaxtyping import Float64

from models.multitask_sparse.task import PowerLaw, Tasks
from models.multitask_sparse.theory import TaskFlow

Losses = Float64[np.ndarray, " sizes"]


def losses_of_size(flow: TaskFlow, sizes: Float64[np.ndarray, " sizes"]) -> Losses:
    """Eq 64: what is never learned by a model of size D, all else learned."""
    unlearned = _unlearned(flow)
    return np.array([flow.tasks.total(unlearned * _share_from(flow.tasks, size)) for size in sizes])


def losses_of_data(flow: TaskFlow, draws: Float64[np.ndarray, " sizes"]) -> Losses:
    """Eq 66: the expected loss of the tasks that N draws did not show."""
    never = np.exp(draws[:, None] * np.log1p(-flow.tasks.probability))
    return flow.tasks.total(_unlearned(flow) * never)


def best_split(
    flow: TaskFlow, compute: Float64[np.ndarray, " sizes"], sizes: Float64[np.ndarray, " trials"]
) -> tuple[Losses, Float64[np.ndarray, " sizes"]]:
    """The smallest loss at each compute t D over the trial sizes D, and the D that gives it."""
    unlearned = _unlearned(flow)
    best = []
    for budget in compute:
        losses = []
        for size, output in zip(sizes, flow.modes(budget / sizes), strict=True):
            share = _share_from(flow.tasks, float(size))
            left = 0.5 * flow.tasks.probability * (output - flow.tasks.strength) ** 2
            losses.append(float(flow.tasks.total(unlearned * share + left * (1 - share))))
        best.append(_lowest(np.log(sizes), np.array(losses)))
    loss, log_size = np.array(best).T
    return loss, np.exp(log_size)


def size_exponent(law: PowerLaw) -> float:
    """D: alpha + 2 gamma - 1."""
    return law.frequency + 2 * law.strength - 1


def time_exponent(law: PowerLaw) -> float:
    """t: (alpha + 2 gamma - 1)/(alpha + beta + 3 gamma), for strengths far above 1 (or gamma = 0)."""
    return size_exponent(law) / (law.frequency + law.context + 3 * law.strength)


def weak_time_exponent(law: PowerLaw) -> float:
    """t, for strengths far below 1: (alpha + 2 gamma - 1)/(alpha + beta + gamma)."""
    return size_exponent(law) / (law.frequency + law.context + law.strength)


def data_exponent(law: PowerLaw) -> float:
    """N: (alpha + 2 gamma - 1)/alpha."""
    return size_exponent(law) / law.frequency


def printed_data_exponent_105(law: PowerLaw) -> float:
    """Eq 105: (alpha + gamma - 1)/alpha."""
    return (law.frequency + law.strength - 1) / law.frequency


def compute_exponent(law: PowerLaw) -> float:
    """C = t D: (alpha + 2 gamma - 1)/(alpha + beta + 3 gamma + 1)."""
    return size_exponent(law) / (law.frequency + law.context + 3 * law.strength + 1)


def best_size_exponent(law: PowerLaw) -> float:
    """D ~ C^(1/(alpha + beta + 3 gamma + 1)), as in Table 1 and Eq 67. Table 2 prints this for t."""
    return 1 / (law.frequency + law.context + 3 * law.strength + 1)


def printed_best_size_exponent(law: PowerLaw) -> float:
    """Table 2: D ~ C^((alpha + beta + 3 gamma)/(alpha + beta + 3 gamma + 1))."""
    return 1 - best_size_exponent(law)


def _unlearned(flow: TaskFlow) -> Float64[np.ndarray, " tasks"]:
    """Each task's share of the loss before training."""
    return 0.5 * flow.tasks.probability * (flow.start - flow.tasks.strength) ** 2


def _share_from(tasks: Tasks, size: float) -> Float64[np.ndarray, " tasks"]:
    """How much of each bin of tasks lies at ranks from `size` on."""
    last = np.cumsum(tasks.multiplicity)
    return np.clip((last - (size - 1)) / tasks.multiplicity, 0, 1)


def _lowest(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Lowest value of a smooth curve and where it is, by the parabola through its three lowest points."""
    i = int(np.argmin(y))
    if i in (0, len(y) - 1):
        raise ValueError(f"the best size lies at the edge of those tried, {np.exp(x[i]):.3g}: try a wider range")
    a, b, c = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2], 2)
    return float(c - b**2 / (4 * a)), float(x[i] - b / (2 * a))
