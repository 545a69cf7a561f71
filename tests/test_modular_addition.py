"""Arithmetic on a cyclic group: the pairs, the Fourier measures on planted networks, and grokking itself."""

from functools import partial

import numpy as np
import pytest
import torch

from checkpoints import open_run
from models.adamw import AdamWConfig
from models.modular_addition import fourier
from models.modular_addition.model import (
    ModularAddition,
    ModularAdditionConfig,
    all_logits,
    config_of,
    loss_of,
    modular_addition,
)
from models.modular_addition.progress import progress
from models.modular_addition.task import ModularArithmetic, is_prime, next_prime, primitive_root
from models.training import train


def test_answers_are_right_and_every_pair_is_used_once():
    results = {
        "addition": lambda a, b: (a + b) % 11,
        "subtraction": lambda a, b: (a - b) % 11,
        "multiplication": lambda a, b: a * b % 11,
    }
    for operation, result in results.items():
        task = ModularArithmetic(11, operation, 0.3)
        training, test = task.split(torch.Generator().manual_seed(0))
        pairs = set()
        for part in (training, test):
            assert torch.equal(part.answer, result(part.first, part.second))
            pairs |= set(zip(part.first.tolist(), part.second.tolist(), strict=True))
        assert len(pairs) == len(training.answer) + len(test.answer) == task.order**2
        assert len(training.answer) == round(0.3 * task.order**2)


def test_multiplication_is_addition_of_discrete_logarithms():
    task = ModularArithmetic(13, "multiplication")
    e, table = task.elements, task.exponents
    assert sorted(e.tolist()) == list(range(1, 13))
    assert torch.equal(e[:, None] * e % 13, e[table])


def test_primes_and_primitive_roots_by_hand():
    assert [n for n in range(20) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19]
    assert next_prime(13) == 17
    assert [primitive_root(p) for p in (3, 5, 7, 23, 41)] == [2, 2, 3, 5, 6]


def test_random_labels_are_another_function_and_the_same_for_the_same_seed():
    task = ModularArithmetic(31, random_labels=True)
    one, _ = task.split(torch.Generator().manual_seed(0))
    again, _ = task.split(torch.Generator().manual_seed(0))
    assert torch.equal(one.answer, again.answer)
    right = ((one.first + one.second) % 31 == one.answer).double().mean()
    assert right < 0.1
    assert len(one.answer.unique()) == 31


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ModularArithmetic, 57, "multiplication"), r"modulus is 57, which is not prime.* next prime is 59"),
        (partial(ModularArithmetic, 59, train_fraction=0.9999), "of 3481 pairs: it leaves no test pair"),
        (partial(ModularArithmetic, 5, train_fraction=0.01), "of 25 pairs: it leaves no training pair"),
        (partial(ModularArithmetic, 59, train_fraction=1.5), "train_fraction is 1.5: a share between"),
        (partial(ModularArithmetic, 59, "division"), "operation is 'division': one of addition"),
        (partial(ModularArithmetic, 2), "modulus is 2: at least 3"),
        (partial(ModularAdditionConfig, n_heads=65), "more heads than dimensions"),
        (partial(ModularAdditionConfig, d_mlp=0), "d_mlp is 0"),
    ],
)
def test_impossible_settings_are_refused_with_the_reason_before_any_training(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def planted(order: int, frequencies: dict[int, float], sign: int = 1) -> torch.Tensor:
    """Logits of a network that computes cos(w_k (i + sign j - c)) and nothing else."""
    i = torch.arange(order, dtype=torch.float64)
    phase = i[:, None, None] + sign * i[None, :, None] - i
    return sum(size * torch.cos(2 * np.pi * k * phase / order) for k, size in frequencies.items())


@pytest.mark.parametrize(("order", "operation"), [(17, "addition"), (17, "subtraction"), (18, "multiplication")])
def test_planted_frequencies_are_found_and_their_removal_leaves_nothing(order, operation):
    task = ModularArithmetic(19 if operation == "multiplication" else order, operation)
    logits = planted(order, {3: 5.0, 7: 4.0}, sign=-1 if operation == "subtraction" else 1)
    power = fourier.wave_power(logits, task.exponents)
    assert power[2].item() == pytest.approx(25 / 41)
    assert power[6].item() == pytest.approx(16 / 41)
    assert fourier.key_frequencies(logits, task.exponents) == [3, 7]
    torch.testing.assert_close(fourier.restricted(logits, task.exponents, [3, 7]), logits)
    assert fourier.excluded(logits, task.exponents, [3, 7]).abs().max() < 1e-12
    torch.testing.assert_close(
        fourier.excluded(logits, task.exponents, [3]), planted(order, {7: 4.0}, -1 if operation == "subtraction" else 1)
    )


def test_what_depends_on_the_pair_in_any_other_way_is_memory_and_not_kept():
    task = ModularArithmetic(17)
    noise = torch.randn(17, 17, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pure = planted(17, {3: 5.0})
    kept = fourier.restricted(pure + noise, task.exponents, [3])
    error = (kept - pure - noise.mean((0, 1))).square().mean()
    # two of the 17 x 17 directions in (i, j) of the noise lie on the waves of one frequency
    assert error.item() == pytest.approx(2 / 17**2, rel=0.3)
    together = kept + fourier.excluded(pure + noise, task.exponents, [3])
    torch.testing.assert_close(together, pure + noise + noise.mean((0, 1)))


def test_power_of_an_embedding_of_waves_and_of_one_of_even_order():
    i = torch.arange(12, dtype=torch.float64)
    waves = torch.stack((torch.cos(2 * np.pi * 2 * i / 12), torch.sin(2 * np.pi * 2 * i / 12), (-1.0) ** i), 1)
    power = fourier.embedding_power(waves)
    assert len(power) == 6
    assert power[[1, 5]].tolist() == pytest.approx([0.5, 0.5])  # sums of squares 6 + 6 and 12


def test_logits_of_all_pairs_are_those_of_the_training_pairs():
    config = ModularAdditionConfig(task=ModularArithmetic(11, "multiplication"))
    learner = ModularAddition(config, 0)
    table = all_logits(learner.weights(), config)
    log = {int(token): i for i, token in enumerate(config.task.elements)}
    rows = [
        table[log[int(a)], log[int(b)]] for a, b in zip(learner.training.first, learner.training.second, strict=True)
    ]
    answers = torch.tensor([log[int(c)] for c in learner.training.answer])
    ours = torch.stack(rows)
    # the network also has a logit for 0, which no product gives: leave it out of both
    from models.lens import split
    from models.modular_addition.model import answer

    weights = split(learner.optimizer.parameters, config.shape)
    direct = answer(weights, config.shape, learner.training.first, learner.training.second)[:, config.task.elements]
    torch.testing.assert_close(ours, direct.detach().double())
    assert loss_of(ours, answers).item() == pytest.approx(loss_of(direct, answers).item())


def test_a_run_can_be_interrupted_and_tests_now_and_then(tmp_path):
    config = ModularAdditionConfig(task=ModularArithmetic(11), test_every=4)
    make = partial(modular_addition, config)
    whole = train(make, [2], tmp_path / "whole", "run", 20, [10], quiet=True)[0]
    train(make, [2], tmp_path / "parts", "run", 10, [10], quiet=True)
    parts = train(make, [2], tmp_path / "parts", "run", 20, [10], quiet=True)[0]
    assert (whole / "metrics.jsonl").read_bytes() == (parts / "metrics.jsonl").read_bytes()
    assert (whole / "step-000000020.safetensors").read_bytes() == (parts / "step-000000020.safetensors").read_bytes()
    metrics = open_run(whole).metrics
    assert metrics[["loss", "accuracy"]].notna().all(axis=None)
    assert metrics["test_loss"].dropna().index.tolist() == [0, 4, 8, 12, 16]


def test_losses_of_the_progress_measures_are_those_logged_in_training(tmp_path):
    config = ModularAdditionConfig(task=ModularArithmetic(11, "subtraction"), test_every=4)
    run = open_run(train(partial(modular_addition, config), [2], tmp_path, "run", 20, [4, 8, 16], quiet=True)[0])
    assert config_of(run.config) == config
    table = progress(run)
    steps = [4, 8, 16]
    np.testing.assert_allclose(table.loc[steps, "loss"], run.metrics.loc[steps, "loss"], rtol=1e-6)
    np.testing.assert_allclose(table.loc[steps, "test_loss"], run.metrics.loc[steps, "test_loss"], rtol=1e-6)
    assert table["frequencies"].between(1, 5).all()
    assert 1 <= len(table.attrs["key_frequencies"]) <= 5


@pytest.mark.slow
def test_a_small_group_is_learned_by_heart_early_and_understood_late():
    """Lighter than the quick preset: p = 29, a smaller MLP, the larger learning rate."""
    optimizer = AdamWConfig(1e-2, 1.0, (0.9, 0.98), warm_up=10)
    config = ModularAdditionConfig(task=ModularArithmetic(29, train_fraction=0.6), optimizer=optimizer, d_mlp=128)
    learner = ModularAddition(config, 0)
    rows = [learner.update() for _ in range(600)]
    by_heart = next(step for step, row in enumerate(rows) if row["accuracy"] > 0.99)
    understood = next((step for step, row in enumerate(rows) if row.get("test_accuracy", 0) > 0.99), None)
    assert understood is not None
    assert understood > 5 * by_heart
    logits = all_logits(learner.weights(), config)
    keys = fourier.key_frequencies(logits, config.task.exponents)
    assert len(keys) <= 7  # of 14
    # its waves alone answer right, and without them it knows nothing
    answers = config.task.exponents.flatten()
    alone = fourier.restricted(logits, config.task.exponents, keys).flatten(0, 1)
    without = fourier.excluded(logits, config.task.exponents, keys).flatten(0, 1)
    assert (alone.argmax(-1) == answers).double().mean() > 0.99
    assert (without.argmax(-1) == answers).double().mean() < 0.3
