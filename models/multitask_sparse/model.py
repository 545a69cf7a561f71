"""Linear self-attention on many sparse tasks, trained by gradient descent (paper 004, sections 2.3 and 3.1).

The output for a prompt of task s is f = [V Phi Phi^T W phi]_s = v_s^T H_s w_s, with v_s a row of V and w_s a column of
W. Only two coordinates of each are ever read, that of the feature and that of the target, so these are what is kept
and trained: v and w are [tasks, 2]. One update is one step of descent on the loss of Eq 6, over the whole data set (a
finite one of N prompts, or the task distribution itself) or over a batch of prompts drawn from it. Several seeds are
one batch; they differ in the data they drew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from models.multitask_sparse.task import PowerLaw, Tasks, power_law_tasks
from models.multitask_sparse.theory import TaskFlow, uniform_start


@dataclass(frozen=True)
class MultitaskConfig:
    """One setting.

    alpha, beta, gamma are the fall-off of frequency, context length and strength; context and strength those of the
    most frequent task; data is the number of prompts N (0: endless), batch the prompts per update (0: all of them);
    size D lets the model learn only the tasks s < D (0: all). v starts at init, w at init x (1 + offset) (Eq 106).
    """

    tasks: int = 100
    alpha: float = 1.8
    beta: float = 0.0
    gamma: float = 0.0
    context: float = 100.0
    strength: float = 0.5
    data: int = 0
    batch: int = 0
    size: int = 0
    init: float = 0.01
    offset: float = 0.1
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        start_of(self)
        for name in ("data", "batch", "size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: 0 or a positive number is expected")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate is {self.learning_rate}: a positive number is needed")


CIRCUITS: Mapping[str, Any] = {
    "ov": {
        "beside": [
            {"tensors": ["v"], "pattern": "task coordinate -> 1 1 task task", "at": {"coordinate": 0}},
            {"tensors": ["v"], "pattern": "task coordinate -> 1 1 task 1", "at": {"coordinate": 1}},
        ]
    },
    "qk": {
        "above": [
            {"tensors": ["w"], "pattern": "task coordinate -> 1 1 task task", "at": {"coordinate": 0}},
            {"tensors": ["w"], "pattern": "task coordinate -> 1 1 1 task", "at": {"coordinate": 1}},
        ]
    },
}
"""V [tasks, tasks + 1] and W [tasks + 1, tasks] of the paper, see `matrix_of`."""


class MultitaskAttention:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "multitask-sparse"
    circuits = CIRCUITS
    threads = 1

    def __init__(self, config: MultitaskConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.tasks, v, w = start_of(config)
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self.frequency = torch.stack([draw_frequency(config, self.tasks, generator) for generator in self.generators])
        self.moments = torch.as_tensor(self.tasks.moments)
        self.strength = torch.as_tensor(self.tasks.strength)
        self.probability = torch.as_tensor(self.tasks.probability)
        self.v, self.w = (torch.as_tensor(x).repeat(len(self.seeds), 1, 1) for x in (v, w))

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and how the checkpoints relate to theory."""
        theory = {
            "time_per_step": self.config.learning_rate,
            "mode_product": ["v", "h", "w"],
            "mode_subscripts": "si,sij,sj->s",
            "conserved": ["v", "w"],
            "conserved_axes": 1,
            "frequency": self.frequency[index].tolist(),
        }
        return asdict(self.config), theory

    def update(self) -> Mapping[str, Tensor]:
        """One step of gradient descent per seed; training and test loss before it."""
        frequency = self.frequency
        if self.config.batch:
            frequency = torch.stack([self._draw_batch(i) for i in range(len(self.seeds))])
        loss, gradient_v, gradient_w = loss_and_gradient(self.v, self.w, self.moments, self.strength, frequency)
        gap = (self.v[..., None, :] @ self.moments @ self.w[..., None])[..., 0, 0] - self.strength
        test_loss = 0.5 * (self.probability * gap.square()).sum(-1)
        self.v.sub_(gradient_v, alpha=self.config.learning_rate)
        self.w.sub_(gradient_w, alpha=self.config.learning_rate)
        return {"loss": loss, "test_loss": test_loss}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """v and w [tasks, 2] on the feature and the target of each task, and the H_s that they are read with."""
        return {"v": self.v[index], "w": self.w[index], "h": self.moments}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights, data and generator."""
        return {
            "v": self.v[index],
            "w": self.w[index],
            "frequency": self.frequency[index],
            "generator": self.generators[index].get_state(),
        }

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.v, self.w, self.frequency = (torch.stack([s[name] for s in states]) for name in ("v", "w", "frequency"))
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state["generator"])

    def _draw_batch(self, index: int) -> Float64[Tensor, " tasks"]:
        """The same of one batch; prompts that the model cannot read still count as prompts."""
        frequency = self.frequency[index]
        rest = (1 - frequency.sum()).clamp(min=0)
        return _draw(torch.cat((frequency, rest[None])), self.config.batch, self.generators[index])[:-1]


def draw_frequency(config: MultitaskConfig, tasks: Tasks, generator: torch.Generator) -> Float64[Tensor, " tasks"]:
    """#_s / N of the tasks the model can learn."""
    probability = torch.as_tensor(tasks.probability)
    frequency = _draw(probability, config.data, generator) if config.data else probability.clone()
    if config.size:
        frequency[config.size - 1 :] = 0
    return frequency


def loss_and_gradient(
    v: Float64[Tensor, "*seeds tasks 2"],
    w: Float64[Tensor, "*seeds tasks 2"],
    moments: Float64[Tensor, "tasks 2 2"],
    strength: Float64[Tensor, " tasks"],
    frequency: Float64[Tensor, "*seeds tasks"],
) -> tuple[Float64[Tensor, "*seeds"], Float64[Tensor, "*seeds tasks 2"], Float64[Tensor, "*seeds tasks 2"]]:
    """The loss of Eq 8 and minus the right-hand sides of Eq 9."""
    seen_v, seen_w = ((moments @ x[..., None])[..., 0] for x in (v, w))
    gap = (v * seen_w).sum(-1) - strength
    pull = (frequency * gap)[..., None]
    return 0.5 * (frequency * gap.square()).sum(-1), pull * seen_w, pull * seen_v


def start_of(config: Any) -> tuple[Tasks, np.ndarray, np.ndarray]:
    """The tasks of a setting, and where v and w start."""
    law = PowerLaw(config.alpha, config.beta, config.gamma)
    tasks = power_law_tasks(law, config.tasks, config.context, config.strength, exact=config.tasks)
    return tasks, *uniform_start(tasks, config.init, config.offset)


def flow_of(kind: type[TaskFlow], config: Mapping[str, Any], theory: Mapping[str, Any]) -> TaskFlow:
    """A theory of a run, for the very data it was trained on."""
    tasks, v, w = start_of(MultitaskConfig(**config))
    return kind(tasks, v, w, theory["frequency"])


def matrix_of(active: Float64[Tensor, "tasks 2"]) -> Float64[Tensor, "tasks tasks_and_target"]:
    """V, or W transposed, of the paper: the trained coordinates of every task where they belong, 0 elsewhere."""
    return torch.cat((torch.diag(active[:, 0]), active[:, 1:]), 1)


def _draw(probability: Tensor, count: int, generator: torch.Generator) -> Float64[Tensor, " outcomes"]:
    """Shares of the outcomes in `count` independent draws."""
    drawn = torch.multinomial(probability, count, replacement=True, generator=generator)
    return torch.bincount(drawn, minlength=len(probability)).double() / count
