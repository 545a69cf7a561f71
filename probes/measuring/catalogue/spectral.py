"""Probes of one spectrum: how large a circuit is, and how many directions it uses.

A matrix of zeros has a norm, 0, and nothing else here.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from probes.measuring.catalogue import null_levels
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


_RANDOM = "Random weights of the same shape, Gaussian and independent in both factors, score this."
_OF_SIZE = "The size of a circuit: multiplying the weights by a constant does not change it."

NORM = Probe(
    "norm",
    norm,
    "||M||_F",
    "weights",
    "Mainali & Teixeira, section 3.2",
    formula=r"\lVert M \rVert_F = \sqrt{\textstyle\sum_i s_i^2}",
    null="There is none: the norm of random weights is whatever the initialisation made it. Compare with the first "
    "checkpoint.",
    cannot_tell="What a circuit does, or whether it is used: LayerNorm, or a later layer, may undo its size. Weight "
    "decay and the learning rate move it without anything being learned.",
)
EFFECTIVE_RANK = Probe(
    "effective_rank",
    effective_rank,
    "exp(-sum p ln p), p = s / sum s",
    "directions",
    "Roy & Vetterli 2007; Mainali & Teixeira, Eq 15",
    formula=r"\exp\Bigl(-\sum_i p_i \ln p_i\Bigr), \quad p_i = s_i \,/\, \textstyle\sum_j s_j",
    null_level=null_levels.effective_rank,
    null=_RANDOM,
    cannot_tell=f"{_OF_SIZE} Which directions are used, or for what. In attention-only models it dips around the "
    "emergence of in-context learning, and in the one-layer control as well: a dip alone is no evidence.",
)
STABLE_RANK = Probe(
    "stable_rank",
    stable_rank,
    "||M||_F^2 / ||M||_2^2",
    "directions",
    "Rudelson & Vershynin 2007",
    formula=r"\lVert M \rVert_F^2 \,/\, \lVert M \rVert_2^2 = \textstyle\sum_i s_i^2 \,/\, s_1^2",
    null_level=null_levels.stable_rank,
    null=_RANDOM,
    cannot_tell=f"{_OF_SIZE} Anything about small directions: one large singular value hides all others.",
)
PARTICIPATION_RATIO = Probe(
    "participation_ratio",
    participation_ratio,
    "(sum s^2)^2 / sum s^4",
    "directions",
    "Bell & Dean 1970",
    formula=r"\Bigl(\textstyle\sum_i s_i^2\Bigr)^2 \,/\, \textstyle\sum_i s_i^4",
    null_level=null_levels.participation_ratio,
    null=_RANDOM,
    cannot_tell=f"{_OF_SIZE} Which directions are used. It weighs by squares, between stable and effective rank: the "
    "three may move in opposite directions when a small mode grows beside a large one.",
)
MARGINALIZED_EFFECTIVE_RANK = Probe(
    "marginalized_effective_rank",
    partial(marginalized_effective_rank, removed=4),
    "effective rank without the k largest singular values, k = component",
    "directions",
    "Mainali & Teixeira, section 4",
    components=5,
    formula=r"\exp\Bigl(-\sum_{i > k} p_i \ln p_i\Bigr), \quad p_i = s_i \,/\, \textstyle\sum_{j > k} s_j",
    null_level=partial(null_levels.marginalized_effective_rank, removed=4),
    null=_RANDOM,
    cannot_tell="Which mode was taken out: the largest now need not be the largest before, and where modes overtake "
    "each other the curve of one k belongs to several modes (`probes.marginalized_effective_rank_by_mode` follows "
    "them by their vectors). A dip comes late: the rank is lowest once a mode dominates, not when it begins to grow.",
)


def marginalized(removed: int) -> Probe:
    """The marginalized effective rank with k = 0 .. removed."""
    if removed < 0:
        raise ValueError(f"removed is {removed}: the number of components to take out cannot be negative")
    function = partial(marginalized_effective_rank, removed=removed)
    level = partial(null_levels.marginalized_effective_rank, removed=removed)
    return replace(MARGINALIZED_EFFECTIVE_RANK, function=function, components=removed + 1, null_level=level)
