"""Many tasks, each with its own feature, strength and frequency (paper 004, section 2).

A prompt of task s shows psi_s examples of one sparse feature, phi = +- e_s, with targets Lambda_s phi_s, and asks for
the target of one more (Eqs 1-4). Signs cancel in everything that is learned: the prompt enters only through

    H_s = [ psi + 1,  psi Lambda ;  psi Lambda,  psi Lambda^2 ]          (Eq 7)

on the two coordinates that belong to the task, its feature and the target. All other coordinates of v_s and w_s are
never read and never move.

Tasks are drawn with probability Z s^-alpha, Z = 1 / sum s^-alpha (the text prints Z without the inverse); psi_s and
Lambda_s may fall off as s^-beta and s^-gamma. For scaling laws the rare tasks are gathered into bins.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

Values = Float64[np.ndarray, " tasks"]


@dataclass(frozen=True)
class Tasks:
    """Rank, probability, context length psi and strength Lambda of every task; multiplicity > 1 for a bin of tasks."""

    rank: Values
    probability: Values
    context: Values
    strength: Values
    multiplicity: Values

    @property
    def moments(self) -> Float64[np.ndarray, "tasks 2 2"]:
        """H_s of Eq 7, on the feature and the target of the task."""
        psi, strength = self.context, self.strength
        rows = [[psi + 1, psi * strength], [psi * strength, psi * strength**2]]
        return np.moveaxis(np.array(rows), -1, 0)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum over tasks of something given per task [..., tasks]."""
        return np.asarray((values * self.multiplicity).sum(-1))


@dataclass(frozen=True)
class PowerLaw:
    """alpha, beta, gamma: how fast frequency, context length and strength fall off with the rank of a task."""

    frequency: float
    context: float = 0.0
    strength: float = 0.0

    def __post_init__(self) -> None:
        if not 1 < self.frequency < np.inf:
            raise ValueError(f"frequency (alpha) is {self.frequency}: above 1, or endless tasks have no distribution")
        for name, letter in (("context", "beta"), ("strength", "gamma")):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} ({letter}) is {getattr(self, name)}: zero or a positive number is needed")


def power_law_tasks(
    law: PowerLaw, count: int, context: float, strength: float, *, exact: int = 1000, per_decade: int = 100
) -> Tasks:
    """`count` tasks, those after the first `exact` gathered; context and strength are the most frequent one's."""
    if count < 1:
        raise ValueError(f"count is {count}: at least one task is needed")
    if not 0 < context < np.inf:
        raise ValueError(f"context (psi) is {context}: a positive length is needed")
    if not 0 < strength < np.inf:
        raise ValueError(f"strength (Lambda) is {strength}: a positive number is needed; its sign is that of v or w")
    exact = min(count, exact)
    rank, multiplicity = np.arange(1, exact + 1, dtype=np.float64), np.ones(exact)
    if count > exact:
        bins = int(np.ceil(per_decade * np.log10(count / exact)))
        edges = np.unique(np.round(np.geomspace(exact, count, bins + 1)))
        rank = np.concatenate((rank, np.sqrt((edges[:-1] + 1) * edges[1:])))
        multiplicity = np.concatenate((multiplicity, np.diff(edges)))
    weight = rank**-law.frequency
    return Tasks(
        rank,
        weight / (weight * multiplicity).sum(),
        context * rank**-law.context,
        strength * rank**-law.strength,
        multiplicity,
    )


def prompt(
    tasks: Tasks, task: int, signs: Float64[np.ndarray, " examples"]
) -> Float64[np.ndarray, "features_and_target examples"]:
    """Phi of Eq 4 written out, for a task with as many examples as `signs` has; the last one is the query."""
    count = len(tasks.rank)
    phi = np.zeros((count + 1, len(signs)))
    phi[task] = signs
    phi[count, :-1] = tasks.strength[task] * signs[:-1]
    return phi
