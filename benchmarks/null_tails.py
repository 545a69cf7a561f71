"""Draw how large the likelihood ratio gets where nothing happens.

`python -m benchmarks.null_tails` draws the tables of `null_tails.py`, for short records, in about twenty minutes of one
core (`told` or `unknown` after it: one half of them). It prints start and scale for even steps, and those of the
heavier of two uneven schedules; neighbours agree to within the error of 200 draws, and are smoothed by hand in the
tables.
`python -m benchmarks.null_tails bins` prints both for long records in bins, by the mean correlation of neighbouring
bins, on which `TAIL_STARTS` and its like in `bin_constants.py` rest; `python -m benchmarks.null_tails stages` those of
the bound of `short_stages.py`, on which `STAGE_STARTS` and its like in `short_constants.py` rest.
"""

import sys
from collections.abc import Sequence

import numpy as np

from probes.series.transitions.bins import BinnedRecord, grid_for, law_of_bins
from probes.series.transitions.laws import coloured, covariance_of_means
from probes.series.transitions.likelihood import change_statistic
from probes.series.transitions.models import fits_for
from probes.series.transitions.null_tails import COUNTS, RHOS
from probes.series.transitions.short_stages import HumpTest

DRAWS = 200


def schedules(n: int) -> dict[str, list[np.ndarray]]:
    """Even; and log-spaced, and doubling for a third of the values (at most twelve) and then even."""
    doubling = min(12, n // 3)
    powers = 2.0 ** np.arange(doubling - 1)
    even = 2 * powers[-1] * np.arange(1, n - doubling + 1)
    uneven = [np.geomspace(1, 1e5, n), np.concatenate(([0], powers, even))]
    return {"even": [10.0 * np.arange(n)], "uneven": uneven}


def drawn_tail(steps: np.ndarray, rho: float, *, is_told: bool) -> tuple[float, float]:
    """Start and scale of the exponential that the largest tenth of the draws follows."""
    fits, rng = fits_for(steps, rho if is_told else None), np.random.default_rng([77, len(steps)])
    records = coloured(rho, rng.standard_normal((len(steps), DRAWS))).T
    top = np.sort([change_statistic(fits, record / np.ptp(record)) for record in records])
    top = top[-len(top) // 10 :]
    return float(top[0]), float((top - top[0]).mean())


def bin_schedules() -> dict[str, np.ndarray]:
    """Even and log-spaced, 300 to 20,000 values."""
    found = {f"{n} even": np.arange(1.0, n + 1) for n in (300, 1000, 3000, 20_000)}
    return found | {f"{n} log-spaced": np.geomspace(1, 100 * n, n) for n in (300, 1000)}


def run_bins() -> None:
    """Print start and scale for laws from white noise to a random walk under white noise."""
    laws = ((1, 1.0), (2, 0.0), (5, 0.0), (10, 0.0), (20, 0.0), (50, 0.3), (100, 0.0), (300, 0.9), (1000, 0.3))
    for memory, white in laws:
        rho = 1 - 1 / memory
        for name, steps in bin_schedules().items():
            rng, n = np.random.default_rng([78, memory, len(steps)]), len(steps)
            if memory > n:
                continue
            slow = np.sqrt((1 - white) * (1 - rho**2)) * coloured(rho, rng.standard_normal((n, DRAWS)))
            records = (slow + np.sqrt(white) * rng.standard_normal((n, DRAWS))).T
            top = np.sort([BinnedRecord(record, steps).test([]).statistic for record in records])[-DRAWS // 10 :]
            correlation, _ = law_of_bins(covariance_of_means(grid_for(steps).count, rho, white))
            print(
                f"memory {memory:5d}, white {white:.2f}, {name:16s} correlation {correlation:.2f}: "
                f"start {top[0]:5.1f}, scale {(top - top[0]).mean():.1f}",
                flush=True,
            )


def run_stages() -> None:
    """Print start and scale of -ln bound, by number of values, schedule and rho."""
    for n in COUNTS:
        for name, several in schedules(n).items():
            for steps in several:
                test = HumpTest(steps, fits_for(steps).laws)
                row = []
                for rho in RHOS:
                    rng = np.random.default_rng([79, n])
                    records = coloured(rho, rng.standard_normal((n, DRAWS))).T
                    top = np.sort([-np.log(test.bound(record / np.ptp(record))) for record in records])[-DRAWS // 10 :]
                    row.append(f"({top[0]:.1f}, {(top - top[0]).mean():.1f})" if np.isfinite(top[0]) else "(-, -)")
                print(f"{name} steps, the second {steps[1]:g}, {n:4d}: [{', '.join(row)}]", flush=True)


def run(whether_told: Sequence[bool]) -> None:
    """Print the tables, a row for each number of values; scales below 2, that of chi^2, are taken as 2."""
    for is_told in whether_told:
        for n in COUNTS:
            for name, steps in schedules(n).items():
                row = []
                for rho in RHOS:
                    tails = [drawn_tail(one, rho, is_told=is_told) for one in steps]
                    start, scale = max(tails, key=lambda pair: pair[0] + 3 * pair[1])  # the heavier at p = .005
                    row.append(f"({start:.1f}, {max(2.0, scale):.1f})")
                rho_is = "told" if is_told else "unknown"
                print(f"rho {rho_is}, {name} steps, {n:4d}: [{', '.join(row)}]", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["bins"]:
        run_bins()
    elif sys.argv[1:] == ["stages"]:
        run_stages()
    else:
        run({"told": [True], "unknown": [False]}.get(" ".join(sys.argv[1:]), [False, True]))
