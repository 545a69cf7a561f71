"""How many directions a circuit really uses."""

from functools import partial

from probes.catalogue.entry import Probe, of_spectrum
from probes.effective_rank import spectrum_effective_rank

PROBE = Probe(
    "effective_rank",
    reads="now",
    unit="directions",
    definition="exp(-sum p ln p), p = s / sum s",
    citation="Roy & Vetterli 2007; Mainali & Teixeira, Eq 15",
    function=partial(of_spectrum, spectrum_effective_rank),
)
