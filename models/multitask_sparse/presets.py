"""Settings of multitask sparse regression worth running, with what each costs and what comes out."""

from models.multitask_sparse.capacity import CapacityAttention, CapacityConfig
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig
from models.multitask_sparse.softmax import SoftmaxAttention, SoftmaxConfig
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: MultitaskAttention(MultitaskConfig(data=10_000), seeds),
        steps=5000,
        checkpoints=60,
        cost="3 s for one seed, 8 s for five (one core)",
        numbers="tasks learned one after another, half-times in proportion to 1 / frequency; loss about .006",
    ),
    "paper": Preset(
        lambda seeds: MultitaskAttention(MultitaskConfig(tasks=500, data=100_000, init=0.1), seeds),
        steps=5000,
        checkpoints=100,
        cost="4 s for one seed, 14 s for five (one core)",
        numbers="outputs start above their targets and come down; loss about .026, falling as t^-.44",
    ),
    "softmax": Preset(
        lambda seeds: SoftmaxAttention(SoftmaxConfig(tasks=500, learning_rate=2.0), seeds),
        steps=1500,
        checkpoints=40,
        cost="2 s for one seed, 7 s for five (one core)",
        numbers="softmax attention: the same order of tasks, no closed form; loss about .004, falling as t^-.48",
    ),
    "capacity": Preset(
        lambda seeds: CapacityAttention(CapacityConfig(spread=1.0, learning_rate=0.1), seeds),
        steps=3000,
        checkpoints=40,
        cost="4 s for one seed, 12 s for five (one core)",
        numbers="softmax attention, Gaussian features of variance k^-3, endless contexts; loss about .03",
    ),
}
