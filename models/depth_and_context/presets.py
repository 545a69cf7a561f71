"""Settings of deep in-context regression worth running, with what each costs and what comes out."""

from models.depth_and_context.attention import AttentionConfig, LinearAttention
from models.depth_and_context.model import DepthConfig, ReducedGamma
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: ReducedGamma(DepthConfig(learning_rate=0.2), seeds),
        steps=700,
        checkpoints=40,
        cost="2 s for one seed, 10 s for five (one core)",
        numbers="loss about .31 at depth 4 and as many examples as dimensions; .273 by Eq 8 at infinite dimension",
    ),
    "attention": Preset(
        lambda seeds: LinearAttention(
            AttentionConfig(data="rotated", dimension=16, context=0, tests=0, batch=48, learning_rate=0.05, init=0.6),
            seeds,
        ),
        steps=700,
        checkpoints=40,
        cost="9 s for one seed, 33 s for five (one core)",
        numbers="a plateau at .07, a fall around t = 12 (step = 20 t), then .009",
    ),
    "paper": Preset(
        lambda seeds: ReducedGamma(DepthConfig(dimension=32, context=32, tests=32, batch=32, learning_rate=0.1), seeds),
        steps=2000,
        checkpoints=60,
        cost="13 s for one seed, 72 s for five (one core)",
        numbers="loss about .29; .273 by Eq 8 at infinite dimension",
    ),
}
