"""Panels in which nothing happens, made from one in which something may.

A smooth curve for each series (`taken_out`), and around it noise that is as large, as autocorrelated, as uneven over
time and as shared between the series as that of the panel itself:

    s_m   value at a checkpoint minus the straight line between those m before and m after it, m = 1, 2, 4: hardly
          sees what is smooth, and its medians over time do not see what happens once
    rho   of noise that is AR(1) from checkpoint to checkpoint, E s_m^2 is in proportion to 3 - 4 rho^m + rho^2m: their
          growth with m, pooled over all series, gives rho. A random walk has growth 2; what grows faster is the curve,
          and is taken for a walk
    size  such that no s_m of the noise is smaller than what was measured

rho is taken from above, by two standard errors: noise that is taken to last longer than it does costs power, never
honesty. What all series share is kept by drawing mixtures of the measured s_1, the same mixture for all series. There
are fewer s_1 than series, often, so that series which share nothing look alike by chance: of the mean square of their
correlations, what independent series would show, less two standard errors, is drawn for each series alone.

Where s_2^2 is six times s_1^2 or more (a smooth curve: 16, a walk: 2) the checkpoints resolve the curve and show no
noise: full-batch training does so. There is then nothing random to compare with; what is left to ask is whether a place
is faster than both of its sides by more than a smooth curve is (`Noise.is_resolved`; see `bursts`).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

LAGS = (1, 2, 4)

NORMAL_MEDIAN, MEDIAN_SQUARE = 0.67449, 0.45494
"""The median of |N(0, 1)|, and of its square."""

LARGEST_RHO = 0.995
"""What stands for a random walk."""

STANDARD_ERRORS = 2.0
"""By which the growth that gives rho is taken from above."""

CLIPPED = 4.0
"""Largest s_1 that mixtures are drawn from, in its own standard deviations: one event must not become the noise."""

RESOLVED = 6.0
"""Growth of s_m^2 from m = 1 to 2 from which on a panel is a curve without noise."""

Panel = Float64[np.ndarray, "times series"]


@dataclass(frozen=True, eq=False)
class Noise:
    """Its size by series and over time, its rho, and s_1, standardised, which mixtures are drawn from.

    alone is the share of its variance that each series has for itself; is_resolved, whether there is none to speak of.
    """

    size: Float64[np.ndarray, " series"]
    over_time: Float64[np.ndarray, " times"]
    rho: float
    differences: Float64[np.ndarray, "differences series"]
    alone: float
    is_resolved: bool


def measure_noise(
    x: Float64[np.ndarray, " times"], panel: Panel, counts: Bool[np.ndarray, " times"] | None = None
) -> Noise:
    """The noise of a panel at these ln(step), from the times that count: all, or those outside of events."""
    n = len(x)
    counts = np.ones(n, dtype=bool) if counts is None else counts
    at = {m: _whole(counts, m) for m in LAGS}  # the times at which s_m touches nothing that does not count
    lags = [m for m in LAGS if len(at[m]) >= 2 * m + 6] or [1]
    found = {m: _from_line(x, panel, m)[at[m] - m] for m in lags}
    by_lag = [np.median(np.abs(s), axis=0) / NORMAL_MEDIAN / np.sqrt(m / 2) for m, s in found.items()]
    size = np.maximum(np.max(by_lag, axis=0), 1e-9 * np.ptp(panel, axis=0) + 1e-300)
    over_time = _over_time(n, {m: (at[m], s / size / np.sqrt(m / 2)) for m, s in found.items()})
    scaled = {m: s / (size * over_time[at[m], None]) for m, s in found.items()}
    energy = {m: float(np.median(s**2) / MEDIAN_SQUARE) for m, s in scaled.items()}
    by_time = np.clip(scaled[1] ** 2, 0, 9).mean(1)
    doubt = 2 * by_time.std() / max(by_time.mean(), 1e-12) / np.sqrt(len(by_time))
    growth = max([energy[2 * m] / max(energy[m], 1e-12) for m in lags if 2 * m in energy], default=2.0)
    is_resolved = 2 in energy and energy[2] >= RESOLVED * energy[1]
    rho = 0.0 if is_resolved else _rho_of(growth + STANDARD_ERRORS * doubt)
    lags = [1] if is_resolved else lags
    expected = {m: (1.5 - 2 * rho**m + 0.5 * rho ** (2 * m)) / (1 - rho**2) for m in lags}
    amplitude = np.sqrt(max(energy[m] / expected[m] for m in lags))
    differences = np.clip(scaled[1], -CLIPPED, CLIPPED)
    differences = differences / np.maximum(np.sqrt((differences**2).mean(0)), 1e-12)
    return Noise(size * amplitude, over_time, rho, differences, _alone(differences), is_resolved)


def panels_like(
    smooth: Panel, noise: Noise, count: int, rng: np.random.Generator
) -> Float64[np.ndarray, "count times series"]:
    """So many panels with this smooth part and such noise, in which nothing happens."""
    from scipy.signal import lfilter

    n, m = len(smooth), len(noise.differences)
    mixtures = rng.standard_normal((count, n, m)) / np.sqrt(m)
    shocks = np.sqrt(1 - noise.alone) * (mixtures @ noise.differences)
    if noise.alone > 0:
        shocks += np.sqrt(noise.alone) * rng.standard_normal((count, *smooth.shape))
    shocks[:, 0] /= np.sqrt(1 - noise.rho**2)
    shocks *= noise.over_time[:, None] * noise.size
    return smooth + np.asarray(lfilter([1.0], [1.0, -noise.rho], shocks, axis=1))


def _alone(differences: Float64[np.ndarray, "differences series"]) -> float:
    """Share of the mean square of all correlations that independent series would show, from below.

    So many differences in a row stand for fewer, because neighbours share checkpoints and noise lasts.
    """
    count, series = differences.shape
    if series < 3:
        return 0.0
    correlations = differences.T @ differences / count
    pairs = series * (series - 1) / 2
    mean_square = ((correlations**2).sum() - (np.diag(correlations) ** 2).sum()) / (2 * pairs)
    lasting = [float((differences[k:] * differences[:-k]).mean()) for k in range(1, min(8, count // 3))]
    by_chance = (1 + 2 * sum(one**2 for one in lasting)) / count
    return float(np.clip(by_chance * (1 - 2 * np.sqrt(2 / pairs)) / max(mean_square, 1e-12), 0, 1))


def _from_line(x: Float64[np.ndarray, " times"], panel: Panel, m: int) -> Float64[np.ndarray, "inner series"]:
    """s_m at all times but the first and last m."""
    before, now, after = x[: -2 * m], x[m:-m], x[2 * m :]
    share = ((after - now) / (after - before))[:, None]
    return panel[m:-m] - share * panel[: -2 * m] - (1 - share) * panel[2 * m :]


def _whole(counts: Bool[np.ndarray, " times"], m: int) -> Int64[np.ndarray, " inner"]:
    """The times from m before to m after which all count."""
    before = np.r_[0, np.cumsum(~counts)]
    at = np.arange(m, len(counts) - m)
    return at[before[at + m + 1] == before[at - m]]


def _over_time(
    n: int, scaled: dict[int, tuple[Int64[np.ndarray, " inner"], np.ndarray]]
) -> Float64[np.ndarray, " times"]:
    """How the noise of all series together changes over time: a running median, shrunk by what chance would make."""
    from scipy.ndimage import median_filter

    logs = []
    for at, s in scaled.values():
        typical = np.log(np.median(np.abs(s), axis=1) + 1e-6)
        logs.append(np.interp(np.arange(n), at, typical))
    raw, size = np.mean(logs, axis=0), max(9, (n // 4) | 1)
    level = median_filter(raw, size=size, mode="nearest")
    chance = 3.0 * np.var(raw - level) / size
    shrunk = max(0.0, 1 - chance / max(float(np.var(level)), 1e-12))
    return np.exp(shrunk * (level - level.mean()))


def _rho_of(growth: float) -> float:
    grid = np.linspace(0, LARGEST_RHO, 400)
    growths = (3 - 4 * grid**2 + grid**4) / (3 - 4 * grid + grid**2)
    return float(np.interp(growth, growths, grid))
