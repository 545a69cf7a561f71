"""How much of the reference lies outside the row space of now: 0 once all its directions are there."""

from functools import partial

import numpy as np

from probes.measuring.catalogue.probe import Probe, from_row_spaces
from probes.measuring.layer_heads import LayerHeads


def measure(now: LayerHeads, other: LayerHeads) -> np.ndarray:
    """||reference (I - V V^T)||_F / ||reference||_F, V a basis of the rows now."""
    outside, norm = now.part_outside(other)
    return (outside / norm).clamp(max=1).numpy()


PROBE = Probe(
    "subspace_distance",
    reads="now and reference",
    unit="share of ||reference||",
    definition="min_A ||A M(t) - M(reference)||_F / ||M(reference)||_F",
    citation="Mainali & Teixeira, Eq 16, normalised",
    function=partial(from_row_spaces, measure),
)
