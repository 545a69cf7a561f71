"""The runs behind the pages on trained transformers.

Sizes: toy (smaller and more hurried, for tests), quick (about a minute of one core a run) and paper (longer runs, or the
larger setting of modular addition). Fresh seeds were trained after the rules were fixed on the first ones; so were seeds
3-5 of 3 and 4 layers and of the controls of modular addition, for the rules were fixed when there were three of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
FIRST, FRESH, FEWER_FRESH = range(6), range(20, 26), range(20, 23)
SEEDS = {  # of the attention-only models, by depth
    "toy": {1: range(2), 2: range(2)},
    "quick": dict.fromkeys(attention_presets.DEPTHS, FIRST),
    "paper": dict.fromkeys(attention_presets.DEPTHS, FIRST),
}
FRESH_SEEDS = {
    "toy": {1: range(1), 2: range(1)},  # not fresh: a toy only shows that everything runs
    "quick": {1: FRESH, 2: FRESH, 3: FEWER_FRESH, 4: FEWER_FRESH},
    "paper": dict.fromkeys(attention_presets.DEPTHS, FRESH),
}
MODULAR_SEEDS: dict[str, tuple[Sequence[int], Sequence[int]]] = {  # runs that grok, and of each control
    "toy": (range(2), range(1)),
    "quick": (FIRST, FIRST),
    "paper": (range(3), range(2)),
}
FRESH_MODULAR_SEEDS: dict[str, tuple[Sequence[int], Sequence[int]]] = {  # at paper size the first alone judge
    "toy": (range(1), range(1)),
    "quick": (FRESH, FEWER_FRESH),
}

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


def attention_only_runs(size: str, runs: Path = RUNS, *, fresh: bool = False) -> dict[int, list[Run]]:
    """By depth: one run per seed, the first ones or the fresh ones. Deep models first: they take longest."""
    base, steps, schedule = {
        "toy": (TOY_ATTENTION, 300, _schedule(300, 10, 20)),
        "quick": (attention_presets.QUICK, 5000, _schedule(5000, 40, 50)),
        "paper": (attention_presets.QUICK, 10000, _schedule(10000, 40, 50)),
    }[size]
    seeds = (FRESH_SEEDS if fresh else SEEDS)[size]
    jobs = {
        (depth, seed): Job(
            partial(attention_only, replace(base, n_layers=depth)),
            seed,
            runs / f"attention-only-{size}",
            f"{depth}-layers",
            steps,
            schedule,
        )
        for depth in sorted(seeds, reverse=True)
        for seed in seeds[depth]
    }
    trained = _trained(jobs, size)
    return {depth: [trained[depth, seed] for seed in chosen] for depth, chosen in seeds.items()}


def first_and_fresh(first: Mapping[Any, Sequence[Run]], fresh: Mapping[Any, Sequence[Run]] | None) -> str:
    """The seeds that a page is about."""
    return f"first seeds: {seeds_in_words(first)}" + (f"; fresh seeds: {seeds_in_words(fresh)}" if fresh else "")


def seeds_in_words(trained: Mapping[Any, Sequence[Run]]) -> str:
    """Which seeds there are of what."""
    return ", ".join(
        f"{kind_in_words(kind)} seeds {_listed([run.seed for run in group])}" for kind, group in trained.items()
    )


def kind_in_words(kind: str | int) -> str:
    """A kind of run: a name, or a number of layers."""
    return kind if isinstance(kind, str) else f"{kind} layer" + ("s" if kind > 1 else "")


def _listed(seeds: Sequence[int | None]) -> str:
    """0-5, or 0-2 and 10-12."""
    numbers = sorted(seed for seed in seeds if seed is not None)
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return " and ".join(f"{low}-{high}" if high > low else str(low) for low, high in zip(starts, ends, strict=True))


def modular_addition_runs(size: str, runs: Path = RUNS, *, fresh: bool = False) -> dict[str, list[Run]]:
    """Runs that grok, and those with random labels and with weight decay 0: by kind, one run per seed."""
    base, steps, schedule = {
        "toy": (TOY_MODULAR, 300, _schedule(300, 10, 20)),
        "quick": (modular_presets.QUICK, 5000, _schedule(5000, 60, 100)),
        "paper": (modular_presets.PAPER, 8000, _schedule(8000, 60, 200)),
    }[size]
    seeds = modular_seeds(size, fresh=fresh)
    kinds = {
        "grokking": base,
        "random labels": modular_presets.with_random_labels(base),
        "weight decay 0": modular_presets.without_weight_decay(base),
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
        for kind, config in kinds.items()
        for seed in seeds[kind]
    }
    trained = _trained(jobs, size)
    return {kind: [trained[kind, seed] for seed in chosen] for kind, chosen in seeds.items()}


def modular_seeds(size: str, *, fresh: bool = False) -> dict[str, Sequence[int]]:
    """The seeds of modular addition, by kind of run."""
    grokking, controls = (FRESH_MODULAR_SEEDS if fresh else MODULAR_SEEDS)[size]
    return {"grokking": grokking, "random labels": controls, "weight decay 0": controls}


def _trained(jobs: dict, size: str) -> dict:
    return dict(zip(jobs, train_all(list(jobs.values()), workers=1 if size == "toy" else None), strict=True))


def _schedule(steps: int, count: int, every: int) -> tuple[int, ...]:
    """Some spread over the logarithm, for the early days, and one every so many steps."""
    return tuple(sorted({*schedules.log_spaced(steps, count), *schedules.every(every, steps)}))
