"""How far the row space moved since the checkpoint before: needs no reference, depends on the spacing."""

from functools import partial

import numpy as np

from probes.measuring.catalogue.probe import Probe, from_row_spaces
from probes.measuring.layer_heads import LayerHeads


def measure(now: LayerHeads, other: LayerHeads) -> np.ndarray:
    """Root of the share of the energy of both that lies outside the other's row space."""
    moved, energy = now.moved_since(other)
    return (moved / energy).clamp(max=1).sqrt().numpy()


PROBE = Probe(
    "subspace_drift",
    reads="now and before",
    unit="0 to 1",
    definition="row-space movement since the checkpoint before, 0 to 1",
    citation="probes.subspace_drift",
    function=partial(from_row_spaces, measure),
)
