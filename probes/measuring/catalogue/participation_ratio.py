"""How many directions carry the energy: a rival between stable and effective rank."""

from functools import partial

from probes.matrices.ranks import spectrum_participation_ratio
from probes.measuring.catalogue.probe import Probe, from_spectrum

PROBE = Probe(
    "participation_ratio",
    reads="now",
    unit="directions",
    definition="(sum s^2)^2 / sum s^4",
    citation="Bell & Dean 1970",
    function=partial(from_spectrum, spectrum_participation_ratio),
)
