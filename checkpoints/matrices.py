"""Every matrix of a checkpoint, attention or not, by what it is for and layer by layer.

Names are taken apart at their numbers: `model.layers.3.mlp.up_proj.weight` is layer 3 of `mlp.up_proj`, and where the
field has a word for it that is its name too:

    mlp_in, mlp_gate, mlp_gate_in (both in one), mlp_out      what a feed-forward block reads and writes with
    embed, position_embed, unembed                            tokens and positions to the residual stream, and back
    lora_q_proj ...                                           B A of a low-rank adapter, times alpha / r if it says so

What has no such word is called as it is stored, without prefix and layer (`mixer.in_proj`). A matrix is taken as it is
stored: nobody says of every file which axis is read and which is written, and singular values do not ask. Three axes
are a stack of matrices (experts), one per head of the table; a convolution's kernel is (out, everything else). The gain
of a norm is a matrix of one row.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.checkpoint import Stored, Tensors, abridged
from checkpoints.heads.layout import Layer, TowerLayer

ROLES = {
    "mlp_gate_in": r"(gate_up_proj|gate_and_up_proj)",
    "mlp_gate": r"(gate_proj|w_gate|wi_0|(feed_forward|ffn|mlp)\.w1)",
    "mlp_in": r"(up_proj|c_fc|fc_in|fc1|lin1|dense_h_to_4h|w_in|wi|wi_1|linear1|intermediate\.dense|mlp\.(in|fc|w12)|"
    r"(feed_forward|ffn|mlp)\.w3)",
    "mlp_out": r"(down_proj|fc_out|fc2|lin2|dense_4h_to_h|w_out|linear2|mlp\.(c_proj|out|proj|w2)|"
    r"(DenseReluDense|DenseGatedActDense)\.wo|(feed_forward|ffn)\.w2|(?<!attention\.)output\.dense)",
    "position_embed": r"(wpe|position_embeddings?|embed_positions|pos_embed(dings?)?(\.w_pos)?)",
    "embed": r"(wte|embed_tokens|embed_in|word_embeddings?|tok_embeddings|token_embedding(_table)?|shared|"
    r"embed(dings?)?(\.w_e)?)",
    "unembed": r"(lm_head|embed_out|unembed(\.w_u)?)",
}
"""What the field calls a matrix, by the end of its name; the first that fits."""

GAIN = re.compile(r"(^|[._])(ln|norm|layer_?norm|rms_?norm|ln_?[0-9f]|ln_\w+|\w*norm\w*)(\.w|\.weight|\.scale)?$", re.I)
_LORA = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<side>[AB])(\.(default|weight))*")
_GENERIC = {
    "model",
    "base_model",
    "transformer",
    "backbone",
    "module",
    "net",
    "network",
    "layers",
    "layer",
    "h",
    "blocks",
    "block",
}


@dataclass(frozen=True)
class MatrixLayout:
    """Where the matrices of one kind are: by layer, the tensors that hold them, one per head or one for all."""

    name: str
    tensors: Mapping[Layer, tuple[str, ...]]
    as_stored: str
    """The names with {layer} in them, and what is made of what is stored."""
    kind: str = "matrix"
    """matrix, kernel, gain or lora."""
    scales: Mapping[Layer, float] | None = None

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that have such a matrix."""
        return tuple(self.tensors)

    def names(self, layer: Layer) -> list[str]:
        """The tensors of one layer."""
        return list(self.tensors[layer])

    def read(self, checkpoint: Tensors, layer: Layer) -> tuple[Tensor, ...]:
        """[head, rows, columns], or the two factors of it."""
        stored = [checkpoint[name] for name in self.tensors[layer]]
        if self.kind == "lora":
            down, up = stored
            scale = 1.0 if self.scales is None else self.scales[layer]
            return up[None] * scale, down[None]
        if self.kind == "gain":
            return (stored[0][None, None],)
        if self.kind == "kernel":
            return (stored[0].flatten(1)[None],)
        return (torch.cat([one if one.ndim == 3 else one[None] for one in stored]),)


def find_matrices(stored: Mapping[str, Stored], config: Mapping[str, Any] | None = None) -> dict[str, MatrixLayout]:
    """Every kind of matrix among these tensors, by name; gains of norms last."""
    usable = {name: one for name, one in stored.items() if one.dtype.is_floating_point and math.prod(one.shape)}
    adapters = _adapters(usable, config or {})
    taken = {name for layout in adapters.values() for names in layout.tensors.values() for name in names}
    groups: dict[str, dict[tuple[int, ...], str]] = {}
    for name, one in usable.items():
        is_matrix = len(one.shape) > 1 and not name.endswith("bias")
        if name not in taken and (is_matrix or _is_gain(name, one)):
            pattern, numbers = _taken_apart(name)
            groups.setdefault(pattern, {})[numbers] = name
    kinds = [kind for pattern, names in groups.items() for kind in _kinds(pattern, names)]
    found = {**adapters, **_named(kinds, usable)}
    return dict(sorted(found.items(), key=lambda item: (item[1].kind == "gain", item[0] not in (*adapters, *ROLES))))


def not_measured(stored: Mapping[str, Stored]) -> list[str]:
    """Tensors with the shape of weights whose numbers are not floating point: what quantised models keep."""
    kept = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.complex64)
    return [name for name, one in stored.items() if len(one.shape) > 1 and one.dtype in kept]


@dataclass(frozen=True)
class _Kind:
    """Names that differ in the number of the layer, and of the expert, alone."""

    template: str
    prefix: str
    suffix: str
    """What stands before and after the layer."""
    tensors: Mapping[int, tuple[str, ...]]


def _taken_apart(name: str) -> tuple[str, tuple[int, ...]]:
    """The name with * for its numbers, and the numbers."""
    parts = name.split(".")
    return ".".join("*" if part.isdecimal() else part for part in parts), tuple(
        int(part) for part in parts if part.isdecimal()
    )


def _kinds(pattern: str, names: Mapping[tuple[int, ...], str]) -> Iterable[_Kind]:
    """One kind for each set of names in which the layer alone counts: the first number that is not always the same."""
    parts = pattern.split(".")
    places = [place for place, part in enumerate(parts) if part == "*"]
    if not places:
        (name,) = names.values()
        return [_Kind(name, name, "", {0: (name,)})]
    experts = next((k for k in range(len(places)) if len(places) > 1 and _counts_experts(parts, places[k])), None)
    others = [k for k in range(len(places)) if k != experts]
    layer = next((k for k in others if len({numbers[k] for numbers in names}) > 1), others[0])
    grouped: dict[str, dict[int, dict[int, str]]] = {}
    for numbers, name in names.items():
        template = name.split(".")
        template[places[layer]] = "{layer}"
        if experts is not None:
            template[places[experts]] = "{expert}"
        expert = 0 if experts is None else numbers[experts]
        grouped.setdefault(".".join(template), {}).setdefault(numbers[layer], {})[expert] = name
    return [
        _Kind(
            template,
            template.split("{layer}")[0].strip("."),
            template.split("{layer}")[1].strip("."),
            {number: tuple(dict(sorted(by.items())).values()) for number, by in sorted(tensors.items())},
        )
        for template, tensors in grouped.items()
    ]


def _counts_experts(parts: list[str], place: int) -> bool:
    return place > 0 and "expert" in parts[place - 1]


def _named(kinds: list[_Kind], stored: Mapping[str, Stored]) -> dict[str, MatrixLayout]:
    """Layouts by a name each: the field's word, else the shortest ending of what is stored that no other has."""
    words = {kind.template: _word(kind, stored) for kind in kinds}
    shorts = {kind.template: words[kind.template] or _short(kind) for kind in kinds}
    found: dict[str, list[_Kind]] = {}
    for kind in kinds:
        found.setdefault(shorts[kind.template], []).append(kind)
    layouts = {}
    for name, alike in found.items():
        towers = _towers(alike)
        if len(alike) > 1 and towers is None:  # the same ending twice: called in full
            for kind in alike:
                full = _bare(kind.template.replace("{layer}.", "").replace("{expert}.", ""))
                layouts[full] = _layout(full, [kind], None, stored)
        else:
            layouts[name] = _layout(name, alike, towers if len(alike) > 1 else None, stored)
    return layouts


def _layout(name: str, kinds: list[_Kind], towers: list[str] | None, stored: Mapping[str, Stored]) -> MatrixLayout:
    tensors: dict[Layer, tuple[str, ...]] = {}
    for number, kind in enumerate(kinds):
        for layer, names in kind.tensors.items():
            tensors[TowerLayer(towers[number], layer) if towers else layer] = names
    first = next(iter(tensors.values()))[0]
    shape = stored[first].shape
    kind = "gain" if len(shape) == 1 else "kernel" if _is_kernel(first, shape) else "matrix"
    made = {"gain": "as one row", "kernel": "as (out, all else)", "matrix": "as stored"}[kind]
    return MatrixLayout(name, tensors, f"{abridged([kind.template for kind in kinds])} {shape}, {made}", kind)


def _word(kind: _Kind, stored: Mapping[str, Stored]) -> str | None:
    first = next(iter(kind.tensors.values()))[0]
    if len(stored[first].shape) < 2:
        return None
    bare = _bare(kind.template.replace(".{expert}", ""))
    return next((word for word, ending in ROLES.items() if re.search(rf"(^|\.){ending}$", bare, re.I)), None)


def _short(kind: _Kind) -> str:
    """What stands after the layer, or, where there is nothing but `weight`, all of it."""
    after = _bare(kind.suffix.replace("{expert}.", ""))
    if after and after not in ("weight", "w"):
        return after
    before = [part for part in _bare(kind.prefix).split(".") if part not in _GENERIC]
    return ".".join(before[-2:]) or "weight"


def _bare(name: str) -> str:
    return re.sub(r"(^|\.)(weight|w)$", "", name) or name


def _towers(kinds: list[_Kind]) -> list[str] | None:
    """What tells the prefixes of kinds with one name apart, one word each; None where there is no such word."""
    if not all("{layer}" in kind.template for kind in kinds):
        return None
    words = [[part for part in kind.prefix.split(".") if part not in _GENERIC] for kind in kinds]
    shared = set.intersection(*map(set, words)) if words else set()
    own = [[part for part in parts if part not in shared] for parts in words]
    names = [parts[-1] if parts else "main" for parts in own]
    return names if len({*names}) == len(names) else None


def _is_gain(name: str, stored: Stored) -> bool:
    return len(stored.shape) == 1 and bool(GAIN.search(name)) and not name.endswith((".bias", ".b"))


def _is_kernel(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) > 3 or (len(shape) == 3 and "conv" in name.lower())


def _adapters(stored: Mapping[str, Stored], config: Mapping[str, Any]) -> dict[str, MatrixLayout]:
    """B A of every low-rank adapter, by what it is added to."""
    sides: dict[str, dict[str, str]] = {}
    for name in stored:
        match = _LORA.fullmatch(name)
        if match and len(stored[name].shape) == 2:
            sides.setdefault(match["module"], {})[match["side"]] = name
    pairs = {f"{module}.weight": (both["A"], both["B"]) for module, both in sides.items() if len(both) == 2}
    groups: dict[str, dict[tuple[int, ...], str]] = {}
    for module in pairs:
        pattern, numbers = _taken_apart(module)
        groups.setdefault(pattern, {})[numbers] = module
    found: dict[str, MatrixLayout] = {}
    for kind in (kind for pattern, names in groups.items() for kind in _kinds(pattern, names)):
        short = _short(kind).split(".")[-1]
        name = f"lora_{short}" if f"lora_{short}" not in found else f"lora_{_short(kind)}"
        tensors: dict[Layer, tuple[str, ...]] = {layer: pairs[names[0]] for layer, names in kind.tensors.items()}
        scales = {layer: _scale(names[0], stored[names[0]].shape[0], config) for layer, names in tensors.items()}
        known = {layer: scale for layer, scale in scales.items() if scale is not None}
        said = "times alpha / r" if len(known) == len(scales) else "not scaled: no adapter_config.json says by how much"
        if any("lora_magnitude_vector" in other for other in stored):
            said += "; DoRA's magnitudes are not in it"
        as_stored = f"lora_B lora_A of {_bare(kind.template)}, {said}"
        found[name] = MatrixLayout(name, tensors, as_stored, "lora", known if len(known) == len(scales) else None)
    return found


def _scale(name: str, rank: int, config: Mapping[str, Any]) -> float | None:
    """alpha / r, or alpha / sqrt(r), as the adapter's config says for this module; None where it says nothing."""
    module, patterns = name.split(".lora_")[0], config.get("alpha_pattern") or {}
    alpha = next((a for ending, a in patterns.items() if re.fullmatch(rf"(.*\.)?{re.escape(ending)}", module)), None)
    alpha = config.get("lora_alpha") if alpha is None else alpha
    if not isinstance(alpha, int | float):
        return None
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)
