"""Settings of the multi-head model worth running, with what each costs and what comes out."""

from models.multi_head.model import MultiHead, MultiHeadConfig
from models.multi_head.softmax import SoftmaxMultiHead
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: MultiHead(MultiHeadConfig(), seeds),
        steps=4000,
        checkpoints=100,
        cost="2 s for one seed, 5 s for six (one core)",
        numbers="plateaus of the expected loss at 1, .641, .377, .210, ending near .137 (Fig 1)",
    ),
    "paper": Preset(
        lambda seeds: MultiHead(MultiHeadConfig(init=0.1, learning_rate=0.5), seeds),
        steps=30000,
        checkpoints=150,
        cost="15 s for one seed, 40 s for six (one core)",
        numbers="the same plateaus, three times longer and with half of the noise",
    ),
    "softmax": Preset(
        lambda seeds: SoftmaxMultiHead(MultiHeadConfig(batch=128), seeds),
        steps=3000,
        checkpoints=100,
        cost="10 s for six seeds (one core)",
        numbers="drops with slow stretches between them instead of plateaus; final loss about .17 (Fig 3)",
    ),
}
