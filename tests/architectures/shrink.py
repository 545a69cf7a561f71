"""A tiny config of any model that Transformers has: the sizes in its own words, made small, and nothing else touched.

Settings are recognised by their names (hidden_size, d_model, n_embd ...), in the config and in those inside it. What a
model needs beyond that is said where it is listed.
"""

import re
from typing import Any

from transformers import CONFIG_MAPPING

WIDTH, HEADS, KV_HEADS, HEAD_DIM, LAYERS, INNER, VOCABULARY = 32, 4, 2, 12, 2, 48, 128

SIZES: tuple[tuple[str, Any], ...] = (
    (r"num_key_value_heads|num_kv_heads|n_kv_heads|num_key_value_heads_.*|num_global_key_value_heads", KV_HEADS),
    (r"(num_)?(attention|encoder_attention|decoder_attention|cross_attention)_heads|num_heads|n_heads?|n_head", HEADS),
    (
        r"(swa|global|sliding|full|text|vision|audio|resampler|xlm|mm|perceiver|prediction)_?num_(attention_)?heads",
        HEADS,
    ),
    (r"(.*_)?num_attention_heads|attn_heads|(.*_)?n_heads", HEADS),
    (r"num_hidden_layers|n_layers?|num_layers|(encoder|decoder|text|vision|cross)_layers|depth", LAYERS),
    (r"num_(?!feat_extract|conv|adapter)[a-z_]*layers", LAYERS),
    (r"hidden_size|d_model|n_embd|dim|embed_dim|embedding_dim|encoder_dim|decoder_dim|model_dim", WIDTH),
    (
        r"embedding_size|word_embed_proj_dim|emb_dim|hidden_dim|output_dim|out_hidden_size|(text|vision)_hidden_size",
        WIDTH,
    ),
    (r"projection_dim|proj_dim|(.*_)?projection_size|encoder_hidden_size|cross_attention_hidden_size", WIDTH),
    (r"(.*_)?intermediate_size|(.*_)?ffn_dim|d_ff|n_inner|ffn_hidden_size|d_inner|ffn_size|dim_feedforward", INNER),
    (r"head_dim|attention_head_dim|global_head_dim", HEAD_DIM),
    (r"d_kv|attention_head_size", 8),
    (r"q_lora_rank|kv_lora_rank", 16),
    (r"qk_nope_head_dim", 8),
    (r"qk_rope_head_dim", 4),
    (r"v_head_dim|swa_v_head_dim", 8),
    (r"qk_head_dim", 12),
    (r"(.*_)?vocab_size|n_vocab", VOCABULARY),
    (r"max_position_embeddings|n_positions|n_ctx|max_(source|target)_positions|seq_length|max_seq_len", 64),
    (r"image_size|img_size", 32),
    (r"patch_size", 8),
    (r"num_local_experts|num_experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_topk|moe_k|num_selected_experts", 2),
    (r"n_group|topk_group|n_shared_experts|num_shared_experts", 1),
    (r"moe_intermediate_size|shared_expert_intermediate_size", 16),
)
"""By name (a whole match), what a number becomes."""

TOKENS = re.compile(r"(.*_)?token_(id|index|ids)|(.*_)?token|pad_index|(pad|bos|eos)_idx")


def tiny(model_type: str, *, is_grouped: bool = True, **settings: Any) -> Any:
    """The config of a model in its own class, small; settings replace what is chosen here, also inside (`a__b=1`).

    Heads are grouped, and as wide as they need not be, where the config has words for that and leaves them open.
    """
    return _small(CONFIG_MAPPING[model_type], settings, is_grouped)


def _small(kind: Any, settings: dict[str, Any], is_grouped: bool) -> Any:
    own = {key: value for key, value in settings.items() if "__" not in key}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        if "__" in key:
            head, rest = key.split("__", 1)
            inner.setdefault(head, {})[rest] = value
    default = kind()
    table = {key: value for key, value in vars(default).items() if key in kind.__dataclass_fields__}
    chosen: dict[str, Any] = {}
    for key, value in table.items():
        if key.startswith("_") or key in own or key in getattr(kind, "attribute_map", {}):
            continue
        if hasattr(value, "to_dict") and hasattr(type(value), "model_type"):
            chosen[key] = _small(type(value), inner.get(key, {}), is_grouped)
        elif key in ("num_key_value_heads", "head_dim") and value is None:
            if is_grouped:
                chosen[key] = KV_HEADS if key == "num_key_value_heads" else HEAD_DIM
        elif not is_grouped and key in ("num_key_value_heads", "head_dim"):
            chosen[key] = HEADS if key == "num_key_value_heads" else WIDTH // HEADS
        elif isinstance(value, list | tuple) and key in ("num_heads", "num_attention_heads", "depths"):
            chosen[key] = [2 for _ in value] if key == "depths" else [2 << stage for stage in range(len(value))]
        elif (size := _size(key, value)) is not None:
            chosen[key] = size
    if "layer_types" in table and isinstance(table["layer_types"], list):
        chosen["layer_types"] = _both(table["layer_types"])
    return kind(**{**chosen, **own})


def _size(key: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if TOKENS.fullmatch(key):
        return value if value < VOCABULARY else 1
    return next((small for pattern, small in SIZES if re.fullmatch(pattern, key)), None)


def _both(kinds: list[str]) -> list[str]:
    """As many kinds of layers as there are, in two layers."""
    distinct = list(dict.fromkeys(kinds))
    return (distinct + distinct[-1:])[:LAYERS]
