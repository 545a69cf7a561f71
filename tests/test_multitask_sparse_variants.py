"""Paper 004 beyond sparse features: noise on them, idempotent H, and softmax under the source-capacity condition."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import probes
from checkpoints import open_run
from models.multitask_sparse import approximate, capacity
from models.multitask_sparse.idempotent import IdempotentFlow, descend, equal_eigenvalues
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig
from models.training import train

# nearly sparse features


def test_without_noise_explicit_prompts_train_like_the_reduced_model():
    setting = {"tasks": 4, "context": 6.0, "data": 40, "init": 0.1, "learning_rate": 0.02}
    explicit = approximate.ApproximateAttention(approximate.ApproximateConfig(noise=0.0, **setting), [3])
    reduced = MultitaskAttention(MultitaskConfig(**setting), [3])
    reduced.frequency = torch.tensor([explicit.describe(0)[1]["frequency"]], dtype=torch.float64)
    for _ in range(30):
        assert explicit.update()["loss"].item() == pytest.approx(reduced.update()["loss"].item(), rel=1e-12)
    diagonal, target = explicit.weights(0)["v"][:, :4].diagonal(), explicit.weights(0)["v"][:, 4]
    torch.testing.assert_close(torch.stack((diagonal, target), 1), reduced.weights(0)["v"])
    assert explicit.weights(0)["v"][0, 1] == 0.1  # never read


@pytest.mark.parametrize("targets", approximate.TARGETS)
def test_prompts_with_noise_have_the_moments_and_targets_that_are_said(targets):
    config = approximate.ApproximateConfig(tasks=3, context=400.0, data=50, noise=0.2, targets=targets, strength=0.7)
    prompts = approximate.draw(config, torch.Generator().manual_seed(0))
    sums = prompts.query.sum(-1)
    expected = 0.7 * (sums if targets == "noisy" else sums.sign())
    own = prompts.query.gather(1, prompts.task[:, None])[:, 0]
    assert ((own.abs() - 1).abs() < 1).all()
    if targets == "noisy":
        torch.testing.assert_close(prompts.target, expected)
    else:
        assert set(prompts.target.abs().tolist()) == {0.7}
    mean = prompts.moments.mean(0) / 401
    square = 0.7**2 * (1 + 3 * 0.04 if targets == "noisy" else 1)
    assert mean[3, 3].item() == pytest.approx(square * 400 / 401, rel=0.03)
    assert mean[:3, :3].trace().item() == pytest.approx(1 + 3 * 0.04, rel=0.03)


def test_the_error_of_explicit_prompts_by_hand():
    v = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    w = torch.tensor([[[3.0], [1.0]]], dtype=torch.float64)
    moments = torch.tensor([[[[2.0, 1.0], [1.0, 4.0]]]], dtype=torch.float64)
    one = torch.tensor([[[1.0]]], dtype=torch.float64)
    prompts = approximate.Prompts(torch.tensor([[0]]), moments, one, torch.tensor([[11.0]], dtype=torch.float64))
    # H w = (7, 7), v . H w = 21, half of (21 - 11)^2
    assert approximate.mean_error(v, w, prompts).tolist() == [50.0]


# idempotent H


def test_the_closed_form_is_the_flow_of_any_start_where_h_is_idempotent_and_not_elsewhere(rng):
    h = equal_eigenvalues(5, 3, 2.0, rng)
    np.testing.assert_allclose(h @ h, 2 * h, atol=1e-12)
    v, w = 0.4 * rng.standard_normal((2, 5))
    w = w if (v + w) @ h @ (v + w) > (v - w) @ h @ (v - w) else -w
    times = np.linspace(0, 3, 30)
    for matrix, exact in ((h, True), (h + np.diag([2.0, 0, 0, 0, 0]), False)):

        def velocity(_, state, matrix=matrix):
            pull = state[:5] @ matrix @ state[5:] - 0.5
            return -pull * np.concatenate((matrix @ state[5:], matrix @ state[:5]))

        flow = solve_ivp(velocity, (0, 3), np.concatenate((v, w)), t_eval=times, rtol=1e-10, atol=1e-12)
        output = np.einsum("it,ij,jt->t", flow.y[:5], matrix, flow.y[5:])
        error = np.abs(IdempotentFlow(matrix, 0.5, v, w, 2.0).modes(times)[:, 0] - output).max()
        assert (error < 1e-7) == exact


def test_one_coordinate_is_the_logistic_function_by_hand():
    h, start = np.array([[2.5]]), np.array([0.2])
    f, v, w = descend(h, 0.5, start, start, 1e-3, 3000)
    t = 1e-3 * np.arange(3000)
    by_hand = 0.5 / (1 + (0.5 / 0.1 - 1) * np.exp(-2 * 2.5 * 0.5 * t))  # f(0) = 2.5 * 0.04 = 0.1, a = 2.5
    np.testing.assert_allclose(IdempotentFlow(h, 0.5, start, start, 2.5).modes(t)[:, 0], by_hand, rtol=1e-12)
    np.testing.assert_allclose(f, by_hand, atol=5e-4)  # the step size of descent
    assert float(v @ h @ w) == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ValueError, match="same side"):
        IdempotentFlow(h, 0.5, start, -start, 2.5)


# the source-capacity condition


def test_variances_begin_at_the_own_feature_and_go_round():
    expected = [[1, 1 / 8, 1 / 27], [1 / 27, 1, 1 / 8], [1 / 8, 1 / 27, 1]]
    torch.testing.assert_close(capacity.variances(3, 3.0), torch.tensor(expected, dtype=torch.float64))


def test_answers_are_those_of_softmax_attention_token_by_token():
    model = capacity.CapacityAttention(capacity.CapacityConfig(tasks=3, spread=1.0, init=0.5), [1])
    weights = model.weights(0)
    drawn = model._draw(4, 2)[0, 2]  # two prompts of the last task
    found = capacity.answers(weights, torch.tensor([2, 2]), drawn)
    for features, answer in zip(drawn, found, strict=True):
        columns = [torch.cat((phi, (phi @ weights["strength"][2])[None])) for phi in features[:-1]]
        columns.append(torch.cat((features[-1], torch.zeros(1, dtype=torch.float64))))
        query = weights["query"] @ features[-1]
        attention = torch.stack([(weights["key"] @ z) @ query for z in columns]).softmax(0)
        mixed = sum(a * z for a, z in zip(attention, columns, strict=True))
        assert answer.item() == pytest.approx((weights["value"][2] @ mixed).item(), rel=1e-12)


def test_long_contexts_answer_as_an_endless_one_does():
    model = capacity.CapacityAttention(capacity.CapacityConfig(tasks=4, spread=0.8, init=0.5), [0])
    weights, task = model.weights(0), torch.arange(4).repeat_interleave(40)
    off = []
    for length in (100, 1000, 10_000):
        drawn = model._draw(length, 40)[0].flatten(0, 1)
        limit = capacity.endless_answers(weights, task, drawn[:, -1], model.variances)
        off.append(((capacity.answers(weights, task, drawn) - limit).square().mean() / limit.square().mean()).item())
    assert off[0] > 3 * off[1] > 9 * off[2]
    assert off[2] < 0.01


@pytest.mark.parametrize("size", [0, 3])
def test_the_endless_loss_is_the_mean_over_queries(size):
    model = capacity.CapacityAttention(capacity.CapacityConfig(tasks=4, size=size, spread=1.0, init=0.5), [0])
    weights, read = model.weights(0), model.config.read
    queries = model._draw(0, 20_000)[0, :, :, 0]
    task = torch.arange(read).repeat_interleave(20_000)
    answer = capacity.endless_answers(weights, task, queries.flatten(0, 1), model.variances)
    gap = answer - (weights["strength"][task] * queries.flatten(0, 1)).sum(-1)
    sampled = (model.probability[:read] * 0.5 * gap.square().reshape(read, -1).mean(-1)).sum()
    spectra, strength = model.variances[:read], model.strength[:, :read]
    learned = (model.probability[:read] * capacity.endless_error(model.parameters, strength, spectra)).sum()
    assert learned.item() == pytest.approx(sampled.item(), rel=0.03)
    squares = (model.variances[read:] * weights["strength"][read:].square()).sum(-1)  # of targets that get the answer 0
    rest = (model.probability[read:] * 0.5 * squares).sum()
    assert model.update()["loss"].item() == pytest.approx((learned + rest).item(), rel=1e-12)


def test_a_finite_context_trains_on_the_error_of_its_own_prompts():
    config = capacity.CapacityConfig(tasks=2, context=5, prompts=3)
    model, twin = capacity.CapacityAttention(config, [0, 1]), capacity.CapacityAttention(config, [0, 1])
    drawn = twin._draw(5, 3)
    expected = capacity.squared_error(twin.parameters, twin.strength, drawn) @ twin.probability
    torch.testing.assert_close(model.update()["loss"], expected)
    targets = (twin.strength[1, 0] * drawn[1, 0, :, -1]).sum(-1)
    gap = capacity.answers(twin.weights(1), torch.zeros(3, dtype=torch.int64), drawn[1, 0]) - targets
    found = capacity.squared_error(twin.parameters, twin.strength, drawn)[1, 0]
    assert found.item() == pytest.approx(0.5 * gap.square().mean().item(), rel=1e-12)


@pytest.mark.parametrize("context", [0, 4])
def test_a_run_goes_on_where_it_stopped_and_its_circuits_are_its_matrices(tmp_path, context):
    def make(seeds):
        return capacity.CapacityAttention(capacity.CapacityConfig(tasks=3, context=context), seeds)

    train(make, [0, 1], tmp_path / "cut", "run", 4, [2], quiet=True)
    train(make, [0, 1], tmp_path / "cut", "run", 8, [2, 6], quiet=True)
    train(make, [0, 1], tmp_path / "whole", "run", 8, [2, 6], quiet=True)
    cut, whole = (open_run(tmp_path / kind / "run-seed1") for kind in ("cut", "whole"))
    np.testing.assert_array_equal(cut.metrics["loss"], whole.metrics["loss"])
    table = probes.measure(cut, probes=["norm"])
    norms = table.loc[table["step"] == 8].set_index("circuit")["value"]
    weights = cut.checkpoint(8)
    assert norms["ov"] == pytest.approx(torch.linalg.norm(weights["value"]).item())
    assert norms["qk"] == pytest.approx(torch.linalg.norm(weights["key"].T @ weights["query"]).item())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: approximate.ApproximateConfig(targets="some"), "one of clean, noisy"),
        (lambda: approximate.ApproximateConfig(data=0), "written out"),
        (lambda: approximate.ApproximateConfig(context=4.5), "whole number"),
        (lambda: capacity.CapacityConfig(tau=1.0), "above 1"),
        (lambda: capacity.CapacityConfig(tasks=5, size=7), "between 2"),
        (lambda: capacity.CapacityConfig(context=-1), "context is -1"),
        (lambda: capacity.CapacityConfig(alpha=0.5), "alpha"),
        (lambda: capacity.CapacityConfig(learning_rate=0.0), "above 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
