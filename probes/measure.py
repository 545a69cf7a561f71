"""A run as one tidy table: `measure(run)`, one row per number.

Columns: run, step, layer, head, circuit, probe, component, value, why_missing. component is k for the marginalized
effective rank, else NA. A number that does not exist is NaN, and why_missing says why. What each probe is stands in
`table.attrs["definitions"]`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from checkpoints import Run
from probes.circuits import Builder, Matrix, circuits_of
from probes.effective_rank import (
    spectrum_effective_rank,
    spectrum_marginalized_effective_rank,
    spectrum_participation_ratio,
    spectrum_rank,
    spectrum_stable_rank,
)
from probes.matrices import Factored
from probes.spectra import frobenius_norm, singular_values
from probes.subspaces import column_subspace_distance, subspace_distance, subspace_drift

COLUMNS = ["run", "step", "layer", "head", "circuit", "probe", "component", "value", "why_missing"]

DEFINITIONS = {
    "norm": "||M||_F",
    "effective_rank": "exp(-sum p ln p), p = s / sum s (Roy & Vetterli; Eq 15)",
    "stable_rank": "||M||_F^2 / ||M||_2^2",
    "participation_ratio": "(sum s^2)^2 / sum s^4",
    "marginalized_effective_rank": "effective rank without the k largest singular values, k = component",
    "subspace_distance": "min_A ||A M(t) - M(final)||_F / ||M(final)||_F (Eq 16, normalised)",
    "column_subspace_distance": "min_A ||M(t) A - M(final)||_F / ||M(final)||_F",
    "subspace_drift": "row-space movement since the checkpoint before, 0 to 1",
}

Row = tuple[str, int | None, float, str | None]

_SPECTRAL: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": lambda s: torch.linalg.vector_norm(s),
    "effective_rank": spectrum_effective_rank,
    "stable_rank": spectrum_stable_rank,
    "participation_ratio": spectrum_participation_ratio,
}


def measure(
    run: Run,
    circuits: str | Sequence[str] | Mapping[str, Builder] = ("ov", "qk"),
    *,
    removed: int = 4,
    progress: bool = False,
) -> pd.DataFrame:
    """Every probe on every circuit of every checkpoint.

    circuits are names that the run's family knows, or your own: names with functions from the tensors of a checkpoint
    to a matrix or `Factored` [layer, head, rows, columns]. removed is the largest k of the marginalized rank.
    """
    if not run.steps:
        raise ValueError(f"run {run.name!r} has no checkpoints to measure")
    parts = circuits_of(run, (circuits,) if isinstance(circuits, str) else circuits)
    last = run.checkpoint(run.steps[-1])
    final = {(circuit, layer): part.read(last, layer) for circuit, part in parts.items() for layer in part.layers}
    before: dict[tuple[str, int], Matrix] = {}
    rows = []
    for step in tqdm(run.steps, desc=f"measuring {run.name}", unit="checkpoint", disable=None if progress else True):
        checkpoint = run.checkpoint(step)
        for place in final:
            circuit, layer = place
            now = parts[circuit].read(checkpoint, layer)
            for head in range(now.shape[0]):
                earlier = before[place][head] if place in before else None
                numbers = _numbers(now[head], final[place][head], earlier, removed)
                rows += [(run.name, step, layer, head, circuit, *number) for number in numbers]
            before[place] = now
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["component"] = table["component"].astype("Int64")
    table.attrs["definitions"] = DEFINITIONS
    table.attrs["source"] = run.source
    table.attrs["weight_processing"] = "none: raw weights"
    return table


def _numbers(now: Matrix, final: Matrix, before: Matrix | None, removed: int) -> Iterator[Row]:
    if not _is_finite(now):
        for name in DEFINITIONS:
            for k in range(removed + 1) if name == "marginalized_effective_rank" else (None,):
                yield name, k, np.nan, "the weights are not finite"
        return
    values = torch.as_tensor(singular_values(now))
    size, rank = float(values.max()), int(spectrum_rank(values))
    for name, function in _SPECTRAL.items():
        if size == 0 and name != "norm":
            yield name, None, np.nan, "the matrix is zero"
        else:
            yield name, None, float(function(values)), None
    known = spectrum_marginalized_effective_rank(values, min(removed, rank - 1)) if rank else ()
    for k in range(removed + 1):
        missing = f"only {rank} non-zero singular values" if k >= rank else None
        yield "marginalized_effective_rank", k, np.nan if missing else float(known[k]), missing
    yield from _spaces(now, final, before, rank)


def _spaces(now: Matrix, final: Matrix, before: Matrix | None, rank: int) -> Iterator[Row]:
    rows, columns = now.shape[-2:]
    full = {"subspace_distance": columns, "column_subspace_distance": rows, "subspace_drift": columns}
    for name, dimension in full.items():
        missing = f"rank {rank} spans all {dimension} dimensions: the distance is 0 from everything"
        other = before if name == "subspace_drift" else final
        if other is None:
            yield name, None, np.nan, "no checkpoint before this one"
        elif not _is_finite(other):
            yield name, None, np.nan, "the weights it is compared with are not finite"
        elif rank == 0 or float(torch.as_tensor(frobenius_norm(other))) == 0:
            yield name, None, np.nan, "a matrix of zeros has no row space"
        elif rank == dimension:
            yield name, None, np.nan, missing
        elif name == "subspace_drift":
            yield name, None, float(subspace_drift(other, now)), None
        else:
            distance = subspace_distance if name == "subspace_distance" else column_subspace_distance
            yield name, None, float(distance(now, other, normalised=True)), None


def _is_finite(matrix: Matrix) -> bool:
    parts = (matrix.left, matrix.right) if isinstance(matrix, Factored) else (matrix,)
    return all(bool(torch.isfinite(torch.as_tensor(part)).all()) for part in parts)
