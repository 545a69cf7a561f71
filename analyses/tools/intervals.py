"""Numbers with their 95 % intervals, in words: means, shares, and the shift between runs and controls."""

import numpy as np
from scipy import stats


def mean_interval(values: np.ndarray, digits: int) -> str:
    """Mean and its 95 % interval by Student's t over runs; of a single one, the value alone."""
    known = values[np.isfinite(values)]
    mean = float(known.mean())
    if len(known) < 2:
        return f"{mean:.{digits}f} (one run: no interval)"
    half = float(stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return f"{mean:.{digits}f} [{mean - half:.{digits}f}, {mean + half:.{digits}f}]"


def share_interval(count: int, of: int) -> str:
    """A share with its 95 % interval (Clopper and Pearson)."""
    low, high = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return f"{count} of {of} [{low:.2f}, {high:.2f}]"


def shift_interval(runs: np.ndarray, controls: np.ndarray) -> str:
    """Median of all differences, and the interval that the rank-sum test gives; none where there are too few of both."""
    runs, controls = (x[np.isfinite(x)] for x in (runs, controls))
    differences = np.sort((runs[:, None] - controls[None, :]).ravel())
    n, m = len(runs), len(controls)
    counts = np.ones(1)
    for i in range(1, n + 1):  # the number of ways to each rank sum: the Gaussian binomial, one factor at a time
        counts = _times_ratio(counts, m + i, i)
    below = np.cumsum(counts) / counts.sum()
    out = int(np.searchsorted(below, 0.025, side="right"))  # differences to leave out at each end
    middle = float(np.median(differences))
    if out == 0:
        return f"{middle:.3g} (too few for a 95 % interval)"
    return f"{middle:.3g} [{differences[out - 1]:.3g}, {differences[-out]:.3g}]"


def _times_ratio(counts: np.ndarray, up: int, down: int) -> np.ndarray:
    """counts(x) (1 - x^up) / (1 - x^down), polynomials in x that divide without rest."""
    product = np.concatenate((counts, np.zeros(up)))
    product[up:] -= counts
    quotient = product.copy()
    for i in range(down, len(quotient)):
        quotient[i] += quotient[i - down]
    return quotient[: len(product) - down]


def rate(value: float) -> str:
    """A rate in percent."""
    return f"{value:.1%}" if value >= 0.001 else "less than 0.1%"
