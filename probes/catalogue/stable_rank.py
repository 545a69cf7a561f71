"""Energy in units of the largest direction: a rival of the effective rank, blind to small directions."""

from functools import partial

from probes.catalogue.entry import Probe, of_spectrum
from probes.effective_rank import spectrum_stable_rank

PROBE = Probe(
    "stable_rank",
    reads="now",
    unit="directions",
    definition="||M||_F^2 / ||M||_2^2",
    citation="Rudelson & Vershynin 2007",
    function=partial(of_spectrum, spectrum_stable_rank),
)
