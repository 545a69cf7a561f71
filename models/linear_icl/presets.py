"""Settings of the linear in-context regression worth running, with what each costs and what comes out."""

from models.linear_icl.model import LinearICL, LinearICLConfig
from models.presets import Preset

PRESETS = {
    "quick": Preset(
        lambda seeds: LinearICL(LinearICLConfig(), seeds),
        steps=3200,
        checkpoints=80,
        cost="3 s for one seed, 9 s for five (one core)",
        numbers="modes learned at t = 3.4, 15, 72 (step = 20 t); final loss about .09",
    ),
    "paper": Preset(
        lambda seeds: LinearICL(LinearICLConfig(eigenvalues=(1.0, 0.5, 0.25, 0.125), context=128), seeds),
        steps=16000,
        checkpoints=120,
        cost="15 s for one seed, 50 s for five (one core)",
        numbers="modes learned at t = 3.4, 15, 68, 302 (step = 20 t); final loss about .03",
    ),
}
