"""The 2^D fixed points of paper 001: their weights, how to look for others, and how near a flow comes to each."""

from collections.abc import Iterable
from itertools import chain, combinations

import numpy as np
import torch
from scipy.optimize import least_squares

from models.linear_icl.task import Prompts
from models.multi_head.blocks import BLOCKS, blocks_loss_and_gradient, draw_whole_prompts
from models.multi_head.many_flows import ManyFlows
from models.multi_head.model import WEIGHTS, MultiHeadConfig
from models.multi_head.theory import PopulationFlow, fixed_point

VISITED = 0.05  # a fixed point is visited if M comes this near, as a share of the size of M_D


def subsets(d: int) -> list[tuple[int, ...]]:
    """All sets of eigenvectors, the smallest sets first."""
    return list(chain.from_iterable(combinations(range(d), m) for m in range(d + 1)))


def matrix_of(config: MultiHeadConfig, learned: Iterable[int]) -> np.ndarray:
    """What the heads do together where these eigenvectors are learned (Eqs 4, 48)."""
    ends = fixed_point(config.eigenvalues, config.inverse_context)
    return np.diag(np.where(np.isin(np.arange(len(ends)), list(learned)), ends, 0.0))


def member(config: MultiHeadConfig, learned: tuple[int, ...], rng: np.random.Generator) -> PopulationFlow:
    """Random weights with conditions C1 to C3 of Eqs 3 and 46: keys and queries mixed within the learned eigenvectors.

    As many heads as are needed have a value; of the others keys lie in the span and queries anywhere.
    """
    h, r, d, m = config.heads, config.rank, len(config.eigenvalues), len(learned)
    active = -(-m // r)
    value = np.where(np.arange(h) < active, rng.uniform(0.5, 1.5, h), 0.0)
    key, query = np.zeros((h, r, d)), rng.standard_normal((h, r, d))
    key[..., list(learned)] = rng.standard_normal((h, r, m))
    query[:active] = 0.0
    wide = np.repeat(value[:active], r)
    used = key[:active].reshape(active * r, d)[:, list(learned)]
    target = np.diag(matrix_of(config, learned))[list(learned)]
    solved = np.linalg.pinv((wide[:, None] * used).T) @ np.diag(target)
    query[:active, :, list(learned)] = solved.reshape(active, r, m)
    return PopulationFlow(config.eigenvalues, config.inverse_context, value, key, query)


def look_for_one(config: MultiHeadConfig, rng: np.random.Generator) -> np.ndarray | None:
    """M where the velocity vanishes, by Newton's method (trust region) from random weights; None if it gets stuck."""
    h, r, d = config.heads, config.rank, len(config.eigenvalues)
    size = rng.uniform(0.3, 1.5)
    key, query = size * rng.standard_normal((2, h, r, d))
    flow = PopulationFlow(config.eigenvalues, config.inverse_context, size * rng.standard_normal(h), key, query)
    found = least_squares(lambda x: flow.velocity(x), flow.start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200)
    if np.abs(found.fun).max() > 1e-9:
        return None
    value, key, query = (part[0] for part in flow.split(found.x[None]))
    return np.einsum("h,hri,hrj->ij", value, key, query)


def visits(matrices: np.ndarray, config: MultiHeadConfig) -> np.ndarray:
    """Whether M [times, starts, d, d] comes near each fixed point, in the order of `subsets`: [starts, 2^D]."""
    whole = np.linalg.norm(matrix_of(config, range(len(config.eigenvalues))))
    near = [
        np.linalg.norm(matrices - matrix_of(config, s), axis=(2, 3)).min(0) < VISITED * whole
        for s in subsets(len(config.eigenvalues))
    ]
    return np.stack(near, axis=1)


def gradient_of_blocks(flows: ManyFlows, context: int, count: int) -> np.ndarray:
    """Gradient of the zero blocks by that of the other weights, for each start halfway (in ln time) along the flow.

    Prompts come in pairs of w and -w: what is odd in the task, as these gradients are, then vanishes to rounding.
    """
    prompts = draw_whole_prompts(torch.tensor(flows.eigenvalues), context, count, torch.Generator().manual_seed(0))
    covariance, query, task = prompts.covariance, prompts.query, prompts.task
    both = (torch.cat((covariance, covariance)), torch.cat((query, query)), torch.cat((task, -task)))
    pairs = Prompts(*(part[None] for part in both))
    middle, ratios = len(flows.kept_times) // 2, []
    for i in range(flows.value.shape[1]):
        parts = (flows.value[middle, i], flows.key[middle, i], flows.query[middle, i])
        weights = {name: torch.tensor(part)[None] for name, part in zip(WEIGHTS, parts, strict=True)}
        h, r, d = parts[1].shape
        weights |= {"value_row": torch.zeros(1, h, d).double(), "key_row": torch.zeros(1, h, r).double()}
        gradient = blocks_loss_and_gradient(weights, pairs, context)[1]
        null, rest = (sum(float(gradient[n].square().sum()) for n in names) ** 0.5 for names in (BLOCKS, WEIGHTS))
        ratios.append(null / rest)
    return np.array(ratios)
