"""How large the likelihood ratio of a short record gets where nothing happens, by number of values and rho.

P(T > x) = .1 exp(-(x - start) / scale) beyond the largest tenth of the draws, and at most 1. `python -m
benchmarks.null_tails` draws the table: AR(1) noise alone, on even, log-spaced and doubling-then-even steps; start and
scale are those of the schedule whose tail is heaviest. Between the numbers of values and the rhos of the table both are
interpolated.
"""

import numpy as np

COUNTS = (20, 30, 50, 80, 120, 200, 300)
RHOS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.96)

UNKNOWN = np.array(
    [
        [(11.1, 3.1), (15.3, 3.6), (18.1, 3.9), (20.0, 3.8), (20.9, 3.8), (21.6, 3.5), (22.0, 3.4)],
        [(11.8, 2.5), (15.2, 3.1), (17.5, 3.5), (19.6, 3.8), (20.7, 4.0), (22.1, 4.0), (23.0, 4.0)],
        [(11.3, 2.4), (14.5, 2.8), (16.7, 3.0), (19.0, 3.7), (20.2, 4.1), (22.5, 4.2), (23.8, 4.2)],
        [(10.9, 2.2), (13.4, 2.6), (15.0, 2.8), (17.3, 3.1), (18.5, 3.3), (21.0, 3.3), (22.5, 3.3)],
        [(10.7, 2.1), (12.7, 2.5), (14.0, 2.8), (16.1, 2.9), (17.2, 2.9), (19.8, 3.0), (21.3, 3.0)],
        [(10.4, 2.0), (12.3, 2.6), (13.6, 3.0), (14.9, 3.0), (15.6, 3.0), (18.2, 3.1), (19.7, 3.2)],
        [(10.2, 2.2), (11.8, 2.4), (12.8, 2.6), (14.2, 2.6), (14.9, 2.6), (17.0, 2.8), (18.2, 2.9)],
    ]
)
"""(start, scale) of the tail [values, rho], where T is maximised over rho."""

TOLD = np.array(
    [
        [(10.3, 3.0), (11.4, 2.8), (11.7, 2.8), (11.6, 2.8), (12.2, 2.5), (12.3, 2.4), (12.4, 2.3)],
        [(10.2, 2.9), (11.0, 3.2), (11.8, 3.1), (12.0, 3.3), (12.2, 3.0), (12.3, 2.8), (12.5, 2.7)],
        [(10.3, 2.1), (11.2, 2.4), (11.6, 2.6), (11.5, 2.9), (11.7, 3.0), (11.7, 3.1), (12.0, 2.7)],
        [(10.5, 2.2), (11.2, 2.3), (11.8, 2.3), (12.2, 2.1), (12.1, 2.1), (12.3, 2.3), (12.4, 2.4)],
        [(10.3, 2.4), (11.3, 2.3), (11.9, 2.1), (12.4, 2.0), (12.4, 2.0), (12.5, 2.1), (12.8, 2.0)],
        [(11.0, 2.3), (11.8, 2.3), (12.2, 2.5), (12.4, 2.6), (12.6, 2.3), (12.6, 2.2), (12.7, 2.1)],
        [(10.0, 2.2), (11.0, 2.0), (12.2, 2.0), (12.4, 2.0), (13.0, 2.0), (13.0, 2.0), (13.2, 2.0)],
    ]
)
"""The same where rho is told."""


def tail(statistic: float, n: int, rho: float, *, is_told: bool) -> float:
    """The chance that T exceeds this in n values of AR(1) noise; is_told if the rho was known when T was computed."""
    table = TOLD if is_told else UNKNOWN
    by_rho = [
        np.array([np.interp(np.log(n), np.log(COUNTS), table[:, k, i]) for k in range(len(RHOS))]) for i in (0, 1)
    ]
    start, scale = (float(np.interp(rho, RHOS, one)) for one in by_rho)
    return min(1.0, 0.1 * float(np.exp(-(statistic - start) / scale)))
