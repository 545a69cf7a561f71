"""The live path's probes of a spectrum, all at once: the catalogue's numbers to the last bit, or none."""

import numpy as np
import pytest
import torch

from probes import Factored
from probes.measuring.catalogue import as_probes
from probes.measuring.layer_heads import LayerHeads
from probes.monitor.spectral_numbers import formulas_of, spectral_numbers

PROBES = [probe for probe in as_probes(None) if probe.reads == "current"]


def heads(scale: float = 1.0) -> LayerHeads:
    draw = torch.Generator().manual_seed(3)
    return LayerHeads(Factored(scale * torch.randn(6, 24, 8, generator=draw), torch.randn(6, 8, 24, generator=draw)))


@pytest.mark.parametrize("scale", [1.0, 1e-12, 3e7])
def test_they_are_those_of_the_catalogue_bit_for_bit(scale):
    here = heads(scale)
    found = spectral_numbers(here, formulas_of(PROBES))
    assert set(found) == {probe.name for probe in PROBES}
    for probe in PROBES:
        np.testing.assert_array_equal(found[probe.name], probe.measure(here).values)


def test_where_a_head_lacks_a_spectrum_or_directions_each_probe_is_asked_by_itself():
    left = torch.randn(3, 24, 8)
    for spoil in (
        lambda part: part[1].zero_(),
        lambda part: part[1, 0, 0].fill_(torch.nan),
        lambda part: part[..., 3:].zero_(),
    ):
        spoilt = left.clone()
        spoil(spoilt)
        assert spectral_numbers(LayerHeads(Factored(spoilt, torch.randn(3, 8, 24))), formulas_of(PROBES)) == {}


def test_somebodys_own_probe_of_the_same_name_is_not_taken_for_ours():
    from probes import Probe

    own = Probe.of_spectrum("norm", lambda values: values.sum(-1))
    assert spectral_numbers(heads(), formulas_of([own])) == {}
