"""The reduced-Gamma model of depth L, tied or untied, trained by SGD (paper 003, Eqs 4, 19 and B.2).

Inside its context the model takes L steps of preconditioned gradient descent on the regression. With S the covariance
of the context and r = beta - (current estimate), one layer is

    r <- r - Gamma g / L,      g = S r + sqrt(D)/P X epsilon,

and the loss is the mean of (r . x)^2 / D over test points. Width N < D lets Gamma see only the first N coordinates
(Eq 14 with A a projection); with rotated data that is a random projection. An update moves Gamma by
-learning rate x D/2 x gradient (Eq 62), and each untied Gamma^l by L times that (section 5.1). The gradient is written
out by hand; a test compares it with automatic differentiation of Eq 4. Several seeds are one batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from models.depth_and_context.attention_theory import FullAttentionFlow, IsoAttentionFlow
from models.depth_and_context.deterministic_equivalent import check_depth
from models.depth_and_context.task import Contexts, draw_contexts, spectrum_for
from models.depth_and_context.theory import FixedCovarianceFlow, GammaFlow, IsoFlow, RotatedFlow

Gamma = Float64[Tensor, "seeds layers n n"]


@dataclass(frozen=True)
class DepthConfig:
    """One setting. context and tests are P and K, 0 for infinite; width 0 means no bottleneck; noise is sigma^2."""

    data: str = "iso"
    dimension: int = 24
    depth: int = 4
    context: int = 24
    tests: int = 24
    batch: int = 24
    learning_rate: float = 0.02
    noise: float = 0.0
    capacity: float = 1.5
    source: float = 1.0
    width: int = 0
    untied: bool = False

    def __post_init__(self) -> None:
        check_depth(self.depth)
        spectrum_for(self.data, self.dimension, self.capacity, self.source)
        if self.batch < 1 or self.dimension < 1:
            raise ValueError(f"batch is {self.batch}, dimension {self.dimension}: at least one of each is needed")
        if min(self.context, self.tests) < 0:
            raise ValueError(f"context is {self.context}, tests {self.tests}: 0 (infinite) or more is expected")
        if not 0 <= self.width <= self.dimension:
            raise ValueError(f"width is {self.width}: from 1 to the dimension of {self.dimension}, or 0 for all of it")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate is {self.learning_rate}: a positive number is needed")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(f"noise (sigma^2) is {self.noise}: zero or a positive number is needed")
        if self.noise and self.context == 0:
            raise ValueError("label noise averages out of an infinite context (context = 0): choose one of the two")


CIRCUITS: Mapping[str, Any] = {
    "gamma": {"tensors": ["gamma"], "pattern": "layer row column -> layer 1 row column"},
}
"""Gamma of every layer."""


class ReducedGamma:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "depth-and-context"
    circuits = CIRCUITS
    threads = 1  # matrices of a few dozen rows

    def __init__(self, config: DepthConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.spectrum = spectrum_for(config.data, config.dimension, config.capacity, config.source)
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        width = config.width or config.dimension
        layers = config.depth if config.untied else 1
        self.gamma: Gamma = torch.zeros(len(self.seeds), layers, width, width, dtype=torch.float64)

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and how the checkpoints relate to theory."""
        theory = {
            "time_per_step": self.config.learning_rate,
            "mode_product": ["gamma"],
            "mode_subscripts": "lij->ij",
            "mode_basis": torch.eye(self.gamma.shape[-1]).tolist(),
        }
        return {"model": "reduced", **asdict(self.config)}, theory

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on fresh contexts per seed; the loss before it."""
        c = self.config
        loss, gradient = loss_and_gradient(self.gamma, draw_batch(c, self.spectrum, self.generators), c.depth)
        rate = c.learning_rate * c.dimension / 2 * self.gamma.shape[1]
        self.gamma.sub_(gradient, alpha=rate)
        return {"loss": loss}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """gamma [layers, width, width]."""
        return {"gamma": self.gamma[index]}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """gamma and the generator."""
        return {"gamma": self.gamma[index], "generator": self.generators[index].get_state()}

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.gamma = torch.stack([state["gamma"] for state in states])
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state["generator"])


def draw_batch(config: Any, spectrum: Any, generators: Sequence[torch.Generator]) -> Contexts:
    """Fresh contexts [seeds, batch, ...]."""
    sizes = (config.batch, config.context, config.tests)
    drawn = [draw_contexts(config.data, spectrum, sizes, config.noise, generator) for generator in generators]
    return Contexts(*(torch.stack([getattr(d, f) for d in drawn]) for f in ("inputs", "noise", "tests", "task")))


def errors(gamma: Gamma, contexts: Contexts, depth: int) -> tuple[list[Tensor], list[Tensor]]:
    """r before every layer and after the last, and what each layer saw, g. All [seeds, batch, d]."""
    layers, width = gamma.shape[1], gamma.shape[-1]
    d = contexts.task.shape[-1]
    noise = d**0.5 * _mean_over(contexts.inputs, contexts.noise)
    r, seen = [contexts.task], []
    for layer in range(depth):
        seen.append(_mean_over(contexts.inputs, _along(contexts.inputs, r[-1])) + noise)
        step = seen[-1][..., :width] @ gamma[:, layer % layers].mT / depth
        r.append(torch.cat((r[-1][..., :width] - step, r[-1][..., width:]), -1))
    return r, seen


def loss_and_gradient(gamma: Gamma, contexts: Contexts, depth: int) -> tuple[Float64[Tensor, " seeds"], Gamma]:
    """Mean squared error over tests and contexts of every seed, and its gradient."""
    layers, width = gamma.shape[1], gamma.shape[-1]
    d, count = contexts.task.shape[-1], contexts.task.shape[-2]
    r, seen = errors(gamma, contexts, depth)
    answers = _along(contexts.tests, r[-1])
    loss = answers.square().mean((-1, -2)) / d
    back = 2 * _mean_over(contexts.tests, answers) / (d * count)
    gradient = torch.zeros_like(gamma)
    for layer in reversed(range(depth)):
        which = layer % layers
        gradient[:, which] -= back[..., :width].mT @ seen[layer][..., :width] / depth
        through = torch.zeros_like(back)
        through[..., :width] = back[..., :width] @ gamma[:, which]
        back = back - _mean_over(contexts.inputs, _along(contexts.inputs, through)) / depth
    return loss, gradient


def flow_of(config: Mapping[str, Any]) -> GammaFlow | FixedCovarianceFlow:
    """The theory of a run, from its config: gradient flow at infinite width, and at P / D or infinite context."""
    depth, d = config["depth"], config["dimension"]
    spectrum = spectrum_for(config["data"], d, config["capacity"], config["source"])
    if config.get("width"):
        raise ValueError(
            f"width is {config['width']}: the flows of this theory have no bottleneck; DeterministicEquivalent has"
        )
    if config["data"] == "iso" and config["context"]:
        ratio, noise = config["context"] / d, config["noise"]
        attention = config["model"] == "attention"
        flow = IsoAttentionFlow(depth, ratio, config["init"], noise) if attention else IsoFlow(depth, ratio, noise)
    elif config["context"]:
        raise ValueError(
            f"context is {config['context']}: for structured data the flows are those of an infinite one (0)"
        )
    elif config["data"] == "fixed":
        return FixedCovarianceFlow(spectrum, depth)
    elif config["model"] == "attention":
        flow = FullAttentionFlow(spectrum, depth, config["init"])
    else:
        flow = RotatedFlow(spectrum, depth)
    flow.directions = d
    flow.layers = depth if config.get("untied") else 1
    return flow


def _along(points: Tensor, vector: Tensor) -> Tensor:
    """points . vector: [..., points, d] with [..., d] to [..., points]."""
    return (points @ vector[..., None])[..., 0]


def _mean_over(points: Tensor, values: Tensor) -> Tensor:
    """Mean over points of point x value: [..., points, d] with [..., points] to [..., d]."""
    return (points.mT @ values[..., None])[..., 0] / points.shape[-2]
