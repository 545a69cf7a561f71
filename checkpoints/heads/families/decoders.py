"""Decoders of Transformers with separate query, key, value and output: Llama's names and others, and their relatives.

Relatives share the four matrices and differ in norms (which, where, gains as w or 1 + w) and in rotation, so each kind
is an entry. The model types of an entry were all compared with the model's own attention, norms and rotation.
"""

from typing import Any

from checkpoints.heads.families.parts import POST_NORM, linear, projections
from checkpoints.heads.layout import Family
from checkpoints.heads.weights import Weight

_LAYER, _MODULE = "layers.{layer}.", "layers.{layer}.self_attn."
_NORMS: dict[str, Any] = {
    "input_norm": _LAYER + "input_layernorm.weight",
    "query_norm": _MODULE + "q_norm.weight",
    "key_norm": _MODULE + "k_norm.weight",
}
_AFTER = _LAYER + "post_attention_layernorm.weight"
_AFTER_SELF = _LAYER + "post_self_attn_layernorm.weight"
_GATE = _MODULE + "gate_proj.weight"
_VALUES_NORMED = "values are normalised head by head before they are mixed: ov leaves that out"


def _llama(name: str, *model_types: str, rotary: Any = "halves", **given: Any) -> Family:
    """Llama's names, with what an entry says to the contrary."""
    settings: dict[str, Any] = {**projections(_MODULE), **_NORMS, "rotary": rotary, **given}
    return Family(name, model_types=model_types, **settings)


DECODERS = (
    _llama(
        "llama",
        *(
            "llama",
            "mistral",
            "mixtral",
            "ministral",
            "ministral3",
            "arcee",
            "aria_text",
            "cwm",
            "emu3",
            "emu3_text_model",
        ),
        *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "dots1", "mellum", "seed_oss", "solar_open", "phimoe"),
        *(
            "granite",
            "granitemoe",
            "granitemoeshared",
            "jais2",
            "eurobert",
            "starcoder2",
            "stablelm",
            "gpt_oss",
            "smollm3",
        ),
        *("hy_v3", "minimax_m2", "olmoe", "glm4_moe", "mllama_text_model"),
    ),
    _llama("helium", "helium", "ernie4_5", "ernie4_5_moe", "glm", rotary="pairs"),
    _llama("llama4", "llama4_text", rotary="pairs", unrotatable="layers without positions scale queries by position"),
    _llama("cohere", "cohere", rotary="pairs"),
    _llama("cohere2", "cohere2", "cohere2_moe", rotary="pairs", rotary_layers="sliding_attention"),
    _llama("gemma", "gemma", "vaultgemma", "nemotron", gain_offset=1.0),
    _llama(
        "minimax_m3",
        "minimax_m3_vl_text",
        gain_offset=1.0,
        extras=(r"indexer\..*",),
        unrotatable="its rotation was not compared",
    ),
    _llama("gemma2", "gemma2", "gemma3_text", output_norm=_AFTER, gain_offset=1.0),
    _llama("gemma4", "gemma4_text", "gemma4_unified_text", output_norm=_AFTER, notes=(_VALUES_NORMED,)),
    _llama("gemma3n", "gemma3n_text", unfoldable="several streams are mixed before the norm", notes=(_VALUES_NORMED,)),
    _llama("olmo2", "olmo2", "olmo3", "flex_olmo", "olmo_hybrid", input_norm=None, output_norm=_AFTER),
    _llama("exaone4", "exaone4", input_norm=None, output_norm=_AFTER, rotary_layers="sliding_attention"),
    _llama("exaone_moe", "exaone_moe", "flint", rotary_layers="sliding_attention"),
    _llama("glm4", "glm4", rotary="pairs", output_norm=_AFTER_SELF),
    _llama("kolibri1", "kolibri1", output_norm=_AFTER_SELF, rotary_layers="sliding_attention"),
    _llama("olmo", "olmo", input_norm=None, is_gainless=True),
    _llama("nanochat", "nanochat", input_norm=None, is_gainless=True, rotary="halves, backwards"),
    _llama("apertus", "apertus", input_norm=_LAYER + "attention_layernorm.weight"),
    _llama("afmoe", "afmoe", output_norm=_AFTER, gate=_GATE, rotary_layers="sliding_attention"),
    _llama("hrm", "hrm_text", input_norm=None, is_gainless=True, gate=_GATE),
    _llama("jamba", "jamba", rotary=None),
    _llama("bamba", "bamba", "granitemoehybrid", "minimax"),
    _llama("granite_swa", "granite_swa", "granitemoe_swa", unrotatable="layers have rotations of their own"),
    _llama("hyperclovax", "hyperclovax", output_norm=_LAYER + "post_norm1.weight"),
    _llama("mimo_v2", "mimo_v2_flash", kv_heads_from_shape=True, scales=(("value", "attention_value_scale"),)),
    _llama(
        "falcon_h1", "falcon_h1", scales=(("key", "key_multiplier"),), unfoldable="multipliers stand beside its norms"
    ),
    _llama(
        "hunyuan",
        *("hunyuan_v1_dense", "hunyuan_v1_moe"),
        query_norm=_MODULE + "query_layernorm.weight",
        key_norm=_MODULE + "key_layernorm.weight",
    ),
    _llama(
        "bitnet",
        "bitnet",
        extras=(r"attn_sub_norm\.weight",),
        unfoldable="a norm stands between what heads mix and what they write",
        notes=("what all heads mix is normalised together before it is written: ov leaves that out",),
    ),
    _llama(
        "doge",
        "doge",
        extras=("A", r"dt_proj\.weight"),
        notes=("scores have a bias that depends on the values: qk leaves it out",),
    ),
    _llama(
        "qwen3_next",  # rows of every head: its query, then its gate
        *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
        query=Weight(_MODULE + "q_proj.weight", "(head part d_head) d_model", 0, parts=2),
        gate=_MODULE + "q_proj.weight",
        gain_offset=1.0,
    ),
    _llama(
        "recurrent_gemma",
        "recurrent_gemma",
        **projections("layers.{layer}.temporal_block."),
        input_norm=_LAYER + "temporal_pre_norm.weight",
        query_norm=None,
        key_norm=None,
        gain_offset=1.0,
    ),
    Family(
        "phi",
        **projections(_MODULE, "dense.weight"),
        model_types=("phi",),
        **{**_NORMS, "query_norm": _MODULE + "q_layernorm.weight", "key_norm": _MODULE + "k_layernorm.weight"},
        rotary="halves",
    ),
    Family(
        "nemotron_h",
        **projections("layers.{layer}.mixer."),
        model_types=("nemotron_h",),
        input_norm=_LAYER + "norm.weight",
    ),
    Family(
        "modernbert-decoder",
        **projections("layers.{layer}.attn.", "Wo.weight"),
        model_types=("modernbert-decoder",),
        unfoldable="the first layer has no norm of its own",
        rotary="halves",
    ),
    Family(
        "moshi",
        **linear(_MODULE, *(f"{kind}_proj.linear.weight" for kind in "qkvo")),
        model_types=("moshi",),
        input_norm=_LAYER + "input_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "gptj",
        **projections("h.{layer}.attn.", "out_proj.weight"),
        model_types=("gptj",),
        input_norm="h.{layer}.ln_1.weight",
        rotary="pairs",
    ),
    Family(
        "gpt_neo",
        **projections("h.{layer}.attn.attention.", "out_proj.weight"),
        model_types=("gpt_neo",),
        input_norm="h.{layer}.ln_1.weight",
    ),
    Family(
        "opt",
        **projections(_MODULE, "out_proj.weight"),
        model_types=("opt", "xglm", "biogpt"),
        input_norm=_LAYER + "self_attn_layer_norm.weight",
        pre_norm_setting="do_layer_norm_before",  # opt-350m normalises after attention
    ),
    Family(
        "lfm2",
        **projections(_MODULE, "out_proj.weight"),
        model_types=("lfm2", "lfm2_moe"),
        input_norm=_LAYER + "operator_norm.weight",
        query_norm=_MODULE + "q_layernorm.weight",
        key_norm=_MODULE + "k_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "ctrl",
        **linear("h.{layer}.multi_head_attention.", "Wq.weight", "Wk.weight", "Wv.weight", "dense.weight"),
        model_types=("ctrl",),
        input_norm="h.{layer}.layernorm1.weight",
    ),
    Family(
        "xlm",
        **linear("attentions.{layer}.", "q_lin.weight", "k_lin.weight", "v_lin.weight", "out_lin.weight"),
        model_types=("xlm", "flaubert"),
        unfoldable=POST_NORM,
    ),
    Family(
        "cpmant",
        **linear(
            "layers.{layer}.self_att.self_attention.",
            *("project_q.weight", "project_k.weight", "project_v.weight", "attention_out.weight"),
        ),
        model_types=("cpmant",),
        input_norm="layers.{layer}.self_att.layernorm_before_attention.weight",
    ),
)
