"""What an entry of the catalogue is: a name, what it reads, what it means, and the function."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float64

from probes.measuring.layer_heads import LayerHeads


@dataclass(frozen=True)
class ProbeValues:
    """What a probe found: a number for each head (and component), NaN where there is none, and then why."""

    values: Float64[np.ndarray, "head component"]
    why_missing: list[list[str | None]]

    @staticmethod
    def of(values: np.ndarray, reasons: list[str | None]) -> "ProbeValues":
        """One number per head; NaN where there is a reason."""
        missing = np.array([reason is not None for reason in reasons])
        return ProbeValues(np.where(missing, np.nan, values)[:, None], [[reason] for reason in reasons])

    def split(self, heads: list[int]) -> list["ProbeValues"]:
        """The numbers of so many heads, of the next so many, and so on."""
        ends = list(accumulate(heads, initial=0))
        return [ProbeValues(self.values[a:b], self.why_missing[a:b]) for a, b in pairwise(ends)]


@dataclass(frozen=True)
class Probe:
    """One probe.

    function takes the heads now and, for a probe that compares, the heads compared with: those of a reference
    checkpoint or of the checkpoint before. components is how many numbers it gives for one matrix (None: one).
    """

    name: str
    reads: Literal["now", "now and reference", "now and before"]
    unit: str
    definition: str
    citation: str
    function: Callable[..., ProbeValues]
    components: int | None = None


def from_spectrum(function: Callable, now: LayerHeads) -> ProbeValues:
    """A number that a spectrum has, for the heads that have one."""
    values, has = np.full(len(now), np.nan), now.has_spectrum
    if has.any():
        values[has] = function(now.values.numpy()[has])
    return ProbeValues.of(values, now.why_not)


def from_row_spaces(
    function: Callable[[LayerHeads, LayerHeads], np.ndarray], now: LayerHeads, other: LayerHeads
) -> ProbeValues:
    """A number that two row spaces have; none where one is missing or fills the whole space."""
    if other.shape != now.shape:
        mismatch = f"it is {now.shape[1:]}, and {other.shape[1:]} in the checkpoint it is compared with"
        return ProbeValues.of(np.zeros(len(now)), [mismatch] * len(now))
    dimension = now.shape[-1]
    reasons: list[str | None] = []
    for mine, theirs, rank in zip(now.why_not, other.why_not, now.rank.tolist(), strict=True):
        if mine:
            reasons.append("a matrix of zeros has no row space" if "zero" in mine else mine)
        elif theirs:
            reasons.append(f"in the checkpoint it is compared with {theirs}")
        elif rank == dimension:
            reasons.append(f"rank {rank} spans all {dimension} dimensions: the distance is 0 from everything")
        else:
            reasons.append(None)
    return ProbeValues.of(np.zeros(len(now)) if all(reasons) else function(now, other), reasons)
