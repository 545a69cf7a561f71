"""Decoders of Transformers with separate query, key, value and output: Llama's names and others, and their relatives.

Relatives share the four matrices and differ in norms (which, where, gains as w or 1 + w) and in rotation, so each kind
is an entry. The model types of an entry were all compared with the model's own attention.
"""

from typing import Any

from checkpoints.heads.families.parts import linear, projections
from checkpoints.heads.layout import Family

_LAYER, _MODULE = "layers.{layer}.", "layers.{layer}.self_attn."
_NORMS: dict[str, Any] = {
    "input_norm": _LAYER + "input_layernorm.weight",
    "query_norm": _MODULE + "q_norm.weight",
    "key_norm": _MODULE + "k_norm.weight",
}


def _llama(name: str, *model_types: str, rotary: Any = "halves", **given: Any) -> Family:
    """Llama's names, with what an entry says to the contrary."""
    settings: dict[str, Any] = {**projections(_MODULE), **_NORMS, "rotary": rotary, **given}
    return Family(name, model_types=model_types, **settings)


DECODERS = (
    _llama("llama", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"),
    _llama(
        "olmo2",
        "olmo2",
        input_norm=None,
        output_norm=_LAYER + "post_attention_layernorm.weight",  # on what attention writes, not on the stream
    ),
    Family(
        "gptj",
        **projections("h.{layer}.attn.", "out_proj.weight"),
        model_types=("gptj",),
        input_norm="h.{layer}.ln_1.weight",
        rotary="pairs",
    ),
    Family(
        "opt",
        **projections(_MODULE, "out_proj.weight"),
        model_types=("opt",),
        input_norm=_LAYER + "self_attn_layer_norm.weight",
        pre_norm_setting="do_layer_norm_before",  # opt-350m normalises after attention
    ),
    Family(
        "ctrl",
        **linear("h.{layer}.multi_head_attention.", "Wq.weight", "Wk.weight", "Wv.weight", "dense.weight"),
        model_types=("ctrl",),
        input_norm="h.{layer}.layernorm1.weight",
    ),
)
