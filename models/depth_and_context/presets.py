"""Settings of deep in-context regression worth running, with what each costs and what comes out."""

from models.depth_and_context.attention import AttentionConfig, LinearAttention
from models.depth_and_context.model import DepthConfig, ReducedGamma
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: ReducedGamma(DepthConfig(), seeds),
        steps=600,
        checkpoints=60,
        cost="?",
        numbers="?",
    ),
    "attention": Preset(
        lambda seeds: LinearAttention(
            AttentionConfig(data="rotated", dimension=16, context=0, tests=0, depth=4, learning_rate=0.5), seeds
        ),
        steps=600,
        checkpoints=60,
        cost="?",
        numbers="?",
    ),
    "paper": Preset(
        lambda seeds: ReducedGamma(DepthConfig(dimension=32, context=32, tests=32, batch=32, depth=16), seeds),
        steps=4000,
        checkpoints=100,
        cost="?",
        numbers="?",
    ),
}
