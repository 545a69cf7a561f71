"""What chance would show: the level of each probe for random weights of the shapes that the run has."""

from collections.abc import Sequence

import numpy as np

from checkpoints import Run
from probes.circuits import circuits_of
from probes.matrices.factored import Factored
from probes.measuring.catalogue import PROBES
from probes.reporting.page_data import Null
from probes.reporting.series_data import series_name


def null_levels(run: Run, circuits: Sequence[str], series: Sequence[tuple[str, int | None]]) -> dict[str, list[Null]]:
    """By series, the level for each circuit whose shape can be told from the first of its layers."""
    try:
        known = circuits_of(run, tuple(circuits))
        checkpoint = run.representative_checkpoint()
        matrices = {name: one.read(checkpoint, one.layers[0]) for name, one in known.items()}
    except (OSError, ValueError, KeyError, RuntimeError):
        return {}  # a level that cannot be told is left out; no number depends on it
    found: dict[str, list[Null]] = {}
    for circuit, matrix in matrices.items():
        rows, columns = (int(size) for size in matrix.shape[-2:])
        inner = int(matrix.left.shape[-1]) if isinstance(matrix, Factored) else None
        if inner is not None and inner > min(rows, columns):
            continue
        for probe, component in series:
            level = _level(probe, component or 0, rows, columns, inner)
            if np.isfinite(level) and level > 0:  # a subspace that is the whole space is no level to hold against
                null = Null(circuit, level, _sentence(probe, level, rows, columns, inner))
                found.setdefault(series_name(probe, component), []).append(null)
    return found


def _level(probe: str, component: int, rows: int, columns: int, inner: int | None) -> float:
    known = PROBES.get(probe.split("@")[0])
    levels = known.null_levels(rows, columns, inner) if known is not None else np.empty(0)
    return float(levels[component]) if component < len(levels) else float("nan")


def _sentence(probe: str, level: float, rows: int, columns: int, inner: int | None) -> str:
    said = f"{level:.2f}" if level < 1 else f"{level:.3g}"
    if "subspace" in probe:
        rank, dimension = inner or min(rows, columns), rows if probe.startswith("column") else columns
        return f"a random subspace of {rank} of {dimension} dimensions scores {said}."
    shape = f"{rows} x {columns}" if inner is None else f"{rows} x {inner} x {columns}"
    return f"random weights ({shape}) score {said}."
