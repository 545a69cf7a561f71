"""How many directions a circuit uses besides its k largest: what goes on below the leading component."""

import numpy as np

from probes.matrices.ranks import spectrum_marginalized_effective_rank
from probes.measuring.catalogue.probe import Probe, ProbeValues
from probes.measuring.layer_heads import LayerHeads


def measure(now: LayerHeads, *, components: int) -> ProbeValues:
    """The effective rank without the k largest singular values, k = 0 .. components - 1."""
    values = np.full((len(now), components), np.nan)
    reasons: list[list[str | None]] = []
    ranks = np.where(now.has_spectrum, now.rank.numpy(), 0)
    for rank in np.unique(ranks[ranks > 0]):  # heads of one rank at a time: as many components can be taken out of each
        heads, count = ranks == rank, min(components, int(rank))
        values[heads, :count] = spectrum_marginalized_effective_rank(now.values.numpy()[heads], count - 1)
    for rank, why in zip(ranks.tolist(), now.why_not, strict=True):
        missing = why or f"only {rank} non-zero singular value{'s' * (rank > 1)}"
        reasons.append([None if k < rank else missing for k in range(components)])
    return ProbeValues(values, reasons)


PROBE = Probe(
    "marginalized_effective_rank",
    reads="now",
    unit="directions",
    definition="effective rank without the k largest singular values, k = component",
    citation="Mainali & Teixeira, section 4",
    function=measure,
    components=5,
)
