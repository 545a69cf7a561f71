"""How a family of models stores its attention heads, as data: four names and four layouts.

    Weight("h.{layer}.attn.c_attn.weight", "d_model (part head d_head)", part=0)

reads "in every layer, the first third of the columns of c_attn, cut into heads" (einops' notation; `part` counts the
matrices fused into one). d_head is never asked for: it follows from the shape and the number of heads.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import einops
from jaxtyping import Float
from torch import Tensor

from checkpoints.heads.rotary import Rotary
from checkpoints.notebook import rows_table, titled, told


class TowerLayer(NamedTuple):
    """One layer of one of the several stacks that a model has: encoder and decoder, text and vision ..."""

    tower: str
    layer: int

    def __str__(self) -> str:
        """As it is read: encoder 3."""
        return f"{self.tower} {self.layer}"


Layer = int | TowerLayer
"""A layer by its number where a model has one stack of attention, by tower and number where it has several."""


@dataclass(frozen=True)
class Weight:
    """One stored matrix: its name after any prefix, the order of its axes, and which part of a fused matrix it is."""

    name: str
    axes: str
    part: int = 0

    def read(self, stored: Tensor, heads: int | None, into: str) -> Tensor:
        """The stored tensor with its axes as in `into`; heads may be None where the tensor has an axis for them."""
        sizes = {}
        if heads is not None and "head" in self.axes.replace("d_head", ""):
            sizes["head"] = heads
        if "part" not in self.axes:
            return einops.rearrange(stored, f"{self.axes} -> {into}", **sizes)
        return einops.rearrange(stored, f"{self.axes} -> part {into}", part=3, **sizes)[self.part]


@dataclass(frozen=True)
class Family:
    """One way to store attention. Names are templates in `{layer}`; whatever stands in front of them is ignored.

    requires lists tensors that must be there too, and disambiguator is a matrix that is not square: what tells this
    family from others with the same four names. The norms are those whose gains can be folded into a circuit; a config
    that says pre_norm_setting is false has none of them.
    """

    name: str
    query: Weight
    key: Weight
    value: Weight
    output: Weight
    model_types: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    disambiguator: Weight | None = None
    input_norm: str | None = None
    output_norm: str | None = None
    query_norm: str | None = None
    key_norm: str | None = None
    pre_norm_setting: str | None = None
    rotary: Literal["halves", "pairs"] | None = None

    @property
    def weights(self) -> dict[str, Weight]:
        """The four matrices by what they are for."""
        return {"query": self.query, "key": self.key, "value": self.value, "output": self.output}


@dataclass(frozen=True)
class HeadSizes:
    """How many heads a layer has, and how large they are."""

    heads: int
    kv_heads: int
    d_model: int
    d_head: int

    def __str__(self) -> str:
        """Heads, their size and the model's, in words."""
        grouped = f" ({self.kv_heads} key-value heads)" if self.kv_heads != self.heads else ""
        return f"{self.heads} heads of {self.d_head}{grouped}, d_model {self.d_model}"


@dataclass(frozen=True)
class Heads:
    """The attention weights of one layer, raw. With grouped heads, query head h reads key head h // group."""

    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "kv_head d_model d_head"]
    W_V: Float[Tensor, "kv_head d_model d_value"]
    W_O: Float[Tensor, "head d_value d_model"]
    input_norm: Float[Tensor, " d_model"] | None = None
    output_norm: Float[Tensor, " d_model"] | None = None
    query_norm: Float[Tensor, "head d_head"] | None = None
    key_norm: Float[Tensor, "kv_head d_head"] | None = None
    rotary: Rotary | None = None

    @property
    def group(self) -> int:
        """How many query heads share one key and value head."""
        return self.W_Q.shape[0] // self.W_K.shape[0]

    @property
    def sizes(self) -> HeadSizes:
        """How many heads there are, and how large."""
        heads, d_model, d_head = self.W_Q.shape
        return HeadSizes(heads, self.W_K.shape[0], d_model, d_head)

    @property
    def norms(self) -> dict[str, Tensor]:
        """The gains that there are."""
        names = ("input_norm", "output_norm", "query_norm", "key_norm")
        return {name: gain for name in names if (gain := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        """Sizes, and what there is besides the four matrices; no numbers."""
        return f"Heads({told(lambda: ', '.join([str(self.sizes), *self.norms, *['rotary'] * bool(self.rotary)]))})"

    def _repr_html_(self) -> str:
        tensors = {"W_Q": self.W_Q, "W_K": self.W_K, "W_V": self.W_V, "W_O": self.W_O, **self.norms}
        rows = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()]
        return titled(repr(self), rows_table(("weights", "shape", "dtype"), rows))
