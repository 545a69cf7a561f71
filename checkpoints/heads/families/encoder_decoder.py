"""Models with an encoder, a decoder and attention across: T5's names and BART's, in one run of three towers."""

from typing import Any

from checkpoints.heads.families.encoders import OTHER_STREAM
from checkpoints.heads.families.parts import POST_NORM, linear, projections
from checkpoints.heads.layout import Family


def _t5(name: str, *model_types: str, module: str, **given: Any) -> Family:
    settings: dict[str, Any] = {**linear(module, "q.weight", "k.weight", "v.weight", "o.weight"), **given}
    biases = (r"(global_)?relative_attention_bias\.weight",)
    return Family(name, model_types=model_types, extras=biases, **settings)


def _bart(name: str, *model_types: str, norm: str | None = None, output: str = "out_proj.weight") -> Family:
    return Family(
        name,
        **projections("self_attn.", output),
        model_types=model_types,
        needs_model_type=True,
        input_norm=norm,
        unfoldable=None if norm else POST_NORM,
    )


def _across(name: str, *model_types: str, module: str = "encoder_attn.", output: str = "out_proj.weight") -> Family:
    return Family(
        name,
        **projections(module, output),
        model_types=model_types,
        crosses=True,
        tower="cross",
        unfoldable=OTHER_STREAM,
    )


_T5 = ("t5", "mt5", "umt5", "longt5", "switch_transformers", "udop")
_POST = ("bart", "blenderbot-small", "fsmt", "led", "marian", "mvp", "plbart", "time_series_transformer", "trocr")
_PRE = ("bigbird_pegasus", "blenderbot", "m2m_100", "mbart", "nllb-moe", "pegasus", "speech_to_text", "whisper")
_AUDIO = ("qwen2_audio_encoder", "voxtral_encoder", "audioflamingo3_encoder")

ENCODER_DECODERS = (
    _t5("t5", *_T5, module="SelfAttention.", input_norm="layer_norm.weight"),
    _t5("t5, cross", *_T5, module="EncDecAttention.", crosses=True, tower="cross", unfoldable=OTHER_STREAM),
    _bart("bart", *_POST),
    _bart("bart, norm before", *_PRE, *_AUDIO, norm="self_attn_layer_norm.weight"),
    _across("bart, cross", *_POST, *_PRE),
    Family(
        "t5gemma",
        **projections("self_attn."),
        model_types=("t5_gemma_module",),
        needs_model_type=True,
        input_norm="pre_self_attn_layernorm.weight",
        output_norm="post_self_attn_layernorm.weight",
        gain_offset=1.0,
        rotary="halves",
    ),
    _bart("moonshine", "moonshine", norm="input_layernorm.weight", output="o_proj.weight"),
    _across("moonshine, cross", "moonshine", output="o_proj.weight"),
    _across("t5gemma, cross", "t5_gemma_module", "idefics", module="cross_attn.", output="o_proj.weight"),
    _across("nllb-moe, cross", "nllb-moe", module="cross_attention."),
    Family(
        "prophetnet",
        model_types=("prophetnet",),
        **linear("self_attn.", "query_proj.weight", "key_proj.weight", "value_proj.weight", "out_proj.weight"),
        unfoldable=POST_NORM,
    ),
    Family(
        "prophetnet, cross",
        model_types=("prophetnet",),
        **linear("cross_attn.", "query_proj.weight", "key_proj.weight", "value_proj.weight", "out_proj.weight"),
        crosses=True,
        tower="cross",
        unfoldable=OTHER_STREAM,
    ),
)
