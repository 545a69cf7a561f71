"""Other ways to find changes, on the same series: ruptures' PELT and binary segmentation, log-slope peaks, paper 000.

Each peer is a function of a series that gives `Levels`: what it finds at every threshold (penalty, prominence), so that
one threshold per cell can be chosen on the tuning seeds, where it raises as many false alarms as our detector does. All
work on means over bins of ln(step), at most `BINS` of them, in units of the noise of neighbouring differences: the form
in which they did best. A finding is a step and a direction; peers give no interval. The hidden Markov model is in
`hidden_markov`.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from analyses.calibration.cells import Case
from probes import loss_autocorrelation_curvature

BINS = 120
PENALTIES = np.geomspace(2, 2e6, 29)

Finding = tuple[float, str]


@dataclass(frozen=True)
class Levels:
    """What is found at each threshold, ascending: the same findings or fewer, the higher it is."""

    thresholds: np.ndarray
    findings: tuple[tuple[Finding, ...], ...]

    @property
    def highest(self) -> float:
        """The highest threshold at which anything is found; -inf if nothing ever is."""
        there = [level for level, found in zip(self.thresholds, self.findings, strict=True) if found]
        return max(there, default=-np.inf)

    def above(self, threshold: float) -> tuple[Finding, ...]:
        """What is found at the first threshold beyond the given one; nothing beyond the last."""
        after = int(np.searchsorted(self.thresholds, threshold, side="right"))
        return self.findings[after] if after < len(self.findings) else ()


def nested(scored: list[tuple[float, Finding]]) -> Levels:
    """Findings that each hold up to a score of their own."""
    scores = np.sort([score for score, _ in scored])
    return Levels(scores, tuple(tuple(f for s, f in scored if s >= score) for score in scores))


@dataclass(frozen=True)
class Binned:
    """A series as means over bins of ln(step), in units of the noise of one bin."""

    steps: np.ndarray
    values: np.ndarray

    @property
    def x(self) -> np.ndarray:
        """ln(step)."""
        return np.log(self.steps)


def binned(case: Case) -> Binned:
    """Equal bins of ln(step) as far as there are values; a record of fewer values than bins stays as it is."""
    steps = np.maximum(case.steps, 0.5)
    if len(steps) > BINS:
        start = max(steps[0], steps[-1] * 1e-4)
        edges = np.geomspace(start, steps[-1] * (1 + 1e-9), BINS + 1)
        where = np.clip(np.searchsorted(edges, steps, side="right") - 1, 0, BINS - 1)
        count = np.bincount(where, minlength=BINS)
        kept = count > 0
        at = np.bincount(where, np.log(steps), BINS)[kept] / count[kept]
        values = np.bincount(where, case.values, BINS)[kept] / count[kept]
        steps = np.exp(at)
    else:
        values = case.values
    bend = values[2:] - 2 * values[1:-1] + values[:-2]
    noise = max(np.median(np.abs(bend)) / np.sqrt(6) / 0.6745, 1e-12 * max(np.ptp(values), 1e-300))
    return Binned(steps, values / noise)


def pelt(case: Case) -> Levels:
    """ruptures' PELT for changes of the mean, over penalties: its compiled form, the linear kernel, is the l2 cost."""
    import ruptures

    data = binned(case)
    search = ruptures.KernelCPD(kernel="linear", min_size=2).fit(data.values[:, None])
    return _over_penalties(data, lambda penalty: search.predict(pen=penalty) or [])


def binary_segmentation(case: Case) -> Levels:
    """ruptures' binary segmentation for changes of the mean, over penalties."""
    import ruptures

    data = binned(case)
    search = ruptures.Binseg(model="l2", min_size=2, jump=2).fit(data.values[:, None])
    return _over_penalties(data, lambda penalty: search.predict(pen=penalty) or [])


def _over_penalties(data: Binned, predict: Callable[[float], list[int]]) -> Levels:
    """From the highest penalty down, until there are more than ten changes: beyond that nothing is told apart."""
    levels = []
    for penalty in PENALTIES[::-1]:
        ends = predict(float(penalty))
        if len(ends) > 11:
            break
        levels.append((float(penalty), _changes(data, [0, *ends])))
    levels.reverse()
    return Levels(np.array([level for level, _ in levels]), tuple(found for _, found in levels))


def _changes(data: Binned, ends: list[int]) -> tuple[Finding, ...]:
    means = [data.values[a:b].mean() for a, b in itertools.pairwise(ends)]
    at = [float(np.sqrt(data.steps[k - 1] * data.steps[k])) for k in ends[1:-1]]
    ways = ["fall" if after < before else "rise" for before, after in itertools.pairwise(means)]
    return tuple(zip(at, ways, strict=True))


def log_slope_peaks(case: Case) -> Levels:
    """Peaks of the slope over ln(step), up and down, by their prominence in units of its noise."""
    from scipy.ndimage import gaussian_filter1d

    data = binned(case)
    slope = np.gradient(gaussian_filter1d(data.values, max(1.0, len(data.values) / 60)), data.x)
    noise = np.median(np.abs(np.diff(slope))) + 1e-12 * np.ptp(slope) + 1e-300
    return nested(_peaks(-slope / noise, data.steps, "fall") + _peaks(slope / noise, data.steps, "rise"))


def autocorrelation_curvature(case: Case) -> Levels:
    """Peaks of the curvature of the loss's autocorrelation (paper 000), by prominence as a share of its range.

    It needs even spacing: an uneven record is resampled to 2000 even steps. Its peaks belong to t*, 12 % after the half-
    drop, and are moved back by that.
    """
    values, steps = case.values, case.steps
    gaps = np.diff(steps)
    if np.ptp(gaps) > 1e-6 * gaps.max():
        even = np.linspace(steps[0], steps[-1], 2000)
        values, steps = np.interp(even, steps, values), even
    table = loss_autocorrelation_curvature(values, spacing=float(steps[1] - steps[0]))
    bend, lags = table["curvature"].to_numpy(), table["lag"].to_numpy()
    tenth = len(values) // 10 + 1
    way = "fall" if values[:tenth].mean() > values[-tenth:].mean() else "rise"
    return nested(_peaks(bend / (np.ptp(bend) + 1e-300), (steps[0] + lags) / 1.12, way))


def _peaks(values: np.ndarray, steps: np.ndarray, way: str) -> list[tuple[float, Finding]]:
    from scipy.signal import find_peaks

    at, about = find_peaks(values, prominence=1e-9)
    best = np.argsort(about["prominences"])[-10:]
    return [(float(about["prominences"][k]), (float(steps[at[k]]), way)) for k in best]


PEERS: Mapping[str, Callable[[Case], Levels]] = {
    "PELT (ruptures)": pelt,
    "binary segmentation (ruptures)": binary_segmentation,
    "log-slope peaks": log_slope_peaks,
    "autocorrelation curvature (000)": autocorrelation_curvature,
}
"""Peers that look at one series at a time."""
