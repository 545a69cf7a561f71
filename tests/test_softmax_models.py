"""Softmax variants of papers 003 and 004 written out token by token, and resumed; Adam of many seeds beside torch's."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import binom

from checkpoints import open_run
from models.adam_of_seeds import AdamConfig, AdamOfSeeds
from models.depth_and_context import softmax as deep
from models.depth_and_context.model import draw_batch
from models.depth_and_context.task import spectrum_for
from models.multitask_sparse import softmax as sparse
from models.multitask_sparse.task import PowerLaw, power_law_tasks, prompt
from models.training import train


def test_adam_of_seeds_is_torchs_own():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    ours = AdamOfSeeds({"w": start}, AdamConfig(0.01, weight_decay=0.1))
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
    for _ in range(5):
        gradient = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
        ours.update({"w": gradient})
        theirs.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(ours.parameters["w"], theirs.detach(), rtol=1e-12, atol=1e-14)


def test_the_sparse_answer_is_that_of_softmax_over_every_prompt_written_out():
    config = sparse.SoftmaxConfig(tasks=3, context=4.0, strength=0.7, inner=2)
    model = sparse.SoftmaxAttention(config, [0])
    tasks = power_law_tasks(PowerLaw(1.8), 3, 4.0, 0.7)
    w = model.weights(0)
    big_v = torch.cat((torch.diag(w["value"][:, 0]), w["value"][:, 1:]), 1)
    keys = torch.cat((w["key"], w["target_key"][None])).T  # [inner, features and target]
    queries = torch.cat((w["query"], torch.zeros(1, 2, dtype=torch.float64))).T
    for task in range(3):
        squares = []
        for signs in itertools.product((-1.0, 1.0), repeat=5):
            phi = torch.as_tensor(prompt(tasks, task, np.array(signs)))
            attention = ((keys @ phi).T @ (queries @ phi[:, -1])).softmax(0)
            output = (big_v @ phi @ attention)[task]
            squares.append((output - 0.7 * signs[-1]) ** 2)
        found = (model.sign_weights[task] * (model.outputs(model.adam.parameters)[0, task] - 0.7).square()).sum()
        assert found.item() == pytest.approx(torch.stack(squares).mean().item(), rel=1e-10)


def test_means_of_signs_have_the_moments_of_the_binomial_law():
    values, weights = sparse.sign_means(np.array([1.0, 3.0, 50.0]))
    for row, psi in enumerate((1, 3, 50)):
        x, w = values[row].numpy(), weights[row].numpy()
        n = np.arange(psi + 1)
        law = binom.pmf(n, psi, 0.5)
        for power in (0, 1, 2, 3, 4, 6):
            assert w @ x**power == pytest.approx(law @ ((2 * n - psi) / psi) ** power, abs=1e-12)


def test_deep_softmax_is_the_formula_token_by_token():
    config = deep.SoftmaxConfig(data="rotated", dimension=3, depth=2, context=4, tests=2, batch=1, stream=5, hidden=6)
    model = deep.SoftmaxLayers(config, [3])
    parameters = {name: value + 0.1 for name, value in model.adam.parameters.items()}  # w_2 starts at zero
    spectrum = spectrum_for("rotated", 3, config.capacity, config.source)
    contexts = draw_batch(config, spectrum, [torch.Generator().manual_seed(1)])
    x, tests, beta = contexts.inputs[0, 0].float(), contexts.tests[0, 0].float(), contexts.task[0, 0].float()
    p = {name: value[0] for name, value in parameters.items()}
    h = [p["w_x"] @ row + p["w_y"] * (row @ beta) / 3**0.5 for row in x] + [p["w_x"] @ row for row in tests]
    for layer in range(2):
        scores = [torch.stack([(p["w_k"][layer] @ h[n]) @ (p["w_q"][layer] @ now) for n in range(4)]) for now in h]
        added = [sum(a * (p["w_v"][layer] @ h[n]) for n, a in enumerate(s.softmax(0))) / 2 for s in scores]
        h = [now + more for now, more in zip(h, added, strict=True)]
        h = [now + p["w_2"][layer] @ torch.nn.functional.gelu(p["w_1"][layer] @ now) / 2 for now in h]
    expected = np.mean(
        [float(now @ p["w_o"] - row @ beta / 3**0.5) ** 2 for now, row in zip(h[4:], tests, strict=True)]
    )
    assert deep.mean_squared_error(parameters, contexts, 2)[0].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("optimizer", ["gd", "adamw"])
def test_a_sparse_run_goes_on_where_it_stopped(tmp_path, optimizer):
    config = sparse.SoftmaxConfig(tasks=5, data=20, optimizer=optimizer, learning_rate=0.1)
    _resumes(tmp_path, lambda seeds: sparse.SoftmaxAttention(config, seeds))


def test_a_deep_run_goes_on_where_it_stopped(tmp_path):
    config = deep.SoftmaxConfig(dimension=3, depth=2, context=4, tests=2, batch=2, stream=4)
    _resumes(tmp_path, lambda seeds: deep.SoftmaxLayers(config, seeds))


def _resumes(folder, make) -> None:
    train(make, [0, 1], folder / "cut", "run", 4, [2], quiet=True)
    train(make, [0, 1], folder / "cut", "run", 8, [2, 6], quiet=True)
    train(make, [0, 1], folder / "whole", "run", 8, [2, 6], quiet=True)
    cut, whole = (open_run(folder / kind / "run-seed1") for kind in ("cut", "whole"))
    np.testing.assert_array_equal(cut.metrics["loss"], whole.metrics["loss"])


def test_settings_that_softmax_has_not_are_refused_by_name():
    for change, message in (({"optimizer": "sgd"}, "one of gd, adamw"), ({"batch": 5}, "batch must be 0")):
        with pytest.raises(ValueError, match=message):
            sparse.SoftmaxConfig(**change)
    for change, message in (({"context": 0}, "the examples themselves"), ({"untied": True}, "untied as they are")):
        with pytest.raises(ValueError, match=message):
            deep.SoftmaxConfig(**change)
