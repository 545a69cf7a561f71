"""One linear attention head with merged weights (paper 002, Eqs 3.3-3.6), trained by SGD on scalar regression.

    y_hat = u beta^T U x_q,        u = w_22^PV,  U = W_11^KQ,  beta = mean of y x over the prompt

The other weights that reach the answer, w_21^PV and w_21^KQ, are kept at zero, where gradient flow leaves them
(Lemma 5.2); `rows` trains them too. The start is that of Assumption 3.3: u = sigma, U = sigma A A^T / ||A A^T||_F with
A normal. The loss is half the squared error; time is learning rate x step.
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
from models.merged_weights.task import draw_merged_prompts
from models.merged_weights.theory import (
    MergedFlow,
    Moments,
    check_setting,
    moments_of_exponential,
    moments_of_fixed,
)
from models.multi_head.task import Prompts
from models.streams import Stream, next_of_all

MOMENTS = {"fixed": moments_of_fixed, "exponential": moments_of_exponential}

Weights = dict[str, Float64[Tensor, "seeds *rest"]]


@dataclass(frozen=True)
class MergedWeightsConfig:
    """One setting of the model. init is sigma of Assumption 3.3; covariance is "fixed" or "exponential"."""

    eigenvalues: tuple[float, ...] = (1.0, 0.7, 0.5, 0.3, 0.2)
    context: int = 20
    covariance: str = "fixed"
    init: float = 0.1
    learning_rate: float = 0.05
    batch: int = 1024

    def __post_init__(self) -> None:
        check_setting(self.eigenvalues, self.context)
        if self.covariance not in MOMENTS:
            raise ValueError(f"covariance is {self.covariance!r}: one of {', '.join(MOMENTS)} is expected")
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}: at least one prompt is needed")
        for name in ("init", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}: a positive number is needed")


CIRCUITS: Mapping[str, Any] = {
    "qk": {"tensors": ["key_query"], "pattern": "row column -> 1 1 row column"},
    "product": {"tensors": ["value", "key_query"], "pattern": ", row column -> 1 1 row column"},
}
"""U, and u U."""


class MergedWeights:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "merged-weights"
    circuits = CIRCUITS
    threads = 1  # matrices of a few rows: a second thread costs more than it brings

    def __init__(self, config: MergedWeightsConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.means = torch.tensor(config.eigenvalues, dtype=torch.float64)
        self.bases, starts = [], []
        self.streams: list[Stream[Any]] = []
        for seed in self.seeds:
            generator = torch.Generator().manual_seed(seed)
            self.bases.append(draw_basis(len(self.means), generator))
            self.streams.append(self._stream(int(torch.randint(2**62, (1,), generator=generator))))
            starts.append(self._start(generator))
        # kept in the eigenbasis of the covariance; `weights` turns them into the model's own coordinates
        self.blocks: Weights = {name: torch.stack([start[name] for start in starts]) for name in starts[0]}

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and how the checkpoints relate to theory."""
        theory = {
            "time_per_step": self.config.learning_rate,
            "mode_product": ["value", "key_query"],
            "mode_subscripts": ",ij->ij",
            "mode_basis": self.bases[index].tolist(),
            "conserved": ["value", "key_query"],
        }
        return asdict(self.config), theory

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on one batch per seed; the loss before it."""
        loss, gradient = self._loss_and_gradient()
        for name, slope in gradient.items():
            self.blocks[name].sub_(slope, alpha=self.config.learning_rate)
        return {"loss": loss}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """u and U in the model's own coordinates."""
        basis = self.bases[index]
        return {
            "value": self.blocks["value"][index].clone(),
            "key_query": basis @ self.blocks["key_query"][index] @ basis.T,
        }

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights and the place in the data stream."""
        return {name: block[index] for name, block in self.blocks.items()} | self.streams[index].state()

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.blocks = {name: torch.stack([state[name] for state in states]) for name in self.blocks}
        for stream, state in zip(self.streams, states, strict=True):
            stream.restore(state)

    def _start(self, generator: Generator) -> dict[str, Tensor]:
        """u and U as Assumption 3.3 has them."""
        a = torch.randn(len(self.means), len(self.means), generator=generator, dtype=torch.float64)
        square, size = a @ a.T, torch.tensor(self.config.init, dtype=torch.float64)
        return {"value": size, "key_query": size * square / square.norm()}

    def _stream(self, seed: int) -> Stream[Any]:
        draw = partial(draw_merged_prompts, self.means, self.config.context, self.config.covariance)
        return Stream(draw, self.config.batch, seed)

    def _loss_and_gradient(self) -> tuple[Float64[Tensor, " seeds"], Weights]:
        return loss_and_gradient(self.blocks, next_of_all(self.streams))


def moments(config: Mapping[str, Any]) -> Moments:
    """The moments of a run's prompts, from its config."""
    return MOMENTS[config["covariance"]](config["eigenvalues"], config["context"])


def merged_flow(config: Mapping[str, Any], theory: Mapping[str, Any], start: Mapping[str, Tensor]) -> MergedFlow:
    """The flow of a run from its first checkpoint, by its config and its theory section."""
    basis = np.array(theory["mode_basis"])
    key_query = basis.T @ start["key_query"].double().numpy() @ basis
    return MergedFlow(moments(config), float(start["value"]), key_query)


def loss_and_gradient(weights: Weights, prompts: Prompts) -> tuple[Float64[Tensor, " seeds"], Weights]:
    """Mean loss (Eq 3.7) over the batch of every seed, and its gradient. prompts are [seeds, batch, ...]."""
    value, key_query = weights["value"], weights["key_query"]
    beta, x = prompts.correlation, prompts.query
    read = ((beta @ key_query) * x).sum(-1)
    error = value[:, None] * read - prompts.answer
    gradient = {
        "value": (error * read).mean(-1),
        "key_query": value[:, None, None] * ((beta * error[..., None]).mT @ x) / x.shape[1],
    }
    return 0.5 * error.square().mean(-1), gradient
