"""How large the likelihood ratio of a short record gets where nothing happens, by number of values and rho.

P(T > x) = .1 exp(-(x - start) / scale) beyond the largest tenth of the draws, and at most 1. `python -m
benchmarks.null_tails` draws the tables: AR(1) noise alone, on even steps and, the heavier of the two, on log-spaced and
doubling-then-even ones. On those a straight line in t is level over half of the values, and noise that wanders looks
more like a step. Between the numbers of values and the rhos of a table both are interpolated.
"""

from functools import cache

import numpy as np

COUNTS = (20, 30, 50, 100, 200)
RHOS = (0.0, 0.5, 0.8, 0.96)

TAILS = {
    ("unknown", "even"): [
        [(10.8, 2.3), (17.4, 3.8), (20.2, 4.0), (20.7, 3.6)],
        [(10.6, 2.2), (16.4, 2.9), (19.4, 3.6), (21.6, 3.9)],
        [(10.3, 2.1), (15.6, 2.5), (18.6, 3.2), (21.5, 3.8)],
        [(10.5, 2.1), (14.0, 2.2), (17.0, 2.5), (19.8, 4.0)],
        [(11.2, 2.3), (14.0, 2.2), (15.5, 2.3), (18.8, 3.4)],
    ],
    ("unknown", "uneven"): [
        [(13.0, 3.2), (19.0, 5.2), (26.0, 4.4), (26.5, 5.0)],
        [(12.0, 2.6), (19.8, 4.0), (24.6, 5.0), (27.0, 5.6)],
        [(11.4, 2.7), (18.4, 2.9), (22.3, 3.8), (26.5, 4.6)],
        [(11.2, 2.6), (15.1, 2.6), (18.6, 3.2), (22.0, 5.2)],
        [(11.6, 2.3), (14.1, 2.6), (17.2, 3.0), (21.0, 4.6)],
    ],
    ("told", "even"): [
        [(10.6, 2.4), (13.3, 2.5), (14.0, 3.2), (13.5, 3.3)],
        [(10.7, 2.2), (12.6, 2.5), (13.3, 2.6), (13.7, 2.7)],
        [(10.4, 2.1), (12.6, 2.1), (12.9, 2.4), (13.4, 2.5)],
        [(10.5, 2.2), (12.6, 2.1), (13.5, 2.2), (14.3, 2.1)],
        [(11.4, 2.4), (13.5, 2.1), (14.1, 2.1), (14.3, 2.1)],
    ],
    ("told", "uneven"): [
        [(12.6, 3.4), (15.0, 3.5), (15.6, 3.6), (14.6, 3.6)],
        [(11.6, 2.6), (14.9, 2.7), (15.6, 2.6), (14.6, 3.4)],
        [(11.6, 2.9), (13.3, 3.0), (14.1, 2.8), (14.4, 2.6)],
        [(11.2, 2.7), (13.4, 2.4), (14.2, 2.6), (14.5, 2.4)],
        [(12.0, 2.6), (14.1, 2.3), (14.5, 2.4), (14.5, 2.4)],
    ],
}
"""(start, scale) of the tail [values, rho]: T maximised over rho, or with rho told; on even steps, or on others."""


def tail(statistic: float, n: int, rho: float, *, is_told: bool, is_even: bool) -> float:
    """The chance that T exceeds this in n values of AR(1) noise.

    is_told if the rho was known when T was computed, is_even if the values are evenly spaced.
    """
    start, scale = _start_and_scale(n, rho, is_told, is_even)
    return min(1.0, 0.1 * float(np.exp(-(statistic - start) / scale)))


@cache
def _start_and_scale(n: int, rho: float, is_told: bool, is_even: bool) -> tuple[float, float]:
    table = np.array(TAILS["told" if is_told else "unknown", "even" if is_even else "uneven"])
    by_rho = [[np.interp(np.log(n), np.log(COUNTS), table[:, k, i]) for k in range(len(RHOS))] for i in (0, 1)]
    start, scale = (float(np.interp(rho, RHOS, one)) for one in by_rho)
    return start, scale
