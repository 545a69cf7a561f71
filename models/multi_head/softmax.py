"""The same heads with softmax attention (paper 001, Fig 3): no theory, the same weights and the same training.

    y_hat = sum_i v_i sum_n softmax_n( sum_r (k_ir . x_n)(q_ir . x_q) ) y_n

n runs over the examples and the query itself, whose y is 0 (Eq 1). For small keys and queries softmax is linear, and
this is linear attention on the centred context plus v_i times the mean of y.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from models.multi_head.model import WEIGHTS, MultiHead, Weights
from models.multi_head.task import Tokens, draw_tokens
from models.streams import Stream, next_of_all


class SoftmaxMultiHead(MultiHead):
    """Softmax heads in training, for several seeds at once."""

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """As for linear attention, and that it is not."""
        config, theory = super().describe(index)
        return {**config, "attention": "softmax"}, theory

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on one batch per seed; the loss before it."""
        loss, gradient = softmax_loss_and_gradient(self.blocks, next_of_all(self.streams))
        for name in WEIGHTS:
            self.blocks[name].sub_(gradient[name], alpha=self.config.learning_rate / 2)
        return {"loss": loss}

    def _stream(self, seed: int) -> Stream[Any]:
        if self.config.next_token:
            raise ValueError("softmax attention is trained on whole prompts only: use next_token=False")
        return Stream(partial(draw_tokens, self.eigenvalues, self.config.context), self.config.batch, seed)


def softmax_loss_and_gradient(weights: Weights, tokens: Tokens) -> tuple[Float64[Tensor, " seeds"], Weights]:
    """Mean squared error over the batch of every seed, and its gradient. tokens are [seeds, batch, tokens, ...]."""
    value, key, query = (weights[name] for name in WEIGHTS)
    shown = replace(tokens, y=torch.cat((tokens.y[..., :-1], torch.zeros_like(tokens.y[..., -1:])), -1))
    x, y, x_q = shown.x, shown.y[:, :, None], tokens.x[..., -1, :]
    keys = torch.einsum("sbnd,shrd->sbhrn", x, key)
    queries = torch.einsum("sbd,shrd->sbhr", x_q, query)
    attention = (keys * queries[..., None]).sum(-2).softmax(-1)
    read = (attention * y).sum(-1)  # [seeds, batch, heads]
    error = tokens.y[..., -1] - (read * value[:, None]).sum(-1)
    scores = attention * (y - read[..., None]) * (error[..., None] * value[:, None])[..., None] / x.shape[1]
    gradient = {
        "value": -2 * (error[..., None] * read).mean(1),
        "key": -2 * torch.einsum("sbhn,sbnd,sbhr->shrd", scores, x, queries),
        "query": -2 * torch.einsum("sbhr,sbd->shrd", (scores[..., None, :] * keys).sum(-1), x_q),
    }
    return error.square().mean(-1), gradient
