"""Probes of where a circuit points, against the heads of another checkpoint.

    distance   how much of a reference lies outside the space of now: 0 once all of its directions are there
    drift      how far the row space moved over a stated stretch of training: needs no reference

A drift depends on the stretch it is measured over, so that between neighbours it draws the schedule of the checkpoints
and not the training. It is measured over a stretch that is stated and the same for all rows (`measuring.stretches`);
divided by the steps in it, it is a speed. (Of a space that wanders at random the speed falls with the root of the
stretch: compare speeds over like stretches.)
"""

import numpy as np

from probes.measuring.catalogue import null_levels
from probes.measuring.catalogue.probe import LayerHeads, Probe, ProbeValues


def subspace_distance(heads: LayerHeads, reference: LayerHeads) -> ProbeValues:
    """||reference (I - V V^T)||_F / ||reference||_F, V a basis of the rows now."""
    return heads.from_row_spaces(_share_outside, reference)


def column_subspace_distance(heads: LayerHeads, reference: LayerHeads) -> ProbeValues:
    """The subspace distance of the transposes."""
    transposed = heads.mT
    return subspace_distance(transposed, transposed if reference is heads else reference.mT)


def subspace_drift(heads: LayerHeads, previous: LayerHeads) -> ProbeValues:
    """Root of the share of the energy of both that lies outside the other's row space."""
    return heads.from_row_spaces(_movement, previous)


def subspace_drift_per_step(heads: LayerHeads, previous: LayerHeads) -> ProbeValues:
    """The drift over the number of steps it took."""
    found, steps = subspace_drift(heads, previous), heads.step - previous.step
    if steps == 0:
        rows, columns = found.values.shape
        return ProbeValues.nothing(rows, columns, f"measured at step {heads.step} before: no step lies between")
    return ProbeValues(found.values / steps, found.why_missing)


def _share_outside(heads: LayerHeads, reference: LayerHeads) -> np.ndarray:
    outside, size = heads.part_outside(reference)
    return (outside / size).clamp(max=1).numpy()


def _movement(heads: LayerHeads, previous: LayerHeads) -> np.ndarray:
    moved, energy = heads.moved_since(previous)
    return (moved / energy).clamp(max=1).sqrt().numpy()


_END = (
    "When a subspace settles: that is decided by which checkpoint is the reference, and a run that goes on for longer "
    "settles later. Use several references, or the drift, which needs none. Of a circuit of full rank it is 0, "
    "whatever happened."
)

SUBSPACE_DISTANCE = Probe(
    "subspace_distance",
    subspace_distance,
    "min_A ||A M(t) - M(reference)||_F / ||M(reference)||_F",
    "share of ||reference||",
    "Mainali & Teixeira, Eq 16, normalised",
    reads="current, reference",
    formula=r"\min_A \lVert A\, M(t) - M_\mathrm{ref} \rVert_F \,/\, \lVert M_\mathrm{ref} \rVert_F",
    null_level=null_levels.row_subspace,
    null="A random row space of the same rank scores the root of 1 - rank / columns, whatever the reference is.",
    cannot_tell=_END,
)
COLUMN_SUBSPACE_DISTANCE = Probe(
    "column_subspace_distance",
    column_subspace_distance,
    "min_A ||M(t) A - M(reference)||_F / ||M(reference)||_F",
    "share of ||reference||",
    "after Mainali & Teixeira, Eq 16",
    reads="current, reference",
    formula=r"\min_A \lVert M(t)\, A - M_\mathrm{ref} \rVert_F \,/\, \lVert M_\mathrm{ref} \rVert_F",
    null_level=null_levels.column_subspace,
    null="A random column space of the same rank scores the root of 1 - rank / rows, whatever the reference is.",
    cannot_tell=_END,
)
SUBSPACE_DRIFT = Probe(
    "subspace_drift",
    subspace_drift,
    "movement of the row space",
    "0 to 1",
    "this project",
    reads="current, previous",
    formula=r"\sqrt{\frac{\lVert M (I - P_0) \rVert_F^2 + \lVert M_0 (I - P) \rVert_F^2}"
    r"{\lVert M \rVert_F^2 + \lVert M_0 \rVert_F^2}}",
    null_level=null_levels.row_subspace,
    null="Between two unrelated row spaces of the same rank it is the root of 1 - rank / columns; 0 where nothing "
    "moves.",
    cannot_tell="Movement with a purpose from movement by noise: a row space under SGD never rests. It depends on the "
    "stretch of training that it is measured over, which the table states; compare like stretches only.",
)
SUBSPACE_DRIFT_PER_STEP = Probe(
    "subspace_drift_per_step",
    subspace_drift_per_step,
    "movement of the row space, divided by the number of steps it took",
    "1 / step",
    "this project",
    reads="current, previous",
    formula=r"\mathrm{drift}\,/\,(t - t_0)",
    null="There is none: it falls with the length of the stretch, because the drift cannot exceed that of unrelated "
    "spaces.",
    cannot_tell="A speed that is comparable between stretches of different length: of a space that wanders at random "
    "it falls with the root of the stretch.",
)
