"""Energy in units of the largest direction: a rival of the effective rank, blind to small directions."""

from functools import partial

from probes.matrices.ranks import spectrum_stable_rank
from probes.measuring.catalogue.probe import Probe, from_spectrum

PROBE = Probe(
    "stable_rank",
    reads="now",
    unit="directions",
    definition="||M||_F^2 / ||M||_2^2",
    citation="Rudelson & Vershynin 2007",
    function=partial(from_spectrum, spectrum_stable_rank),
)
