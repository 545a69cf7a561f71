"""Softmax self-attention on tasks whose features are not sparse: the source-capacity condition (paper 004, H.1, Fig 5).

Task s has Gaussian features phi ~ N(0, Sigma_s), Sigma_s diagonal with variances k^-tau that begin with 1 at feature s
and go round (Eqs 108-110), and targets y = Lambda_s . phi with Lambda_s ~ N(0, I), drawn once per seed (Eq 111). The
prompt G has psi examples (phi, y) and the query (phi, 0); the answer is [V G softmax(G^T W_K^T W_Q g)]_s at the query
g. A model of size D reads the first D - 1 features and has as many rows of V: tasks from D on are never answered.

A softmax over endless Gaussian examples is linear attention: with weights exp(u . z) the mean of z ~ N(0, S) is S u. So
context 0 means an endless one, where the loss is exact:

    f = v_s^T S_s W_K^T W_Q g,    S_s = [ Sigma, Sigma Lambda ; Lambda^T Sigma, Lambda^T Sigma Lambda ] of the task.

With a finite context every update draws prompts of every task and weighs them by the frequency of the task: the
expected gradient is that of descent on endless data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from models.multitask_sparse.task import PowerLaw, power_law_tasks

Parameters = Mapping[str, Float64[Tensor, "seeds rows columns"]]


@dataclass(frozen=True)
class CapacityConfig:
    """alpha, tau: fall-off of frequencies and of variances; context 0: endless; prompts: of each task in an update.

    size D (0: all tasks and features); inner is the dimension of keys and queries (0: that of the tokens); weights
    start normal, W_K and W_Q with standard deviation `spread` / sqrt(inner), V with `init`.
    """

    tasks: int = 64
    alpha: float = 1.8
    tau: float = 3.0
    context: int = 0
    prompts: int = 2
    size: int = 0
    inner: int = 0
    spread: float = 0.3
    init: float = 0.1
    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        PowerLaw(self.alpha)
        if self.tasks < 1 or self.prompts < 1:
            raise ValueError(f"tasks is {self.tasks}, prompts {self.prompts}: at least one of each is needed")
        if not self.tau > 1:
            raise ValueError(f"tau is {self.tau}: variances k^-tau need it above 1")
        if self.context < 0 or self.inner < 0:
            raise ValueError(f"context is {self.context}, inner {self.inner}: 0 or a positive number is expected")
        if self.size and not 2 <= self.size <= self.tasks + 1:
            raise ValueError(f"size is {self.size}: 0, or between 2 (one feature) and {self.tasks + 1}, is expected")
        if not (self.spread > 0 and self.init > 0 and self.learning_rate > 0):
            raise ValueError("spread, init and learning_rate must be above 0")

    @property
    def read(self) -> int:
        """How many features and tasks the model has room for."""
        return self.size - 1 if self.size else self.tasks


CIRCUITS: Mapping[str, Any] = {
    "ov": {"tensors": ["value"], "pattern": "row column -> 1 1 row column"},
    "qk": {"tensors": ["key", "query"], "pattern": "inner row, inner column -> 1 1 row column"},
}
"""V, and W_K^T W_Q between tokens and the features of the query."""


class CapacityAttention:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "multitask-capacity-softmax"
    circuits = CIRCUITS
    threads = 1

    def __init__(self, config: CapacityConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        tasks = power_law_tasks(PowerLaw(config.alpha), config.tasks, 1.0, 1.0, exact=config.tasks)
        self.probability = torch.as_tensor(tasks.probability)
        self.variances = variances(config.tasks, config.tau)
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        start = [self._start(generator) for generator in self.generators]
        self.strength = torch.stack([s.pop("strength") for s in start])
        self.parameters = {name: torch.stack([s[name] for s in start]) for name in start[0]}

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The config; there is no theory of it."""
        return {"attention": "softmax", **asdict(self.config)}, None

    def update(self) -> Mapping[str, Tensor]:
        """One step of gradient descent of every seed; the loss before it, which is also that of the test."""
        parameters = {name: value.requires_grad_() for name, value in self.parameters.items()}
        c = self.config
        if c.context:
            learned = squared_error(parameters, self.strength[:, : c.read], self._draw(c.context, c.prompts))
        else:
            learned = endless_error(parameters, self.strength[:, : c.read], self.variances[: c.read])
        loss = (self.probability[: c.read] * learned).sum(-1)
        gradients = torch.autograd.grad(loss.sum(), list(parameters.values()))
        for value, gradient in zip(parameters.values(), gradients, strict=True):
            value.requires_grad_(False)
            value.sub_(gradient, alpha=c.learning_rate)
        total = loss.detach() + self._unlearned
        return {"loss": total, "test_loss": total}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """value [tasks, tokens], key [inner, tokens], query [inner, features]; and the strengths, which stay."""
        own = {name: value[index].detach() for name, value in self.parameters.items()}
        return own | {"strength": self.strength[index]}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights, strengths and generator."""
        return {**self.weights(index), "generator": self.generators[index].get_state()}

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.strength = torch.stack([state["strength"] for state in states])
        self.parameters = {name: torch.stack([state[name] for state in states]) for name in self.parameters}
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state["generator"])

    @property
    def _unlearned(self) -> Float64[Tensor, " seeds"]:
        """The loss of the tasks that have no row in V, which answers 0."""
        rest = slice(self.config.read, None)
        targets = 0.5 * (self.variances[rest] * self.strength[:, rest].square()).sum(-1)
        return (self.probability[rest] * targets).sum(-1)

    def _draw(self, context: int, prompts: int) -> Float64[Tensor, "seeds tasks prompts tokens features"]:
        """Features of prompts of every task that can be learned; the last token is the query."""
        shape = (self.config.read, prompts, context + 1, self.config.tasks)
        drawn = torch.stack([torch.randn(*shape, generator=g, dtype=torch.float64) for g in self.generators])
        return drawn * self.variances[: self.config.read, None, None].sqrt()

    def _start(self, generator: torch.Generator) -> dict[str, Tensor]:
        c = self.config
        inner = c.inner or c.read + 1

        def normal(scale: float, *shape: int) -> Tensor:
            return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

        return {
            "strength": normal(1.0, c.tasks, c.tasks),
            "value": normal(c.init, c.read, c.read + 1),
            "key": normal(c.spread / inner**0.5, inner, c.read + 1),
            "query": normal(c.spread / inner**0.5, inner, c.read),
        }


def variances(tasks: int, tau: float) -> Float64[Tensor, "tasks features"]:
    """Eqs 108-110: k^-tau, beginning at the task's own feature and going round."""
    falling = np.arange(1, tasks + 1, dtype=np.float64) ** -tau
    return torch.as_tensor(np.stack([np.roll(falling, s) for s in range(tasks)]))


def squared_error(
    parameters: Parameters,
    strength: Float64[Tensor, "seeds tasks features"],
    drawn: Float64[Tensor, "seeds tasks prompts tokens features"],
) -> Float64[Tensor, "seeds tasks"]:
    """Half of the mean squared error of every task on prompts written out."""
    _, rows, prompts = drawn.shape[:3]
    found = []
    for index, own in enumerate(strength):
        weights = {name: value[index] for name, value in parameters.items()} | {"strength": own}
        task = torch.arange(rows).repeat_interleave(prompts)
        gap = answers(weights, task, drawn[index].flatten(0, 1)) - (
            own[task] * drawn[index, :, :, -1].flatten(0, 1)
        ).sum(-1)
        found.append(0.5 * gap.square().unflatten(0, (rows, prompts)).mean(-1))
    return torch.stack(found)


def answers(
    weights: Mapping[str, Tensor], task: Int64[Tensor, " prompts"], drawn: Float64[Tensor, "prompts tokens features"]
) -> Float64[Tensor, " prompts"]:
    """What one seed answers to prompts of these tasks, the softmax token by token; the last token is the query."""
    value, key, query, strength = (weights[name] for name in ("value", "key", "query", "strength"))
    read = query.shape[-1]
    shown = (drawn @ strength[task][..., None])[..., 0]
    shown = torch.cat((shown[:, :-1], torch.zeros_like(shown[:, -1:])), 1)
    tokens = torch.cat((drawn[..., :read], shown[..., None]), -1)
    looked_for = drawn[:, -1, :read] @ (key.mT @ query).mT
    attention = (tokens @ looked_for[..., None])[..., 0].softmax(-1)
    seen = (attention[:, None] @ tokens)[:, 0]
    return (value[task] * seen).sum(-1)


def endless_answers(
    weights: Mapping[str, Tensor],
    task: Int64[Tensor, " prompts"],
    asked: Float64[Tensor, "prompts features"],
    spectra: Float64[Tensor, "tasks features"],
) -> Float64[Tensor, " prompts"]:
    """What it answers to these queries after an endless context."""
    seen = _after_endless(
        weights["value"], weights["strength"][: len(weights["value"])], spectra[: len(weights["value"])]
    )
    answer = seen @ weights["key"].mT @ weights["query"]
    return (answer[task] * asked[:, : answer.shape[-1]]).sum(-1)


def endless_error(
    parameters: Parameters,
    strength: Float64[Tensor, "seeds tasks features"],
    spectra: Float64[Tensor, "tasks features"],
) -> Float64[Tensor, "seeds tasks"]:
    """The same in expectation over queries, for an endless context."""
    answer = _after_endless(parameters["value"], strength, spectra) @ parameters["key"].mT @ parameters["query"]
    gap = torch.nn.functional.pad(answer, (0, spectra.shape[-1] - answer.shape[-1])) - strength
    return 0.5 * (spectra * gap.square()).sum(-1)


def _after_endless(
    value: Float64[Tensor, "*seeds tasks tokens"],
    strength: Float64[Tensor, "*seeds tasks features"],
    spectra: Float64[Tensor, "tasks features"],
) -> Float64[Tensor, "*seeds tasks tokens"]:
    """v_s^T S_s, on the tokens that the model reads."""
    read = value.shape[-1] - 1
    padded = torch.nn.functional.pad(value[..., :-1], (0, spectra.shape[-1] - read))
    moved = spectra * (padded + value[..., -1:] * strength)
    return torch.cat((moved[..., :read], (moved * strength).sum(-1, keepdim=True)), -1)
