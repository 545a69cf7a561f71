"""How much of the reference lies outside the column space of now: the twin of the subspace distance."""

from probes.measuring.catalogue import subspace_distance
from probes.measuring.catalogue.probe import Probe, ProbeValues
from probes.measuring.layer_heads import LayerHeads


def measure(now: LayerHeads, other: LayerHeads) -> ProbeValues:
    """The subspace distance of the transposes."""
    transposed = now.mT
    return subspace_distance.PROBE.function(transposed, transposed if other is now else other.mT)


PROBE = Probe(
    "column_subspace_distance",
    reads="now and reference",
    unit="share of ||reference||",
    definition="min_A ||M(t) A - M(reference)||_F / ||M(reference)||_F",
    citation="after Mainali & Teixeira, Eq 16",
    function=measure,
)
