"""Draw how large the likelihood ratio of a short record gets where nothing happens: the table of `null_tails.py`.

`python -m benchmarks.null_tails` takes about ten minutes of one core. It prints start and scale of the heaviest
of three schedules; neighbours agree to within the error of eighty draws, and are smoothed by hand in the table.
"""

import numpy as np

from probes.series.transitions.likelihood import change_statistic
from probes.series.transitions.models import Fits
from probes.series.transitions.null_tails import COUNTS, RHOS
from probes.series.transitions.shapes import coloured

DRAWS = 80


def schedules(n: int) -> list[np.ndarray]:
    """Even, log-spaced, and doubling for a third of the values (at most twelve) and then even."""
    doubling = min(12, n // 3)
    powers = 2.0 ** np.arange(doubling - 1)
    even = 2 * powers[-1] * np.arange(1, n - doubling + 1)
    return [10.0 * np.arange(n), np.geomspace(1, 1e5, n), np.concatenate(([0], powers, even))]


def drawn_tail(steps: np.ndarray, rho: float, *, is_told: bool) -> tuple[float, float]:
    """Start and scale of the exponential that the largest tenth of the draws follows."""
    fits, rng = Fits(steps, rho if is_told else None), np.random.default_rng([77, len(steps)])
    records = coloured(rho, rng.standard_normal((len(steps), DRAWS))).T
    top = np.sort([change_statistic(fits, record / np.ptp(record)) for record in records])
    top = top[-len(top) // 10 :]
    return float(top[0]), float((top - top[0]).mean())


def run() -> None:
    """Print both tables, a row for each number of values; scales below 2, that of chi^2, are taken as 2."""
    for is_told in (False, True):
        print("rho told" if is_told else "rho unknown")
        for n in COUNTS:
            row = []
            for rho in RHOS:
                tails = [drawn_tail(steps, rho, is_told=is_told) for steps in schedules(n)]
                start, scale = max(tails, key=lambda pair: pair[0] + 3 * pair[1])  # the heaviest at p = .005
                row.append(f"({start:.1f}, {max(2.0, scale):.1f})")
            print(f"  {n:4d} [{', '.join(row)}]", flush=True)


if __name__ == "__main__":
    run()
