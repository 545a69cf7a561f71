"""The linear head: Eq 1 on explicit tokens, prompts by two routes, and SGD against the exact flow."""

from functools import partial

import numpy as np
import pytest
import torch

import probes
from checkpoints import open_run, schedules
from models.linear_icl.model import BLOCKS, LinearICL, LinearICLConfig, exact_theory, loss_and_gradient, printed_theory
from models.linear_icl.task import (
    Prompts,
    PromptStream,
    context_from_tokens,
    context_from_wishart,
    draw_basis,
    draw_tasks,
)
from models.training import train


def test_loss_and_gradient_are_those_of_equation_1_on_explicit_tokens():
    torch.manual_seed(0)
    d, n, count = 3, 5, 4
    w_p = torch.randn(2 * d, 2 * d, dtype=torch.float64, requires_grad=True)
    w_q = torch.randn(2 * d, 2 * d, dtype=torch.float64, requires_grad=True)
    task = torch.randn(count, d, dtype=torch.float64)
    x = torch.randn(count, n, d, dtype=torch.float64)
    query = torch.randn(count, d, dtype=torch.float64)

    losses = []
    for i in range(count):
        top = torch.cat((x[i], query[i][None])).T
        bottom = torch.cat((x[i] * task[i], torch.zeros(1, d, dtype=torch.float64))).T
        z = torch.cat((top, bottom))  # [2 d, N + 1], Eq 4
        out = z + w_p @ (z @ z.T / n) @ w_q @ z  # Eq 1
        losses.append(0.5 * (out[d:, -1] - task[i] * query[i]).square().sum())  # Eq 5
    expected = torch.stack(losses).mean()
    expected.backward()

    blocks = {"p1": w_p[d:, :d], "p2": w_p[d:, d:], "q1": w_q[:d, :d], "q2": w_q[d:, :d]}
    prompts = Prompts((x.mT @ x / n)[None], query[None], task[None])
    loss, gradient = loss_and_gradient({k: b.detach()[None] for k, b in blocks.items()}, prompts, n)
    assert loss[0].item() == pytest.approx(expected.item(), rel=1e-12)
    for name, g in {
        "p1": w_p.grad[d:, :d],
        "p2": w_p.grad[d:, d:],
        "q1": w_q.grad[:d, :d],
        "q2": w_q.grad[d:, :d],
    }.items():
        torch.testing.assert_close(gradient[name][0], g, rtol=1e-10, atol=1e-12)


def test_wishart_and_token_contexts_have_the_same_distribution():
    s = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    count, n = 100_000, 4
    direct = context_from_wishart(s, n, count, torch.Generator().manual_seed(0))
    tokens = context_from_tokens(s, n, count, torch.Generator().manual_seed(1))
    for power in (1, 2, 3):
        a, b = torch.linalg.matrix_power(direct, power), torch.linalg.matrix_power(tokens, power)
        error = (a.std(0) + b.std(0)) / count**0.5
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()
    logdet = [torch.linalg.slogdet(c).logabsdet for c in (direct, tokens)]
    assert torch.quantile(logdet[0], 0.1).item() == pytest.approx(torch.quantile(logdet[1], 0.1).item(), abs=0.05)
    # E[S^2] = (N+1)/N S^2 + Tr S / N S
    second = (direct @ direct).mean(0)
    torch.testing.assert_close(second, torch.diag((n + 1) / n * s**2 + s.sum() / n * s), rtol=0.02, atol=0.01)


def test_tasks_come_in_pairs_whose_odd_moments_vanish():
    tasks = draw_tasks(64, 3, torch.Generator().manual_seed(0))
    assert tasks.shape == (64, 3)
    assert tasks.sum(0).abs().max() < 1e-12
    assert tasks.pow(3).sum(0).abs().max() < 1e-12
    assert draw_tasks(5, 3, torch.Generator().manual_seed(0), paired=False).shape == (5, 3)


def test_the_basis_is_orthogonal():
    basis = draw_basis(4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(basis.T @ basis, torch.eye(4, dtype=torch.float64))


def test_a_stream_put_back_hands_out_the_same_prompts():
    tasks = draw_tasks(8, 2, torch.Generator().manual_seed(0))
    stream = PromptStream((1.0, 0.5), 8, tasks, 4, seed=5)
    for _ in range(PromptStream.BLOCK + 3):  # into the second block
        stream.next()
    place = {key: value.clone() for key, value in stream.state().items()}
    ahead = [stream.next() for _ in range(PromptStream.BLOCK)]
    other = PromptStream((1.0, 0.5), 8, tasks, 4, seed=99)
    other.restore(place)
    for prompt in ahead:
        again = other.next()
        for field in ("covariance", "query", "task"):
            assert torch.equal(getattr(prompt, field), getattr(again, field))


def test_a_context_shorter_than_the_dimension_is_drawn_token_by_token():
    stream = PromptStream((1.0, 0.5, 0.25), 2, None, 4, seed=0)
    assert torch.linalg.matrix_rank(stream.next().covariance).max() == 2
    with pytest.raises(ValueError, match="needs at least d = 3 examples"):
        context_from_wishart(torch.ones(3, dtype=torch.float64), 2, 4, torch.Generator())


def test_the_weights_are_saved_in_the_models_own_coordinates():
    experiment = LinearICL(LinearICLConfig(batch=8), [0])
    for _ in range(5):
        experiment.update()
    basis = torch.tensor(experiment.describe(0)[1]["mode_basis"], dtype=torch.float64)
    for name in BLOCKS:
        torch.testing.assert_close(basis.T @ experiment.weights(0)[name] @ basis, experiment.blocks[name][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eigenvalues": (1.0, 0.0)}, "a covariance is positive"),
        ({"eigenvalues": (1.0, float("nan"))}, "a covariance is positive"),
        ({"context": 0}, "context is 0: at least one example"),
        ({"init": -1.0}, "init is -1"),
        ({"learning_rate": 0.0}, "learning_rate is 0"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        LinearICLConfig(**change)
    with pytest.raises(ValueError, match="count is 3: a positive, even number"):
        LinearICL(LinearICLConfig(tasks=3), [0])


# one worker trains these once
together = pytest.mark.xdist_group("linear-icl")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three seeds of the quick setting at N = 32 and at N = 8."""
    directory = tmp_path_factory.mktemp("runs")
    found = {}
    for context, steps in ((32, 3200), (8, 4000)):
        make = partial(LinearICL, LinearICLConfig(context=context))
        schedule = schedules.log_spaced(steps, 100)
        paths = train(make, range(3), directory, f"N{context}", steps, schedule, quiet=True)
        found[context] = [open_run(path) for path in paths]
    return found


@together
@pytest.mark.slow
def test_sgd_follows_the_exact_flow_mode_by_mode(trained):
    for run in trained[32]:
        modes = probes.align(run, exact_theory(run.config, run.theory)).modes
        # the jitter of SGD about its average: each seed is averaged over the last fifth of its run
        np.testing.assert_allclose(modes["end_ratio"], 1, atol=0.02)
        np.testing.assert_allclose(modes["half_time_ratio"], 1, atol=0.05)
        assert modes["r2"].min() > 0.99


@together
@pytest.mark.slow
def test_at_short_context_sgd_sides_with_the_exact_flow_against_the_printed_form(trained):
    exact = [probes.align(run, exact_theory(run.config, run.theory)).modes for run in trained[8]]
    printed = [probes.align(run, printed_theory(run.config)).modes for run in trained[8]]
    third = np.array([modes["half_time_ratio"].iloc[2] for modes in exact])
    assert abs(third.mean() - 1) < 0.05
    assert np.mean([modes["half_time_ratio"].iloc[2] for modes in printed]) > 1.3
