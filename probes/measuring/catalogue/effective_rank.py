"""How many directions a circuit really uses."""

from functools import partial

from probes.matrices.ranks import spectrum_effective_rank
from probes.measuring.catalogue.probe import Probe, from_spectrum

PROBE = Probe(
    "effective_rank",
    reads="now",
    unit="directions",
    definition="exp(-sum p ln p), p = s / sum s",
    citation="Roy & Vetterli 2007; Mainali & Teixeira, Eq 15",
    function=partial(from_spectrum, spectrum_effective_rank),
)
