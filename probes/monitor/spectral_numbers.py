"""The catalogue's probes of a spectrum in one go: what each of them checks and scales by itself is done once.

A small model pays for calls, not for arithmetic, and these five probes ask the same questions of the same singular
values. The numbers are those of `probes.matrices.ranks`, by the same operations in the same order, to the last bit; a
test holds them together. Where a head has no spectrum to speak of, or not enough singular values for what is taken out,
nothing is returned, and each probe is asked by itself: it has the reasons.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from probes.matrices.grams import Grams
from probes.measuring.catalogue import PROBES, Probe, spectral
from probes.measuring.layer_heads import LayerHeads


def spectral_numbers(heads: LayerHeads, formulas: Mapping[str, "Formula"]) -> dict[str, np.ndarray]:
    """Numbers [head, component] by some of the formulas of a spectrum, by name."""
    if not formulas or not _is_of_full_rank(heads.grams, heads.singular_values):
        return {}
    values = heads.singular_values
    spectrum = _Spectrum(values)
    found = {name: formula(spectrum) for name, formula in formulas.items()}
    numbers = {name: one.numpy().reshape(len(heads), -1) for name, one in found.items() if one is not None}
    if all(math.isfinite(one.sum()) for one in numbers.values()):
        return numbers
    return {name: one for name, one in numbers.items() if np.isfinite(one).all()}


def _is_of_full_rank(grams: Grams | None, values: Tensor) -> bool:
    """Whether every head has a finite spectrum in which no value is rounding; heads that are unusable are zeros."""
    found, rounding = values.numpy(), values.shape[-1] * np.finfo(np.float64).eps
    is_full = found[:, -1] > rounding * found[:, 0]  # False of what is not finite
    return bool(is_full.all()) and (grams is None or bool((grams.squared_norm.numpy() > 0).all()))


class _Spectrum:
    """Singular values [head, k], the same over the largest, and what several formulas need of these."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.scaled = values / values.amax(-1, keepdim=True)

    @cached_property
    def minus_entropy(self) -> Tensor:
        """Whose exponential, upside down, is the effective rank of all of them."""
        return _minus_entropy(self.scaled)

    @cached_property
    def squares(self) -> Tensor:
        """The sum of the squares, over that of the largest."""
        return self.scaled.square().sum(-1)


Formula = Callable[[_Spectrum], Tensor | None]


def formulas_of(probes: Sequence[Probe]) -> dict[str, Formula]:
    """What those of the probes that are the catalogue's own of a spectrum work out, by name."""
    found = {probe.name: _formula(probe) for probe in probes}
    return {name: formula for name, formula in found.items() if formula is not None}


def _formula(probe: Probe) -> Formula | None:
    """What a probe of the catalogue works out; None of any other."""
    function = probe.function
    if isinstance(function, partial) and function.func is spectral.marginalized_effective_rank:
        return partial(_marginalized, removed=int(function.keywords["removed"]))
    known = PROBES.get(probe.name)
    return _FORMULAS.get(probe.name) if known is not None and known.function is function else None


def _minus_entropy(scaled: Tensor) -> Tensor:
    p = scaled / scaled.sum(-1, keepdim=True)
    return torch.special.xlogy(p, p).sum(-1)


def _marginalized(spectrum: _Spectrum, *, removed: int) -> Tensor | None:
    """The effective rank of what is left without the k largest, k = 0 .. removed; None where nothing is left."""
    values = spectrum.values
    if removed >= values.shape[-1]:
        return None
    rest = (values[..., k:] / values[..., k : k + 1] for k in range(1, removed + 1))
    return torch.exp(-torch.stack([spectrum.minus_entropy, *map(_minus_entropy, rest)], dim=-1))


_FORMULAS: dict[str, Formula] = {
    "norm": lambda spectrum: spectrum.values.norm(dim=-1),
    "effective_rank": lambda spectrum: torch.exp(-spectrum.minus_entropy),
    "stable_rank": lambda spectrum: spectrum.squares,
    "participation_ratio": lambda spectrum: spectrum.squares.square() / spectrum.scaled.pow(4).sum(-1),
}
