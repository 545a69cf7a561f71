"""Settings of modular arithmetic worth running, with what each costs and what comes out."""

from dataclasses import replace
from functools import partial

from models.adamw import AdamWConfig
from models.modular_addition.model import ModularAdditionConfig, modular_addition
from models.modular_addition.task import ModularArithmetic
from models.presets import Preset

QUICK = ModularAdditionConfig()
PAPER = ModularAdditionConfig(
    d_model=128,
    d_head=32,
    d_mlp=512,
    task=ModularArithmetic(113, train_fraction=0.3),
    optimizer=AdamWConfig(3e-3, 1.0, (0.9, 0.98), warm_up=10),
)


def with_random_labels(config: ModularAdditionConfig) -> ModularAdditionConfig:
    """The control that can only learn by heart."""
    return replace(config, task=replace(config.task, random_labels=True))


def without_weight_decay(config: ModularAdditionConfig) -> ModularAdditionConfig:
    """The control that has no reason to forget what it learned by heart."""
    return replace(config, optimizer=replace(config.optimizer, weight_decay=0.0))


def with_operation(config: ModularAdditionConfig, operation: str) -> ModularAdditionConfig:
    """Another operation on the same residues."""
    return replace(config, task=replace(config.task, operation=operation))


def preset(config: ModularAdditionConfig, cost: str, numbers: str, steps: int = 5000, every: int = 100) -> Preset:
    """Weights every 100 steps, and more of them early."""
    return Preset(partial(modular_addition, config), steps, checkpoints=60, cost=cost, numbers=numbers, every=every)


PRESETS = {
    "quick": preset(
        QUICK,
        "60 s a seed (one core)",
        "p = 59; 99 % training accuracy at step 85, 99 % test accuracy at step 1800 - 2500",
    ),
    "random-labels": preset(
        with_random_labels(QUICK), "60 s a seed (one core)", "control: learned by heart at step 90, test accuracy 2 %"
    ),
    "no-weight-decay": preset(
        without_weight_decay(QUICK), "60 s a seed (one core)", "control: learned by heart at step 75, test accuracy 9 %"
    ),
    "subtraction": preset(
        with_operation(QUICK, "subtraction"), "60 s a seed (one core)", "99 % test accuracy at step 2600"
    ),
    "multiplication": preset(
        with_operation(QUICK, "multiplication"), "60 s a seed (one core)", "99 % test accuracy at step 2000"
    ),
    "paper": preset(
        PAPER,
        "11 minutes a seed (one core)",
        "p = 113, the setting of Nanda et al. but for the learning rate; 99 % training accuracy at step 70, 99 % test "
        "accuracy at step 3400 (at their 1e-3: not by step 8200)",
        steps=8000,
        every=200,
    ),
}
