"""What chance would show: the level of a probe for matrices of the same shape in which nothing was learned.

subspace distances      sqrt(1 - k / n), exact for the root mean square over random k-dimensional subspaces
ranks                   the mean over a few products of Gaussian factors of the same shapes
"""

from collections.abc import Sequence

import numpy as np
import torch

from checkpoints import Run
from probes.circuits import circuits_of
from probes.matrices.factored import Factored
from probes.matrices.ranks import effective_rank, participation_ratio, stable_rank
from probes.matrices.subspaces import random_subspace_level
from probes.reporting.page_data import Null

DRAWS = 8
LARGEST = 2_000_000
"""Entries of the factors of a matrix that is drawn."""

_RANKS = {"effective_rank": effective_rank, "stable_rank": stable_rank, "participation_ratio": participation_ratio}


def null_levels(run: Run, circuits: Sequence[str]) -> dict[str, list[Null]]:
    """By series, the level for each circuit whose shape can be told."""
    found: dict[str, list[Null]] = {}
    try:
        known = circuits_of(run, tuple(circuits))
        checkpoint = run.representative_checkpoint()
        matrices = {name: one.read(checkpoint, one.layers[0]) for name, one in known.items()}
    except (OSError, ValueError, KeyError, RuntimeError):
        return {}
    for circuit, matrix in matrices.items():
        rows, columns = matrix.shape[-2:]
        rank = min(rows, columns, matrix.left.shape[-1] if isinstance(matrix, Factored) else min(rows, columns))
        for name, dimension in (("subspace_distance", columns), ("column_subspace_distance", rows)):
            if rank < dimension:
                level = random_subspace_level(rank, dimension)
                sentence = f"A random subspace of {rank} of {dimension} dimensions scores {_short(level)}."
                found.setdefault(name, []).append(Null(circuit, level, sentence))
        if rank * (rows + columns) <= LARGEST:
            drawn = Factored(_gaussian(rows, rank, 0), _gaussian(rank, columns, 1))
            for name, function in _RANKS.items():
                level = float(np.mean(np.asarray(function(drawn))))
                sentence = (
                    f"A product of Gaussian factors ({rows} x {rank}, {rank} x {columns}) scores {_short(level)}."
                )
                found.setdefault(name, []).append(Null(circuit, level, sentence))
    return found


def _gaussian(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).standard_normal((DRAWS, rows, columns)))


def _short(level: float) -> str:
    return f"{level:.2f}" if level < 1 else f"{level:.3g}"
