"""The runs behind the pages on paper 000: trained once, kept, and found again by the next page.

Three contexts of one three-mode setting show the 1/N difference between the two theories; one setting with modes far
apart shows plateaus and time scales. Sizes: toy (seconds, for tests), quick (the demo), paper (the printed setting).
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from checkpoints import Run, open_run, schedules
from models.linear_icl.model import LinearICL, LinearICLConfig, exact_theory, printed_theory
from models.linear_icl.theory import ExactTheory, PrintedTheory
from models.training import train
from probes import Alignment, align

RUNS = Path("checkpoints/runs")
CONTEXTS = (128, 32, 8)

THREE_MODES = LinearICLConfig()
FAR_APART = LinearICLConfig(eigenvalues=(1.0, 0.4, 0.16), context=64, batch=256)
PRINTED_SETTING = LinearICLConfig(eigenvalues=(1.0, 0.5, 0.25, 0.125), context=128)

SEEDS = {"toy": 2, "quick": 5, "paper": 10}


@dataclass(frozen=True)
class Group:
    """Several seeds of one setting, with both theories."""

    config: LinearICLConfig
    runs: list[Run]

    @cached_property
    def printed(self) -> PrintedTheory:
        """The theory of Eqs 9-14, without the noise of finite contexts."""
        return printed_theory(self.runs[0].config)

    @cached_property
    def exact(self) -> ExactTheory:
        """The flow for endless tasks, to be drawn beside the mean over seeds."""
        return ExactTheory(self.config.eigenvalues, self.config.context, self.config.init)

    @cached_property
    def alignments(self) -> dict[str, list[Alignment]]:
        """By theory: each seed's run beside it; the exact one for the very tasks of that seed."""
        return {
            "printed": [align(run, self.printed) for run in self.runs],
            "exact": [align(run, exact_theory(run.config, run.theory or {})) for run in self.runs],
        }

    def per_seed(self, theory: str, column: str) -> np.ndarray:
        """One column of the table of modes: [seeds, modes]."""
        return np.stack([alignment.modes[column].to_numpy() for alignment in self.alignments[theory]])

    def trajectories(self) -> tuple[np.ndarray, np.ndarray]:
        """Times, and measured amplitudes [seeds, times, modes]."""
        tables = [
            a.trajectories.pivot(index="time", columns="mode", values="measured") for a in self.alignments["exact"]
        ]
        return tables[0].index.to_numpy(), np.stack([table.to_numpy() for table in tables])

    def loss(self, width: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
        """Times and loss [seeds, times], averaged in bins of ln(time)."""
        tables = []
        for alignment in self.alignments["exact"]:
            later = alignment.loss[alignment.loss["time"] > 0]
            bins = np.floor(np.log(later["time"]) / width)
            tables.append(later.groupby(bins)[["time", "measured"]].mean())
        return tables[0]["time"].to_numpy(), np.stack([table["measured"].to_numpy() for table in tables])

    @property
    def facts(self) -> str:
        """What was run, in a line."""
        c = self.config
        return (
            f"s = {', '.join(f'{s:g}' for s in c.eigenvalues)}; N = {c.context}; a(0) = {c.init:g}; "
            f"learning rate {c.learning_rate:g}, batch {c.batch}, {c.tasks} tasks in ± pairs, "
            f"{self.runs[0].steps[-1]} steps, {len(self.runs)} seeds"
        )


def three_modes(context: int, size: str, runs: Path = RUNS, null_init: float = 0.0) -> Group:
    """s = (1, 1/2, 1/4) at one context length."""
    config = replace(THREE_MODES, context=context, null_init=null_init)
    config = _toy(config) if size == "toy" else config
    name = f"three-modes-N{context}" + (f"-null{null_init:g}" if null_init else "")
    return _group(config, name, {"toy": 800, "quick": 4800, "paper": 6400}[size], size, runs)


def far_apart(size: str, runs: Path = RUNS) -> Group:
    """Modes a factor six apart in time; at size paper, the printed four modes a factor four apart."""
    if size == "paper":
        return _group(PRINTED_SETTING, "printed-setting", 16000, size, runs)
    config = _toy(FAR_APART) if size == "toy" else FAR_APART
    return _group(config, "far-apart", {"toy": 2000, "quick": 10000}[size], size, runs)


def _toy(config: LinearICLConfig) -> LinearICLConfig:
    """Fast and rough, but every mode is learned."""
    return replace(config, batch=64, learning_rate=0.2, init=1e-2)


def _group(config: LinearICLConfig, name: str, steps: int, size: str, runs: Path) -> Group:
    seeds = range(SEEDS[size])
    schedule = schedules.log_spaced(steps, 100)
    paths = train(partial(LinearICL, config), seeds, runs / f"linear-icl-{size}", name, steps, schedule)
    return Group(config, [open_run(path) for path in paths])
