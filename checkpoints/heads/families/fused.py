"""Models that keep query, key and value in one matrix, and in which order."""

from checkpoints.heads.families.parts import LINEAR_OUT, POST_NORM, fused
from checkpoints.heads.layout import Family
from checkpoints.heads.weights import Weight

_HRM = "layers.{layer}.attn.gqkv_proj.weight"

FUSED = (
    Family(
        "gpt2",
        **fused(
            "h.{layer}.attn.c_attn.weight",  # Conv1D keeps (in, out)
            "d_model (part head d_head)",
            "h.{layer}.attn.c_proj.weight",
            "(head d_head) d_model",
        ),
        model_types=("gpt2", "gpt-sw3", "imagegpt"),
        input_norm="h.{layer}.ln_1.weight",
    ),
    Family(
        "openai-gpt",
        **fused(
            "h.{layer}.attn.c_attn.weight",
            "d_model (part head d_head)",
            "h.{layer}.attn.c_proj.weight",
            "(head d_head) d_model",
        ),
        model_types=("openai-gpt",),
        unfoldable=POST_NORM,
    ),
    Family(
        "nanogpt",
        **fused("h.{layer}.attn.c_attn.weight", "(part head d_head) d_model", "h.{layer}.attn.c_proj.weight"),
        model_types=("nanogpt", "mingpt", "gpt-nano", "gpt-micro", "gpt-mini", "gopher-44m"),
        input_norm="h.{layer}.ln_1.weight",
    ),
    Family(
        "gpt_bigcode",  # query, key and value of a key head together: one key head, or as many as there are queries
        **fused("h.{layer}.attn.c_attn.weight", "(kv slot d_head) d_model", "h.{layer}.attn.c_proj.weight"),
        model_types=("gpt_bigcode",),
        needs_model_type=True,
        kv_heads_from_shape=True,
        one_key_or_all=True,
        input_norm="h.{layer}.ln_1.weight",
    ),
    Family(
        "gpt-neox",
        **fused(
            "layers.{layer}.attention.query_key_value.weight",  # query, key and value of each head side by side
            "(head part d_head) d_model",
            "layers.{layer}.attention.dense.weight",
        ),
        model_types=("gpt_neox", "gpt_neox_japanese"),
        input_norm="layers.{layer}.input_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "bloom",
        **fused(
            "h.{layer}.self_attention.query_key_value.weight",
            "(head part d_head) d_model",
            "h.{layer}.self_attention.dense.weight",
        ),
        model_types=("bloom",),
        input_norm="h.{layer}.input_layernorm.weight",
    ),
    Family(
        "falcon",  # 7b has one key head, 40b groups, rw as many as queries: all in this order
        **fused(
            "h.{layer}.self_attention.query_key_value.weight",
            "(kv slot d_head) d_model",
            "h.{layer}.self_attention.dense.weight",
        ),
        model_types=("falcon",),
        needs_model_type=True,
        kv_heads_from_shape=True,  # the 7b config says num_kv_heads 71 beside multi_query
        input_norm="h.{layer}.input_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "mpt",
        **fused("blocks.{layer}.attn.Wqkv.weight", "(part head d_head) d_model", "blocks.{layer}.attn.out_proj.weight"),
        model_types=("mpt",),
        input_norm="blocks.{layer}.norm_1.weight",
    ),
    Family(
        "dbrx",
        **fused(
            "blocks.{layer}.norm_attn_norm.attn.Wqkv.weight",
            "(slot d_head) d_model",
            "blocks.{layer}.norm_attn_norm.attn.out_proj.weight",
        ),
        model_types=("dbrx",),
        kv_heads_from_shape=True,
        input_norm="blocks.{layer}.norm_attn_norm.norm_1.weight",
        unrotatable="its rotation was not compared",
    ),
    Family(
        "persimmon",
        **fused(
            "layers.{layer}.self_attn.query_key_value.weight",
            "(head part d_head) d_model",
            "layers.{layer}.self_attn.dense.weight",
        ),
        model_types=("persimmon", "fuyu"),
        input_norm="layers.{layer}.input_layernorm.weight",
        query_norm="layers.{layer}.self_attn.q_layernorm.weight",
        key_norm="layers.{layer}.self_attn.k_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "phi3",
        **fused(
            "layers.{layer}.self_attn.qkv_proj.weight",
            "(slot d_head) d_model",
            "layers.{layer}.self_attn.o_proj.weight",
        ),
        model_types=("phi3", "phi4_multimodal"),
        input_norm="layers.{layer}.input_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "codegen",  # four groups of heads, in each all queries, then all values, then all keys
        query=Weight("h.{layer}.attn.qkv_proj.weight", "(block part head d_head) d_model", 0, blocks=4),
        key=Weight("h.{layer}.attn.qkv_proj.weight", "(block part head d_head) d_model", 2, blocks=4),
        value=Weight("h.{layer}.attn.qkv_proj.weight", "(block part head d_head) d_model", 1, blocks=4),
        output=Weight("h.{layer}.attn.out_proj.weight", LINEAR_OUT),
        model_types=("codegen",),
        input_norm="h.{layer}.ln_1.weight",
        rotary="pairs",
    ),
    Family(
        "hrm saved",  # gates, queries, keys, values; in memory they are apart (hrm)
        query=Weight(_HRM, "(part head d_head) d_model", 1, parts=4),
        key=Weight(_HRM, "(part head d_head) d_model", 2, parts=4),
        value=Weight(_HRM, "(part head d_head) d_model", 3, parts=4),
        output=Weight("layers.{layer}.attn.o_proj.weight", LINEAR_OUT),
        model_types=("hrm_text",),
        is_gainless=True,
        gate=_HRM,
        rotary="halves",
    ),
)
