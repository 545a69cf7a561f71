"""Linear attention on features that are sparse only nearly: noise on every coordinate (paper 004, H.2, Fig 6).

A feature of task s is phi = +- e_s + zeta, zeta ~ N(0, noise^2 I) (Eq 116). Now all coordinates are read and all of V
and W are trained, on a data set of explicit prompts: f = v_s^T Phi Phi^T W phi at the query. The paper does not say
whether the noise is in the targets too: `targets` is "clean", y = +- Lambda, or "noisy", y = Lambda sum_k phi_k (Eq 3).
With noise 0 it is `MultitaskAttention`, and its closed forms are those to compare with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from models.multitask_sparse.model import MultitaskConfig, start_of

TARGETS = ("clean", "noisy")


@dataclass(frozen=True)
class ApproximateConfig(MultitaskConfig):
    """The same with the noise of the features, and whether targets have it too. data is needed: prompts are explicit.

    context is the number of examples in every prompt.
    """

    tasks: int = 20
    data: int = 200
    noise: float = 0.01
    targets: str = "clean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.targets not in TARGETS:
            raise ValueError(f"targets is {self.targets!r}: one of {', '.join(TARGETS)} is expected")
        if not self.data or self.batch or self.size or self.beta:
            raise ValueError("data must be above 0 and batch, size and beta 0: prompts of one length are written out")
        if self.noise < 0 or self.context != int(self.context):
            raise ValueError(f"noise is {self.noise}, context {self.context}: not negative, and a whole number")


CIRCUITS: Mapping[str, Any] = {
    "ov": {"tensors": ["v"], "pattern": "row column -> 1 1 row column"},
    "qk": {"tensors": ["w"], "pattern": "row column -> 1 1 row column"},
}
"""V [tasks, tasks + 1] and W [tasks + 1, tasks]."""


@dataclass(frozen=True)
class Prompts:
    """What a prompt enters the loss with: its task, Phi Phi^T, the features of the query and its target."""

    task: Int64[Tensor, "*seeds prompts"]
    moments: Float64[Tensor, "*seeds prompts tokens tokens"]
    query: Float64[Tensor, "*seeds prompts features"]
    target: Float64[Tensor, "*seeds prompts"]


class ApproximateAttention:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "multitask-approximate"
    circuits = CIRCUITS
    threads = 1

    def __init__(self, config: ApproximateConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self.prompts = _stacked([draw(config, generator) for generator in generators])
        n = config.tasks
        start = torch.full((len(self.seeds), n, n + 1), config.init, dtype=torch.float64)
        self.v, self.w = start, (1 + config.offset) * start.mT.clone()

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and the share of every task in the data: all that the closed forms need."""
        counts = torch.bincount(self.prompts.task[index], minlength=self.config.tasks).double()
        theory = {"time_per_step": self.config.learning_rate, "frequency": (counts / counts.sum()).tolist()}
        return asdict(self.config), theory

    def update(self) -> Mapping[str, Tensor]:
        """One step of gradient descent on the whole data; the loss of it before."""
        v, w = self.v.requires_grad_(), self.w.requires_grad_()
        loss = mean_error(v, w, self.prompts)
        gradients = torch.autograd.grad(loss.sum(), (v, w))
        v.requires_grad_(False)
        w.requires_grad_(False)
        v.sub_(gradients[0], alpha=self.config.learning_rate)
        w.sub_(gradients[1], alpha=self.config.learning_rate)
        return {"loss": loss.detach()}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """V and W."""
        return {"v": self.v[index], "w": self.w[index]}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights; the data are those of the seed."""
        return self.weights(index)

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.v, self.w = (torch.stack([state[name] for state in states]) for name in ("v", "w"))


def draw(config: ApproximateConfig, generator: torch.Generator) -> Prompts:
    """A data set of prompts."""
    probability = torch.as_tensor(start_of(config)[0].probability)
    strength = torch.as_tensor(start_of(config)[0].strength)
    task = torch.multinomial(probability, config.data, replacement=True, generator=generator)
    shape = (config.data, int(config.context) + 1)
    signs = 2.0 * torch.randint(2, shape, generator=generator) - 1.0
    features = torch.randn(*shape, config.tasks, generator=generator, dtype=torch.float64) * config.noise
    features[torch.arange(config.data), :, task] += signs
    seen = features.sum(-1) if config.targets == "noisy" else signs.double()
    targets = strength[task][:, None] * seen
    shown = torch.cat((targets[:, :-1], torch.zeros_like(targets[:, -1:])), 1)
    tokens = torch.cat((features, shown[..., None]), -1)
    return Prompts(task, tokens.mT @ tokens, features[:, -1], targets[:, -1])


def mean_error(
    v: Float64[Tensor, "seeds tasks tokens"], w: Float64[Tensor, "seeds tokens tasks"], prompts: Prompts
) -> Float64[Tensor, " seeds"]:
    """Eq 6 on explicit prompts."""
    looked_for = prompts.query @ w.mT
    row = v.gather(1, prompts.task[..., None].expand(-1, -1, v.shape[-1]))
    answer = (row * (prompts.moments @ looked_for[..., None])[..., 0]).sum(-1)
    return 0.5 * (answer - prompts.target).square().mean(-1)


def _stacked(drawn: Sequence[Prompts]) -> Prompts:
    return Prompts(*(torch.stack([getattr(one, name) for one in drawn]) for name in Prompts.__dataclass_fields__))
