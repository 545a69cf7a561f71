"""Exponents of power laws, fitted with intervals."""

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Fit:
    """y ~ x^-exponent, with the 95 % interval of the fit."""

    exponent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.exponent:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def off(self, expected: float) -> float:
        """How far from an expected exponent, as a fraction of it."""
        return self.exponent / expected - 1


def fit_exponent(x: np.ndarray, y: np.ndarray) -> Fit:
    """The slope of -ln y against ln x, with Student's interval. y may be [seeds, x]: then over the seeds' own slopes."""
    x, y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    if y.ndim == 2 and len(y) > 1:
        own = slopes(np.exp(x), np.exp(y))
        half = stats.t.ppf(0.975, len(own) - 1) * own.std(ddof=1) / np.sqrt(len(own))
        return Fit(float(own.mean()), float(own.mean() - half), float(own.mean() + half))
    (slope, _), covariance = np.polyfit(x, np.atleast_2d(y)[0], 1, cov=True)
    half = stats.t.ppf(0.975, len(x) - 2) * np.sqrt(covariance[0, 0])
    return Fit(float(-slope), float(-slope - half), float(-slope + half))


def slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Exponents of y [seeds, x] ~ x^-exponent, one per seed."""
    return np.array([-np.polyfit(np.log(x), np.log(row), 1)[0] for row in y])
