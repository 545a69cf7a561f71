"""The multi-head model: Eq 1 on explicit tokens, prompts by two routes, and training through the loop."""

from functools import partial

import numpy as np
import pytest
import torch

import probes
from checkpoints import open_run, schedules
from models.multi_head.model import (
    WEIGHTS,
    MultiHead,
    MultiHeadConfig,
    draw_weights,
    expected_loss,
    loss_and_gradient,
    population_flow,
)
from models.multi_head.presets import PRESETS
from models.multi_head.softmax import SoftmaxMultiHead, softmax_loss_and_gradient
from models.multi_head.task import Tokens, draw_prompts, draw_tokens, every_prefix, prompts_from_tokens
from models.multi_head.theory import plateau_losses
from models.streams import next_of_all
from models.training import train


def attention(weights, tokens, softmax):
    """Eq 1 on the matrix X of tokens, head by head; the answer to the query."""
    x, y = tokens.x, tokens.y.clone()
    y[:, -1] = 0
    matrix = torch.cat((x, y[..., None]), -1).mT  # [batch, D + 1, N + 1]
    context, d = x.shape[1] - 1, x.shape[2]
    out = torch.zeros(len(x), dtype=torch.float64)
    for value, key, query in zip(*(weights[name] for name in WEIGHTS), strict=True):
        pad = torch.zeros(len(key), 1, dtype=torch.float64)
        scores = (torch.cat((key, pad), 1) @ matrix).mT @ (torch.cat((query, pad), 1) @ matrix)[..., -1:]
        mixed = scores.softmax(1) if softmax else scores / context
        out = out + value * (matrix[:, d:] @ mixed).squeeze()
    return out


@pytest.mark.parametrize("softmax", [False, True])
def test_loss_and_gradient_are_those_of_equation_1_on_explicit_tokens(softmax):
    generator = torch.Generator().manual_seed(0)
    config = MultiHeadConfig(heads=3, rank=2, init=3.0)
    weights = {k: w.requires_grad_() for k, w in draw_weights(config, generator).items()}
    tokens = draw_tokens(torch.tensor(config.eigenvalues, dtype=torch.float64), 5, 6, generator)
    expected = (tokens.y[:, -1] - attention(weights, tokens, softmax)).square().mean()
    expected.backward()
    one_seed = {k: w.detach()[None] for k, w in weights.items()}
    batch = Tokens(tokens.x[None], tokens.y[None])
    loss, gradient = (
        softmax_loss_and_gradient(one_seed, batch)
        if softmax
        else loss_and_gradient(one_seed, prompts_from_tokens(batch))
    )
    assert loss[0].item() == pytest.approx(expected.item(), rel=1e-12)
    for name in WEIGHTS:
        torch.testing.assert_close(gradient[name][0], weights[name].grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("context", [2, 7])
def test_prompts_drawn_directly_and_token_by_token_have_the_same_distribution(context):
    s, count = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64), 200_000
    direct = draw_prompts(s, context, count, torch.Generator().manual_seed(0))
    tokens = prompts_from_tokens(draw_tokens(s, context, count, torch.Generator().manual_seed(1)))

    def statistics(p):
        beta, x, y = p.correlation, p.query, p.answer[:, None]
        second = (beta[:, :, None] * beta[:, None]).flatten(1)
        return torch.cat((beta, second, beta.pow(4), x * y * beta, x.square() * beta.square(), y.square()), 1)

    a, b = statistics(direct), statistics(tokens)
    error = ((a.var(0) + b.var(0)) / count).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()


def test_every_prefix_by_hand():
    tokens = Tokens(torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64), torch.tensor([3.0, 6.0, 12.0]).double())
    prompts = every_prefix(tokens)
    assert prompts.correlation.flatten().tolist() == [3, 7.5]
    assert prompts.query.flatten().tolist() == [2, 4]
    assert prompts.answer.tolist() == [6, 12]


@pytest.mark.parametrize("next_token", [False, True])
def test_the_expected_loss_is_the_mean_of_the_loss_over_prompts(next_token):
    config = MultiHeadConfig(init=2.5, heads=3, context=6, next_token=next_token, batch=2000)
    model = MultiHead(config, [0])
    expected = expected_loss(model.blocks, model.eigenvalues, model.second)[0].item()
    sampled = np.array([loss_and_gradient(model.blocks, next_of_all(model.streams))[0].item() for _ in range(64)])
    assert expected == pytest.approx(sampled.mean(), abs=4 * sampled.std(ddof=1) / 8)


def test_the_weights_are_saved_in_the_models_own_coordinates():
    model = MultiHead(MultiHeadConfig(batch=8, rank=2), [0])
    model.update()
    basis = torch.tensor(model.describe(0)[1]["mode_basis"], dtype=torch.float64)
    for name in ("key", "query"):
        torch.testing.assert_close(model.weights(0)[name] @ basis, model.blocks[name][0])


@pytest.mark.parametrize("experiment", [MultiHead, SoftmaxMultiHead])
def test_put_back_to_a_state_it_goes_on_as_before(experiment):
    model = experiment(MultiHeadConfig(batch=4), [0, 3])
    for _ in range(70):
        model.update()
    states = [{k: v.clone() for k, v in model.state(i).items()} for i in range(2)]
    ahead = [model.update()["loss"] for _ in range(5)]
    other = experiment(MultiHeadConfig(batch=4), [0, 3])
    other.restore(states)
    torch.testing.assert_close(
        torch.stack(ahead), torch.stack([other.update()["loss"] for _ in range(5)]), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eigenvalues": (0.4, 0.0)}, "a covariance is positive"),
        ({"rank": 5}, "rank is 5: keys and queries of 4 dimensions have rank 1 to 4"),
        ({"rank": 0}, "rank is 0"),
        ({"heads": 0}, "heads is 0"),
        ({"context": 0}, "context is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"init": 0.0}, "init is 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ],
)
def test_impossible_settings_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadConfig(**change)


def test_softmax_knows_no_next_token_loss():
    with pytest.raises(ValueError, match="whole prompts only"):
        SoftmaxMultiHead(MultiHeadConfig(next_token=True), [0])


def test_a_run_is_aligned_and_measured_like_any_other(tmp_path):
    config = MultiHeadConfig(batch=64)
    paths = train(partial(MultiHead, config), [0], tmp_path, "run", 200, schedules.log_spaced(200, 20), quiet=True)
    run = open_run(paths[0])
    found = probes.align(run, population_flow(run.config, run.theory, run.checkpoint(0)))
    assert found.modes["half_time_ratio"].iloc[0] == pytest.approx(1, abs=0.15)
    assert len(found.conserved) == 8 * len(run.steps)
    assert found.conserved_drift < 0.1
    table = probes.measure(run)
    assert sorted(table["head"].unique()) == [0, 1, 2, 3]
    assert set(table[table["probe"] == "effective_rank"]["value"].round(9)) == {1.0}


@pytest.mark.slow
def test_minibatch_training_ends_within_two_percent_of_the_last_plateau_in_every_seed(tmp_path):
    last = plateau_losses((0.4, 0.3, 0.2, 0.1), 1 / 31)[-1]
    for path in PRESETS["quick"].train(range(3), tmp_path, "multi-head", quiet=True):
        assert open_run(path).metrics["expected_loss"].iloc[-400:].mean() == pytest.approx(last, rel=0.02)
