"""How large a circuit is. A matrix of zeros has a norm, 0: the only probe that it has."""

import torch

from probes.catalogue.entry import Numbers, Probe
from probes.stack import Stack


def measure(now: Stack) -> Numbers:
    """||M||_F, the root of the sum of squared singular values."""
    reasons = [None if usable else why for usable, why in zip(now.is_usable.tolist(), now.why_not, strict=True)]
    return Numbers.of(torch.linalg.vector_norm(now.values, dim=-1).numpy(), reasons)


PROBE = Probe(
    "norm",
    reads="now",
    unit="weights",
    definition="||M||_F",
    citation="Mainali & Teixeira, section 3.2",
    function=measure,
)
