"""How many directions carry the energy: a rival between stable and effective rank."""

from functools import partial

from probes.catalogue.entry import Probe, of_spectrum
from probes.effective_rank import spectrum_participation_ratio

PROBE = Probe(
    "participation_ratio",
    reads="now",
    unit="directions",
    definition="(sum s^2)^2 / sum s^4",
    citation="Bell & Dean 1970",
    function=partial(of_spectrum, spectrum_participation_ratio),
)
