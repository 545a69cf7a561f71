"""Probes of where a circuit points, against the heads of another checkpoint.

    distance   how much of a reference lies outside the space of now: 0 once all of its directions are there
    drift      how far the row space moved over a stated stretch of training: needs no reference

A drift depends on the stretch it is measured over, so that between neighbours it draws the schedule of the checkpoints
and not the training. It is measured over a stretch that is stated and the same for all rows (`measuring.stretches`);
divided by the steps in it, it is a speed. (Of a space that wanders at random the speed falls with the root of the
stretch: compare speeds over like stretches.)
"""

import numpy as np

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
    found = subspace_drift(heads, previous)
    return ProbeValues(found.values / (heads.step - previous.step), found.why_missing)


def _share_outside(heads: LayerHeads, reference: LayerHeads) -> np.ndarray:
    outside, size = heads.part_outside(reference)
    return (outside / size).clamp(max=1).numpy()


def _movement(heads: LayerHeads, previous: LayerHeads) -> np.ndarray:
    moved, energy = heads.moved_since(previous)
    return (moved / energy).clamp(max=1).sqrt().numpy()


SUBSPACE_DISTANCE = Probe(
    "subspace_distance",
    subspace_distance,
    "min_A ||A M(t) - M(reference)||_F / ||M(reference)||_F",
    "share of ||reference||",
    "Mainali & Teixeira, Eq 16, normalised",
    reads="current, reference",
)
COLUMN_SUBSPACE_DISTANCE = Probe(
    "column_subspace_distance",
    column_subspace_distance,
    "min_A ||M(t) A - M(reference)||_F / ||M(reference)||_F",
    "share of ||reference||",
    "after Mainali & Teixeira, Eq 16",
    reads="current, reference",
)
SUBSPACE_DRIFT = Probe(
    "subspace_drift",
    subspace_drift,
    "movement of the row space",
    "0 to 1",
    "probes.subspace_drift",
    reads="current, previous",
)
SUBSPACE_DRIFT_PER_STEP = Probe(
    "subspace_drift_per_step",
    subspace_drift_per_step,
    "movement of the row space, divided by the number of steps it took",
    "1 / step",
    "probes.subspace_drift",
    reads="current, previous",
)
