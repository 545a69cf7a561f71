"""The two theories of paper 000: check values, fixed points by integration, and where they part."""

import numpy as np
import pytest

import probes
from models.linear_icl.theory import ExactTheory, PrintedTheory, check_setting

S = [1, 0.5, 0.25, 0.125]


def test_check_values_of_the_printed_form():
    theory = PrintedTheory(S, 32, 1e-3)
    np.testing.assert_allclose(theory.fixed_point, [0.91756, 1.74150, 3.16049, 5.33333], rtol=1e-5)
    assert theory.loss([1e5])[0] == pytest.approx(0.120599, rel=1e-5)
    np.testing.assert_allclose(PrintedTheory(S, 128, 1e-3).half_times, [3.44, 15.1, 65.8, 284], rtol=2e-3)


def test_check_values_of_the_exact_fixed_point_and_loss():
    theory = ExactTheory(S, 32, 1e-3)
    np.testing.assert_allclose(theory.fixed_point, [0.90259, 1.74958, 3.34191, 6.23905], rtol=1e-5)
    assert theory.final_loss == pytest.approx(0.114332, rel=1e-5)


def test_the_flow_arrives_at_the_fixed_point_and_the_final_loss():
    theory = ExactTheory(S, 32, 1e-3)
    np.testing.assert_allclose(theory.modes([20000.0])[0], theory.fixed_point, rtol=1e-6)
    assert theory.loss([20000.0])[0] == pytest.approx(theory.final_loss, rel=1e-8)


def test_the_velocity_is_minus_the_gradient_of_the_loss(rng):
    theory = ExactTheory(S, 7, 1e-2, task_power=[1.3, 0.8, 1.1, 0.6])
    state, h = rng.standard_normal(8), 1e-6
    bumps = np.eye(8) * h
    numeric = [
        (theory.loss_of(*np.split(state + b, 2)) - theory.loss_of(*np.split(state - b, 2))) / (2 * h) for b in bumps
    ]
    np.testing.assert_allclose(theory._velocity(0.0, state), -np.array(numeric), rtol=1e-6)


def test_the_expected_loss_agrees_with_sampling_prompts(rng):
    theory = ExactTheory([1, 0.5, 0.25], 6, 1e-3)
    p, q, n, s = np.array([0.5, 0.8, 1.1]), np.array([0.7, 0.9, 1.0]), 6, theory.eigenvalues
    draws = 200_000
    x = rng.standard_normal((draws, n, 3)) * np.sqrt(s)
    query = rng.standard_normal((draws, 3)) * np.sqrt(s)
    task = rng.standard_normal((draws, 3))
    covariance = np.einsum("kni,knj->kij", x, x) / n
    answer = p * task * np.einsum("kij,kj->ki", covariance, q * query)
    loss = 0.5 * ((answer - task * query) ** 2).sum(-1)
    assert theory.loss_of(p, q) == pytest.approx(loss.mean(), abs=4 * loss.std() / np.sqrt(draws))


def test_at_short_context_the_third_half_time_is_90_where_the_printed_form_says_61():
    assert ExactTheory([1, 0.5, 0.25], 8, 1e-3).half_times[2] == pytest.approx(90, rel=0.01)
    assert PrintedTheory([1, 0.5, 0.25], 8, 1e-3).half_times[2] == pytest.approx(61, rel=0.01)


def test_the_two_agree_as_the_context_grows():
    gap = [
        np.abs(ExactTheory(S, n, 1e-3).fixed_point / PrintedTheory(S, n, 1e-3).fixed_point - 1).max()
        for n in (8, 32, 128, 512)
    ]
    assert gap == sorted(gap, reverse=True)
    assert gap[-1] < 0.02


def test_the_exact_form_equals_the_printed_one_for_an_isotropic_covariance():
    exact, printed = ExactTheory([0.5] * 3, 8, 1e-3), PrintedTheory([0.5] * 3, 8, 1e-3)
    np.testing.assert_allclose(exact.fixed_point, printed.fixed_point, rtol=1e-12)
    times = np.linspace(0, 100, 40)
    np.testing.assert_allclose(exact.modes(times), printed.modes(times), rtol=1e-6)
    np.testing.assert_allclose(exact.loss(times), printed.loss(times), rtol=1e-6)


def test_a_weak_mode_is_never_learned_and_the_flow_knows_it():
    theory = ExactTheory([1, 0.5, 0.25, 0.01], 4, 1e-3)
    assert theory.learned.tolist() == [True, True, True, False]
    a = theory.modes([3e4])[0]
    np.testing.assert_allclose(a, theory.fixed_point, atol=1e-4)
    assert np.isinf(theory.half_times[3])
    assert theory.loss([3e4])[0] == pytest.approx(theory.final_loss, rel=1e-4)


def test_the_total_is_conserved_and_a_single_mode_is_not():
    p, q = np.array([0.3, 0.2, 0.1]), np.array([0.1, 0.15, 0.3])
    theory = ExactTheory([1, 0.5, 0.25], 8, 1e-3, p_start=p, q_start=q)
    times = np.array([0.0, 5, 50, 500])
    np.testing.assert_allclose(theory.conserved(times), (p**2 - q**2).sum(), atol=1e-7)
    at_p, at_q = theory.blocks(times)
    assert np.abs(np.diff(at_p**2 - at_q**2, axis=0)).max() > 1e-3


def test_loss_half_times_are_where_each_mode_has_brought_half_of_its_loss():
    theory = PrintedTheory([0.5], 64, 1e-3)
    times = np.linspace(0, 100, 200001)
    assert probes.half_time(theory.loss(times), times) == pytest.approx(theory.loss_half_times[0], rel=1e-4)


@pytest.mark.parametrize("theory", [PrintedTheory, ExactTheory])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, -0.5], 8, 1e-3), "a covariance is positive"),
        (([1, 0.5], 0, 1e-3), "context is 0: at least one example"),
        (([1, 0.5], 8, 0.0), "init is 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(theory, arguments, message):
    with pytest.raises(ValueError, match=message):
        theory(*arguments)


def test_tasks_of_other_power_move_the_fixed_point_and_the_flow_arrives_there():
    theory = ExactTheory([1, 0.5, 0.25], 16, 1e-3, task_power=[0.4, 1.5, 0.9])
    np.testing.assert_allclose(theory.modes([5000.0])[0], theory.fixed_point, rtol=1e-6)
    assert theory.loss([5000.0])[0] == pytest.approx(theory.final_loss, rel=1e-8)
    assert not np.allclose(theory.fixed_point, ExactTheory([1, 0.5, 0.25], 16, 1e-3).fixed_point, rtol=1e-2)


def test_slow_tasks_and_modes_at_the_edge_of_being_learned_have_finite_half_times():
    assert np.isfinite(ExactTheory([1, 0.5], 32, 1e-3, task_power=[0.05, 0.05]).half_times).all()
    edge = ExactTheory([1, 0.5, 0.25, 0.035], 8, 1e-3)
    assert edge.learned.all()
    assert np.isfinite(edge.half_times).all()
    assert np.isinf(ExactTheory([1, 0.5], 8, 1e-3, task_power=[0, 0]).half_times).all()


def test_half_times_are_exact_for_a_large_start_too():
    theory = PrintedTheory([1, 0.5], 16, 0.1)
    np.testing.assert_allclose(np.diag(theory.modes(theory.half_times)), theory.fixed_point / 2, rtol=1e-10)
    exact = ExactTheory([1, 0.5], 16, 0.1)
    np.testing.assert_allclose(np.diag(exact.modes(exact.half_times)), exact.fixed_point / 2, rtol=1e-4)
    with pytest.raises(ValueError, match="there is no half-time"):
        _ = PrintedTheory([1, 0.5], 8, 5.0).half_times


def test_times_may_repeat_or_be_zero_but_must_be_times():
    theory = ExactTheory([1, 0.5], 16, 1e-3)
    np.testing.assert_allclose(theory.modes([0.0]), [[1e-3, 1e-3]])
    twice = theory.modes([1.0, 1.0, 2.0])
    np.testing.assert_array_equal(twice[0], twice[1])
    assert (twice[2] > twice[1]).all()
    assert PrintedTheory([1, 0.5], 16, 1e-3).conserved([0.0, 1.0]).tolist() == [[0], [0]]
    for bad in ([], [np.nan], [-1.0], [2.0, 1.0]):
        with pytest.raises(ValueError, match="times must not be empty"):
            theory.modes(bad)
    for context in (1.5, float("nan")):
        with pytest.raises(ValueError, match="at least one example"):
            check_setting([1.0], context, 1e-3)


def test_half_times_follow_the_actual_start():
    late = ExactTheory([1, 0.5], 16, 0.6, p_start=[0.03, 0.03], q_start=[0.03, 0.03])
    early = ExactTheory([1, 0.5], 16, 0.03**2)
    np.testing.assert_allclose(late.half_times, early.half_times, rtol=1e-3)
    assert ExactTheory([1, 0.5], 16, 0.6).half_times[0] == 0  # it starts beyond half


def test_p_and_q_part_at_every_context_length_and_the_flow_ends_there():
    for context, printed in ((8, [1.60, 1.13, 0.80]), (128, [1.63, 1.16, 0.82])):
        theory = ExactTheory([1, 0.5, 0.25], context, 1e-3)
        p, q = theory.fixed_blocks
        np.testing.assert_allclose(p / q, printed, atol=0.006)
        for end, block in zip(theory.blocks([20000.0]), (p, q), strict=True):
            np.testing.assert_allclose(end[0], block, rtol=1e-6)
        assert theory.loss_of(p, q) == pytest.approx(theory.final_loss, rel=1e-12)
    uneven = ExactTheory(S, 8, 1e-3, [1, 0.8, 1.3, 1], [0.1, 0.2, 0.3, 0.1], [0.03, 0.05, 0.4, 0.1])
    np.testing.assert_allclose(uneven.blocks([50000.0])[0][0], uneven.fixed_blocks[0], atol=1e-4)


def test_the_slowest_relaxation_is_that_of_the_balance_of_p_and_q():
    theory = ExactTheory([1, 0.5, 0.25], 128, 1e-3)
    assert theory.relaxation_rates[0] == pytest.approx(0.0067, rel=0.01)
    late = theory.blocks([1500.0, 1600.0])[0][:, 0] - theory.fixed_blocks[0][0]
    assert np.log(late[0] / late[1]) / 100 == pytest.approx(theory.relaxation_rates[0], rel=0.02)
