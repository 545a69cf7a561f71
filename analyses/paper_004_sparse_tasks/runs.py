"""The runs behind the pages on paper 004: trained once, kept, and found again by the next page.

Linear attention on sparse and on nearly sparse features, softmax attention on sparse features and on those of the
source-capacity condition. Sizes: toy (seconds, for tests), quick (six seeds), paper (ten seeds, longer). `Source` says
which seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from analyses.tools.source import Source
from checkpoints import Run, open_run, schedules
from models.multitask_sparse.model import flow_of
from models.multitask_sparse.theory import FullFlow, TaskFlow
from models.training import Experiment, train

RUNS = Path("checkpoints/runs")
SEEDS = {"toy": 2, "quick": 6, "paper": 10}


@dataclass(frozen=True)
class Group:
    """Several seeds of one setting."""

    config: Any
    runs: list[Run]

    @cached_property
    def times(self) -> np.ndarray:
        """Theory time of every logged loss: learning rate x step."""
        return self.config.learning_rate * self.runs[0].metrics.index.to_numpy()

    @cached_property
    def test_losses(self) -> np.ndarray:
        """Logged losses, expected over all tasks [seeds, steps]."""
        return np.stack([run.metrics["test_loss"].to_numpy() for run in self.runs])

    def flow(self, kind: type[TaskFlow] = FullFlow, seed: int = 0) -> TaskFlow:
        """A theory of one seed's run, for the data it drew; of linear attention only."""
        run = self.runs[seed]
        return flow_of(kind, run.config, run.theory or {})

    def at(self, times: np.ndarray) -> np.ndarray:
        """Test losses at these times [seeds, times]."""
        return np.stack([np.exp(np.interp(times, self.times, np.log(losses))) for losses in self.test_losses])


def train_group(
    kind: Callable[[Any, Sequence[int]], Experiment],
    config: Any,
    name: str,
    steps: int,
    source: Source,
    *,
    seeds: int | None = None,
    checkpoints: int = 12,
) -> Group:
    """Train or load the seeds of one setting; a setting without chance in it needs one of them."""
    schedule = schedules.log_spaced(steps, 4 if source.size == "toy" else checkpoints)
    chosen = source.seeds(SEEDS[source.size] if seeds is None else seeds)
    paths = train(partial(kind, config), chosen, source.runs / f"multitask-sparse-{source.size}", name, steps, schedule)
    return Group(config, [open_run(path) for path in paths])
