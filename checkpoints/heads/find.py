"""Which family a checkpoint is of, told from names, shapes and, where those leave a choice, its config.

Names and shapes come first because configs get lost and lie; nothing is read but the table of contents.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from einops import EinopsError
from torch import Tensor

from checkpoints.files import Checkpoint, Stored
from checkpoints.files.checkpoint import Tensors, abridged
from checkpoints.heads.families import FAMILIES
from checkpoints.heads.layout import Family, Heads, HeadSizes
from checkpoints.heads.rotary import rotary_of
from checkpoints.notebook import facts_table, titled

HEAD_COUNTS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
KV_HEAD_COUNTS = ("num_key_value_heads", "n_key_value_heads", "n_kv_heads", "num_kv_heads")

_READS, _WRITES = "head d_model d_head", "head d_head d_model"
_ATTENTION_LIKE = re.compile(r"attn|attention|W_[QKVO]|(^|[._])(q|k|v|o|qkv|query|key|value)(_?proj|_lin)?([._]|$)")


@dataclass(frozen=True)
class HeadLayout:
    """Where the heads of one model are, and how to read a layer of them."""

    family: Family
    prefix: str
    layers: tuple[int, ...]
    config: Mapping[str, Any]
    present: frozenset[str]
    """Templates of the norms that this model has."""
    sizes: tuple[HeadSizes, ...]
    """How many heads each of the layers has, and how large they are."""

    def names(self, layer: int) -> list[str]:
        """The tensors that hold the heads of one layer and the gains of their norms, each once."""
        templates = [*(weight.name for weight in self.family.weights.values()), *sorted(self.present)]
        return list(dict.fromkeys(self._name(template, layer) for template in templates))

    def read(self, checkpoint: Tensors, layer: int) -> Heads:
        """The raw weights of one layer."""
        if layer not in self.layers:
            raise KeyError(f"no attention in layer {layer}; there is in {abridged(list(self.layers))}")
        tensors = {name: checkpoint[name] for name in self.names(layer)}
        label = getattr(checkpoint, "label", "the checkpoint")
        matrices = _matrices(self.family, self.prefix, layer, tensors, self.config, label)
        return Heads(**matrices, **self._norms(tensors, layer, matrices), rotary=self._rotary(matrices))

    def prefetch(self, checkpoint: Checkpoint) -> None:
        """Announce that all heads will be read."""
        if checkpoint.is_remote:
            checkpoint.prefetch([name for layer in self.layers for name in self.names(layer)])

    def __str__(self) -> str:
        """Layers and heads, in words."""
        layers = f"{len(self.layers)} layer{'s' if len(self.layers) > 1 else ''}"
        if len(set(self.sizes)) == 1:
            return f"{layers} x {self.sizes[0]}"
        counts = [sizes.heads for sizes in self.sizes]
        return f"{layers} of {min(counts)} to {max(counts)} heads, d_model {self.sizes[0].d_model}"

    def __repr__(self) -> str:
        """The family, layers and heads."""
        return f"HeadLayout({self.family.name}, {self})"

    def _repr_html_(self) -> str:
        first = self.layers[0]
        facts = {
            "layers": lambda: abridged(list(self.layers)),
            f"tensors of layer {first}": lambda: ", ".join(self.names(first)),
        }
        return titled(repr(self), facts_table(facts))

    def _name(self, template: str, layer: int) -> str:
        return self.prefix + template.format(layer=layer)

    def _norms(self, tensors: dict[str, Tensor], layer: int, matrices: dict[str, Tensor]) -> dict[str, Tensor]:
        heads = {"query_norm": matrices["W_Q"].shape[0], "key_norm": matrices["W_K"].shape[0]}
        norms = {}
        for kind in ("input_norm", "output_norm", "query_norm", "key_norm"):
            template = getattr(self.family, kind)
            if template in self.present:
                gain = tensors[self._name(template, layer)]
                if kind in heads:  # one gain per dimension of a head, or one for every dimension of every head
                    d_head = matrices["W_Q"].shape[-1]
                    gain = gain.reshape(-1, d_head).expand(heads[kind], d_head)
                norms[kind] = gain
        return norms

    def _rotary(self, matrices: dict[str, Tensor]) -> Any:
        if self.family.rotary is None or not _is_known(self.family, self.config):
            return None
        try:
            return rotary_of(self.config, self.family.rotary, matrices["W_Q"].shape[-1])
        except ValueError:
            return None  # raw weights do not need it; the circuit that does says what is missing


def find_heads(
    stored: Mapping[str, Stored],
    config: Mapping[str, Any],
    *,
    label: str = "the checkpoint",
    family: Family | None = None,
) -> HeadLayout:
    """The layout of the heads among these tensors. Raises ValueError with what was found where no family fits.

    family, if given, is the caller's own description and the only one tried.
    """
    fitting: list[HeadLayout] = []
    misfits: list[tuple[Family, ValueError]] = []
    for candidate in (family,) if family else FAMILIES:
        places = _places(candidate, stored, label)
        if len(places) > 1:
            raise ValueError(
                f"{label} holds several models: attention under {abridged([*map(repr, places)])}. "
                "Describe the one you mean with family=checkpoints.Family(...), its prefix in the names"
            )
        for prefix, layers in places.items():
            try:
                fitting.append(_fitted(candidate, prefix, layers, stored, config, label))
            except ValueError as error:
                misfits.append((candidate, error))
    if fitting:
        return _chosen(fitting, config, label)
    if misfits:
        raise next((error for candidate, error in misfits if _is_of(candidate, config)), misfits[0][1])
    raise _unknown(stored, label, family)


def _places(family: Family, stored: Mapping[str, Stored], label: str) -> dict[str, tuple[int, ...]]:
    """By prefix, the layers that have all four matrices and what else the family requires."""
    found: dict[str, set[int]] = {}
    pattern = re.compile(
        r"(?P<prefix>(?:.*\.)?)" + re.escape(family.query.name).replace(r"\{layer\}", r"(?P<layer>\d+)")
    )
    for name in stored:
        match = pattern.fullmatch(name)
        if match:
            found.setdefault(match["prefix"], set()).add(int(match["layer"]))
    wanted = [*(weight.name for weight in family.weights.values()), *family.requires]
    complete = {
        prefix: tuple(
            sorted(layer for layer in layers if all(prefix + name.format(layer=layer) in stored for name in wanted))
        )
        for prefix, layers in found.items()
    }
    for prefix, layers in complete.items():
        partly = sorted(found[prefix] - set(layers))
        if layers and partly:
            lacks = next(n for name in wanted if (n := prefix + name.format(layer=partly[0])) not in stored)
            raise ValueError(f"{label}: layer {partly[0]} lacks {lacks}, which other layers have")
    return {prefix: layers for prefix, layers in complete.items() if layers}


def _fitted(
    family: Family,
    prefix: str,
    layers: tuple[int, ...],
    stored: Mapping[str, Stored],
    config: Mapping[str, Any],
    label: str,
) -> HeadLayout:
    """The layout, if the shapes fit it in every layer."""
    sizes = []
    for layer in layers:
        names = {prefix + weight.name.format(layer=layer) for weight in family.weights.values()}
        shapes = {name: torch.empty(stored[name].shape, device="meta") for name in names}
        matrices = _matrices(family, prefix, layer, shapes, config, label)
        _require_witness(family, prefix, layer, stored, matrices, label)
        sizes.append(HeadSizes(matrices["W_Q"].shape[0], matrices["W_K"].shape[0], *matrices["W_Q"].shape[1:]))
    norms = (family.input_norm, family.output_norm, family.query_norm, family.key_norm)
    present = frozenset(n for n in norms if n and all(prefix + n.format(layer=layer) in stored for layer in layers))
    if family.pre_norm_setting and config.get(family.pre_norm_setting) is False:
        present = frozenset()
    if not _is_known(family, config):  # a relative with norms of its own: its matrices are right, its gains may not be
        present = frozenset()
    return HeadLayout(family, prefix, layers, config, present, tuple(sizes))


def _matrices(
    family: Family,
    prefix: str,
    layer: int,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    label: str,
) -> dict[str, Tensor]:
    query = tensors[prefix + family.query.name.format(layer=layer)]
    has_head_axis = "(" not in family.query.axes and "head" in family.query.axes.split()
    heads = query.shape[family.query.axes.split().index("head")] if has_head_axis else _count(HEAD_COUNTS, config)
    kv_heads = None if has_head_axis else _count(KV_HEAD_COUNTS, config) or heads
    found = {}
    for role, weight in family.weights.items():
        name = prefix + weight.name.format(layer=layer)
        count = kv_heads if role in ("key", "value") else heads
        if count is None and "(" in weight.axes:
            raise ValueError(
                f"{label}: how many heads does {name} have? No config says so; pass "
                'config={"num_attention_heads": ...} to open_run, or --heads on the command line'
            )
        try:
            found[role] = weight.read(tensors[name], count, _WRITES if role == "output" else _READS)
        except EinopsError:
            shape = tuple(tensors[name].shape)
            raise ValueError(
                f"{label}: {name} is {shape}, which is not {weight.axes} of {family.name} with {count} heads. "
                "Is the number of heads right? Is it stored the other way round?"
            ) from None
    matrices = {"W_Q": found["query"], "W_K": found["key"], "W_V": found["value"], "W_O": found["output"]}
    _require_consistent(matrices, has_head_axis, f"{label}, layer {layer}, read as {family.name}")
    return matrices


def _require_consistent(matrices: dict[str, Tensor], is_per_head: bool, label: str) -> None:
    query, key, value, output = (matrices[name].shape for name in ("W_Q", "W_K", "W_V", "W_O"))
    shapes = f"W_Q {tuple(query)}, W_K {tuple(key)}, W_V {tuple(value)}, W_O {tuple(output)}"
    if not (query[1] == key[1] == value[1] == output[2] and query[2] == key[2] and value[2] == output[1]):
        raise ValueError(f"{label}: {shapes} do not fit together")
    if key[0] != value[0] or query[0] != output[0] or query[0] % key[0]:
        raise ValueError(f"{label}: {query[0]} query, {key[0]} key, {value[0]} value, {output[0]} output heads")
    if is_per_head and query[2] > query[1]:  # what is stored by head could be read either way
        raise ValueError(
            f"{label}: heads of {query[2]} dimensions in a model of {query[1]}; stored the other way round?"
        )


def _require_witness(
    family: Family, prefix: str, layer: int, stored: Mapping[str, Stored], matrices: dict[str, Tensor], label: str
) -> None:
    if family.disambiguator is None:
        return
    name = prefix + family.disambiguator.name.format(layer=layer)
    axis = family.disambiguator.axes.split().index("d_model")
    if name in stored and stored[name].shape[axis] != matrices["W_Q"].shape[1]:
        raise ValueError(
            f"{label}: {name} is {stored[name].shape}, which is not {family.disambiguator.axes} of {family.name}"
        )


def _count(keys: tuple[str, ...], config: Mapping[str, Any]) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)


def _is_known(family: Family, config: Mapping[str, Any]) -> bool:
    """Whether norms and rotation are those of the family, not of a relative that shares its names."""
    return not family.model_types or "model_type" not in config or _is_of(family, config)


def _is_of(family: Family, config: Mapping[str, Any]) -> bool:
    return config.get("model_type") in family.model_types


def _chosen(fitting: list[HeadLayout], config: Mapping[str, Any], label: str) -> HeadLayout:
    """The layout that the config names, else the first, if all that fit mean the same matrices."""
    for layout in fitting:
        if _is_of(layout.family, config):
            return layout
    first = fitting[0]
    rivals = [layout.family.name for layout in fitting if layout.family.weights != first.family.weights]
    if rivals:
        raise ValueError(
            f"{label} could be {first.family.name} or {abridged(rivals)}, with other matrices in each. Say which with "
            "family=..., one of checkpoints.heads.families.FAMILIES"
        )
    return first


def _unknown(stored: Mapping[str, Stored], label: str, family: Family | None) -> ValueError:
    lowest = re.compile(r"(^|[._])0([._])")
    like = [name for name in stored if _ATTENTION_LIKE.search(name) and len(stored[name].shape) > 1]
    like = [name for name in like if lowest.search(name)] or like
    shown = abridged([f"{name} {stored[name].shape}" for name in like], most=12)
    tried = f"as the family {family.name!r} describes it" if family else "in a layout known here"
    return ValueError(
        f"{label} has no attention {tried}. Names that look like attention: {shown}. Describe them: "
        'open_run(..., family=checkpoints.Family("mine", query=Weight("blocks.{layer}.attn.q.weight", '
        '"(head d_head) d_model"), key=..., value=..., output=Weight(..., "d_model (head d_head)"))). Weights that are '
        'not those of attention heads: measure(run, circuits={"mine": {"tensors": ["w"], "pattern": '
        '"row column -> 1 1 row column"}}), see checkpoints.circuits. A run written with RunWriter(..., circuits=...) '
        "says so itself; one of a solvable model that does not is older than that: train it again"
    )
