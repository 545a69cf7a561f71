"""Prompts of in-context scalar regression: examples (x, y = w . x), a query x_q and its answer (paper 001, section 2).

Linear attention sees a context only through beta = (1/N) sum_n y_n x_n (Eq 2), so that is what is drawn. With z
standard normal, x = Lambda^(1/2) z and u = Lambda^(1/2) w, the sum (1/N) sum_n z_n (z_n . u) is the first column of a
Wishart matrix in a frame that begins with u; Bartlett's decomposition gives that column from one chi variable c with N
degrees of freedom and one normal vector g:

    beta = Lambda^(1/2) [ c^2 u + c |u| (g without its part along u) ] / N

`prompts_from_tokens` draws the examples one by one instead; both have the same distribution. Everything is in the
eigenbasis of Lambda.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

Eigenvalues = Float64[Tensor, " d"]


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts as linear attention sees them."""

    correlation: Float64[Tensor, "*batch d"]  # beta
    query: Float64[Tensor, "*batch d"]
    answer: Float64[Tensor, "*batch"]


@dataclass(frozen=True)
class Tokens:
    """A batch of prompts example by example; the query is the last x, and its y the answer."""

    x: Float64[Tensor, "*batch tokens d"]
    y: Float64[Tensor, "*batch tokens"]


def draw_prompts(eigenvalues: Float64[Tensor, "*count d"], context: int, count: int, generator: Generator) -> Prompts:
    """Prompts of `context` examples, without drawing them; eigenvalues of one covariance, or of one for each prompt."""
    d, scale = eigenvalues.shape[-1], eigenvalues.sqrt()
    w, g, z = torch.randn(3, count, d, generator=generator).double()  # single precision is data enough, and 5 x faster
    freedom = torch.full((count, 1), context / 2, dtype=torch.float64)
    # the public Gamma distribution takes no generator
    chi2 = 2 * torch._standard_gamma(freedom, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
    u = scale * w
    length2 = u.square().sum(-1, keepdim=True)
    across = length2.sqrt() * g - u * ((u * g).sum(-1, keepdim=True) / length2.sqrt())
    query = scale * z
    return Prompts(scale * (chi2 * u + chi2.sqrt() * across) / context, query, (w * query).sum(-1))


def draw_tokens(eigenvalues: Eigenvalues, context: int, count: int, generator: Generator) -> Tokens:
    """`context` examples and a query, one by one."""
    d = len(eigenvalues)
    x = torch.randn(count, context + 1, d, generator=generator).double() * eigenvalues.sqrt()
    w = torch.randn(count, d, 1, generator=generator).double()
    return Tokens(x, (x @ w).squeeze(-1))


def prompts_from_tokens(tokens: Tokens) -> Prompts:
    """The whole context, and the last token as the query."""
    x, y = tokens.x[..., :-1, :], tokens.y[..., :-1]
    return Prompts((x * y[..., None]).mean(-2), tokens.x[..., -1, :], tokens.y[..., -1])


def every_prefix(tokens: Tokens) -> Prompts:
    """Every token after the first as the query of those before it, for the next-token loss (Eq 9): [*batch, N, ...]."""
    x, y = tokens.x[..., :-1, :], tokens.y[..., :-1]
    lengths = torch.arange(1, x.shape[-2] + 1, dtype=torch.float64)[:, None]
    return Prompts((x * y[..., None]).cumsum(-2) / lengths, tokens.x[..., 1:, :], tokens.y[..., 1:])
