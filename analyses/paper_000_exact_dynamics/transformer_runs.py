"""The runs behind the pages on trained transformers.

Sizes: toy (smaller and more hurried, for tests), quick (three seeds; minutes) and paper (longer runs and five seeds, or
the larger setting of modular addition and more controls).
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from analyses.tools.side_by_side import Job, train_all
from checkpoints import Run, schedules
from models.adamw import AdamWConfig
from models.attention_only import presets as attention_presets
from models.attention_only.model import AttentionOnlyConfig, attention_only
from models.attention_only.tasks import RepeatedSubsequence
from models.modular_addition import presets as modular_presets
from models.modular_addition.model import ModularAdditionConfig, modular_addition
from models.modular_addition.task import ModularArithmetic

RUNS = Path("checkpoints/runs")
SEEDS = {"toy": 2, "quick": 3, "paper": 5}

TOY_ATTENTION = AttentionOnlyConfig(
    task=RepeatedSubsequence(vocabulary=12, length=25, subsequence=6, copies=3),
    optimizer=AdamWConfig(1e-2, 0.01, (0.9, 0.99), warm_up=30),
    batch=16,
    score_every=10,
)
TOY_MODULAR = ModularAdditionConfig(
    task=ModularArithmetic(29, train_fraction=0.6),
    optimizer=AdamWConfig(1e-2, 1.0, (0.9, 0.98), warm_up=10),
    d_mlp=128,
)


def attention_only_runs(size: str, runs: Path = RUNS) -> dict[int, list[Run]]:
    """By depth: one run per seed. Deep models first: they take longest."""
    base, steps, schedule = {
        "toy": (TOY_ATTENTION, 500, _schedule(500, 15, 20)),
        "quick": (attention_presets.QUICK, 5000, _schedule(5000, 40, 50)),
        "paper": (attention_presets.QUICK, 10000, _schedule(10000, 40, 50)),
    }[size]
    depths = (1, 2) if size == "toy" else attention_presets.DEPTHS
    experiments = {
        depth: partial(attention_only, replace(base, n_layers=depth)) for depth in sorted(depths, reverse=True)
    }
    jobs = {
        (depth, seed): Job(make, seed, runs / f"attention-only-{size}", f"{depth}-layers", steps, schedule)
        for depth, make in experiments.items()
        for seed in range(SEEDS[size])
    }
    trained = _trained(jobs, size)
    return {depth: [trained[depth, seed] for seed in range(SEEDS[size])] for depth in depths}


def modular_addition_runs(size: str, runs: Path = RUNS) -> dict[str, list[Run]]:
    """Grokking (one run per seed), random labels and weight decay 0 (one run each; two at size paper)."""
    base, steps, schedule = {
        "toy": (TOY_MODULAR, 500, _schedule(500, 20, 20)),
        "quick": (modular_presets.QUICK, 5000, _schedule(5000, 60, 100)),
        "paper": (modular_presets.PAPER, 8000, _schedule(8000, 60, 200)),
    }[size]
    seeds, controls = (3, 2) if size == "paper" else (SEEDS[size], 1)
    kinds = {
        "grokking": (base, seeds),
        "random labels": (modular_presets.with_random_labels(base), controls),
        "weight decay 0": (modular_presets.without_weight_decay(base), controls),
    }
    jobs = {
        (kind, seed): Job(
            partial(modular_addition, config),
            seed,
            runs / f"modular-addition-{size}",
            kind.replace(" ", "-"),
            steps,
            schedule,
        )
        for kind, (config, seeds) in kinds.items()
        for seed in range(seeds)
    }
    trained = _trained(jobs, size)
    return {kind: [trained[kind, seed] for seed in range(seeds)] for kind, (_, seeds) in kinds.items()}


def _trained(jobs: dict, size: str) -> dict:
    return dict(zip(jobs, train_all(list(jobs.values()), workers=1 if size == "toy" else None), strict=True))


def _schedule(steps: int, count: int, every: int) -> tuple[int, ...]:
    """Some spread over the logarithm, for the early days, and one every so many steps."""
    return tuple(sorted({*schedules.log_spaced(steps, count), *schedules.every(every, steps)}))
