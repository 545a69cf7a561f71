"""Constants of paper 002 about its saddle, by hand and against the means that they stand for; corrected lengths."""

import numpy as np
import pytest

from models.merged_weights.errors import (
    corrected_bound,
    corrected_lengths,
    first_bound,
    linear_law,
    mean_error,
    prediction_error,
    printed_lengths,
)
from models.merged_weights.landscape import RandomCovariance, least_value, pl_constant, printed_final_value, steepness
from models.merged_weights.theory import MergedFlow, largest_init, moments_of_exponential, moments_of_fixed

S, N = (1.0, 0.7, 0.5, 0.3, 0.2), 20


def test_constants_of_one_dimension_by_hand():
    # d = 1, lambda = 2, N = 4: Gamma = 2 + 4 / 4 = 3; Theta = 1; sigma^2 = 1/3 leaves 2 - 1
    sigma, shape = np.sqrt(1 / 3), np.ones((1, 1))
    assert least_value([2.0], 4, sigma, shape) == pytest.approx(np.sqrt(1 / 3 / (2 * 4) * 4 * 1))
    assert pl_constant([2.0], 4, sigma, shape) == pytest.approx(1 / 3 / (4 / 6 / 2) * 4 * 1)
    assert least_value([2.0], 4, largest_init([2.0], 4), shape) == pytest.approx(0, abs=1e-8)


def test_both_sides_of_the_inequality_are_the_gradient_and_the_loss_above_the_least(rng):
    flow = MergedFlow(moments_of_fixed(S, N), 0.3, 0.1 * rng.standard_normal((5, 5)))
    squares, above = steepness(flow, [0.0, 1.0])
    step = 1e-6
    before, after = flow.loss([1.0 - step, 1.0 + step])
    assert squares[1] == pytest.approx((before - after) / (2 * step), rel=1e-4)  # the loss falls at this rate
    assert above[0] == pytest.approx(flow.loss([0.0])[0] - flow.final_loss)


def test_means_over_exponential_covariances_agree_with_drawing_them(rng):
    means, n, draws = np.array([1.0, 0.5, 2.0]), 5, 200_000
    law = RandomCovariance.exponential(means, n, draws, rng)
    a = rng.standard_normal((3, 3))
    shape = a @ a.T / np.linalg.norm(a @ a.T)
    s = means * rng.exponential(size=(draws, 3))
    sampled = (s**2 * np.diag(shape)).sum(1)
    assert law.square_then_mean(shape) == pytest.approx(sampled.mean(), abs=4 * sampled.std() / draws**0.5)
    assert law.mean_then_square(shape) == pytest.approx(np.linalg.norm(np.diag(means) @ np.linalg.cholesky(shape)) ** 2)
    product = ((s * (1 + 1 / n)).max(1) + s.sum(1) / n) * (s**2).sum(1)
    assert law.product == pytest.approx(product.mean(), abs=6 * product.std() / draws**0.5)
    assert law.least_value(law.largest_init(shape), shape, as_stated=True) == pytest.approx(0, abs=1e-7)
    assert law.least_value(0.01, shape, as_stated=False) > 0


def test_the_limit_of_u_with_random_covariances_lacks_its_squares_in_print(rng):
    a = rng.standard_normal((3, 3))
    flow = MergedFlow(moments_of_exponential([1.0] * 3, N), 0.1, 0.1 * a @ a.T / np.linalg.norm(a @ a.T))
    assert flow.final_value == pytest.approx((flow.fixed_point**2).sum() ** 0.25)
    assert printed_final_value(flow) == pytest.approx(flow.fixed_point.sum() ** 0.25)


def test_corrected_lengths_suffice_where_printed_ones_do_not():
    large = 20 * np.array(S)
    assert mean_error(large, *printed_lengths(large, 0.1)) > 0.1
    n, m = corrected_lengths(large, 0.1)
    assert corrected_bound(large, n, m) == pytest.approx(0.1)
    assert mean_error(large, n, m) < 0.1
    with pytest.raises(ValueError, match="positive error"):
        corrected_lengths(large, 0)


def test_the_bound_for_one_task_is_above_its_error_and_averages_to_that_over_tasks(rng):
    tasks = rng.standard_normal((2000, 5))
    bounds = np.array([first_bound(S, 10, 20, w) for w in tasks])
    assert all(prediction_error(S, 10, 20, linear_law(S, w)) <= first_bound(S, 10, 20, w) for w in tasks[:50])
    s = np.array(S)
    mean = 6 * s.sum() / 20 + ((1 + 10) * s.sum() + (1 / s).sum() * s.sum() ** 2) / 100
    assert mean == pytest.approx(bounds.mean(), abs=4 * bounds.std() / 2000**0.5)
