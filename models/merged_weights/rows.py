"""All the merged weights that reach the answer (paper 002, Eq 3.6), trained together: do the rows stay at zero?

    y_hat = (value_row, value) (E E^T / N) (key_query; key_row) x_q

With S the empirical covariance of the context, w the task, h = S w, z = key_query x_q, c = key_row . x_q and
l = S value_row + x_q (x_q . value_row) / N + value h,

    y_hat = l . z + (value_row . h + value w . h) c.

Gradient flow leaves value_row = w_21^PV and key_row = w_21^KQ at zero (Lemma 5.2); SGD moves them by its noise. The
gradient is written out by hand; a test compares it with automatic differentiation of Eq 3.3.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from models.linear_icl.task import Prompts, context_from_tokens, context_from_wishart
from models.merged_weights.model import MergedWeights, Weights
from models.merged_weights.task import draw_covariances
from models.streams import Stream, next_of_all

ROWS = ("value_row", "key_row")


class MergedWeightsWithRows(MergedWeights):
    """Both rows in training too, for several seeds at once."""

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """As without the rows, which are named as what should stay zero."""
        config, theory = super().describe(index)
        return {**config, "trained": "all of Eq 3.6"}, {**theory, "null": list(ROWS)}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """The four parts in the model's own coordinates."""
        return {**super().weights(index), **{name: self.bases[index] @ self.blocks[name][index] for name in ROWS}}

    def _start(self, generator: Generator) -> dict[str, Tensor]:
        return super()._start(generator) | {name: torch.zeros_like(self.means) for name in ROWS}

    def _stream(self, seed: int) -> Stream[Any]:
        return Stream(self._draw, self.config.batch, seed)

    def _draw(self, count: int, generator: Generator) -> Prompts:
        d, context = len(self.means), self.config.context
        draw_context = context_from_wishart if context >= d else context_from_tokens
        white = draw_context(torch.ones(d, dtype=torch.float64), context, count, generator)
        scale = draw_covariances(self.means, self.config.covariance, count, generator).sqrt()
        query, task = torch.randn(2, count, d, generator=generator).double()
        return Prompts(scale[:, :, None] * white * scale[:, None], scale * query, task)

    def _loss_and_gradient(self) -> tuple[Float64[Tensor, " seeds"], Weights]:
        return rows_loss_and_gradient(self.blocks, next_of_all(self.streams), self.config.context)


def rows_loss_and_gradient(
    weights: Weights, prompts: Prompts, context: int
) -> tuple[Float64[Tensor, " seeds"], Weights]:
    """Mean loss (Eq 3.7) over the batch of every seed, and its gradient. prompts are [seeds, batch, ...]."""
    x, w, count = prompts.query, prompts.task, prompts.query.shape[-2]
    guess, h, left, z, c, scalar = _forward(weights, prompts, context)
    error = guess - (w * x).sum(-1)
    e = error[..., None]
    read = _matvec(prompts.covariance, z) + x * (x * z).sum(-1, keepdim=True) / context + h * c[..., None]
    gradient = {
        "value": (error * ((h * z).sum(-1) + (w * h).sum(-1) * c)).mean(-1),
        "key_query": (e * left).mT @ x / count,
        "value_row": (e * read).mean(-2),
        "key_row": (e * scalar[..., None] * x).mean(-2),
    }
    return 0.5 * error.square().mean(-1), gradient


def _forward(weights: Weights, prompts: Prompts, context: int) -> tuple[Tensor, ...]:
    value, key_query, value_row, key_row = (weights[name] for name in ("value", "key_query", *ROWS))
    x, w, covariance = prompts.query, prompts.task, prompts.covariance
    value, row = value[:, None, None], value_row[:, None]
    h, z = _matvec(covariance, w), x @ key_query.mT
    c = (x * key_row[:, None]).sum(-1)
    left = _matvec(covariance, row.expand_as(x)) + x * (x * row).sum(-1, keepdim=True) / context + value * h
    scalar = (row * h).sum(-1) + value[..., 0] * (w * h).sum(-1)
    return (left * z).sum(-1) + scalar * c, h, left, z, c, scalar


def _matvec(matrix: Float64[Tensor, "*batch d d"], vector: Float64[Tensor, "*batch d"]) -> Float64[Tensor, "*batch d"]:
    return (matrix * vector[..., None, :]).sum(-1)
