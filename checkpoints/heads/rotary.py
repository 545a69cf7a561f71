"""Rotary positions: query and key are turned, pair of dimensions by pair, by an angle that grows with the position.

Only the difference of positions matters: q at position m and k at position n meet as q^T R(n - m) k. Models differ in
which dimensions make a pair: d and d + r/2 (`halves`: NeoX, Llama) or 2d and 2d + 1 (`pairs`: GPT-J); in how many of
the dimensions of a head, r, are turned at all; and in how frequencies are stretched for longer texts (linear, llama3,
yarn). Yarn also lengthens what it turns, by the same factor in query and key.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float64
from torch import Tensor

Pairing = Literal["halves", "pairs", "halves, backwards"]
"""Which dimensions turn together; backwards where the model turns them the other way round (nanochat)."""


@dataclass(frozen=True)
class Rotary:
    """The rotation of one layer: radians per position of each pair, how dimensions are paired, and their stretch."""

    frequencies: tuple[float, ...]
    pairing: Pairing
    factor: float = 1.0
    """What the turned dimensions of query and of key are multiplied with."""

    @property
    def dimensions(self) -> int:
        """How many dimensions of a head turn."""
        return 2 * len(self.frequencies)

    def matrix(self, offset: int, d_head: int) -> Float64[Tensor, "d_head d_head"]:
        """R(-offset), so that q^T matrix k is the score of a key `offset` positions before its query."""
        half = len(self.frequencies)
        angles = -offset * torch.tensor(self.frequencies, dtype=torch.float64)
        angles = -angles if "backwards" in self.pairing else angles
        first, second = torch.arange(half), torch.arange(half) + half
        if self.pairing == "pairs":
            first, second = 2 * torch.arange(half), 2 * torch.arange(half) + 1
        rotation = torch.eye(d_head, dtype=torch.float64)
        rotation[first, first] = rotation[second, second] = angles.cos() * self.factor**2
        rotation[second, first], rotation[first, second] = (
            angles.sin() * self.factor**2,
            -angles.sin() * self.factor**2,
        )
        return rotation


_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct", "rotary_dim")
# fmt: off
_WITH_OWN_BASE = frozenset((
    "apertus", "bailing_hybrid", "bitnet", "cohere", "cwm", "emu3_text_model", "ernie4_5", "ernie4_5_moe", "flex_olmo",
    "gemma3_text", "gemma3n_text", "gemma4_text", "gemma4_unified_text", "gpt_oss", "helium", "hy_v3", "lfm2",
    "lfm2_moe", "mellum", "mimo_v2_flash", "minimax", "minimax_m2", "ministral3", "mixtral", "mllama_text_model",
    "modernbert-decoder", "olmo3", "persimmon", "phimoe", "smollm3", "solar_open",
))
"""Types whose frequencies have another base than 10000 where their configs leave it out."""
_IN_PART = frozenset((
    "bamba", "codegen", "glm", "glm4", "glm4_moe", "gpt_neox", "gptj", "mimo_v2_flash", "nemotron", "persimmon", "phi",
    "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "stablelm",
))
"""Types that rotate part of a head where their configs leave out which."""
# fmt: on
_BY_KIND = ("gemma3_text", "gemma3n_text", "gemma4_text", "gemma4_unified_text", "mellum", "modernbert-decoder")
"""Types in which layers that see little turn otherwise than those that see all, also where their configs do not say."""
_BY_LAYER = {"granitemoehybrid": "position_embedding_type", "smollm3": "no_rope_layers"}
"""Types some of whose layers have no positions, and the setting that says so."""


def rotary_of(config: Mapping[str, Any], pairing: Pairing, d_head: int, layer: int = 0) -> Rotary:
    """The rotation of a layer that a model's config describes, in the words of older and newer configs.

    Raises ValueError with the reason where it describes none, or one that is not known here.
    """
    try:
        rotary = _described(config, pairing, d_head, layer)
    except (TypeError, ZeroDivisionError) as error:
        raise ValueError(f"what the config says of rotary positions makes no sense: {error}") from error
    if not all(math.isfinite(frequency) for frequency in rotary.frequencies):
        raise ValueError("what the config says of rotary positions makes no sense: frequencies are not finite")
    return rotary


def _described(config: Mapping[str, Any], pairing: Pairing, d_head: int, layer: int) -> Rotary:
    if not config.get("model_type") and not any(key in config for key in _KEYS):
        raise ValueError("no config says how positions are rotated")
    if config.get("use_scaled_rope"):
        raise ValueError("use_scaled_rope does not say by how much frequencies are stretched")
    if config.get("alibi"):
        raise ValueError("positions are ALiBi's here: added to scores, not rotated")
    if _BY_LAYER.get(str(config.get("model_type")), "") not in ("", *config):
        raise ValueError(f"no config says {_BY_LAYER[config['model_type']]}: which layers rotate positions")
    if _is_unrotated(config, layer):
        return Rotary((), pairing)
    settings = _settings(config, layer)
    _require_stated(config, settings)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    base = float(settings.get("rope_theta") or settings.get("rotary_emb_base") or 10_000.0)
    fraction = settings.get("partial_rotary_factor") or settings.get("rotary_pct")
    dimensions = config.get("rotary_dim") if fraction is None else None
    fraction = 1.0 if fraction is None else float(fraction)
    dimensions = dimensions or int(d_head * fraction)
    if not isinstance(dimensions, int) or dimensions % 2 or not 0 < dimensions <= d_head:
        raise ValueError(f"{dimensions} rotary dimensions in heads of {d_head}")
    plain = base ** (-torch.arange(dimensions // 2, dtype=torch.float64) * 2 / dimensions)
    if kind == "default":
        return Rotary(tuple(plain.tolist()), pairing)
    if kind == "proportional":  # as if all dimensions turned, but the slowest of them not at all
        exponents = torch.arange(d_head // 2, dtype=torch.float64) * 2 / d_head
        turning = torch.arange(d_head // 2) < int(fraction * d_head // 2)
        return Rotary(tuple((base**-exponents * turning / float(settings.get("factor") or 1)).tolist()), pairing)
    if kind == "linear":
        return Rotary(tuple((plain / float(settings["factor"])).tolist()), pairing)
    if kind == "llama3":
        return Rotary(tuple(_llama3(plain, settings).tolist()), pairing)
    if kind == "yarn":
        frequencies, factor = _yarn(plain, settings, config, base, dimensions)
        return Rotary(tuple(frequencies.tolist()), pairing, factor)
    raise ValueError(
        f"rotary positions of type {kind!r} depend on the length of the text, or are not known here; default, linear, "
        "llama3, yarn and proportional are"
    )


def _require_stated(config: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse to fill in what a shortened config leaves out, where the model's own default is not the usual one."""
    model_type = str(config.get("model_type"))
    missing = None
    if model_type in _WITH_OWN_BASE and not (settings.get("rope_theta") or settings.get("rotary_emb_base")):
        missing = "rope_theta"
    elif model_type in _IN_PART and not any(
        key in settings for key in ("partial_rotary_factor", "rotary_pct", "rotary_dim")
    ):
        missing = "partial_rotary_factor"
    elif model_type in _BY_KIND and not (
        config.get("rope_local_base_freq")
        or any(isinstance(value, Mapping) for value in dict(config.get("rope_parameters") or {}).values())
    ):
        missing = "rope_local_base_freq"
    if missing:
        raise ValueError(f"no config says {missing}, and that of {model_type} is not the usual one")


def _is_unrotated(config: Mapping[str, Any], layer: int) -> bool:
    """Whether a model that leaves some layers without positions lists this one among them (a 0 in its list)."""
    if "position_embedding_type" in config and config["position_embedding_type"] in (None, "nope"):
        return True
    listed = config.get("no_rope_layers")
    return isinstance(listed, list | tuple) and layer < len(listed) and not listed[layer]


def _settings(config: Mapping[str, Any], layer: int) -> dict[str, Any]:
    """All that is said of this layer's rotation."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise ValueError(f"a table of how positions are rotated is expected in the config, it says {scaling!r}")
    kinds = config.get("layer_types")
    by_kind = {key: value for key, value in scaling.items() if isinstance(value, Mapping)}
    if not by_kind and config.get("rope_local_base_freq") is None:
        return {**config, **scaling}
    if not isinstance(kinds, list | tuple) or layer >= len(kinds):
        raise ValueError("layers have rotations of their own, and no layer_types in the config says which layer which")
    if by_kind:
        if kinds[layer] not in by_kind:
            raise ValueError(f"the config describes no rotation for layers of type {kinds[layer]!r}")
        return {**config, **by_kind[kinds[layer]]}
    if kinds[layer] == "sliding_attention":  # as Gemma 3 was first written
        return {**config, "rope_theta": config["rope_local_base_freq"], "rope_type": "default"}
    return {**config, **scaling}


def _llama3(plain: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Slow frequencies divided by the factor, fast ones left, and between them a blend (Llama 3.1)."""
    factor, low, high = (float(settings[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(settings["original_max_position_embeddings"]) * plain / (2 * math.pi)
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * plain / factor + blend * plain


def _yarn(
    plain: Tensor, settings: Mapping[str, Any], config: Mapping[str, Any], base: float, dimensions: int
) -> tuple[Tensor, float]:
    """Fast frequencies left, slow ones divided by the factor, a ramp between; and the attention factor (YaRN)."""
    length = settings.get("original_max_position_embeddings") or config["max_position_embeddings"]
    factor = settings.get("factor") or config["max_position_embeddings"] / length
    low, high = (
        dimensions * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (settings.get("beta_fast") or 32, settings.get("beta_slow") or 1)
    )
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dimensions - 1)
    places = torch.arange(dimensions // 2, dtype=torch.float64)
    ramp = ((places - low) / ((high - low) or 0.001)).clamp(0, 1)
    frequencies = plain / factor * ramp + plain * (1 - ramp)
    given, scale, scale_all = (settings.get(key) for key in ("attention_factor", "mscale", "mscale_all_dim"))
    if given is None:
        given = _length(factor, scale) / _length(factor, scale_all) if scale and scale_all else _length(factor, 1.0)
    return frequencies, float(given)


def _length(factor: float, scale: float) -> float:
    """How much longer YaRN makes query and key."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0
