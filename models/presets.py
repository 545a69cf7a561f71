"""What `python -m models` can run: a preset is an experiment with its length, its checkpoints and its price."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoints import schedules
from models.training import Experiment, train


@dataclass(frozen=True)
class Preset:
    """One setting of one model. cost and numbers are what a reader of --help wants to know."""

    experiment: Callable[[Sequence[int]], Experiment]
    steps: int
    checkpoints: int
    cost: str
    numbers: str

    def train(self, seeds: Sequence[int], directory: str | Path, name: str, *, quiet: bool = False) -> list[Path]:
        """Train these seeds, or finish what was begun; the run directories."""
        schedule = schedules.log_spaced(self.steps, self.checkpoints)
        return train(self.experiment, seeds, directory, name, self.steps, schedule, quiet=quiet)
