"""Plateaus, fixed points, flow and reduced equation of paper 001."""

from functools import partial
from itertools import chain, combinations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from models.multi_head.reduced import ScalarTheory, escape_times, printed_escape_time
from models.multi_head.theory import (
    PopulationFlow,
    fixed_point,
    loss_of,
    loss_of_subset,
    mean_inverse_length,
    plateau_losses,
    second_moment,
)

S, N = (0.4, 0.3, 0.2, 0.1), 31


def small_weights(rng, heads=4, rank=1, d=4, init=0.3):
    value = rng.normal(0, init / heads**0.5, heads)
    key, query = rng.normal(0, init / (heads * rank * d) ** 0.5, (2, heads, rank, d))
    return value, key, query


def subsets(d):
    return chain.from_iterable(combinations(range(d), m) for m in range(d + 1))


def at_fixed_point(learned):
    """One head per learned eigenvector, and one at rest."""
    amplitude = np.cbrt(fixed_point(S, 1 / N))
    value, key = np.zeros(5), np.zeros((5, 1, 4))
    for d in learned:
        value[d] = amplitude[d]
        key[d, 0, d] = amplitude[d]
    return value, key, key


def test_check_values_of_the_plateaus_of_figure_1():
    np.testing.assert_allclose(plateau_losses(S, 1 / N), [1, 0.64058, 0.37737, 0.20980, 0.13600], atol=5e-6)


def test_for_a_long_context_each_plateau_is_the_sum_of_what_is_not_learned():
    np.testing.assert_allclose(plateau_losses(S, 0), [1, 0.6, 0.3, 0.1, 0], atol=1e-12)


def test_the_mean_inverse_length_by_hand():
    assert mean_inverse_length(2) == pytest.approx(0.75)
    assert mean_inverse_length(1) == 1


def test_every_set_of_eigenvectors_is_a_fixed_point_with_its_own_loss():
    losses = set()
    for learned in subsets(4):
        flow = PopulationFlow(S, 1 / N, *at_fixed_point(learned))
        np.testing.assert_allclose(flow.velocity(flow.start), 0, atol=1e-15)
        assert flow.loss([0.0])[0] == pytest.approx(loss_of_subset(S, 1 / N, learned), rel=1e-12)
        losses.add(round(flow.loss([0.0])[0], 9))
    assert len(losses) == 2**4


def test_the_expected_loss_agrees_with_sampling_prompts(rng):
    s, n, draws = np.array([0.6, 0.3]), 3, 400_000
    matrix = np.array([[0.9, 0.3], [-0.2, 1.1]])
    x = rng.standard_normal((draws, n + 1, 2)) * np.sqrt(s)
    w = rng.standard_normal((draws, 2))
    y = np.einsum("kni,ki->kn", x, w)
    beta = np.einsum("kn,kni->ki", y[:, :n], x[:, :n]) / n
    error = (y[:, n] - np.einsum("ki,ij,kj->k", beta, matrix, x[:, n])) ** 2
    assert loss_of(s, 1 / n, matrix) == pytest.approx(error.mean(), abs=4 * error.std() / draws**0.5)


def test_the_velocity_is_minus_half_the_gradient_of_the_loss(rng):
    flow = PopulationFlow(S, 1 / 7, *small_weights(rng, heads=3, rank=2, init=2.0))

    def loss(state):
        return loss_of(S, 1 / 7, np.einsum("th,thri,thrj->tij", *flow.split(state[None])))[0]

    bumps = np.eye(len(flow.start)) * 1e-6
    numeric = [(loss(flow.start + b) - loss(flow.start - b)) / 2e-6 for b in bumps]
    np.testing.assert_allclose(flow.velocity(flow.start), -0.5 * np.array(numeric), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rank", [1, 3])
def test_each_head_conserves_its_two_differences_of_squares(rng, rank):
    flow = PopulationFlow(S, 1 / N, *small_weights(rng, rank=rank))
    constants = flow.conserved([0.0, 100, 1000, 5000])
    assert constants.shape == (4, 8)
    np.testing.assert_allclose(constants - constants[0], 0, atol=1e-6)
    value, key, query = (part[0] for part in flow.split(flow.start[None]))
    by_hand = np.concatenate((value**2 - (key**2).sum((1, 2)), value**2 - (query**2).sum((1, 2))))
    np.testing.assert_allclose(constants[0], by_hand)


def test_the_flow_visits_the_plateaus_in_order_and_ends_at_the_last(rng):
    flow = PopulationFlow(S, 1 / N, *small_weights(rng, init=0.05))
    half = flow.half_times
    assert (np.diff(half) > 0).all()
    assert flow.loss([10 * half[-1]])[0] == pytest.approx(plateau_losses(S, 1 / N)[-1], rel=1e-6)
    np.testing.assert_allclose(flow.modes([10 * half[-1]])[0], flow.fixed_point, rtol=1e-4)
    np.testing.assert_allclose(np.diag(flow.modes(np.sort(half))), flow.fixed_point / 2, rtol=0.02)


def test_modes_that_find_no_head_are_never_learned(rng):
    flow = PopulationFlow(S, 1 / N, *small_weights(rng, heads=1, rank=2))
    assert flow.learned.tolist() == [True, True, False, False]
    assert np.isinf(flow.half_times[2:]).all()
    assert flow.loss([1e5])[0] == pytest.approx(plateau_losses(S, 1 / N)[2], rel=1e-6)


def test_the_closed_form_solves_the_reduced_equation():
    theory = ScalarTheory(S, 1 / N, starts=[0.1] * 4)
    times = np.linspace(0, 1500, 40)
    for k, (s, a) in enumerate(zip(S, second_moment(S, 1 / N), strict=True)):
        equation = partial(lambda s, a, _, v: s**2 * v**2 - s * a * v**5, s, a)
        exact = solve_ivp(equation, (0, 1500), [0.1], "LSODA", times, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(theory.values(times)[:, k], exact.y[0], rtol=1e-6)
    np.testing.assert_allclose(np.diag(theory.modes(theory.half_times)), theory.fixed_point / 2, rtol=1e-8)
    np.testing.assert_allclose(theory.loss([1e6]), plateau_losses(S, 1 / N)[-1:], rtol=1e-9)


def test_from_an_aligned_start_the_whole_flow_is_the_reduced_equation():
    starts = np.array([0.2, 0.15, 0.1, 0.25])
    key = np.diag(starts)[:, None]
    times = np.linspace(0, 3000, 30)
    flow, reduced = PopulationFlow(S, 1 / N, starts, key, key), ScalarTheory(S, 1 / N, starts)
    np.testing.assert_allclose(flow.modes(times), reduced.modes(times), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(flow.loss(times), reduced.loss(times), rtol=1e-6)
    np.testing.assert_allclose(flow.conserved(times), reduced.conserved(times), atol=1e-6)
    np.testing.assert_allclose(flow.half_times, reduced.half_times, rtol=1e-3)


def test_a_mode_rests_until_its_time_comes():
    theory = ScalarTheory(S, 1 / N, starts=[0.1] * 4, since=[0, 50, 100, 150])
    first = ScalarTheory(S, 1 / N, starts=[0.1] * 4)
    assert theory.values([49.0])[0, 1] == pytest.approx(0.1)
    np.testing.assert_allclose(theory.half_times - first.half_times, [0, 50, 100, 150])


def test_an_aligned_head_escapes_when_equation_38_says():
    value, key = np.array([0.01]), np.array([[[0.01, 0, 0, 0]]])
    assert escape_times(S, value, key, key)[0] == pytest.approx(printed_escape_time(0.4, 0.01), rel=1e-6)


def test_the_head_that_starts_against_its_keys_turns_round_first():
    key = np.array([[[0.01, 0, 0, 0]]])
    against = escape_times(S, np.array([0.005]), key, -key)[0]
    with_them = escape_times(S, np.array([0.005]), key, key)[0]
    mirrored = escape_times(S, np.array([-0.005]), key, key)[0]
    assert against == pytest.approx(mirrored, rel=1e-9)
    assert against > 1.5 * with_them
    assert np.isinf(escape_times(S, np.array([0.0]), key, 0 * key)[0])


@pytest.mark.slow
def test_escape_times_are_those_of_the_flow_from_a_vanishing_start(rng):
    for _ in range(2):
        weights = small_weights(rng, init=1e-3)
        first = escape_times(S, *weights).min()
        assert PopulationFlow(S, 1 / N, *weights).half_times[0] == pytest.approx(first, rel=2e-3)


@pytest.mark.slow
def test_equation_38_is_early_by_almost_a_factor_two(rng):
    ratios = []
    for _ in range(40):
        value, key, query = small_weights(rng)
        ratios.append(escape_times(S, value, key, query).min() / printed_escape_time(0.4, np.abs(value).max()))
    assert 1.6 < np.median(ratios) < 2.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plateau_losses((0.4, -0.1), 0.1), "a covariance is positive"),
        (lambda: plateau_losses((0.4, 0.0), 0.1), "a covariance is positive"),
        (lambda: plateau_losses((0.1, 0.4), 0.1), "in descending order"),
        (lambda: plateau_losses((0.4, 0.1), 1.5), "inverse_context is 1.5"),
        (lambda: mean_inverse_length(0), "longest is 0"),
        (lambda: ScalarTheory(S, 1 / N, [5.0] * 4), "below where it ends"),
        (lambda: printed_escape_time(0.4, 0.0), "both must be positive"),
        (lambda: PopulationFlow(S, 1 / N, np.ones(2), np.ones((2, 5, 4)), np.ones((2, 5, 4))), "rank is 5"),
        (lambda: PopulationFlow(S, 1 / N, np.ones(2), np.ones((2, 1, 3)), np.ones((2, 1, 3))), r"\[heads, rank, 4\]"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
