"""Probes of one spectrum: how large a circuit is, and how many directions it uses.

A matrix of zeros has a norm, 0, and nothing else here.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from probes.measuring.catalogue.probe import LayerHeads, Probe, ProbeValues


def norm(heads: LayerHeads) -> ProbeValues:
    """The root of the sum of squared singular values."""
    usable = heads.is_usable.tolist()
    reasons = [None if can else why for can, why in zip(usable, heads.missing_reason, strict=True)]
    return ProbeValues.of(heads.singular_values.norm(dim=-1).numpy(), reasons)


def effective_rank(heads: LayerHeads) -> ProbeValues:
    """As Roy & Vetterli define it, from the singular values themselves."""
    from probes.matrices.ranks import spectrum_effective_rank

    return heads.from_spectrum(spectrum_effective_rank)


def stable_rank(heads: LayerHeads) -> ProbeValues:
    """A rival of the effective rank, blind to small directions."""
    from probes.matrices.ranks import spectrum_stable_rank

    return heads.from_spectrum(spectrum_stable_rank)


def participation_ratio(heads: LayerHeads) -> ProbeValues:
    """A rival between stable and effective rank."""
    from probes.matrices.ranks import spectrum_participation_ratio

    return heads.from_spectrum(spectrum_participation_ratio)


def marginalized_effective_rank(heads: LayerHeads, *, removed: int) -> ProbeValues:
    """The effective rank without the k largest singular values, k = 0 .. removed."""
    from probes.matrices.ranks import spectrum_marginalized_effective_rank

    spectrum = heads.singular_values.numpy()
    values = np.full((len(heads), removed + 1), np.nan)
    has_spectrum = np.array([reason is None for reason in heads.missing_reason])
    ranks = np.where(has_spectrum, heads.rank.numpy(), 0)
    for rank in np.unique(ranks[ranks > 0]):  # heads of one rank at a time: as many components can be taken out of each
        some, count = ranks == rank, min(removed + 1, int(rank))
        values[some, :count] = spectrum_marginalized_effective_rank(spectrum[some], count - 1)
    missing = {}
    for head, (rank, why) in enumerate(zip(ranks.tolist(), heads.missing_reason, strict=True)):
        reason = why or f"only {rank} non-zero singular value{'s' * (rank > 1)}"
        missing |= {(head, k): reason for k in range(rank, removed + 1)}
    return ProbeValues(values, missing)


NORM = Probe("norm", norm, "||M||_F", "weights", "Mainali & Teixeira, section 3.2")
EFFECTIVE_RANK = Probe(
    "effective_rank",
    effective_rank,
    "exp(-sum p ln p), p = s / sum s",
    "directions",
    "Roy & Vetterli 2007; Mainali & Teixeira, Eq 15",
)
STABLE_RANK = Probe("stable_rank", stable_rank, "||M||_F^2 / ||M||_2^2", "directions", "Rudelson & Vershynin 2007")
PARTICIPATION_RATIO = Probe(
    "participation_ratio", participation_ratio, "(sum s^2)^2 / sum s^4", "directions", "Bell & Dean 1970"
)
MARGINALIZED_EFFECTIVE_RANK = Probe(
    "marginalized_effective_rank",
    partial(marginalized_effective_rank, removed=4),
    "effective rank without the k largest singular values, k = component",
    "directions",
    "Mainali & Teixeira, section 4",
    components=5,
)


def marginalized(removed: int) -> Probe:
    """The marginalized effective rank with k = 0 .. removed."""
    if removed < 0:
        raise ValueError(f"removed is {removed}: the number of components to take out cannot be negative")
    function = partial(marginalized_effective_rank, removed=removed)
    return replace(MARGINALIZED_EFFECTIVE_RANK, function=function, components=removed + 1)
