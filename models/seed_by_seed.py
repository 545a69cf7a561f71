"""Several seeds as one `Experiment`, each a computation of its own.

One batched computation would save next to nothing here (measured: 0 - 5 % for three attention-only models on one core),
and would round differently with the company a seed is in. So a seed gives the same numbers alone and among others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Learner(Protocol):
    """One model in training."""

    def update(self) -> Mapping[str, float]:
        """One update; scalars measured just before it, the loss among them. Costly ones may come only now and then."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The weights, as they are saved."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """All that is needed to go on."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        ...


class SeedBySeed:
    """An `Experiment` of `models.training` made of one learner per seed. config is what run.json says of each run."""

    circuits = None  # attention heads, found by the names of their weights
    threads = 1  # on models this small a second thread costs more than it brings

    def __init__(
        self, family: str, config: Mapping[str, Any], make: Callable[[int], Learner], seeds: Sequence[int]
    ) -> None:
        self.family, self.seeds, self._config = family, tuple(seeds), dict(config)
        self.learners = [make(seed) for seed in self.seeds]

    def describe(self, index: int) -> tuple[Mapping[str, Any], None]:
        """The config; there is no theory for these."""
        return self._config, None

    def update(self) -> Mapping[str, Tensor]:
        """One update of every seed."""
        rows = [learner.update() for learner in self.learners]
        return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """Those of one seed."""
        return self.learners[index].weights()

    def state(self, index: int) -> Mapping[str, Tensor]:
        """That of one seed."""
        return self.learners[index].state()

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        for learner, state in zip(self.learners, states, strict=True):
            learner.restore(state)
