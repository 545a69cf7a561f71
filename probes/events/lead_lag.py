"""Who moved first? A probe's steps against a behaviour's, over seeds.

That A precedes B in every seed is little evidence: two things that have nothing to do with each other, one of which
usually happens early, do so in about half of all cases. So two questions are asked of d = ln(t_B / t_A), one per seed:

    signs     is d above 0 more clearly than if each d were as likely below? All 2^n flips of the signs
    pairing   does it matter which seed's B goes with A? All n! (or 20,000 random) ways to pair them, by the t-value of
              d, which is large only where A and B move together from seed to seed

The larger p-value counts. With n seeds the signs cannot reach below 2^-n: three seeds cannot reach .05.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial

import numpy as np

Steps = Sequence[float] | Sequence[int] | np.ndarray | Mapping[str, float] | Mapping[str, int]

MOST_PAIRINGS = 20_000


@dataclass(frozen=True)
class LeadLag:
    """Whether A comes before B. lead is the mean of ln(t_B / t_A): .15 is A 15 % earlier; low, high its 95 % interval.

    smallest_p is what so many seeds can reach at best.
    """

    seeds: int
    lead: float
    low: float
    high: float
    p_signs: float
    p_pairing: float
    smallest_p: float

    @property
    def p_value(self) -> float:
        """The larger of both: A leads only if signs and pairing say so."""
        return max(self.p_signs, self.p_pairing)

    def __str__(self) -> str:
        """A sentence."""
        size = abs(np.expm1(-self.lead))
        first = "A comes first" if self.lead > 0 else "A comes later"
        said = (
            f"{first}, by {100 * size:.0f} % of the step on average ({self.seeds} seeds); p = {self.p_value:.2g} "
            f"(signs {self.p_signs:.2g}, pairing {self.p_pairing:.2g})"
        )
        if self.smallest_p > 0.05:
            said += f". {self.seeds} seeds cannot reach .05: at best {self.smallest_p:.2g}, with 5 seeds .031"
        return said


def lead_lag(
    a: Steps,
    b: Steps,
    *,
    seed: int = 0,
) -> LeadLag:
    """Whether A happens before B, over seeds: a[i] and b[i] are the steps at which they happen in the i-th run.

        >>> print(probes.lead_lag([900, 1500, 1200, 2000, 1700, 1000], [1000, 1720, 1310, 2300, 1880, 1130]))
        A comes first, by 11 % of the step on average (6 seeds); p = 0.016 (signs 0.016, pairing 0.0014)

    Given by the name of the run, both must have the same runs. The question is one-sided: for "A comes later", exchange
    them. `seed` is for the pairings that are drawn where there are more than 20,000.
    """
    first, second = _paired(a, b)
    d = np.log(second / first)
    n = len(d)
    p_signs = float(np.mean([np.dot(signs, d) >= d.sum() - 1e-12 for signs in product((1.0, -1.0), repeat=n)]))
    observed = _t_value(d)
    others = np.array([_t_value(np.log(second[list(order)] / first)) for order in _pairings(n, seed)])
    p_pairing = float((others >= observed - 1e-9).mean())
    half = _student(n) * d.std(ddof=1) / np.sqrt(n)
    return LeadLag(n, float(d.mean()), float(d.mean() - half), float(d.mean() + half), p_signs, p_pairing, 2.0**-n)


def _paired(a: Steps, b: Steps) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if set(a) != set(b):
            raise ValueError(f"a has the runs {', '.join(a)} and b {', '.join(b)}: the same are expected")
        a, b = list(a.values()), [b[name] for name in a]
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise ValueError(
            f"a has shape {first.shape} and b {second.shape}: a step of each in two or more runs is expected"
        )
    if not (np.isfinite(first) & np.isfinite(second) & (first > 0) & (second > 0)).all():
        raise ValueError(
            "a and b: steps above 0 are expected. Leave a run out where one of both was not found, and say so"
        )
    if len(np.unique(second)) == 1:
        raise ValueError("b is the same step in every run: which seed's B goes with A cannot be asked")
    return first, second


def _pairings(n: int, seed: int) -> list[tuple[int, ...]]:
    if factorial(n) <= MOST_PAIRINGS:
        return list(permutations(range(n)))
    rng = np.random.default_rng(seed)
    return [tuple(range(n)), *(tuple(rng.permutation(n).tolist()) for _ in range(MOST_PAIRINGS - 1))]


def _t_value(d: np.ndarray) -> float:
    return float(d.mean() / max(d.std(ddof=1), 1e-12) * np.sqrt(len(d)))


def _student(n: int) -> float:
    from scipy.special import stdtrit  # slow to import, and importing probes must be quick

    return float(stdtrit(n - 1, 0.975))
