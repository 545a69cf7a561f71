"""Latent attention (DeepSeek V2 and V3): queries, keys and values read through narrow spaces, positions carried apart.

W_K and W_V of a head are a down-projection that all heads share times an up-projection of its own; W_Q likewise, or
plain. A few more dimensions of query and key carry the position, one such key for all heads. The circuit `qk` is the
part without positions, `qk_rotary` the other; their sum is the score at distance zero. Raw weights: the norms between
down- and up-projections are left out.
"""

from dataclasses import replace

from checkpoints.heads.families.parts import LINEAR_OUT
from checkpoints.heads.layout import Family
from checkpoints.heads.weights import Weight

_QUERY, _KV = ("qk_nope_head_dim", "qk_rope_head_dim"), ("qk_nope_head_dim", "v_head_dim")
_NOTE = (
    "latent attention: qk is the part of the score without positions, qk_rotary the part that carries them; norms "
    "between down- and up-projections are left out"
)


def _latent(name: str, module: str, *model_types: str, query_down: bool = True, **given) -> Family:
    """Four matrices through the down-projections of a module."""
    shared = Weight(f"{module}kv_a_proj_with_mqa.weight", "cut d_model", 0, cut=("kv_lora_rank", "qk_rope_head_dim"))
    up = Weight(f"{module}kv_b_proj.weight", "(head cut) latent", 0, cut=_KV, down=shared)
    up = replace(up, latent_norm=f"{module}kv_a_layernorm.weight")
    if query_down:
        down = Weight(f"{module}q_a_proj.weight", "d_head d_model")
        query = Weight(f"{module}q_b_proj.weight", "(head cut) latent", 0, cut=_QUERY, down=down)
        query = replace(query, latent_norm=f"{module}q_a_layernorm.weight")
    else:
        query = Weight(f"{module}q_proj.weight", "(head cut) d_model", 0, cut=_QUERY)
    return Family(
        name,
        query=query,
        key=up,
        value=replace(up, part=1),
        output=Weight(f"{module}o_proj.weight", LINEAR_OUT),
        rotary_query=replace(query, part=1),
        rotary_key=replace(shared, part=1),
        model_types=model_types,
        kv_heads_from_shape=True,  # every head has a key of its own
        notes=(_NOTE,),
        **given,
    )


_MODULE = "layers.{layer}.self_attn."
_TYPES = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "axk1", "glm4_moe_lite", "youtu")
_NOPE = "this model has no positions in its attention"
_GATE = _MODULE + "linear_gate.weight"
_SPARSE = (r"indexer\..*",)
LATENT = (
    _latent("deepseek", _MODULE, *_TYPES, rotary="pairs", extras=_SPARSE),
    _latent("deepseek lite", _MODULE, *_TYPES, query_down=False, rotary="pairs", extras=_SPARSE),
    _latent("minicpm3", _MODULE, "minicpm3", rotary="halves"),
    _latent("latent without positions", _MODULE, "kimi_linear", query_down=False, unrotatable=_NOPE),
    _latent("bailing", _MODULE, "bailing_hybrid", rotary="pairs", gate=_MODULE + "g_proj.weight"),
    _latent(
        "bailing lite", _MODULE, "bailing_hybrid", query_down=False, rotary="pairs", gate=_MODULE + "g_proj.weight"
    ),
    _latent("hy_v4", _MODULE, "hy_v4", rotary="halves", extras=(*_SPARSE, r"gate_proj\.weight"), gate=_GATE),
)
