"""How a family of models stores its attention heads, as data: four `Weight`s, and what else its layers hold.

Everything that tells one family from another stands in a `Family`; `checkpoints.heads.families` lists those that are
known. What is read with one is a `Heads` per layer.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from checkpoints.heads.rotary import Pairing, Rotary
from checkpoints.heads.weights import Role, Weight
from checkpoints.notebook import rows_table, titled, told

__all__ = ["Family", "HeadSizes", "Heads", "Layer", "TowerLayer", "Weight"]

NORMS = ("input_norm", "output_norm", "query_norm", "key_norm")


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
class Family:
    """One way to store attention. Names are templates in `{layer}`; whatever stands in front of them is ignored.

    A template without `{layer}` stands for attention modules wherever they are: the number in front of it that varies
    is the layer. model_types are those of configs for which all of this was checked against the model itself; a family
    of no listed type is that of a library that writes no configs, and any_model_type says that its names mean the same
    whatever the config is of.

    requires lists tensors that must be there too, and disambiguator is a matrix that is not square: what tells this
    family from others with the same four names. The norms are those whose gains can be folded into a circuit, each as
    it is or as 1 + w (gain_offset); a config that says pre_norm_setting is false has none of them; unfoldable is the
    reason why none can be. extras are other tensors inside the attention module that leave OV and QK as they are
    (patterns of `re`), gate a template whose tensor multiplies what heads write by something that depends on the data.
    """

    name: str
    query: Weight
    key: Weight
    value: Weight
    output: Weight
    model_types: tuple[str, ...] = ()
    any_model_type: bool = False
    needs_model_type: bool = False
    """Whether, where no config names a type, another family that fits the same names is the likelier one."""
    requires: tuple[str, ...] = ()
    disambiguator: Weight | None = None
    input_norm: str | None = None
    output_norm: str | None = None
    query_norm: str | None = None
    key_norm: str | None = None
    gain_offset: float = 0.0
    pre_norm_setting: str | None = None
    unfoldable: str | None = None
    is_gainless: bool = False
    """Whether the norms have no gains, so that there is nothing to fold in."""
    rotary: Pairing | None = None
    rotary_layers: str | None = None
    """The layer type whose positions are rotated, where only one's are."""
    unrotatable: str | None = None
    """Why the score at a distance cannot be told, where that is not for want of rotary positions."""
    rotary_query: Weight | None = None
    rotary_key: Weight | None = None
    extras: tuple[str, ...] = ()
    gate: str | None = None
    head_counts: tuple[str, ...] = ()
    """Keys of the config that say how many heads there are, before the usual ones."""
    kv_head_counts: tuple[str, ...] = ()
    scales: tuple[tuple[Role, str], ...] = ()
    """Numbers of the config that queries, keys or values are multiplied with."""
    kv_heads_from_shape: bool = False
    """Whether the number of key heads in configs means something else, or differs from layer to layer."""
    one_key_or_all: bool = False
    """Whether there is one key head or as many as queries, so that numbers between are another model's."""
    tower: str | None = None
    """What a stack of this family is called beside others of the same model."""
    crosses: bool = False
    """Whether keys and values are read from another stream than queries."""
    notes: tuple[str, ...] = ()
    """What one has to know to read the numbers; said with every table."""

    @property
    def weights(self) -> dict[Role, Weight]:
        """The four matrices by what they are for."""
        return {"query": self.query, "key": self.key, "value": self.value, "output": self.output}

    @property
    def norms(self) -> dict[str, str]:
        """The templates of the norms, by what they are for."""
        return {kind: template for kind in NORMS if (template := getattr(self, kind)) is not None}

    @property
    def tensors(self) -> list[str]:
        """The templates of all tensors that circuits are made of, each once."""
        rotary = [weight for weight in (self.rotary_query, self.rotary_key) if weight is not None]
        return list(dict.fromkeys(name for weight in (*self.weights.values(), *rotary) for name in weight.names))


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
    """The attention weights of one layer, raw. With grouped heads, query head h reads key head h // group.

    In latent attention a part of query and key carries the position and is kept apart (W_Q_rotary, W_K_rotary).
    """

    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "kv_head d_source d_head"]
    W_V: Float[Tensor, "kv_head d_source d_value"]
    W_O: Float[Tensor, "head d_value d_model"]
    input_norm: Float[Tensor, " d_model"] | None = None
    output_norm: Float[Tensor, " d_model"] | None = None
    query_norm: Float[Tensor, "head d_head"] | None = None
    key_norm: Float[Tensor, "kv_head d_head"] | None = None
    rotary: Rotary | None = None
    W_Q_rotary: Float[Tensor, "head d_model d_turned"] | None = None
    W_K_rotary: Float[Tensor, "kv_rotary d_source d_turned"] | None = None
    unfoldable: str | None = None
    """Why the gains of norms cannot be multiplied in."""
    unrotatable: str | None = None
    """Why there is no rotary."""

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
        return {name: gain for name in NORMS if (gain := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        """Sizes, and what there is besides the four matrices; no numbers."""
        return f"Heads({told(lambda: ', '.join([str(self.sizes), *self.norms, *['rotary'] * bool(self.rotary)]))})"

    def _repr_html_(self) -> str:
        tensors = {"W_Q": self.W_Q, "W_K": self.W_K, "W_V": self.W_V, "W_O": self.W_O, **self.norms}
        rows = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()]
        return titled(repr(self), rows_table(("weights", "shape", "dtype"), rows))
