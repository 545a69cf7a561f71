"""Settings of the attention-only transformer worth running, with what each costs and what comes out."""

from dataclasses import replace
from functools import partial

from models.adamw import AdamWConfig
from models.attention_only.model import AttentionOnlyConfig, attention_only
from models.attention_only.tasks import MarkovChains, RepeatedSubsequence
from models.presets import Preset

DEPTHS = (1, 2, 3, 4)
QUICK = AttentionOnlyConfig()
LARGE = AttentionOnlyConfig(n_heads=4, d_model=64, batch=64)
MARKOV = AttentionOnlyConfig(task=MarkovChains())
SMALL = AttentionOnlyConfig(
    task=RepeatedSubsequence(vocabulary=32, length=41, subsequence=8, copies=3),
    optimizer=AdamWConfig(5e-3, 0.01, (0.9, 0.99), warm_up=100),
)


def preset(config: AttentionOnlyConfig, cost: str, numbers: str, steps: int = 5000, every: int = 50) -> Preset:
    """Weights every so many steps, and more of them early."""
    return Preset(partial(attention_only, config), steps, checkpoints=40, cost=cost, numbers=numbers, every=every)


PRESETS = {
    "quick": preset(
        QUICK,
        "50 s a seed (one core)",
        "2 layers; in-context learning emerges at step 1700 - 2500, accuracy on repeated tokens ends at .9",
    ),
    "small": preset(
        SMALL,
        "18 s a seed (one core)",
        "a shorter task, as in `make demo`: emergence at step 660 - 1020, accuracy ends at .93",
        steps=2500,
        every=20,
    ),
    "1-layer": preset(
        replace(QUICK, n_layers=1),
        "30 s a seed (one core)",
        "it never emerges: accuracy on repeated tokens stays below .1",
    ),
    "3-layers": preset(
        replace(QUICK, n_layers=3), "70 s a seed (one core)", "emergence at step 2300 - 2900, accuracy ends at .93"
    ),
    "4-layers": preset(
        replace(QUICK, n_layers=4), "90 s a seed (one core)", "emergence at step 1900 - 2300, accuracy ends at .94"
    ),
    "paper": preset(
        LARGE,
        "5 minutes a seed (one core)",
        "2 layers of 4 heads, d_model 64; emergence at step 1000, accuracy ends at .95",
        steps=6000,
    ),
    "markov": preset(
        MARKOV,
        "50 s a seed (one core)",
        "Markov chains, 2 layers; gradual: 44 % of the way from unigrams to bigrams at step 1000, 88 % at the end",
    ),
    "markov-1-layer": preset(
        replace(MARKOV, n_layers=1),
        "35 s a seed (one core)",
        "Markov chains; no further than 7 % of the way to bigrams",
    ),
}
