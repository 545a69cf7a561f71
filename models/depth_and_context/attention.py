"""The full linear-attention block of which the reduced model is the core (paper 003, Eq 3, B.1 and Result 9).

Tokens carry W_x x + w_y y in a residual stream of D + 1 dimensions; every layer adds

    h_mu <- h_mu + M_mu / (L P) sum over the context of (k_nu . q_mu) v_nu,      M = -1 on the context, +1 on the tests

(the mask of Eq 41), and the answer is w_o . h. All L layers share W_k, W_q, W_v. w_o = w_y is a fixed unit vector; the
rest starts aligned (Eqs 43-45) and balanced, W_x = sqrt 2 w, W_k = W_q = w on the inputs and W_v = w on w_y, and is
trained freely. Gamma = (w_o^T W_v w_y) W_x^T W_k^T W_q W_x (Eq 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from models.depth_and_context.model import DepthConfig, draw_batch
from models.depth_and_context.task import Contexts, spectrum_for

TRAINED = ("w_x", "w_k", "w_q", "w_v")

Blocks = Mapping[str, Float64[Tensor, "seeds rows columns"]]


@dataclass(frozen=True)
class AttentionConfig(DepthConfig):
    """The same with the starting scale w(0). Layers are tied and there is no width but the stream's."""

    init: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.init < float("inf"):
            raise ValueError(f"init is {self.init}: a positive starting scale is needed, zero never leaves zero")
        if self.untied or self.width:
            raise ValueError("the attention block has tied layers and full width: untied and width do not apply")


CIRCUITS: Mapping[str, Any] = {
    "ov": {"tensors": ["w_v"], "pattern": "row column -> 1 1 row column"},
    "qk": {"tensors": ["w_k", "w_q"], "pattern": "inner row, inner column -> 1 1 row column"},
}
"""W_v, and W_k^T W_q."""


class LinearAttention:
    """The block in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "depth-and-context-attention"
    circuits = CIRCUITS
    threads = 1

    def __init__(self, config: AttentionConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.spectrum = spectrum_for(config.data, config.dimension, config.capacity, config.source)
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        start = aligned(config.dimension, config.init)
        self.blocks = {name: block.repeat(len(self.seeds), 1, 1) for name, block in start.items()}

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and how the checkpoints relate to theory."""
        theory = {
            "time_per_step": self.config.learning_rate,
            "mode_product": ["w_o", "w_v", "w_o", "w_x", "w_k", "w_q", "w_x"],
            "mode_subscripts": "a,ab,b,md,nm,np,pe->de",
            "mode_basis": torch.eye(self.config.dimension).tolist(),
            "conserved": ["w_k", "w_q"],
        }
        return {"model": "attention", **asdict(self.config)}, theory

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on fresh contexts per seed; the loss before it."""
        c = self.config
        blocks = {name: block.requires_grad_() for name, block in self.blocks.items()}
        loss = mean_squared_error(blocks, draw_batch(c, self.spectrum, self.generators), c.depth)
        gradients = torch.autograd.grad(loss.sum(), list(blocks.values()))
        for name, gradient in zip(blocks, gradients, strict=True):
            # W_v moves in one direction where the others move in D
            rate = c.learning_rate / 2 * (1 if name == "w_v" else c.dimension)
            self.blocks[name] = blocks[name].detach() - rate * gradient
        return {"loss": loss.detach()}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """W_x, W_k, W_q, W_v and the fixed w_o = w_y."""
        return {name: block[index].detach() for name, block in self.blocks.items()} | {
            "w_o": read_out(self.config.dimension)
        }

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights and the generator."""
        state = {name: block[index].detach() for name, block in self.blocks.items()}
        return state | {"generator": self.generators[index].get_state()}

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        for name in TRAINED:
            self.blocks[name] = torch.stack([state[name] for state in states])
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state["generator"])


def aligned(dimension: int, scale: float) -> dict[str, Float64[Tensor, "rows columns"]]:
    """The start of Result 9."""
    inputs = torch.eye(dimension + 1, dimension, dtype=torch.float64)
    on_inputs, out = inputs @ inputs.T, read_out(dimension)
    return {
        "w_x": 2**0.5 * scale * inputs,
        "w_k": scale * on_inputs,
        "w_q": scale * on_inputs,
        "w_v": scale * torch.outer(out, out),
    }


def read_out(dimension: int) -> Float64[Tensor, " stream"]:
    """The fixed unit vector w_o = w_y, the last of the residual stream."""
    return torch.eye(dimension + 1, dtype=torch.float64)[dimension]


def mean_squared_error(blocks: Blocks, contexts: Contexts, depth: int) -> Float64[Tensor, " seeds"]:
    """Eq 3 on explicit tokens, against the noiseless answers."""
    d, context = contexts.task.shape[-1], contexts.inputs.shape[-2]
    w_x, w_k, w_q, w_v = (blocks[name][:, None] for name in TRAINED)
    out = read_out(d)
    labels = (contexts.inputs @ contexts.task[..., None])[..., 0] / d**0.5 + contexts.noise
    known = contexts.inputs @ w_x.mT + labels[..., None] * out
    asked = contexts.tests @ w_x.mT
    for _ in range(depth):
        keys, values = known @ w_k.mT, known @ w_v.mT
        memory = keys.mT @ values / (depth * context)  # sum of k v^T, read by every query
        known, asked = known - known @ w_q.mT @ memory, asked + asked @ w_q.mT @ memory
    answers = (contexts.tests @ contexts.task[..., None])[..., 0] / d**0.5
    return (asked @ out - answers).square().mean((-1, -2))
