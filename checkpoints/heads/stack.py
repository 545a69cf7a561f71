"""One stack of attention layers: a family at one place among the names of a checkpoint, and how to read its layers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from einops import EinopsError
from torch import Tensor

from checkpoints.files import Stored
from checkpoints.files.checkpoint import Tensors, abridged
from checkpoints.heads.configs import counts_of
from checkpoints.heads.layout import Family, Heads, HeadSizes
from checkpoints.heads.rotary import Rotary, rotary_of
from checkpoints.heads.weights import HeadCounts, Role, Weight, as_shapes, kv_heads_by_shape

_HARMLESS = re.compile(
    r"(.*[._])?((masked_)?bias|[qkv]_bias|in_proj_bias|_?b_[QKVO]|mask|IGNORE|inv_freq|sinks?|softmax_offset|learnable_sink_param|rotary_(sin|cos))"
    r"|(rotary_emb|rotary|rope)\..*"
)
"""Inside an attention module: biases, masks, sinks and tables of positions leave OV and QK as they are."""


_ASK = "Are the numbers of heads right (num_attention_heads and num_key_value_heads; --heads, --kv-heads)?"


class NearMissError(ValueError):
    """Names and shapes fit a family, and it is known that this is another model."""


@dataclass(frozen=True)
class Stack:
    """One stack of attention layers of a model."""

    family: Family
    prefix: str
    """What stands in front of the names; with {layer} in it where the family's own names have none."""
    layers: tuple[int, ...]
    config: Mapping[str, Any]
    """What the config says of this stack."""
    sizes: tuple[HeadSizes, ...]
    """How many heads each of the layers has, and how large they are."""
    present: frozenset[str] = frozenset()
    """Templates of the norms that this stack has."""
    unfoldable: str | None = None
    unrotatable: str | None = None
    tower: str = ""

    def names(self, layer: int) -> list[str]:
        """The tensors that hold the heads of one layer and the gains of their norms, each once."""
        templates = [*self.family.tensors, *sorted(self.present)]
        return [named(self.prefix, template, layer) for template in templates]

    def read(self, checkpoint: Tensors, layer: int, label: str) -> Heads:
        """The raw weights of one layer."""
        tensors = {name: checkpoint[name] for name in self.names(layer)}
        matrices = matrices_of(self.family, self.prefix, layer, tensors, self.config, label)
        rotary, reason = self._rotary(matrices, layer)
        return Heads(
            **matrices,
            **self._norms(tensors, layer, matrices),
            rotary=rotary,
            unfoldable=self.unfoldable,
            unrotatable=reason,
        )

    @property
    def module(self) -> str:
        """Where the attention modules are, with {layer} for their number."""
        return self.prefix + module_of(self.family)

    def __str__(self) -> str:
        """Layers and heads, in words."""
        layers = f"{len(self.layers)} layer{'s' if len(self.layers) > 1 else ''}"
        if len(set(self.sizes)) == 1:
            return f"{layers} x {self.sizes[0]}"
        counts = [sizes.heads for sizes in self.sizes]
        if min(counts) == max(counts):
            return f"{layers} of {counts[0]} heads of several sizes, d_model {self.sizes[0].d_model}"
        return f"{layers} of {min(counts)} to {max(counts)} heads, d_model {self.sizes[0].d_model}"

    def _norms(self, tensors: dict[str, Tensor], layer: int, matrices: dict[str, Tensor]) -> dict[str, Tensor]:
        heads = {"query_norm": matrices["W_Q"].shape[0], "key_norm": matrices["W_K"].shape[0]}
        norms = {}
        for kind, template in self.family.norms.items():
            if template in self.present:
                gain = tensors[named(self.prefix, template, layer)]
                gain = gain.double() + self.family.gain_offset if self.family.gain_offset else gain
                if kind in heads:  # one gain per dimension of a head, or one for every dimension of every head
                    d_head = matrices["W_Q"].shape[-1]
                    gain = gain.reshape(-1, d_head).expand(heads[kind], d_head)
                norms[kind] = gain
        return norms

    def _rotary(self, matrices: dict[str, Tensor], layer: int) -> tuple[Rotary | None, str | None]:
        """The rotation of a layer, or the reason why there is none."""
        family = self.family
        if self.unrotatable or family.rotary is None:
            return None, self.unrotatable or f"{family.name} has no rotary positions"
        turned = matrices.get("W_Q_rotary", matrices["W_Q"]).shape[-1]
        try:
            rotary = rotary_of(self.config, family.rotary, turned, layer)
        except (ValueError, KeyError) as error:
            return None, f"{error}" if isinstance(error, ValueError) else f"no config says {error}"
        kinds = self.config.get("layer_types")
        if family.rotary_layers and not (isinstance(kinds, list | tuple) and layer < len(kinds)):
            return None, "only some layers of this model rotate positions, and no layer_types in the config says which"
        if family.rotary_layers and kinds is not None and kinds[layer] != family.rotary_layers:
            return Rotary((), family.rotary), None
        return rotary, None


def named(prefix: str, template: str, layer: int) -> str:
    """The name of a tensor of one layer."""
    return (prefix + template).replace("{layer}", str(layer))


def module_of(family: Family) -> str:
    """The template of the module that holds queries, keys and values, with its dot at the end."""
    paths = [family.query.name.split("."), family.key.name.split("."), family.value.name.split(".")]
    common = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        common.append(steps[0])
    if common == paths[0]:  # fused: the module is what the Linear is in
        common = common[: -2 if common[-1] == "weight" else -1]
    return "".join(step + "." for step in common)


def unexplained(
    family: Family, prefix: str, layers: Iterable[int], stored: Mapping[str, Stored]
) -> dict[int, list[str]]:
    """By layer, tensors inside the attention module that the family does not account for.

    They are why names and shapes alone do not make a family: a gate, a second set of heads, scales of quantised
    weights. A family that names no module of its own (its matrices stand beside the MLP's) is not checked.
    """
    module = prefix + module_of(family)
    if module in ("", "{layer}.") or module.endswith(("{layer}.", ".{layer}")):
        return {}
    templates = [*family.tensors, *family.norms.values(), *([family.gate] if family.gate else [])]
    latent = [weight.latent_norm for weight in family.weights.values() if weight.latent_norm]
    known = {prefix + name for name in (*templates, *latent, *family.requires)}
    pattern = re.compile(re.escape(module).replace(r"\{layer\}", r"(?P<layer>\d+)"))
    wanted, found = set(layers), {}
    for name in stored:
        match = pattern.match(name)
        layer = int(match["layer"]) if match and "{layer}" in module else 0
        if not match or layer not in wanted:
            continue
        rest = name[match.end() :]
        template = module + rest
        is_known = template in known or template.removesuffix("bias") + "weight" in known or _HARMLESS.fullmatch(rest)
        if not is_known and not any(re.fullmatch(extra, rest) for extra in family.extras):
            found.setdefault(layer, []).append(name)
    return found


def fitted(
    family: Family, prefix: str, layers: tuple[int, ...], stored: Mapping[str, Stored], config: Mapping, label: str
) -> tuple[HeadSizes, ...]:
    """How large the heads are, if the shapes fit the family in every layer; raises ValueError where they do not."""
    sizes = []
    for layer in layers:
        names = [named(prefix, template, layer) for template in family.tensors]
        for name in names:
            if not stored[name].dtype.is_floating_point:
                raise ValueError(f"{label}: {name} is stored as {stored[name].dtype}, quantised weights are not read")
        matrices = matrices_of(family, prefix, layer, as_shapes({n: stored[n] for n in names}), config, label)
        _require_witness(family, prefix, layer, stored, matrices, label)
        sizes.append(HeadSizes(matrices["W_Q"].shape[0], matrices["W_K"].shape[0], *matrices["W_Q"].shape[1:]))
    return tuple(sizes)


def matrices_of(
    family: Family,
    prefix: str,
    layer: int,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    label: str,
) -> dict[str, Tensor]:
    """W_Q, W_K, W_V and W_O of one layer, and what carries the position where that is apart."""

    def take(template: str) -> Tensor:
        return tensors[named(prefix, template, layer)]

    counts = _counts(family, prefix, layer, take, config, label)
    found = {}
    rotary: dict[Role, Weight | None] = {"query": family.rotary_query, "key": family.rotary_key}
    wanted: list[tuple[Any, Weight, str]] = [
        (role, weight, f"W_{role[0].upper()}") for role, weight in family.weights.items()
    ]
    wanted += [(role, weight, f"W_{role[0].upper()}_rotary") for role, weight in rotary.items() if weight]
    for role, weight, key in wanted:
        name = named(prefix, weight.name, layer)
        if counts.of(role) is None and "(" in weight.axes:
            raise ValueError(
                f"{label}: how many heads does {name} have? No config says so; pass "
                'config={"num_attention_heads": ...} to open_run, or --heads on the command line'
            )
        try:
            found[key] = weight.read(take, role, counts, config)
        except EinopsError:
            shape = tuple(tensors[name].shape)
            raise ValueError(
                f"{label}: {name} is {shape}, which is not {weight.axes} of {family.name} with {counts.of(role)} "
                "heads. Is the number of heads right? Is it stored the other way round?"
            ) from None
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
    for role, key in family.scales:
        if key not in config:
            raise ValueError(f"{label}: no config says {key}, with which {role} is multiplied")
        found[f"W_{role[0].upper()}"] = found[f"W_{role[0].upper()}"] * (1.0 if config[key] is None else config[key])
    _require_consistent(found, family, f"{label}, layer {layer}, read as {family.name}")
    return found


def _counts(family: Family, prefix: str, layer: int, take: Any, config: Mapping, label: str) -> HeadCounts:
    """How many heads there are: by the axis for them, by the config, and key heads by shapes that leave one answer."""
    if family.query.has_head_axis:
        return HeadCounts(take(family.query.name).shape[family.query.axes.split().index("head")], None)
    counts = counts_of(family, config, prefix, layer)
    if counts.heads is None or counts.kv_heads is not None:
        return counts
    kv = _kv_heads(family, take, counts.heads) or counts.heads
    if family.one_key_or_all and kv not in (1, counts.heads):
        name = named(prefix, family.query.name, layer)
        raise NearMissError(
            f"{label}: {name} holds {counts.heads} queries and {kv} keys. {family.name} has one key or as many as "
            "queries: this is another model. If all queries come first, then all keys, then all values, describe it: "
            f'Family("mine", query=Weight("{family.query.name}", "(slot d_head) d_model"), key and value the same, '
            f'output=Weight("{family.output.name}", "d_model (head d_head)"))'
        )
    return HeadCounts(counts.heads, kv)


def _kv_heads(family: Family, take: Any, heads: int) -> int | None:
    """How many key heads the shapes leave room for, if heads of queries and keys are equally large."""
    query, key = family.query, family.key
    if "slot" in query.axes:
        writes = take(family.output.name).shape
        written = writes[0] if family.output.axes.startswith("(") else writes[-1]
        return kv_heads_by_shape(query, tuple(take(query.name).shape), heads, written)
    plain = ("(head d_head) d_model", "d_model (head d_head)")
    if query.axes != key.axes or query.axes not in plain or query.down or key.down or query.name == key.name:
        return None
    axis = plain.index(query.axes)
    asked, shared = take(query.name).shape[axis], take(key.name).shape[axis]
    if asked % heads or shared % (asked // heads):
        return None
    count = shared // (asked // heads)
    return count if count and heads % count == 0 else None


def _require_consistent(matrices: dict[str, Tensor], family: Family, label: str) -> None:
    query, key, value, output = (matrices[name].shape for name in ("W_Q", "W_K", "W_V", "W_O"))
    shapes = f"W_Q {tuple(query)}, W_K {tuple(key)}, W_V {tuple(value)}, W_O {tuple(output)}"
    is_one_stream = query[1] == key[1] or family.crosses
    if not (key[1] == value[1] and query[1] == output[2] and query[2] == key[2] and value[2] == output[1]):
        raise ValueError(f"{label}: {shapes} do not fit together. {_ASK}")
    if not is_one_stream:
        raise ValueError(f"{label}: {shapes} do not fit together: queries and keys read streams of different widths")
    if key[0] != value[0] or query[0] != output[0] or query[0] % key[0]:
        raise ValueError(f"{label}: {query[0]} query, {key[0]} key, {value[0]} value, {output[0]} output heads")
    if family.query.has_head_axis and query[2] > query[1]:  # what is stored by head could be read either way
        raise ValueError(
            f"{label}: heads of {query[2]} dimensions in a model of {query[1]}; stored the other way round?"
        )


def _require_witness(
    family: Family, prefix: str, layer: int, stored: Mapping[str, Stored], matrices: dict[str, Tensor], label: str
) -> None:
    if family.disambiguator is None:
        return
    name = named(prefix, family.disambiguator.name, layer)
    axis = family.disambiguator.axes.split().index("d_model")
    if name in stored and stored[name].shape[axis] != matrices["W_Q"].shape[1]:
        raise ValueError(
            f"{label}: {name} is {stored[name].shape}, which is not {family.disambiguator.axes} of {family.name}"
        )


def listed(names: list[str]) -> str:
    """Names for a message."""
    return abridged(names, most=4)
