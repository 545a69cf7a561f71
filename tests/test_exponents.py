"""Fitted exponents: a planted power law, its interval, and seeds of their own."""

import numpy as np
import pytest

from analyses.tools.exponents import fit_exponent


def test_a_planted_exponent_is_found_exactly():
    x = np.geomspace(1, 1000, 20)
    fit = fit_exponent(x, 3 * x**-0.7)
    assert fit.exponent == pytest.approx(0.7)
    assert fit.low <= fit.exponent <= fit.high < 0.7 + 1e-6
    assert fit.off(0.5) == pytest.approx(0.4)


def test_the_interval_covers_the_truth_nineteen_times_of_twenty(rng):
    x, inside = np.geomspace(1, 100, 12), 0
    for _ in range(400):
        fit = fit_exponent(x, x**-0.5 * np.exp(0.1 * rng.standard_normal(12)))
        inside += fit.low <= 0.5 <= fit.high
    assert inside / 400 == pytest.approx(0.95, abs=0.035)


def test_over_seeds_the_interval_is_that_of_their_slopes(rng):
    x = np.geomspace(1, 100, 5)
    slopes = np.array([0.4, 0.5, 0.6])
    fit = fit_exponent(x, x ** -slopes[:, None])
    assert fit.exponent == pytest.approx(0.5)
    assert fit.high - fit.exponent == pytest.approx(
        4.303 * 0.1 / np.sqrt(3), rel=1e-3
    )  # Student, two degrees of freedom
    assert str(fit) == "0.500 [0.252, 0.748]"
