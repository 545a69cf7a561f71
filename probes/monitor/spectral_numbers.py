"""The catalogue's probes of a spectrum in one go: what each of them checks and scales by itself is done once.

A small model pays for calls, not for arithmetic, and these five probes ask the same questions of the same singular
values. The numbers are those of `probes.matrices.ranks`, by the same operations in the same order, to the last bit; a
test holds them together. Where a head has no spectrum to speak of, or not enough singular values for what is taken out,
nothing is returned, and each probe is asked by itself: it has the reasons.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from probes.measuring.catalogue import PROBES, Probe, spectral
from probes.measuring.layer_heads import LayerHeads


def spectral_numbers(heads: LayerHeads, probes: Sequence[Probe]) -> dict[str, np.ndarray]:
    """Numbers [head, component] of those of the probes that are the catalogue's own of a spectrum, by name."""
    wanted = {probe.name: _formula(probe) for probe in probes}
    formulas = {name: formula for name, formula in wanted.items() if formula is not None}
    if not formulas or any(heads.missing_reason):
        return {}
    values = heads.singular_values
    if not bool(torch.isfinite(values).all()) or not bool((heads.rank == values.shape[-1]).all()):
        return {}
    spectrum = _Spectrum(values)
    found = {name: formula(spectrum) for name, formula in formulas.items()}
    numbers = {name: one.numpy().reshape(len(heads), -1) for name, one in found.items() if one is not None}
    return {name: one for name, one in numbers.items() if np.isfinite(one).all()}


class _Spectrum:
    """Singular values [head, k], the same over the largest, and what several formulas need of these."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.scaled = values / values.amax(-1, keepdim=True)

    @cached_property
    def entropy_rank(self) -> Tensor:
        """The effective rank of all of them."""
        return _entropy_rank(self.scaled)

    @cached_property
    def squares(self) -> Tensor:
        """The sum of the squares, over that of the largest."""
        return self.scaled.square().sum(-1)


_Formula = Callable[[_Spectrum], Tensor | None]


def _formula(probe: Probe) -> _Formula | None:
    """What a probe of the catalogue works out; None of any other."""
    function = probe.function
    if isinstance(function, partial) and function.func is spectral.marginalized_effective_rank:
        return partial(_marginalized, removed=int(function.keywords["removed"]))
    known = PROBES.get(probe.name)
    return _FORMULAS.get(probe.name) if known is not None and known.function is function else None


def _entropy_rank(scaled: Tensor) -> Tensor:
    p = scaled / scaled.sum(-1, keepdim=True)
    return torch.exp(-torch.special.xlogy(p, p).sum(-1))


def _marginalized(spectrum: _Spectrum, *, removed: int) -> Tensor | None:
    """The effective rank of what is left without the k largest, k = 0 .. removed; None where nothing is left."""
    values = spectrum.values
    if removed >= values.shape[-1]:
        return None
    rest = (values[..., k:] / values[..., k : k + 1] for k in range(1, removed + 1))
    return torch.stack([spectrum.entropy_rank, *map(_entropy_rank, rest)], dim=-1)


_FORMULAS: dict[str, _Formula] = {
    "norm": lambda spectrum: spectrum.values.norm(dim=-1),
    "effective_rank": lambda spectrum: spectrum.entropy_rank,
    "stable_rank": lambda spectrum: spectrum.squares,
    "participation_ratio": lambda spectrum: spectrum.squares.square() / spectrum.scaled.pow(4).sum(-1),
}
