"""From the parameter names of any architecture to W_Q, W_K, W_V and W_O, head by head, as they were trained."""

from checkpoints.heads.find import HeadLayout, NoAttentionError, family_named, find_heads
from checkpoints.heads.layout import Family, Heads, Layer, TowerLayer, Weight

__all__ = [
    "Family",
    "HeadLayout",
    "Heads",
    "Layer",
    "NoAttentionError",
    "TowerLayer",
    "Weight",
    "family_named",
    "find_heads",
]
