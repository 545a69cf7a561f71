"""What the probes see of a transformer in training: every head of OV and QK at every checkpoint, all heads at once.

`measure` gives the same numbers as a table; here they stay arrays, all layers of these small models at once, and the
drift is between checkpoints at one fixed spacing, not between neighbours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

import probes
from checkpoints import Checkpoint, Run
from probes.circuits import Circuit, circuits_of
from probes.matrices.factored import factors

REMOVED = 4  # largest k of the marginalized rank


@dataclass(frozen=True)
class HeadCurves:
    """One circuit of one run. Arrays are [checkpoint, layer, head], ranks [checkpoint, layer, head, k].

    distances and column_distances are by horizon, the step taken as the end; NaN beyond it. drift is the movement of
    the row space since the checkpoint `spacing` steps before, at drift_steps.
    """

    steps: np.ndarray
    ranks: np.ndarray
    norms: np.ndarray
    distances: Mapping[int, np.ndarray]
    column_distances: Mapping[int, np.ndarray]
    drift_steps: np.ndarray
    drift: np.ndarray

    def rank(self, k: int = 0) -> np.ndarray:
        """Mean over heads of the rank without the k largest components."""
        return self.ranks[..., k].mean((1, 2))

    @property
    def norm(self) -> np.ndarray:
        """Norm of all heads together."""
        return np.sqrt((self.norms**2).sum((1, 2)))

    def distance(self, horizon: int, *, columns: bool = False) -> np.ndarray:
        """Mean over heads."""
        return (self.column_distances if columns else self.distances)[horizon].mean((1, 2))

    @property
    def mean_drift(self) -> np.ndarray:
        """Mean over heads."""
        return self.drift.mean((1, 2))


def head_curves(run: Run, horizons: Sequence[float], spacing: int) -> dict[str, HeadCurves]:
    """By circuit. Horizons are steps; the last checkpoint not after each is taken, and the end of the run is added."""
    steps = np.array(run.steps)
    ends = sorted({int(steps[steps <= horizon][-1]) for horizon in horizons} | {int(steps[-1])})
    found = {}
    for name, circuit in circuits_of(run, ("ov", "qk")).items():
        heads = {int(step): _all_layers(circuit, run.checkpoint(int(step))) for step in steps}
        values = [torch.as_tensor(probes.singular_values(head)) for head in heads.values()]
        regular = [step for step in heads if step % spacing == 0 and step - spacing in heads]
        found[name] = HeadCurves(
            steps,
            np.stack([probes.spectrum_marginalized_effective_rank(v, REMOVED).numpy() for v in values]),
            np.stack([v.norm(dim=-1).numpy() for v in values]),
            {end: _distances(heads, end, probes.subspace_distance) for end in ends},
            {end: _distances(heads, end, probes.column_subspace_distance) for end in ends},
            np.array(regular),
            np.stack([np.asarray(probes.subspace_drift(heads[s - spacing], heads[s])) for s in regular]),
        )
    return found


def _all_layers(circuit: Circuit, checkpoint: Checkpoint) -> probes.Factored:
    """[layer, head, d_model, d_model]."""
    matrices = [circuit.read(checkpoint, layer) for layer in circuit.layers]
    layers = [factors(matrix) for matrix in matrices if isinstance(matrix, probes.Factored)]
    return probes.Factored(torch.stack([left for left, _ in layers]), torch.stack([right for _, right in layers]))


def _distances(heads: Mapping[int, probes.Factored], end: int, distance) -> np.ndarray:
    missing = np.full(heads[end].shape[:2], np.nan)
    rows = [
        np.asarray(distance(head, heads[end], normalised=True)) if step <= end else missing
        for step, head in heads.items()
    ]
    return np.stack(rows)
