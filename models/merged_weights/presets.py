"""Settings of the merged-weights model worth running, with what each costs and what comes out."""

from models.merged_weights.model import MergedWeights, MergedWeightsConfig
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: MergedWeights(MergedWeightsConfig(), seeds),
        steps=3000,
        checkpoints=80,
        cost="1.5 s for one seed, 5 s for five (one core)",
        numbers="u U -> Gamma^-1 = diag(.844, 1.149, 1.515, 2.222, 2.899); u near 2.05; final loss .299",
    ),
    "paper": Preset(
        lambda seeds: MergedWeights(MergedWeightsConfig(learning_rate=0.025, batch=2048), seeds),
        steps=6000,
        checkpoints=100,
        cost="25 s for five seeds (one core)",
        numbers="the same with a quarter of the noise",
    ),
    "exponential": Preset(
        lambda seeds: MergedWeights(MergedWeightsConfig(covariance="exponential", learning_rate=0.01), seeds),
        steps=6000,
        checkpoints=80,
        cost="4 s for one seed, 15 s for five (one core)",
        numbers="u U -> diag(.295, .415, .568, .901, 1.274); final loss .577",
    ),
}
