"""What `python -m models` can run: a preset is an experiment with its length, its checkpoints and its price."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoints import schedules
from models.training import Experiment, train


@dataclass(frozen=True)
class Preset:
    """One setting of one model. cost and numbers are what a reader of --help wants to know.

    `checkpoints` of them are spread evenly over the logarithm of the step; `every` adds one every so many steps, for
    models whose great change comes late.
    """

    experiment: Callable[[Sequence[int]], Experiment]
    steps: int
    checkpoints: int
    cost: str
    numbers: str
    every: int = 0

    @property
    def schedule(self) -> tuple[int, ...]:
        """Steps at which the weights are kept."""
        regular = schedules.every(self.every, self.steps) if self.every else ()
        return tuple(sorted({*schedules.log_spaced(self.steps, self.checkpoints), *regular}))

    def train(self, seeds: Sequence[int], directory: str | Path, name: str, *, quiet: bool = False) -> list[Path]:
        """Train these seeds, or finish what was begun; the run directories."""
        return train(self.experiment, seeds, directory, name, self.steps, self.schedule, quiet=quiet)
