"""Prompts of in-context vector regression: tokens (x; W x), a query x_q, and the answer W x_q (paper 000, section 2).

The tasks W = U diag(lambda) U^T share the basis U with the covariance of the inputs, so everything is drawn in that
basis. A finite set of P tasks is fixed before training. Drawn as +- pairs, its odd moments vanish, as those of endless
Gaussian tasks do; without that they push the null blocks away from zero.

The model sees a context only through its empirical covariance, so that can be drawn directly: N times it is a Wishart
matrix, and Bartlett's decomposition builds one from d chi and d (d - 1) / 2 normal variables however long the context
is. `context_from_tokens` draws the tokens one by one instead; both have the same distribution.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from models.linear_icl.theory import Numbers, check_setting
from models.streams import Stream


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts in the eigenbasis of the input covariance."""

    covariance: Float64[Tensor, "*batch d d"]  # empirical, of the context
    query: Float64[Tensor, "*batch d"]
    task: Float64[Tensor, "*batch d"]  # eigenvalues of W


def draw_tasks(count: int, d: int, generator: Generator, *, paired: bool = True) -> Float64[Tensor, "count d"]:
    """Eigenvalues lambda ~ N(0, 1) of `count` tasks; paired makes the second half the negative of the first."""
    if count < 1 or (paired and count % 2):
        raise ValueError(f"count is {count}: a positive{', even' if paired else ''} number of tasks is needed")
    if not paired:
        return torch.randn(count, d, generator=generator, dtype=torch.float64)
    half = torch.randn(count // 2, d, generator=generator, dtype=torch.float64)
    return torch.cat((half, -half))


def draw_basis(d: int, generator: Generator) -> Float64[Tensor, "d d"]:
    """A random orthogonal matrix, uniformly distributed."""
    q, r = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()


def context_from_wishart(
    eigenvalues: Float64[Tensor, " d"], context: int, count: int, generator: Generator
) -> Float64[Tensor, "count d d"]:
    """Empirical covariances of `context` Gaussian inputs, by Bartlett's decomposition. Needs context >= d."""
    d = len(eigenvalues)
    if context < d:
        raise ValueError(f"context is {context}: Bartlett's decomposition needs at least d = {d} examples")
    lower = torch.randn(count, d, d, generator=generator, dtype=torch.float64).tril(-1)
    freedom = (context - torch.arange(d, dtype=torch.float64)).expand(count, d)
    # the public Gamma distribution takes no generator
    chi = (2 * torch._standard_gamma(freedom / 2, generator=generator)).sqrt()  # pyright: ignore[reportPrivateImportUsage]
    lower = (lower + torch.diag_embed(chi)) * eigenvalues.sqrt()[:, None]
    return lower @ lower.mT / context


def context_from_tokens(
    eigenvalues: Float64[Tensor, " d"], context: int, count: int, generator: Generator
) -> Float64[Tensor, "count d d"]:
    """The same, token by token."""
    shape = (count, context, len(eigenvalues))
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * eigenvalues.sqrt()
    return x.mT @ x / context


class PromptStream(Stream[Prompts]):
    """Prompts without end for one seed, of the given tasks or, without any, of a new one each."""

    def __init__(
        self, eigenvalues: Numbers, context: int, tasks: Float64[Tensor, "count d"] | None, batch: int, seed: int
    ) -> None:
        check_setting(eigenvalues, context, 1.0)
        self.eigenvalues = torch.as_tensor(np.asarray(eigenvalues), dtype=torch.float64)
        self.context, self.tasks = context, tasks
        super().__init__(self._draw_prompts, batch, seed)

    def _draw_prompts(self, count: int, generator: Generator) -> Prompts:
        d = len(self.eigenvalues)
        draw_context = context_from_wishart if self.context >= d else context_from_tokens
        covariance = draw_context(self.eigenvalues, self.context, count, generator)
        query = torch.randn(count, d, generator=generator, dtype=torch.float64) * self.eigenvalues.sqrt()
        if self.tasks is None:
            task = torch.randn(count, d, generator=generator, dtype=torch.float64)
        else:
            task = self.tasks[torch.randint(len(self.tasks), (count,), generator=generator)]
        return Prompts(covariance, query, task)
