"""Settings of multitask sparse regression worth running, with what each costs and what comes out."""

from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: MultitaskAttention(MultitaskConfig(data=10_000), seeds),
        steps=5000,
        checkpoints=60,
        cost="?",
        numbers="?",
    ),
    "paper": Preset(
        lambda seeds: MultitaskAttention(MultitaskConfig(tasks=500, data=100_000, init=0.1), seeds),
        steps=5000,
        checkpoints=100,
        cost="?",
        numbers="?",
    ),
}
