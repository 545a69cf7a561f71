"""Which directions the inputs have, and how much of the task lies along each.

A spectrum is the eigenvalues lambda of the input covariance with the task powers omega along them (paper 003, section
3.2). For scaling laws it is a power law under source and capacity conditions (Eq 17), lambda_k = k^-capacity and
lambda_k omega_k = k^(-capacity source - 1); the tail beyond a few hundred modes is gathered into bins, so that a
billion modes cost no more than a thousand. Cutting the spectrum short instead bends every slope.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

Values = Float64[np.ndarray, " modes"]


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues, task powers and how many directions share them."""

    eigenvalues: Values
    task_power: Values
    multiplicity: Values

    def __post_init__(self) -> None:
        for name, lowest in (("eigenvalues", "above 0"), ("task_power", "0 or more"), ("multiplicity", "above 0")):
            values = getattr(self, name)
            wrong = (values < 0) if name == "task_power" else (values <= 0)
            if wrong.any() or not np.isfinite(values).all():
                raise ValueError(f"{name}: every entry must be finite and {lowest}, found {values[wrong][:3].tolist()}")

    @property
    def dimension(self) -> float:
        """How many directions there are."""
        return float(self.multiplicity.sum())

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum over directions of something given per mode [..., modes]."""
        return np.asarray((values * self.multiplicity).sum(-1))


def spectrum_of(eigenvalues: object, task_power: object = 1.0) -> Spectrum:
    """A spectrum from its eigenvalues and task powers (one number serves all)."""
    values = np.atleast_1d(np.asarray(eigenvalues, dtype=np.float64))
    power = np.broadcast_to(np.asarray(task_power, dtype=np.float64), values.shape).copy()
    return Spectrum(values, power, np.ones_like(values))


def power_law(capacity: float, source: float, count: float, *, exact: int = 400, per_decade: int = 60) -> Spectrum:
    """`count` modes of Eq 17; those after the first `exact` are gathered, `per_decade` bins to a factor of ten."""
    check_exponents(capacity, source)
    if not 1 <= count < np.inf or int(count) != count:
        raise ValueError(f"count is {count}: a whole number of modes, at least one, is expected")
    count, exact = int(count), min(int(count), exact)
    k, multiplicity = np.arange(1, exact + 1, dtype=np.float64), np.ones(exact)
    if count > exact:
        bins = int(np.ceil(per_decade * np.log10(count / exact)))
        edges = np.unique(np.round(np.geomspace(exact, count, bins + 1)))
        k = np.concatenate((k, np.sqrt((edges[:-1] + 1) * edges[1:])))
        multiplicity = np.concatenate((multiplicity, np.diff(edges)))
    return Spectrum(k**-capacity, k ** (capacity - capacity * source - 1), multiplicity)


def check_exponents(capacity: float, source: float, *, summable: bool = False) -> None:
    """Refuse exponents for which a law does not exist.

    Laws of time and depth weigh modes by lambda omega, which has a sum for every nu above 0. Those of width and context
    need the sum of the eigenvalues themselves (summable), and with it nu above 1.
    """
    if not 0 < capacity < np.inf:
        raise ValueError(f"capacity (nu) is {capacity}: above 0 is expected, or the spectrum does not fall")
    if summable and capacity <= 1:
        raise ValueError(f"capacity (nu) is {capacity}: above 1, or the variance of the inputs has no sum")
    if not 0 < source < np.inf:
        raise ValueError(f"source (beta) is {source}: above 0, or the target has no finite power")
