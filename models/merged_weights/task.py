"""Prompts of in-context scalar regression, with one covariance for all or a new one for each (paper 002, 3.3 and 4.3).

They are those of paper 001, drawn in the eigenbasis of the (mean) covariance. In the random case each eigenvalue is its
mean times an Exponential(1) variable, independently, and the query has the covariance of its prompt.
"""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from models.multi_head.task import Prompts, draw_prompts

Means = Float64[Tensor, " d"]


def draw_covariances(means: Means, covariance: str, count: int, generator: Generator) -> Float64[Tensor, "count d"]:
    """Eigenvalues for each prompt; covariance is "fixed" or "exponential"."""
    spread = torch.ones(count, len(means), dtype=torch.float64)
    if covariance == "exponential":
        spread.exponential_(generator=generator)
    return means * spread


def draw_merged_prompts(means: Means, context: int, covariance: str, count: int, generator: Generator) -> Prompts:
    """`count` prompts of `context` examples."""
    return draw_prompts(draw_covariances(means, covariance, count, generator), context, count, generator)
