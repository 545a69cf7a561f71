"""The families that are known. A new one is one entry here and one line in tests/tiny_transformers.py."""

from typing import TypedDict

from checkpoints.heads.layout import Family, Weight

_LINEAR_IN, _LINEAR_OUT = "(head d_head) d_model", "d_model (head d_head)"
"""torch.nn.Linear keeps (out, in): heads are rows of what reads the residual stream and columns of what writes it."""


class _Four(TypedDict):
    query: Weight
    key: Weight
    value: Weight
    output: Weight


def _linear(block: str, query: str, key: str, value: str, output: str, writes: str = _LINEAR_OUT) -> _Four:
    """Query, key, value and output as four separate torch.nn.Linear."""
    return _Four(
        query=Weight(block + query, _LINEAR_IN),
        key=Weight(block + key, _LINEAR_IN),
        value=Weight(block + value, _LINEAR_IN),
        output=Weight(block + output, writes),
    )


def _fused(name: str, axes: str, output: Weight) -> _Four:
    """Query, key and value in one matrix."""
    query, key, value = (Weight(name, axes, part) for part in range(3))
    return _Four(query=query, key=key, value=value, output=output)


def _per_head(block: str, reads: str, writes: str, kv: str = "") -> _Four:
    """TransformerLens' tensors with an axis for the heads."""
    return _Four(
        query=Weight(f"{block}W_Q", reads),
        key=Weight(f"{block}{kv}W_K", reads),
        value=Weight(f"{block}{kv}W_V", reads),
        output=Weight(f"{block}W_O", writes),
    )


FAMILIES = (
    Family(
        "gpt2",
        **_fused(
            "h.{layer}.attn.c_attn.weight",  # Conv1D keeps (in, out)
            "d_model (part head d_head)",
            Weight("h.{layer}.attn.c_proj.weight", "(head d_head) d_model"),
        ),
        model_types=("gpt2",),
        input_norm="h.{layer}.ln_1.weight",
    ),
    Family(
        "nanogpt",
        **_fused(
            "h.{layer}.attn.c_attn.weight",
            "(part head d_head) d_model",
            Weight("h.{layer}.attn.c_proj.weight", _LINEAR_OUT),
        ),
        input_norm="h.{layer}.ln_1.weight",
    ),
    Family(
        "gpt-neox",
        **_fused(
            "layers.{layer}.attention.query_key_value.weight",  # query, key and value of each head side by side
            "(head part d_head) d_model",
            Weight("layers.{layer}.attention.dense.weight", _LINEAR_OUT),
        ),
        model_types=("gpt_neox",),
        input_norm="layers.{layer}.input_layernorm.weight",
        rotary="halves",
    ),
    Family(
        "llama",
        **_linear("layers.{layer}.self_attn.", "q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"),
        model_types=("llama", "mistral", "qwen2", "qwen3"),
        requires=("layers.{layer}.input_layernorm.weight",),
        input_norm="layers.{layer}.input_layernorm.weight",
        query_norm="layers.{layer}.self_attn.q_norm.weight",
        key_norm="layers.{layer}.self_attn.k_norm.weight",
        rotary="halves",
    ),
    Family(
        "olmo2",
        **_linear("layers.{layer}.self_attn.", "q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"),
        model_types=("olmo2",),
        requires=("layers.{layer}.post_feedforward_layernorm.weight",),
        output_norm="layers.{layer}.post_attention_layernorm.weight",  # on what attention writes, not on the stream
        query_norm="layers.{layer}.self_attn.q_norm.weight",
        key_norm="layers.{layer}.self_attn.k_norm.weight",
        rotary="halves",
    ),
    Family(
        "gptj",
        **_linear("h.{layer}.attn.", "q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight"),
        model_types=("gptj",),
        input_norm="h.{layer}.ln_1.weight",
        rotary="pairs",
    ),
    Family(
        "opt",
        **_linear("layers.{layer}.self_attn.", "q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight"),
        model_types=("opt",),
        input_norm="layers.{layer}.self_attn_layer_norm.weight",
        pre_norm_setting="do_layer_norm_before",  # opt-350m normalises after attention
    ),
    Family(
        "bert",
        **_linear(
            "layer.{layer}.attention.",
            "self.query.weight",
            "self.key.weight",
            "self.value.weight",
            "output.dense.weight",
        ),
        model_types=("bert", "roberta", "electra", "camembert", "xlm-roberta"),
    ),
    Family(
        "distilbert",
        **_linear("layer.{layer}.attention.", "q_lin.weight", "k_lin.weight", "v_lin.weight", "out_lin.weight"),
        model_types=("distilbert",),
    ),
    Family(
        "transformer-lens",
        **_per_head("blocks.{layer}.attn.", "head d_model d_head", "head d_head d_model"),
        input_norm="blocks.{layer}.ln1.w",
    ),
    Family(
        "transformer-lens grouped",
        **_per_head("blocks.{layer}.attn.", "head d_model d_head", "head d_head d_model", kv="_"),
        input_norm="blocks.{layer}.ln1.w",
    ),
    Family(
        "transformer-lens before 1.0",  # every matrix multiplies from the left; W_O is flat
        **_per_head("blocks.{layer}.attn.", "head d_head d_model", _LINEAR_OUT),
    ),
    Family(
        "transformer-lens solu-old",  # every matrix multiplies from the left; W_O is not flat
        **_per_head("blocks.{layer}.attn.", "head d_head d_model", "head d_model d_head"),
        input_norm="blocks.{layer}.norm1.w",
    ),
    Family(
        "transformer-lens bridge of gpt2",  # the bridge cuts c_attn into Linear layers and leaves c_proj a Conv1D
        **_linear("blocks.{layer}.attn.", "q.weight", "k.weight", "v.weight", "o.weight", "(head d_head) d_model"),
        model_types=("gpt2",),
        requires=("blocks.{layer}.mlp.in.weight",),
        disambiguator=Weight("blocks.{layer}.mlp.in.weight", "d_model d_mlp"),
        input_norm="blocks.{layer}.ln1.weight",
    ),
    Family(
        "transformer-lens bridge",
        **_linear("blocks.{layer}.attn.", "q.weight", "k.weight", "v.weight", "o.weight"),
        disambiguator=Weight("blocks.{layer}.mlp.in.weight", "d_mlp d_model"),
        input_norm="blocks.{layer}.ln1.weight",
    ),
    Family(
        "transformer-lens native",
        **_linear("layers.{layer}.attn.", "q.weight", "k.weight", "v.weight", "o.weight"),
        input_norm="layers.{layer}.ln1.weight",
    ),
    Family(
        "mingpt",
        **_linear("blocks.{layer}.attn.", "query.weight", "key.weight", "value.weight", "proj.weight"),
        input_norm="blocks.{layer}.ln1.weight",
    ),
)
