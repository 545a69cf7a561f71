"""The runs behind the pages on paper 004: trained once, kept, and found again by the next page."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from checkpoints import Run, open_run, schedules
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig, flow_of
from models.multitask_sparse.theory import FullFlow, TaskFlow
from models.training import train

RUNS = Path("checkpoints/runs")
SEEDS = {"toy": 2, "quick": 5, "paper": 10}


@dataclass(frozen=True)
class Group:
    """Several seeds of one setting."""

    config: MultitaskConfig
    runs: list[Run]

    @cached_property
    def times(self) -> np.ndarray:
        """Theory time of every logged loss."""
        return self.config.learning_rate * self.runs[0].metrics.index.to_numpy()

    @cached_property
    def test_losses(self) -> np.ndarray:
        """Logged losses, expected over all tasks [seeds, steps]."""
        return np.stack([run.metrics["test_loss"].to_numpy() for run in self.runs])

    def flow(self, kind: type[TaskFlow] = FullFlow, seed: int = 0) -> TaskFlow:
        """A theory of one seed's run, for the data it drew."""
        run = self.runs[seed]
        return flow_of(kind, run.config, run.theory or {})

    def at(self, times: np.ndarray) -> np.ndarray:
        """Test losses at these times [seeds, times]."""
        return np.stack([np.exp(np.interp(times, self.times, np.log(losses))) for losses in self.test_losses])


def train_group(config: MultitaskConfig, name: str, steps: int, size: str, runs: Path = RUNS, seeds: int = 1) -> Group:
    """Train or load the seeds of one setting."""
    schedule = schedules.log_spaced(steps, 6 if size == "toy" else 30 if config.batch or config.data else 50)
    paths = train(
        partial(MultitaskAttention, config), range(seeds), runs / f"multitask-sparse-{size}", name, steps, schedule
    )
    return Group(config, [open_run(path) for path in paths])
