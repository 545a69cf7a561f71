"""Settings of the attention-only transformer worth running, with what each costs and what comes out."""

from dataclasses import replace
from functools import partial

from models.attention_only.model import AttentionOnlyConfig, attention_only
from models.attention_only.tasks import MarkovChains
from models.presets import Preset

DEPTHS = (1, 2, 3, 4)
QUICK = AttentionOnlyConfig()
LARGE = AttentionOnlyConfig(n_heads=4, d_model=64, batch=64)
MARKOV = AttentionOnlyConfig(task=MarkovChains())


def preset(config: AttentionOnlyConfig, cost: str, numbers: str, steps: int = 5000) -> Preset:
    """Weights every 50 steps, and more of them early."""
    return Preset(partial(attention_only, config), steps, checkpoints=40, cost=cost, numbers=numbers, every=50)


PRESETS = {
    "quick": preset(QUICK, "TODO", "TODO"),
    "1-layer": preset(replace(QUICK, n_layers=1), "TODO", "TODO"),
    "3-layers": preset(replace(QUICK, n_layers=3), "TODO", "TODO"),
    "4-layers": preset(replace(QUICK, n_layers=4), "TODO", "TODO"),
    "paper": preset(LARGE, "TODO", "TODO", steps=6000),
    "markov": preset(MARKOV, "TODO", "TODO"),
    "markov-1-layer": preset(replace(MARKOV, n_layers=1), "TODO", "TODO"),
}
