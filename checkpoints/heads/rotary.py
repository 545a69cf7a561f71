"""Rotary positions: query and key are turned, pair of dimensions by pair, by an angle that grows with the position.

Only the difference of positions matters: q at position m and k at position n meet as q^T R(n - m) k. Models differ in
which dimensions make a pair: d and d + r/2 (`halves`: NeoX, Llama) or 2d and 2d + 1 (`pairs`: GPT-J); and in how many
of the dimensions of a head, r, are turned at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float64
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    """The rotation of one model: base of the frequencies, dimensions that turn, and how they are paired."""

    base: float
    dimensions: int
    pairing: Literal["halves", "pairs"]
    stretch: float = 1.0

    def matrix(self, offset: int, d_head: int) -> Float64[Tensor, "d_head d_head"]:
        """R(-offset), so that q^T matrix k is the score of a key `offset` positions before its query."""
        half = self.dimensions // 2
        angles = -offset / self.stretch * self.base ** (-torch.arange(half, dtype=torch.float64) / half)
        first, second = torch.arange(half), torch.arange(half) + half
        if self.pairing == "pairs":
            first, second = 2 * torch.arange(half), 2 * torch.arange(half) + 1
        rotation = torch.eye(d_head, dtype=torch.float64)
        rotation[first, first] = rotation[second, second] = angles.cos()
        rotation[second, first], rotation[first, second] = angles.sin(), -angles.sin()
        return rotation


_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct", "rotary_dim")


def rotary_of(config: Mapping[str, Any], pairing: Literal["halves", "pairs"], d_head: int) -> Rotary:
    """The rotation that a model's config describes, in the words of older and newer configs."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not config.get("model_type") and not any(key in config for key in _KEYS):
        raise ValueError("no config says how positions are rotated")
    if any(isinstance(value, Mapping) for value in scaling.values()):
        raise ValueError("layers with rotations of their own are not known here")
    settings = {**config, **scaling}
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind not in ("default", "linear"):
        raise ValueError(f"rotary positions of type {kind!r} are not known here; default and linear are")
    base = settings.get("rope_theta") or settings.get("rotary_emb_base") or 10_000.0
    fraction = settings.get("partial_rotary_factor") or settings.get("rotary_pct") or 1.0
    dimensions = config.get("rotary_dim") or int(d_head * fraction)
    return Rotary(float(base), dimensions, pairing, float(settings.get("factor") or 1) if kind == "linear" else 1.0)
