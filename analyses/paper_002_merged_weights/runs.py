"""The runs behind the pages on paper 002: trained once, kept, and found again by the next page.

One covariance at three training lengths, random covariances, and one setting in which the rows are trained too. Sizes:
toy (seconds, for tests), quick (six seeds), paper (ten seeds, half of the noise). `Source` says which seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from analyses.tools.source import Source
from checkpoints import Run, open_run, schedules
from models.merged_weights.model import MergedWeights, MergedWeightsConfig, merged_flow
from models.merged_weights.rows import MergedWeightsWithRows
from models.merged_weights.theory import MergedFlow
from models.training import train
from probes import Alignment, align

RUNS = Path("checkpoints/runs")
SEEDS = {"toy": 2, "quick": 6, "paper": 10}
CONTEXTS = (5, 20, 80)

FIXED = MergedWeightsConfig()
EXPONENTIAL = MergedWeightsConfig(eigenvalues=(1.0, 1.0, 1.0), covariance="exponential", learning_rate=0.005)


@dataclass(frozen=True)
class Group:
    """Several seeds of one setting, each beside its own flow."""

    config: MergedWeightsConfig
    runs: list[Run]

    @cached_property
    def flows(self) -> list[MergedFlow]:
        """Eq 5.4 from each run's own start."""
        return [merged_flow(run.config, run.theory or {}, run.checkpoint(run.steps[0])) for run in self.runs]

    @cached_property
    def alignments(self) -> list[Alignment]:
        """Each run beside its flow."""
        return [align(run, flow) for run, flow in zip(self.runs, self.flows, strict=True)]

    @cached_property
    def products(self) -> np.ndarray:
        """u U at the end of training in the eigenbasis, averaged over the last fifth of each run: [seeds, d, d]."""
        found = []
        for run in self.runs:
            basis = np.array((run.theory or {})["mode_basis"])
            late = [run.checkpoint(step) for step in run.steps if step >= 0.8 * run.steps[-1]]
            found.append(
                np.mean([float(part["value"]) * basis.T @ part["key_query"].numpy() @ basis for part in late], 0)
            )
        return np.stack(found)

    def per_seed(self, column: str) -> np.ndarray:
        """One column of the table of modes: [seeds, modes]."""
        return np.stack([alignment.modes[column].to_numpy() for alignment in self.alignments])

    @property
    def facts(self) -> str:
        """What was run, in a line."""
        c = self.config
        covariance = "Exponential(1) eigenvalues times" if c.covariance == "exponential" else "eigenvalues"
        return (
            f"{covariance} {', '.join(f'{s:g}' for s in c.eigenvalues)}; N = {c.context}; sigma = {c.init:g}; learning rate "
            f"{c.learning_rate:g}, batch {c.batch}, {self.runs[0].steps[-1]} steps, {len(self.runs)} seeds"
        )


def of_context(context: int, source: Source) -> Group:
    """One covariance, d = 5, prompts of this length."""
    config = replace(_sized(FIXED, source.size), context=context)
    steps = {"toy": 200, "quick": 3000, "paper": 6000}[source.size]
    return _group(MergedWeights, config, f"fixed-N{context}", steps, source)


def random_covariances(source: Source) -> Group:
    """A new covariance for every prompt, d = 3."""
    config, steps = _sized(EXPONENTIAL, source.size), {"toy": 200, "quick": 4000, "paper": 8000}[source.size]
    return _group(MergedWeights, config, "exponential", steps, source)


def with_rows(source: Source) -> Group:
    """One covariance, with all weights of Eq 3.6 in training."""
    return _group(MergedWeightsWithRows, *_rows_setting(source.size, "rows"), source)


def without_rows(source: Source) -> Group:
    """The control of `with_rows`: as many prompts, the rows kept at zero."""
    return _group(MergedWeights, *_rows_setting(source.size, "no-rows"), source)


def _rows_setting(size: str, name: str) -> tuple[MergedWeightsConfig, str, int]:
    config = replace(_sized(FIXED, size), batch={"toy": 32, "quick": 256, "paper": 512}[size])
    return config, name, {"toy": 200, "quick": 2400, "paper": 4800}[size]


def _sized(config: MergedWeightsConfig, size: str) -> MergedWeightsConfig:
    if size == "toy":
        return replace(config, batch=64, init=0.5)
    return replace(config, learning_rate=config.learning_rate / 2) if size == "paper" else config


def _group(
    kind: Callable[[MergedWeightsConfig, Sequence[int]], MergedWeights],
    config: MergedWeightsConfig,
    name: str,
    steps: int,
    source: Source,
) -> Group:
    schedule = schedules.log_spaced(steps, 14 if source.size == "toy" else 100)
    seeds = source.seeds(SEEDS[source.size])
    paths = train(partial(kind, config), seeds, source.runs / f"merged-weights-{source.size}", name, steps, schedule)
    return Group(config, [open_run(path) for path in paths])
