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
        [(11.4, 2.6), (17.2, 3.8), (20.0, 4.4), (21.0, 4.0)],
        [(11.0, 2.3), (16.6, 3.2), (20.6, 3.3), (22.2, 2.9)],
        [(10.6, 2.1), (15.8, 2.6), (20.0, 3.2), (22.3, 2.9)],
        [(10.4, 2.2), (14.0, 2.3), (17.2, 2.9), (20.6, 3.2)],
        [(10.6, 2.1), (13.5, 2.2), (15.4, 2.4), (19.6, 3.0)],
    ],
    ("unknown", "uneven"): [
        [(14.0, 2.6), (20.0, 3.5), (25.5, 3.6), (27.0, 3.9)],
        [(12.4, 2.4), (20.0, 3.5), (25.0, 4.8), (28.0, 4.6)],
        [(11.7, 2.2), (18.5, 3.0), (22.5, 5.0), (27.5, 4.7)],
        [(11.5, 2.2), (15.2, 2.8), (19.8, 3.8), (24.0, 4.5)],
        [(11.6, 2.2), (14.0, 2.5), (17.0, 2.8), (21.0, 3.8)],
    ],
    ("told", "even"): [
        [(11.4, 2.8), (13.9, 2.5), (14.7, 2.9), (14.7, 2.8)],
        [(11.1, 2.4), (13.0, 2.4), (13.9, 3.0), (14.1, 2.9)],
        [(10.5, 2.3), (13.0, 2.2), (13.7, 2.9), (14.0, 2.6)],
        [(10.5, 2.4), (13.0, 2.1), (13.5, 2.4), (14.0, 2.3)],
        [(10.7, 2.3), (13.3, 2.1), (13.8, 2.2), (14.3, 2.1)],
    ],
    ("told", "uneven"): [
        [(12.1, 3.2), (15.7, 2.8), (15.9, 2.6), (15.5, 3.0)],
        [(11.8, 2.9), (14.7, 2.6), (15.4, 2.5), (15.0, 2.9)],
        [(11.7, 2.6), (13.5, 2.8), (14.5, 2.5), (14.7, 2.8)],
        [(11.5, 2.3), (13.1, 2.4), (13.8, 2.5), (14.0, 2.5)],
        [(11.6, 2.2), (13.2, 2.4), (14.0, 2.4), (14.0, 2.5)],
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
