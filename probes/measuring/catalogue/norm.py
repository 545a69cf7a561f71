"""How large a circuit is. A matrix of zeros has a norm, 0: the only probe that it has."""

import torch

from probes.measuring.catalogue.probe import Probe, ProbeValues
from probes.measuring.layer_heads import LayerHeads


def measure(now: LayerHeads) -> ProbeValues:
    """||M||_F, the root of the sum of squared singular values."""
    reasons = [None if usable else why for usable, why in zip(now.is_usable.tolist(), now.why_not, strict=True)]
    return ProbeValues.of(torch.linalg.vector_norm(now.values, dim=-1).numpy(), reasons)


PROBE = Probe(
    "norm",
    reads="now",
    unit="weights",
    definition="||M||_F",
    citation="Mainali & Teixeira, section 3.2",
    function=measure,
)
