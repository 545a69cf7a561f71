"""Contexts of in-context linear regression: isotropic, of one covariance, or of one rotated anew each time (paper 003).

    ISO   x ~ N(0, I), beta ~ N(0, I)                                              Eq 5
    FS    x ~ N(0, Lambda), beta ~ N(0, Omega), the same for all contexts          section 3.2
    RRS   x ~ N(0, O Lambda O^T), beta ~ N(0, O Omega O^T), O uniform              Eq 12

The label of x is y = beta . x / sqrt D + sigma epsilon. An infinite context is given by D inputs whose empirical
covariance is exactly the population's, sqrt D times the rows of Lambda^1/2 O^T; the same serves for infinitely many
test points. The model then needs to know no difference.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from models.depth_and_context.spectrum import Spectrum, power_law, spectrum_of

KINDS = ("iso", "fixed", "rotated")


@dataclass(frozen=True)
class Contexts:
    """A batch of contexts, with the points on which the answer is tested."""

    inputs: Float64[Tensor, "*batch context d"]
    noise: Float64[Tensor, "*batch context"]  # sigma epsilon, per input
    tests: Float64[Tensor, "*batch tests d"]
    task: Float64[Tensor, "*batch d"]  # beta


def spectrum_for(kind: str, dimension: int, capacity: float, source: float) -> Spectrum:
    """The spectrum behind a kind of data."""
    if kind not in KINDS:
        raise ValueError(f"data is {kind!r}: one of {', '.join(KINDS)} is expected")
    return spectrum_of([1.0] * dimension) if kind == "iso" else power_law(capacity, source, dimension, exact=dimension)


def draw_contexts(
    kind: str, spectrum: Spectrum, sizes: tuple[int, int, int], noise: float, generator: Generator
) -> Contexts:
    """sizes are contexts, examples in each and tests in each; 0 examples or tests stand for infinitely many."""
    count, context, tests = sizes
    lam = torch.as_tensor(spectrum.eigenvalues)
    omega = torch.as_tensor(spectrum.task_power)
    d = len(lam)
    basis = _rotations(count, d, generator) if kind == "rotated" else None

    def turned(rows: Tensor) -> Tensor:
        return rows if basis is None else rows @ basis.mT

    def draw(rows: int) -> Tensor:
        if rows == 0:
            return turned((d**0.5 * torch.diag(lam.sqrt())).expand(count, d, d))
        return turned(_normal((count, rows, d), generator) * lam.sqrt())

    task = turned((_normal((count, d), generator) * omega.sqrt())[:, None])[:, 0]
    inputs, seen = draw(context), draw(tests)
    labels = _normal(inputs.shape[:-1], generator) * noise**0.5 if noise else torch.zeros_like(inputs[..., 0])
    return Contexts(inputs, labels, seen, task)


def _normal(shape: tuple[int, ...] | torch.Size, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _rotations(count: int, d: int, generator: Generator) -> Float64[Tensor, "count d d"]:
    """Uniformly distributed orthogonal matrices."""
    q, r = torch.linalg.qr(_normal((count, d, d), generator))
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
