"""All the weights of Eq 1 that reach the answer, trained together: do the blocks that start at zero stay there?

Beside v_i a head has a row value_row_i in its value matrix and a number key_row_ir in each column of its keys (paper
001, Appendices D.1 and E.1, where they are bold v_i and plain k_ir). With S the empirical covariance of the context, w
the task, h = S w (beta in the paper) and z_ir = q_ir . x_q,

    y_hat = sum_ir [ value_row_i . (S + x_q x_q^T / N) k_ir + v_i h . k_ir
                     + (value_row_i . h + v_i w . h) key_row_ir ] z_ir

The gradient is automatic. Everything but the blocks themselves is as in `model`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from models.linear_icl.task import Prompts, context_from_tokens, context_from_wishart
from models.multi_head.model import WEIGHTS, MultiHead, MultiHeadConfig, Weights
from models.streams import Stream, next_of_all

BLOCKS = ("value_row", "key_row")


class MultiHeadWithBlocks(MultiHead):
    """The zero blocks in training too, for several seeds at once."""

    def __init__(self, config: MultiHeadConfig, seeds: Sequence[int]) -> None:
        super().__init__(config, seeds)
        d, value = len(config.eigenvalues), self.blocks["value"]
        self.blocks["value_row"] = torch.zeros(*value.shape, d, dtype=torch.float64)
        self.blocks["key_row"] = torch.zeros(*value.shape, config.rank, dtype=torch.float64)

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """As without the blocks, which are named as what should stay zero."""
        config, theory = super().describe(index)
        return {**config, "trained": "all of Eq 1"}, {**theory, "null": list(BLOCKS)}

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on one batch per seed; the loss before it."""
        loss, gradient = blocks_loss_and_gradient(self.blocks, next_of_all(self.streams), self.config.context)
        for name, slope in gradient.items():
            self.blocks[name].sub_(slope, alpha=self.config.learning_rate / 2)
        return {"loss": loss}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """All five parts in the model's own coordinates."""
        row, number = (self.blocks[name][index] for name in BLOCKS)
        return {**super().weights(index), "value_row": row @ self.bases[index].T, "key_row": number.clone()}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Weights and the place in the data stream."""
        return {name: block[index] for name, block in self.blocks.items()} | self.streams[index].state()

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        for name in (*WEIGHTS, *BLOCKS):
            self.blocks[name] = torch.stack([state[name] for state in states])
        for stream, state in zip(self.streams, states, strict=True):
            stream.restore(state)

    def _stream(self, seed: int) -> Stream[Any]:
        if self.config.next_token:
            raise ValueError("the zero blocks are trained on whole prompts only: use next_token=False")
        return Stream(self._draw, self.config.batch, seed)

    def _draw(self, count: int, generator: Generator) -> Prompts:
        return draw_whole_prompts(self.eigenvalues, self.config.context, count, generator)


def draw_whole_prompts(eigenvalues: Float64[Tensor, " d"], context: int, count: int, generator: Generator) -> Prompts:
    """Prompts with the whole empirical covariance of the context, in the eigenbasis."""
    d = len(eigenvalues)
    draw_context = context_from_wishart if context >= d else context_from_tokens
    covariance = draw_context(eigenvalues, context, count, generator)
    query, task = torch.randn(2, count, d, generator=generator).double()
    return Prompts(covariance, eigenvalues.sqrt() * query, task)


def blocks_loss_and_gradient(
    weights: Weights, prompts: Prompts, context: int
) -> tuple[Float64[Tensor, " seeds"], Weights]:
    """Mean squared error over the batch of every seed, and its gradient. prompts are [seeds, batch, ...]."""
    free = {name: part.detach().requires_grad_() for name, part in weights.items()}
    x, w, s = prompts.query, prompts.task, prompts.covariance
    h = (s @ w[..., None]).squeeze(-1)
    row = torch.einsum("sbde,she->sbhd", s, free["value_row"])
    row = row + torch.einsum("sbd,sbe,she->sbhd", x, x, free["value_row"]) / context
    read = row + free["value"][:, None, :, None] * h[:, :, None]  # [seeds, batch, heads, d]
    number = torch.einsum("shd,sbd->sbh", free["value_row"], h) + free["value"][:, None] * (w * h).sum(-1)[..., None]
    scores = torch.einsum("sbhd,shrd->sbhr", read, free["key"]) + number[..., None] * free["key_row"][:, None]
    answer = (scores * torch.einsum("sbd,shrd->sbhr", x, free["query"])).sum((-2, -1))
    loss = (answer - (w * x).sum(-1)).square().mean(-1)
    loss.sum().backward()
    return loss.detach(), {name: _slope(part) for name, part in free.items()}


def _slope(part: Tensor) -> Tensor:
    assert part.grad is not None  # every part reaches the answer
    return part.grad
