"""Several linear attention heads of rank R that learn scalar regression in context (paper 001, Eq 2), trained by SGD.

    y_hat = sum_i v_i beta^T (sum_r k_ir q_ir^T) x_q

The update is the learning rate x minus half the gradient of the squared error, so that learning rate x step is the time
of the paper's flow with tau = 1. The gradient is written out by hand: all of it goes through the one small matrix
G = mean of beta (y - y_hat) x_q^T (Eq 22). Several seeds are one batch: value [seeds, heads], key and query
[seeds, heads, rank, d].
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from models.linear_icl.task import draw_basis
from models.multi_head.task import Prompts, draw_prompts, draw_tokens, every_prefix
from models.multi_head.theory import (
    PopulationFlow,
    check_eigenvalues,
    check_rank,
    mean_inverse_length,
    second_moment,
)
from models.streams import Stream, next_of_all

WEIGHTS = ("value", "key", "query")

Weights = dict[str, Float64[Tensor, "seeds heads *rest"]]


@dataclass(frozen=True)
class MultiHeadConfig:
    """One setting of the model. init is w_init of Eq 20.

    next_token trains on every prefix of `batch` sequences (Eq 9) rather than on `batch` prompts of `context` examples.
    """

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    context: int = 31
    heads: int = 4
    rank: int = 1
    init: float = 0.3
    learning_rate: float = 1.0
    batch: int = 512
    next_token: bool = False

    def __post_init__(self) -> None:
        check_eigenvalues(self.eigenvalues)
        check_rank(self.rank, len(self.eigenvalues))
        for name in ("context", "heads", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least one is needed")
        for name in ("init", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}: a positive number is needed")

    @property
    def inverse_context(self) -> float:
        """E(1/N), over the lengths of the contexts that are trained on."""
        return mean_inverse_length(self.context) if self.next_token else 1 / self.context


CIRCUITS: Mapping[str, Any] = {
    "qk": {
        "left": {"tensors": ["key"], "pattern": "head rank row -> 1 head row rank"},
        "right": {"tensors": ["query"], "pattern": "head rank column -> 1 head rank column"},
    },
    "product": {
        "left": {"tensors": ["value", "key"], "pattern": "head, head rank row -> 1 1 row (head rank)"},
        "right": {"tensors": ["query"], "pattern": "head rank column -> 1 1 (head rank) column"},
    },
}
"""sum_r k_r q_r^T of each head, and the sum of v k q^T over all of them."""


class MultiHead:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "multi-head"
    circuits = CIRCUITS
    threads = 1  # matrices of a few rows: a second thread costs more than it brings

    def __init__(self, config: MultiHeadConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.eigenvalues = torch.tensor(config.eigenvalues, dtype=torch.float64)
        self.second = torch.from_numpy(second_moment(config.eigenvalues, config.inverse_context))
        self.bases, starts = [], []
        self.streams: list[Stream[Any]] = []
        for seed in self.seeds:
            generator = torch.Generator().manual_seed(seed)
            self.bases.append(draw_basis(len(config.eigenvalues), generator))
            self.streams.append(self._stream(int(torch.randint(2**62, (1,), generator=generator))))
            starts.append(draw_weights(config, generator))
        # kept in the eigenbasis of the covariance; `weights` turns them into the model's own coordinates
        self.blocks: Weights = {name: torch.stack([start[name] for start in starts]) for name in WEIGHTS}

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and how the checkpoints relate to theory."""
        theory = {
            "time_per_step": self.config.learning_rate,
            "inverse_context": self.config.inverse_context,
            "mode_product": list(WEIGHTS),
            "mode_subscripts": "h,hri,hrj->ij",
            "mode_basis": self.bases[index].tolist(),
            "conserved": list(WEIGHTS),
            "conserved_axes": 1,
        }
        return asdict(self.config), theory

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on one batch per seed; the loss before it, on the batch and in expectation."""
        loss, gradient = loss_and_gradient(self.blocks, next_of_all(self.streams))
        expected = expected_loss(self.blocks, self.eigenvalues, self.second)
        for name in WEIGHTS:
            self.blocks[name].sub_(gradient[name], alpha=self.config.learning_rate / 2)
        return {"loss": loss, "expected_loss": expected}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """value, and key and query in the model's own coordinates."""
        value, key, query = (self.blocks[name][index] for name in WEIGHTS)
        basis = self.bases[index]
        return {"value": value.clone(), "key": key @ basis.T, "query": query @ basis.T}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights and the place in the data stream."""
        return {name: self.blocks[name][index] for name in WEIGHTS} | self.streams[index].state()

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        for name in WEIGHTS:
            self.blocks[name] = torch.stack([state[name] for state in states])
        for stream, state in zip(self.streams, states, strict=True):
            stream.restore(state)

    def _stream(self, seed: int) -> Stream[Any]:
        draw = (
            self._draw_prefixes
            if self.config.next_token
            else partial(draw_prompts, self.eigenvalues, self.config.context)
        )
        return Stream(draw, self.config.batch, seed)

    def _draw_prefixes(self, count: int, generator: Generator) -> Prompts:
        return every_prefix(draw_tokens(self.eigenvalues, self.config.context, count, generator))


def draw_weights(config: MultiHeadConfig, generator: Generator) -> dict[str, Tensor]:
    """v_i ~ N(0, w^2 / H); entries of k, q ~ N(0, w^2 / (H R D)) (Eq 20)."""
    h, r, d = config.heads, config.rank, len(config.eigenvalues)
    shapes = {"value": (h,), "key": (h, r, d), "query": (h, r, d)}
    scales = {"value": h, "key": h * r * d, "query": h * r * d}
    return {
        name: config.init / scales[name] ** 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def population_flow(
    config: Mapping[str, Any], theory: Mapping[str, Any], start: Mapping[str, Tensor]
) -> PopulationFlow:
    """The flow of a run from its first checkpoint, by its config and its theory section."""
    basis = np.array(theory["mode_basis"])
    value, key, query = (start[name].double().numpy() for name in WEIGHTS)
    return PopulationFlow(config["eigenvalues"], theory["inverse_context"], value, key @ basis, query @ basis)


def expected_loss(
    weights: Weights, eigenvalues: Float64[Tensor, " d"], second: Float64[Tensor, " d"]
) -> Float64[Tensor, " seeds"]:
    """The loss of these weights on prompts without end (`theory.loss_of`)."""
    matrix = product(weights)
    learned = (matrix.diagonal(dim1=-2, dim2=-1) * eigenvalues.square()).sum(-1)
    return eigenvalues.sum() - 2 * learned + (second[:, None] * matrix.square() * eigenvalues).sum((-2, -1))


def product(weights: Weights) -> Float64[Tensor, "seeds d d"]:
    """M = sum_i v_i sum_r k_ir q_ir^T."""
    weighted = weights["value"][..., None, None] * weights["key"]
    return weighted.flatten(1, 2).mT @ weights["query"].flatten(1, 2)


def loss_and_gradient(weights: Weights, prompts: Prompts) -> tuple[Float64[Tensor, " seeds"], Weights]:
    """Mean squared error over the batch of every seed, and its gradient. prompts are [seeds, ..., d]."""
    seeds = prompts.query.shape[0]
    beta, x, y = (
        t.reshape(seeds, -1, t.shape[-1]) for t in (prompts.correlation, prompts.query, prompts.answer[..., None])
    )
    error = y.squeeze(-1) - ((beta @ product(weights)) * x).sum(-1)
    drive = (beta * error[..., None]).mT @ x / x.shape[1]
    value, key, query = (weights[name] for name in WEIGHTS)
    to_key, to_query = query @ drive.mT[:, None], key @ drive[:, None]
    gradient = {
        "value": -2 * (key * to_key).sum((-2, -1)),
        "key": -2 * value[..., None, None] * to_key,
        "query": -2 * value[..., None, None] * to_query,
    }
    return error.square().mean(-1), gradient
