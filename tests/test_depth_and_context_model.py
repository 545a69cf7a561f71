"""The reduced and the full model of paper 003: Eqs 3 and 4 written out, and SGD against the flows."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import probes
from checkpoints import open_run
from models.depth_and_context.attention import AttentionConfig, LinearAttention, aligned, mean_squared_error, read_out
from models.depth_and_context.model import DepthConfig, ReducedGamma, draw_batch, flow_of, loss_and_gradient
from models.depth_and_context.task import Contexts, draw_contexts, spectrum_for
from models.depth_and_context.theory import RotatedFlow, out_of_distribution_loss
from models.training import train

STRUCTURED = {"dimension": 12, "context": 0, "tests": 0, "batch": 96, "depth": 3}


def contexts_of(config: DepthConfig, seed: int = 0) -> Contexts:
    spectrum = spectrum_for(config.data, config.dimension, config.capacity, config.source)
    return draw_batch(config, spectrum, [torch.Generator().manual_seed(seed)])


@pytest.mark.parametrize("untied", [False, True])
def test_loss_and_gradient_are_those_of_equation_4(untied):
    config = DepthConfig(dimension=4, width=3, depth=3, context=6, tests=5, batch=2, noise=0.4, untied=untied)
    contexts = contexts_of(config)
    generator = torch.Generator().manual_seed(1)
    gamma = torch.randn(1, 3 if untied else 1, 3, 3, generator=generator, dtype=torch.float64).requires_grad_()
    losses = []
    for x, noise, tests, beta in zip(
        *(getattr(contexts, f)[0] for f in ("inputs", "noise", "tests", "task")), strict=True
    ):
        y, residual, answer = x @ beta / 2 + noise, None, torch.zeros(5, dtype=torch.float64)
        seen, asked = x[:, :3], tests[:, :3]  # what a width of 3 sees
        residual = y
        for layer in range(3):
            g = gamma[0, layer if untied else 0]
            answer = answer + asked @ g @ seen.T @ residual / (3 * 6)  # Eq 49
            residual = residual - seen @ g @ seen.T @ residual / (3 * 6)  # Eq 48
        losses.append((answer - tests @ beta / 2).square().mean())
    expected = torch.stack(losses).mean()
    (slope,) = torch.autograd.grad(expected, gamma)
    loss, gradient = loss_and_gradient(gamma.detach(), contexts, 3)
    assert loss[0].item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(gradient, slope, rtol=1e-10, atol=1e-12)


def test_the_attention_block_is_equation_3_with_its_mask():
    config = AttentionConfig(dimension=3, depth=2, context=4, tests=5, batch=1, noise=0.3)
    contexts = contexts_of(config)
    generator = torch.Generator().manual_seed(2)
    shapes = {"w_x": (4, 3), "w_k": (4, 4), "w_q": (4, 4), "w_v": (4, 4)}
    blocks = {name: torch.randn(1, *shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    x, tests, beta = contexts.inputs[0, 0], contexts.tests[0, 0], contexts.task[0, 0]
    y = x @ beta / 3**0.5 + contexts.noise[0, 0]
    w_x, w_k, w_q, w_v = (blocks[name][0] for name in shapes)
    h = [
        *(w_x @ point + label * read_out(3) for point, label in zip(x, y, strict=True)),
        *(w_x @ point for point in tests),
    ]
    for _ in range(2):
        moved = []
        for mu, now in enumerate(h):
            total = sum((w_k @ h[nu]) @ (w_q @ now) * (w_v @ h[nu]) for nu in range(4))
            moved.append(now + (-1 if mu < 4 else 1) * total / (2 * 4))
        h = moved
    expected = np.mean(
        [float(state @ read_out(3) - point @ beta / 3**0.5) ** 2 for state, point in zip(h[4:], tests, strict=True)]
    )
    assert mean_squared_error(blocks, contexts, 2)[0].item() == pytest.approx(expected, rel=1e-10)


def test_aligned_attention_is_the_reduced_model_with_gamma_two_w_to_the_fifth():
    config = AttentionConfig(dimension=5, depth=3, context=7, tests=6, batch=4)
    contexts, w = contexts_of(config), 0.8
    blocks = {name: block[None] for name, block in aligned(5, w).items()}
    gamma = 2 * w**5 * torch.eye(5, dtype=torch.float64)[None, None]
    expected, _ = loss_and_gradient(gamma, contexts, 3)
    torch.testing.assert_close(mean_squared_error(blocks, contexts, 3), expected)


def test_an_infinite_context_has_exactly_the_population_covariance():
    spectrum = spectrum_for("rotated", 5, 1.5, 1.0)
    drawn = draw_contexts("rotated", spectrum, (3, 0, 0), 0.0, torch.Generator().manual_seed(0))
    covariance = drawn.inputs.mT @ drawn.inputs / 5
    np.testing.assert_allclose(torch.linalg.eigvalsh(covariance)[0].flip(0), spectrum.eigenvalues, rtol=1e-10)
    torch.testing.assert_close(drawn.inputs, drawn.tests)
    assert not torch.allclose(covariance[0], covariance[1])


def test_the_task_lies_in_the_frame_of_its_own_covariance():
    spectrum = spectrum_for("rotated", 3, 2.0, 1.0)
    drawn = draw_contexts("rotated", spectrum, (20000, 0, 0), 0.0, torch.Generator().manual_seed(0))
    power = (drawn.inputs @ drawn.task[..., None])[..., 0].square().mean(0) / 3  # beta^T Lambda^1/2 rows
    np.testing.assert_allclose(power, spectrum.eigenvalues * spectrum.task_power, rtol=0.05)


@pytest.mark.parametrize(
    "config",
    [
        DepthConfig(data="fixed", learning_rate=1.0, **STRUCTURED),
        DepthConfig(data="rotated", learning_rate=1.0, **STRUCTURED),
        DepthConfig(data="rotated", learning_rate=1.0, untied=True, **STRUCTURED),
        AttentionConfig(data="rotated", learning_rate=0.05, init=0.7, **STRUCTURED),
    ],
    ids=["fixed", "rotated", "untied", "attention"],
)
@pytest.mark.slow
def test_sgd_follows_the_flow(config):
    make = LinearAttention if isinstance(config, AttentionConfig) else ReducedGamma
    experiment = make(config, [0])
    steps = 160
    losses = torch.stack([experiment.update()["loss"] for _ in range(steps)]).mean(1).numpy()
    flow = flow_of(experiment.describe(0)[0])
    predicted = flow.loss(config.learning_rate * np.arange(steps))
    for part in np.array_split(np.arange(steps), 6)[1:]:
        assert losses[part].mean() == pytest.approx(predicted[part].mean(), rel=0.06)  # the noise of some 2000 contexts
    theory, weights = experiment.describe(0)[1], experiment.weights(0)
    product = torch.einsum(theory["mode_subscripts"], *(weights[name] for name in theory["mode_product"]))
    np.testing.assert_allclose(
        torch.diagonal(product).mean(), flow.modes([config.learning_rate * steps])[0].mean(), rtol=0.06
    )


@pytest.mark.parametrize(
    "config",
    [
        DepthConfig(data="rotated", learning_rate=1.0, untied=True, **STRUCTURED),
        DepthConfig(data="fixed", learning_rate=0.5, **STRUCTURED),
        AttentionConfig(data="rotated", learning_rate=0.1, init=0.7, **STRUCTURED),
    ],
    ids=["untied", "fixed", "attention"],
)
def test_a_run_can_be_laid_over_its_flow_and_probed(config, tmp_path):
    attention = isinstance(config, AttentionConfig)
    make = LinearAttention if attention else ReducedGamma
    (path,) = train(lambda seeds: make(config, seeds), [0], tmp_path, "run", 60, range(0, 60, 10), quiet=True)
    run = open_run(path)
    alignment = probes.align(run, flow_of(run.config))
    assert len(alignment.modes) == config.dimension
    leading = alignment.modes.iloc[:3]
    np.testing.assert_allclose(leading["end_ratio"].mean(), 1, atol=0.06)  # the noise of 60 steps
    assert attention == (alignment.conserved_drift < 0.01)  # only attention has something to conserve
    table = probes.measure(run)
    assert set(table["circuit"]) == ({"ov", "qk"} if attention else {"gamma"})
    assert table["layer"].max() == (config.depth - 1 if config.untied else 0)


def test_untied_layers_stay_balanced_and_equal_the_tied_model():
    tied = ReducedGamma(DepthConfig(data="rotated", learning_rate=1.0, **STRUCTURED), [0])
    untied = ReducedGamma(DepthConfig(data="rotated", learning_rate=1.0, untied=True, **STRUCTURED), [0])
    for _ in range(60):
        tied.update()
        untied.update()
    scales = torch.diagonal(untied.gamma[0], dim1=-2, dim2=-1).mean(-1)
    assert (scales.max() - scales.min()) / scales.mean() < 0.01  # exactly equal without the noise of SGD
    assert scales.mean().item() == pytest.approx(torch.diagonal(tied.gamma[0, 0]).mean().item(), rel=1e-3)


def test_one_isotropic_layer_ends_just_above_the_best_loss_of_its_dimension():
    config = DepthConfig(dimension=12, depth=1, context=12, tests=0, batch=200, learning_rate=0.1)
    experiment = ReducedGamma(config, [0])
    for _ in range(40):
        experiment.update()
    averaged = torch.zeros_like(experiment.gamma)
    for _ in range(60):
        experiment.update()
        averaged += experiment.gamma / 60
    rho = 1 + 13 / 12
    g1 = torch.diagonal(averaged, dim1=-2, dim2=-1).mean(-1)
    loss = (1 - 2 * g1 + rho * averaged.square().sum((-1, -2)) / 12).mean().item()
    assert 1 - 1 / rho <= loss < 1.03 * (1 - 1 / rho)
    assert abs(loss - 0.25) > 0.2  # (1 + alpha)^-2 as printed


def test_whitening_is_brittle_as_equation_11_says(rng):
    covariance = np.diag([1.0, 0.5, 0.25])
    turned = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    other = turned @ covariance @ turned.T
    gamma = torch.as_tensor(2 * np.linalg.inv(covariance))[None, None]
    rows = torch.as_tensor(np.sqrt(3) * np.linalg.cholesky(other).T)[None, None]
    tasks = torch.eye(3, dtype=torch.float64)[:, None] * 3**0.5  # three tasks whose mean square is the identity
    losses = [
        loss_and_gradient(gamma, Contexts(rows, torch.zeros(1, 1, 3, dtype=torch.float64), rows, t[None]), 2)[0]
        for t in tasks
    ]
    expected = out_of_distribution_loss(covariance, other, np.eye(3), 2)
    assert torch.stack(losses).mean().item() == pytest.approx(expected, rel=1e-10)


def test_a_run_goes_on_where_it_stopped(tmp_path):
    for make in (
        lambda seeds: ReducedGamma(DepthConfig(dimension=4, context=5, tests=3, batch=2), seeds),
        lambda seeds: LinearAttention(AttentionConfig(dimension=4, context=5, tests=3, batch=2), seeds),
    ):
        name = make([0]).__class__.__name__
        train(make, [0, 1], tmp_path / "cut", name, 6, [3], quiet=True)
        train(make, [0, 1], tmp_path / "cut", name, 12, [3, 9], quiet=True)
        train(make, [0, 1], tmp_path / "whole", name, 12, [3, 9], quiet=True)
        cut, whole = (open_run(tmp_path / kind / f"{name}-seed1") for kind in ("cut", "whole"))
        np.testing.assert_array_equal(cut.metrics["loss"], whole.metrics["loss"])
        for tensor in whole.checkpoint(12):
            assert torch.equal(cut.checkpoint(12)[tensor], whole.checkpoint(12)[tensor])
        assert whole.family.startswith("depth-and-context")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 0}, "at least one layer"),
        ({"data": "other"}, "one of iso, fixed, rotated"),
        ({"width": 25}, "width is 25"),
        ({"batch": 0}, "batch is 0"),
        ({"context": -1}, "context is -1"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"noise": -1.0}, "noise"),
        ({"noise": 1.0, "context": 0}, "averages out"),
        ({"data": "fixed", "capacity": 0.0}, "capacity"),
    ],
)
def test_impossible_settings_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        replace(DepthConfig(), **change)


def test_attention_refuses_what_it_has_not():
    for change in ({"untied": True}, {"width": 3}, {"init": 0.0}):
        with pytest.raises(ValueError, match=r"tied layers|starting scale"):
            replace(AttentionConfig(), **change)


def test_settings_without_a_flow_say_so():
    reduced = {"model": "reduced"}
    assert isinstance(flow_of(reduced | asdict(DepthConfig(data="rotated", context=0))), RotatedFlow)
    for config in (DepthConfig(data="rotated", context=5), DepthConfig(width=3)):
        with pytest.raises(ValueError, match=r"infinite one|no bottleneck"):
            flow_of(reduced | asdict(config))
