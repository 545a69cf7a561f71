"""Merged weights (paper 002): limits, flow, prediction errors against sampling, and training."""

from functools import partial

import numpy as np
import pytest
import torch

import probes
from checkpoints import open_run, schedules
from models.linear_icl.task import Prompts as CovariancePrompts
from models.merged_weights.errors import (
    corrected_bound,
    covariate_shift_slope,
    exponential_slope,
    linear_law,
    mean_error,
    prediction_error,
    printed_bound,
    printed_lengths,
    quadratic_law,
    shifted_query_error,
)
from models.merged_weights.model import MergedWeights, MergedWeightsConfig, loss_and_gradient, merged_flow
from models.merged_weights.rows import MergedWeightsWithRows, rows_loss_and_gradient
from models.merged_weights.task import draw_merged_prompts
from models.merged_weights.theory import MergedFlow, gamma, largest_init, moments_of_exponential, moments_of_fixed
from models.multi_head.task import Prompts
from models.training import train

S, N = (1.0, 0.7, 0.5, 0.3, 0.2), 20


def balanced_start(rng, d=5, init=0.1):
    a = rng.standard_normal((d, d))
    return init, init * a @ a.T / np.linalg.norm(a @ a.T)


def squared_errors(rng, law_of_y, test_context, draws, query=None):
    """(y_hat - y_q)^2 of the trained head on prompts drawn token by token; law_of_y(x, rng) gives the labels."""
    s = np.array(S)
    x = rng.standard_normal((draws, test_context + 1, len(s))) * np.sqrt(s)
    if query is not None:
        x[:, -1] = query
    y = law_of_y(x, rng)
    mean = (x[:, :-1] * y[:, :-1, None]).mean(1)
    return ((x[:, -1] / gamma(S, N) * mean).sum(-1) - y[:, -1]) ** 2


def close_to_the_mean(expected, sample):
    assert expected == pytest.approx(sample.mean(), abs=4 * sample.std() / len(sample) ** 0.5)


def test_check_values_of_gamma_and_the_final_value():
    np.testing.assert_allclose(gamma(S, N), [1.185, 0.87, 0.66, 0.45, 0.345])
    flow = MergedFlow(moments_of_fixed(S, N), *balanced_start(np.random.default_rng(0)))
    assert flow.final_value == pytest.approx(2.05023, abs=5e-6)
    np.testing.assert_allclose(flow.fixed_point, 1 / gamma(S, N))


def test_the_flow_converges_to_the_limit_of_theorem_4_1(rng):
    flow = MergedFlow(moments_of_fixed(S, N), *balanced_start(rng))
    value, key_query = (part[0] for part in flow.weights([5000.0]))
    root = (1 / gamma(S, N) ** 2).sum() ** 0.25
    assert value == pytest.approx(root, abs=2e-9)
    np.testing.assert_allclose(key_query, np.diag(1 / gamma(S, N)) / root, atol=2e-9)
    assert flow.loss([5000.0])[0] == pytest.approx(flow.final_loss, rel=1e-9)


def test_what_was_balanced_stays_so_and_what_was_not_ends_elsewhere(rng):
    value, key_query = balanced_start(rng)
    flow = MergedFlow(moments_of_fixed(S, N), value, key_query)
    np.testing.assert_allclose(flow.conserved([0.0, 3.0, 30.0, 300.0]), 0, atol=1e-8)
    other = MergedFlow(moments_of_fixed(S, N), 1.5, key_query)
    np.testing.assert_allclose(other.conserved([300.0]), 1.5**2 - 0.1**2, rtol=1e-6)
    assert other.weights([5000.0])[0][0] == pytest.approx(other.final_value, rel=1e-8)
    np.testing.assert_allclose(other.modes([5000.0])[0], flow.fixed_point, rtol=1e-8)


@pytest.mark.parametrize("moments", [moments_of_fixed, moments_of_exponential])
def test_the_velocity_is_minus_the_gradient_of_the_loss(rng, moments):
    flow = MergedFlow(moments(S, 7), 0.8, rng.standard_normal((5, 5)))

    def loss(state):
        return flow.loss_of(state[:1], state[1:].reshape(1, 5, 5))[0]

    bumps = np.eye(26) * 1e-6
    numeric = [(loss(flow.start + b) - loss(flow.start - b)) / 2e-6 for b in bumps]
    np.testing.assert_allclose(flow.velocity(flow.start), -np.array(numeric), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("covariance", ["fixed", "exponential"])
def test_the_expected_loss_agrees_with_sampling_prompts(rng, covariance):
    means = (0.6, 0.3)
    flow = MergedFlow(
        {"fixed": moments_of_fixed, "exponential": moments_of_exponential}[covariance](means, 4),
        0.7,
        np.array([[0.9, 0.3], [-0.2, 1.1]]),
    )
    weights = {"value": torch.tensor([0.7]).double(), "key_query": torch.tensor(flow.start[1:].reshape(1, 2, 2))}
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(100):
        drawn = draw_merged_prompts(torch.tensor(means).double(), 4, covariance, 5000, generator)
        batch = Prompts(drawn.correlation[None], drawn.query[None], drawn.answer[None])
        losses.append(loss_and_gradient(weights, batch)[0].item())
    expected = flow.loss([0.0])[0]
    assert expected == pytest.approx(np.mean(losses), abs=4 * np.std(losses) / 10)


def test_half_times_are_where_each_mode_is_halfway(rng):
    flow = MergedFlow(moments_of_fixed(S, N), *balanced_start(rng))
    assert (np.diff(flow.half_times) > 0).all()
    np.testing.assert_allclose(np.diag(flow.modes(flow.half_times)), flow.fixed_point / 2, rtol=2e-3)


def test_the_error_formula_agrees_with_sampling_for_linear_noisy_and_nonlinear_prompts(rng):
    w, v, m, draws = np.array([1.0, -1.0, 0.5, 2.0, 0.3]), np.array([0.6, 0.0, 0.4, 0.2, 0.5]), 15, 100_000
    sample = squared_errors(rng, lambda x, _: x @ w, m, draws)
    close_to_the_mean(prediction_error(S, N, m, linear_law(S, w)), sample)
    sample = squared_errors(rng, lambda x, rng: x @ w + 0.5 * rng.standard_normal(x.shape[:2]), m, draws)
    close_to_the_mean(prediction_error(S, N, m, linear_law(S, w, noise=0.5)), sample)
    sample = squared_errors(rng, lambda x, _: x @ w + (x @ v) ** 2, m, draws)
    close_to_the_mean(prediction_error(S, N, m, quadratic_law(S, w, v)), sample)


def test_the_noiseless_formula_by_hand():
    # d = 1, Lambda = 1, N = M = 1: Gamma = 3, error w^2 (2/9 + 4/9)
    assert prediction_error([1.0], 1, 1, linear_law([1.0], [2.0])) == pytest.approx(4 * 6 / 9)
    assert mean_error([1.0], 1, 1) == pytest.approx(6 / 9)


def test_a_query_of_another_distribution_costs_what_the_general_formula_says(rng):
    w, m, draws = np.array([1.0, -1.0, 0.5, 2.0, 0.3]), 15, 100_000
    law = linear_law(S, w)
    assert shifted_query_error(S, N, m, law, np.diag(S)) == pytest.approx(prediction_error(S, N, m, law), rel=1e-12)
    root = rng.standard_normal((5, 5))
    query = rng.standard_normal((draws, 5)) @ root.T
    sample = squared_errors(rng, lambda x, _: x @ w, m, draws, query)
    close_to_the_mean(shifted_query_error(S, N, m, law, root @ root.T), sample)


def test_the_mean_error_is_the_average_over_tasks(rng):
    tasks = rng.standard_normal((4000, 5))
    errors = np.array([prediction_error(S, N, 12, linear_law(S, w)) for w in tasks])
    close_to_the_mean(mean_error(S, N, 12), errors)


def test_the_printed_bound_fails_for_large_covariances_and_the_corrected_one_does_not():
    large = tuple(20 * s for s in S)
    assert mean_error(large, 1000, 1e9) > printed_bound(large, 1000, 1e9)
    for scale in (0.01, 1.0, 20.0, 1e3):
        for n, m in ((5, 5), (50, 1e6), (1000, 1e9)):
            s = tuple(scale * x for x in S)
            assert mean_error(s, n, m) <= corrected_bound(s, n, m)
    context, test_context = printed_lengths(large, 0.1)
    assert mean_error(large, context, test_context) > 0.1


def test_slopes_under_shift_and_their_printed_limits():
    w = (1.0, -1.0, 0.5, 2.0, 0.3)
    assert covariate_shift_slope(S, 1e9, w, 2.0) == pytest.approx(4, rel=1e-6)
    assert covariate_shift_slope(S, N, w, 2.0) < 3.5
    assert exponential_slope(3, 1e9, joint=False) == pytest.approx(1 / 3, rel=1e-6)
    assert exponential_slope(3, 1e9, joint=True) == pytest.approx(2 / 3, rel=1e-6)
    shrink = moments_of_exponential([1.0] * 3, 10)
    assert exponential_slope(3, 10, joint=False) == pytest.approx((shrink.gain / np.diag(shrink.cost))[0])


def test_gradients_are_those_of_equation_3_3_on_explicit_tokens():
    torch.manual_seed(0)
    d, n, count = 3, 5, 4
    w_pv = torch.randn(d + 1, d + 1, dtype=torch.float64, requires_grad=True)
    w_kq = torch.randn(d + 1, d + 1, dtype=torch.float64, requires_grad=True)
    x, w = torch.randn(count, n + 1, d, dtype=torch.float64), torch.randn(count, d, dtype=torch.float64)
    y = (x * w[:, None]).sum(-1)
    losses = []
    for i in range(count):
        e = torch.cat((x[i].T, torch.cat((y[i, :n], torch.zeros(1, dtype=torch.float64)))[None]))  # Eq 3.4
        out = e + w_pv @ e @ (e.T @ w_kq @ e) / n  # Eq 3.3
        losses.append(0.5 * (out[d, n] - y[i, n]) ** 2)
    expected = torch.stack(losses).mean()
    expected.backward()
    weights = {"value": w_pv[d, d], "key_query": w_kq[:d, :d], "value_row": w_pv[d, :d], "key_row": w_kq[d, :d]}
    weights = {k: t.detach()[None] for k, t in weights.items()}
    prompts = CovariancePrompts((x[:, :n].mT @ x[:, :n] / n)[None], x[:, n][None], w[None])
    loss, gradient = rows_loss_and_gradient(weights, prompts, n)
    assert loss[0].item() == pytest.approx(expected.item(), rel=1e-12)
    wanted = {
        "value": w_pv.grad[d, d],
        "key_query": w_kq.grad[:d, :d],
        "value_row": w_pv.grad[d, :d],
        "key_row": w_kq.grad[d, :d],
    }
    for name, g in wanted.items():
        torch.testing.assert_close(gradient[name][0], g, rtol=1e-10, atol=1e-12)


def test_without_rows_both_gradients_agree():
    model = MergedWeightsWithRows(MergedWeightsConfig(batch=8, init=1.0), [0])
    drawn = model.streams[0].next()
    full = CovariancePrompts(drawn.covariance[None], drawn.query[None], drawn.task[None])
    beta = (drawn.covariance * drawn.task[:, None]).sum(-1)
    short = Prompts(beta[None], drawn.query[None], (drawn.query * drawn.task).sum(-1)[None])
    loss, gradient = rows_loss_and_gradient(model.blocks, full, 20)
    other, slopes = loss_and_gradient(model.blocks, short)
    torch.testing.assert_close(loss, other)
    for name in slopes:
        torch.testing.assert_close(gradient[name], slopes[name])


@pytest.mark.parametrize("experiment", [MergedWeights, MergedWeightsWithRows])
def test_put_back_to_a_state_it_goes_on_as_before(experiment):
    config = MergedWeightsConfig(batch=4, covariance="exponential", learning_rate=0.001)
    model = experiment(config, [0, 3])
    for _ in range(70):
        model.update()
    states = [{k: v.clone() for k, v in model.state(i).items()} for i in range(2)]
    ahead = [model.update()["loss"] for _ in range(5)]
    other = experiment(config, [0, 3])
    other.restore(states)
    assert torch.equal(torch.stack(ahead), torch.stack([other.update()["loss"] for _ in range(5)]))


def test_a_run_is_aligned_with_its_flow_from_the_first_checkpoint(tmp_path):
    config = MergedWeightsConfig(learning_rate=0.1, batch=256)
    paths = train(
        partial(MergedWeights, config), [0], tmp_path, "run", 1000, schedules.log_spaced(1000, 40), quiet=True
    )
    run = open_run(paths[0])
    found = probes.align(run, merged_flow(run.config, run.theory, run.checkpoint(0)))
    np.testing.assert_allclose(found.modes["half_time_ratio"], 1, atol=0.1)
    np.testing.assert_allclose(found.modes["end_ratio"], 1, atol=0.05)
    assert found.modes["r2"].min() > 0.98
    table = probes.measure(run)
    assert table[table["probe"] == "norm"]["value"].notna().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MergedWeightsConfig(eigenvalues=(1.0, 0.0)), "a covariance is positive"),
        (lambda: MergedWeightsConfig(context=0), "context is 0"),
        (lambda: MergedWeightsConfig(covariance="uniform"), "one of fixed, exponential is expected"),
        (lambda: MergedWeightsConfig(batch=0), "batch is 0"),
        (lambda: MergedWeightsConfig(init=-1.0), "init is -1"),
        (lambda: MergedFlow(moments_of_fixed(S, N), 0.1, np.eye(4)), r"\(5, 5\), one row and column per mode"),
        (lambda: prediction_error(S, N, 0, linear_law(S, [1.0] * 5)), "context is 0"),
        (lambda: printed_lengths(S, 0.0), "error is 0"),
        (lambda: largest_init([-1.0], N), "a covariance is positive"),
        (lambda: exponential_slope(0, N, joint=True), "a covariance is positive"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
