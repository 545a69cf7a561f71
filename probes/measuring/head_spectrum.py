"""The spectrum of one head over training, read from the weights: what the table's summaries are summaries of.

Two readings of it. Sorted, sigma_k(t) is the k-th largest singular value at each time: where two cross they swap names.
Followed, u_k^T M(t) v_k is the amplitude of the k-th mode of the last checkpoint, which keeps its identity (`modes`).
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from torch import Tensor

from checkpoints import Run
from checkpoints.heads.layout import Layer, TowerLayer
from probes.circuits import circuits_of
from probes.matrices.factored import Factored
from probes.matrices.modes import mode_amplitudes
from probes.matrices.spectra import SVD, singular_values, thin_svd


def head_spectrum(
    run: Run, layer: Layer, head: int, circuit: str = "ov", *, modes: int = 6, without: Iterable[int] = ()
) -> pd.DataFrame:
    """step, mode, singular_value (sorted), followed; one row per checkpoint and mode, the leading ones at the end.

    without are steps to leave out: those that an audit condemns. A checkpoint that cannot be read, or whose head has
    values that are not finite, has NaN and the reason in why_missing.
    """
    if modes < 1:
        raise ValueError(f"modes is {modes}: at least 1 is needed")
    steps = [step for step in run.steps if step not in set(without)]
    if not steps:
        raise ValueError(f"run {run.name!r} has no checkpoint to read a spectrum from: {len(run.steps)} in all")
    found = circuits_of(run, (circuit,))[circuit]
    known = {str(one): one for one in found.layers}
    if str(layer) not in known:
        raise ValueError(f"{circuit} has no layer {layer}; it has {', '.join(known)}")
    matrices, reasons = {}, {}
    for step in steps:
        try:
            matrices[step] = _head(found.read(run.checkpoint(step), known[str(layer)]), head)
        except (OSError, ValueError) as error:
            reasons[step] = str(error)
    if not matrices:
        raise ValueError(f"run {run.name!r}, layer {layer}, head {head}: {next(iter(reasons.values()))}")
    last = max(matrices)
    whole = thin_svd(matrices[last])
    basis = SVD(whole.left[:, :modes], whole.values[:modes], whole.right[:, :modes])
    count = len(basis.values)
    rows = []
    for step in steps:
        values = followed = np.full(count, np.nan)
        if step in matrices:
            values = np.asarray(singular_values(matrices[step]))[:count]
            followed = np.asarray(mode_amplitudes(matrices[step], basis))
        why = reasons.get(step)
        rows += [(step, k, values[k], followed[k], why) for k in range(count)]
    table = pd.DataFrame(rows, columns=["step", "mode", "singular_value", "followed", "why_missing"])
    table.attrs.update(run=run.name, circuit=circuit, layer=str(layer), head=head, last=last, step_unit=run.step_unit)
    table.attrs["modes_in_all"] = len(whole.values)
    return table


def layer_named(name: str) -> tuple[Layer, int]:
    """Layer and head of a name as in the members of an event: "1.0", "encoder:1.0"."""
    tower, _, place = name.rpartition(":")
    layer, dot, head = place.partition(".")
    if not dot or not layer.isdigit() or not head.isdigit():
        raise ValueError(f"{name!r}: a head by its name, such as 1.0 or encoder:1.0, is expected")
    return (TowerLayer(tower, int(layer)) if tower else int(layer)), int(head)


def _head(matrices: Tensor | Factored, head: int) -> Tensor | Factored:
    count = matrices.shape[0]
    if not 0 <= head < count:
        raise IndexError(f"no head {head}: there are {count}")
    one = matrices[head]
    parts = (one.left, one.right) if isinstance(one, Factored) else (one,)
    if not all(bool(part.isfinite().all()) for part in parts):
        raise ValueError("it has values that are not finite")
    return one
