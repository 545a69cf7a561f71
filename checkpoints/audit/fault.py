"""What can be wrong with a step, and how much that says.

A condemned step is one that no honest training could have left; `probes.measure` leaves it out. A suspect step may well
be real: a jump can be a transition, weights that stand still a learning rate of zero. It is pointed at, and kept.
"""

from dataclasses import dataclass
from typing import Literal

KINDS: dict[str, tuple[Literal["condemned", "suspect"], str]] = {
    "unreadable": ("condemned", "its file cannot be read"),
    "duplicate": ("condemned", "several files claim this step"),
    "not_finite": ("condemned", "NaN or infinite weights"),
    "shape": ("condemned", "tensors are missing at this step alone, or of another shape than in most steps"),
    "grown": ("suspect", "tensors are new or gone from some step on, as in a model that grew"),
    "wrong_step": ("condemned", "the checkpoint itself records another step"),
    "final_weights": ("condemned", "carries the weights of the last step, wholly or in part, and then leaves them"),
    "copy": (
        "condemned",
        "carries weights of another step, wholly or in part, and fits less well there",
    ),
    "swapped": ("condemned", "fits better in its neighbour's place"),
    "excursion": ("condemned", "far from both neighbours, which are close to each other"),
    "zeroed": ("condemned", "a matrix is zero that was not"),
    "outlier": ("condemned", "one entry is larger than all others of its matrix together, at this step alone"),
    "scaled": ("condemned", "all matrices are larger, or smaller, by one factor than before and after"),
    "repeated": ("suspect", "identical with a neighbouring step: a learning rate of zero does that, a copy too"),
    "unchanged": ("suspect", "identical with the last step and all between: as after a rate that decayed to zero"),
    "resumed": ("suspect", "goes on from an older step than the one before it"),
    "stalled": ("suspect", "hardly moved since the step before, while the intervals around it did"),
    "unrelated": ("suspect", "the first step has nothing in common with the second"),
    "renamed": ("suspect", "steps lie further apart from here on, and the weights move no further"),
    "not_weights": ("suspect", "what is stored does not look like weights"),
    "dtype": ("suspect", "another dtype than in most steps"),
    "partly_repeated": ("suspect", "some tensors did not change since the step before, while others did"),
    "gap": ("suspect", "steps seem to be missing before this one"),
    "jump": ("suspect", "moved far more since the step before than around it, and stayed there"),
}


@dataclass(frozen=True)
class Fault:
    """One thing wrong with one step, with what shows it."""

    step: int
    kind: str
    evidence: str

    @property
    def verdict(self) -> Literal["condemned", "suspect"]:
        """Whether the step is lost or only pointed at."""
        return KINDS[self.kind][0]
