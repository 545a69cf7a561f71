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
        [(11.1, 2.2), (18.0, 3.8), (21.2, 4.0), (21.8, 3.6)],
        [(11.0, 2.1), (16.9, 2.9), (20.2, 3.7), (22.4, 4.1)],
        [(10.9, 2.0), (16.0, 2.4), (19.1, 3.1), (22.4, 3.9)],
        [(11.1, 2.0), (14.6, 2.2), (17.6, 2.4), (20.6, 4.2)],
        [(11.9, 2.3), (14.8, 2.1), (16.1, 2.4), (19.3, 3.6)],
    ],
    ("unknown", "uneven"): [
        [(13.3, 3.0), (19.8, 5.2), (26.8, 4.2), (26.9, 4.9)],
        [(12.4, 2.5), (20.0, 4.0), (25.1, 4.9), (27.2, 5.5)],
        [(12.0, 2.6), (18.7, 2.9), (22.3, 3.8), (27.0, 4.4)],
        [(11.8, 2.7), (16.0, 2.5), (18.9, 3.1), (22.8, 5.2)],
        [(12.4, 2.6), (15.6, 2.4), (18.2, 2.6), (22.7, 4.5)],
    ],
    ("told", "even"): [
        [(11.1, 2.2), (14.0, 2.6), (14.6, 3.3), (14.3, 3.4)],
        [(11.2, 2.1), (13.2, 2.5), (13.8, 2.5), (14.4, 2.6)],
        [(11.0, 2.0), (13.0, 2.1), (13.5, 2.2), (14.2, 2.3)],
        [(11.1, 2.1), (13.2, 2.1), (14.3, 2.1), (14.9, 2.1)],
        [(12.1, 2.3), (14.1, 2.1), (14.8, 2.1), (14.9, 2.1)],
    ],
    ("told", "uneven"): [
        [(13.1, 3.2), (15.6, 3.4), (16.3, 3.7), (15.3, 3.6)],
        [(12.1, 2.6), (15.2, 2.9), (16.0, 2.8), (15.1, 3.5)],
        [(12.0, 2.9), (13.9, 3.0), (14.7, 2.7), (14.8, 2.7)],
        [(11.7, 2.8), (14.1, 2.5), (15.0, 2.5), (15.4, 2.3)],
        [(12.3, 2.7), (15.1, 2.2), (15.3, 2.2), (15.4, 2.2)],
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
