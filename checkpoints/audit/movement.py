"""How far the weights move from step to step, measured on sketches.

On any path that training takes, ballistic or diffusive, a step lies between its neighbours: the way over it is at most
sqrt(2) times the way past it. What is compared are lengths on one path, so neither learning rate nor spacing matters.
Attention, feed-forward blocks and embeddings are judged apart: what happens to one of them drowns among the others.
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch

from checkpoints.audit.fingerprint import Fingerprint

MATERIAL = 1e-4
"""Movement, as a share of a tensor's size, that is looked at; for weights of few bits, four times their rounding."""

AROUND = 3
"""Intervals on either side that say how far a step would be expected to move."""

FITS = 2.5
"""Way over a step as a multiple of the way past it, up to which the step is on the way. A random walk makes sqrt(2),
and momentum can turn back; over 22 healthy little transformers no matrix of any step made more than 2.4."""

ON_THE_WAY = 1.8
"""The same of half of the matrices: what a step that training went through makes, with room to spare over sqrt(2)."""

ROLES = {
    "attention": re.compile(r"attn|attention|(^|[._])(q|k|v|o|qkv|query|key|value)(_proj|_lin)?([._]|$)|W_[QKVO]"),
    "embeddings": re.compile(r"embed|wte|wpe|lm_head|W_E|W_U|W_pos"),
    "feed-forward": re.compile(r"mlp|ffn|feed_forward|experts|fc\d?([._]|$)|dense_h_to_4h|dense_4h_to_h|intermediate"),
}


class Movement:
    """Distances between the steps of a series, tensor by tensor, from their sketches."""

    def __init__(self, series: Mapping[int, Mapping[str, Fingerprint]]) -> None:
        self.series = series
        self.steps = list(series)

    @cached_property
    def names(self) -> list[str]:
        """Matrices that are in every step with one shape: what movement is measured on."""
        if not self.steps:
            return []
        common = set.intersection(*(set(self.series[step]) for step in self.steps))
        return sorted(name for name in common if self._is_comparable(name))

    def _is_comparable(self, name: str) -> bool:
        found = [self.series[step][name] for step in self.steps]
        shapes = {f.shape for f in found}
        if not all(f.dtype.is_floating_point for f in found):
            return False
        return len(shapes) == 1 and len(found[0].shape) > 1 and math.prod(found[0].shape) >= 64 and found[-1].norm > 0

    @cached_property
    def material(self) -> float:
        """Movement below this can be the rounding of the stored weights."""
        coarse = max((torch.finfo(self.series[s][n].dtype).eps for s in self.steps for n in self.names), default=0.0)
        return max(MATERIAL, 4 * coarse)

    @cached_property
    def groups(self) -> dict[str, np.ndarray]:
        """By what they are called, masks of the matrices that are judged together: each file, and each role."""
        files = np.array([self.series[self.steps[-1]][name].file.rsplit("/", 1)[-1] for name in self.names])
        roles = np.array([role_of(name) for name in self.names])
        found = {"": np.ones(len(self.names), dtype=bool)}
        for kinds in (files, roles):
            if len(set(kinds)) > 1:
                found |= {f" of {kind}": kinds == kind for kind in np.unique(kinds)}
        return found

    @cached_property
    def _sketches(self) -> np.ndarray:  # [step, tensor, 64], each tensor in units of its own size
        scale = np.array([np.median([self.series[s][name].norm for s in self.steps]) or 1.0 for name in self.names])
        sketches = [[self.series[step][name].sketch for name in self.names] for step in self.steps]
        return np.asarray(sketches, dtype=np.float64) / scale[:, None]

    def between(self, i: int, j: int) -> np.ndarray:
        """[tensor]: how far apart two steps are, as a share of the size of each tensor."""
        return np.linalg.norm(self._sketches[i] - self._sketches[j], axis=-1)

    @cached_property
    def ways(self) -> np.ndarray:
        """[interval, tensor]: how far apart neighbours are."""
        return np.array([self.between(i, i + 1) for i in range(len(self.steps) - 1)]).reshape(-1, len(self.names))

    def expected(self, interval: int, without: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray] | None:
        """[tensor], the least and the most that the intervals around one suggest; None if there are none.

        Whether movement grows as the time or as its root is not known: both are tried.
        """
        spans = np.diff(self.steps).astype(float)
        around = [
            j
            for j in range(max(0, interval - AROUND), min(len(spans), interval + AROUND + 1))
            if j != interval and j not in without and np.median(self.ways[j]) > 0
        ]
        if not around:
            return None
        told = [self.ways[j] * (spans[interval] / spans[j]) ** power for j in around for power in (0.5, 1.0)]
        return np.min(told, axis=0), np.max(told, axis=0)

    def correlation(self, i: int, j: int) -> float:
        """How alike two steps are, from 1 to -1, over all matrices; about 0 for two trainings from other seeds."""
        a, b = self._sketches[i].reshape(-1), self._sketches[j].reshape(-1)
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / size if size else 0.0

    def misfit(self, name: str, i: int) -> float:
        """Way over a step as a multiple of the way past it, for one tensor; 1 to sqrt(2) on a path of training."""
        if name not in self.names or not 0 < i < len(self.steps) - 1:
            return 1.0
        return float(self.detours(i)[self.names.index(name)])

    def detours(self, i: int) -> np.ndarray:
        """[tensor]: way over a step as a multiple of the way past it."""
        over = self.between(i - 1, i) + self.between(i, i + 1)
        past = self.between(i - 1, i + 1)
        return over / np.maximum(past, 1e-12)

    def is_set_back(self, i: int, older: int) -> bool:
        """Whether training goes on from step i, which is an older one again, and not from the step before it."""
        if not self.names or i + 1 >= len(self.steps) or i - older < 2:
            return False
        goes_on = np.median(self.between(i, i + 1)) < np.median(self.between(i - 1, i + 1))
        older_fits = older == 0 or np.median(self.detours(older)) < ON_THE_WAY  # else that one is the copy
        return bool(goes_on and older_fits and np.median(self.detours(i)) < FITS)


def role_of(name: str) -> str:
    """What a matrix is for, as far as its name tells."""
    return next((role for role, pattern in ROLES.items() if pattern.search(name)), "other")
