"""Softmax attention on the same contexts, with or without MLPs, trained by Adam (paper 003, section 5.3 and G.3).

Tokens carry W_x x + w_y y, tests no y. Every layer has weights of its own and adds

    h_mu <- h_mu + 1/L sum over the context of A_mu,nu W_v h_nu,      A_mu,nu = softmax over nu of h_nu^T W_k^T W_q h_mu

and, with a hidden layer, 1/L W_2 gelu(W_1 h_mu) after that; the answer is w_o . h. The learning rate does not depend on
depth (CompleteP). There is no theory; several seeds are one batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor
from torch.nn.functional import gelu

from models.adam_of_seeds import AdamConfig, AdamOfSeeds
from models.depth_and_context.model import DepthConfig, draw_batch
from models.depth_and_context.task import Contexts, spectrum_for

Parameters = Mapping[str, Float32[Tensor, "seeds ..."]]


@dataclass(frozen=True)
class SoftmaxConfig(DepthConfig):
    """The same with the residual stream's dimension and that of the MLPs (0: none). Layers are always untied."""

    stream: int = 16
    hidden: int = 0
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width or self.untied:
            raise ValueError(
                "softmax layers are untied as they are, and the width is that of the stream: leave both out"
            )
        if self.stream < 1 or self.hidden < 0:
            raise ValueError(f"stream is {self.stream}, hidden {self.hidden}: at least 1, and 0 or more, are expected")
        if self.context == 0:
            raise ValueError("context is 0: softmax needs the examples themselves, not only their covariance")


CIRCUITS: Mapping[str, Any] = {
    "ov": {"tensors": ["w_v"], "pattern": "layer row column -> layer 1 row column"},
    "qk": {"tensors": ["w_k", "w_q"], "pattern": "layer inner row, layer inner column -> layer 1 row column"},
}
"""W_v and W_k^T W_q of every layer."""


class SoftmaxLayers:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "depth-and-context-softmax"
    circuits = CIRCUITS
    threads = 1

    def __init__(self, config: SoftmaxConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.spectrum = spectrum_for(config.data, config.dimension, config.capacity, config.source)
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        start = [start_of(config, generator) for generator in self.generators]
        stacked = {name: torch.stack([s[name] for s in start]) for name in start[0]}
        self.adam = AdamOfSeeds(stacked, AdamConfig(config.learning_rate))

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The config; there is no theory of it."""
        return {"model": "softmax", **asdict(self.config)}, None

    def update(self) -> Mapping[str, Tensor]:
        """One step of Adam on fresh contexts per seed; the loss before it."""
        parameters = {name: value.requires_grad_() for name, value in self.adam.parameters.items()}
        loss = mean_squared_error(
            parameters, draw_batch(self.config, self.spectrum, self.generators), self.config.depth
        )
        gradients = torch.autograd.grad(loss.sum(), list(parameters.values()))
        for value in parameters.values():
            value.requires_grad_(False)
        self.adam.update(dict(zip(parameters, gradients, strict=True)))
        return {"loss": loss.detach()}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """w_x, w_y, w_o and of every layer w_q, w_k, w_v, with MLPs w_1 and w_2."""
        return {name: value[index].detach() for name, value in self.adam.parameters.items()}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Parameters, Adam's memory and the generator."""
        return self.adam.state(index) | {"generator": self.generators[index].get_state()}

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.adam.restore(states)
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state["generator"])


def start_of(config: SoftmaxConfig, generator: torch.Generator) -> dict[str, Float32[Tensor, "..."]]:
    """Normal weights that keep the size of what they read; read-out and W_2 start smaller and at zero."""
    n, layers = config.stream, config.depth

    def normal(*shape: int, fan_in: int) -> Tensor:
        return torch.randn(*shape, generator=generator) / fan_in**0.5

    parameters = {
        "w_x": normal(n, config.dimension, fan_in=config.dimension),
        "w_y": normal(n, fan_in=1),
        "w_o": normal(n, fan_in=n**2),
        "w_q": normal(layers, n, n, fan_in=n),
        "w_k": normal(layers, n, n, fan_in=n**2),  # scores of order 1 / sqrt n at the start
        "w_v": normal(layers, n, n, fan_in=n),
    }
    if config.hidden:
        parameters["w_1"] = normal(layers, config.hidden, n, fan_in=n)
        parameters["w_2"] = torch.zeros(layers, n, config.hidden)
    return parameters


def mean_squared_error(parameters: Parameters, contexts: Contexts, depth: int) -> Float32[Tensor, " seeds"]:
    """Against the noiseless answers, mean over tests and contexts of every seed."""
    inputs, noise, tests, task = (getattr(contexts, field.name).float() for field in fields(contexts))
    d, shown = task.shape[-1], inputs.shape[-2]
    labels = (inputs @ task[..., None])[..., 0] / d**0.5 + noise
    answers = (tests @ task[..., None])[..., 0] / d**0.5
    h = torch.cat((inputs, tests), -2) @ parameters["w_x"][:, None].mT
    h = torch.cat((h[..., :shown, :] + labels[..., None] * parameters["w_y"][:, None, None], h[..., shown:, :]), -2)
    for layer in range(depth):
        w_q, w_k, w_v = (parameters[name][:, layer][:, None] for name in ("w_q", "w_k", "w_v"))
        seen = h[..., :shown, :]
        attention = ((h @ w_q.mT) @ (seen @ w_k.mT).mT).softmax(-1)
        h = h + attention @ (seen @ w_v.mT) / depth
        if "w_1" in parameters:
            h = h + gelu(h @ parameters["w_1"][:, layer][:, None].mT) @ parameters["w_2"][:, layer][:, None].mT / depth
    asked = (h[..., shown:, :] @ parameters["w_o"][:, None, :, None])[..., 0]
    return (asked - answers).square().mean((-1, -2))
