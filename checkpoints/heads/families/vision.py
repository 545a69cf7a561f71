"""Models of images and of sound, and the towers of models that take several kinds of input."""

from typing import Any

from checkpoints.heads.families.encoders import bert
from checkpoints.heads.families.parts import POST_NORM, fused, linear, projections
from checkpoints.heads.layout import Family

_PARTS = "(part head d_head) d_model"


def _clip(
    name: str, *model_types: str, norm: str, module: str = "self_attn.", output: str = "out_proj.weight"
) -> Family:
    """Separate projections behind a norm."""
    return Family(name, **projections(module, output), model_types=model_types, needs_model_type=True, input_norm=norm)


def _qkv(name: str, *model_types: str, qkv: str, output: str, norm: str, **given: Any) -> Family:
    """One matrix for queries, keys and values, behind a norm."""
    return Family(name, **fused(qkv, _PARTS, output), model_types=model_types, input_norm=norm, **given)


VISION = (
    bert(
        "vit",
        *("vit", "deit", "beit", "data2vec-vision", "vit_mae", "vit_msn", "ijepa", "videomae", "vivit", "yolos"),
        "audio-spectrogram-transformer",
        inner="attention.",
        input_norm="layernorm_before.weight",
        needs_model_type=True,
    ),
    bert(
        "dinov2",
        "dinov2",
        "dinov2_with_registers",
        inner="attention.",
        input_norm="norm1.weight",
        needs_model_type=True,
    ),
    _clip("dinov3", "dinov3_vit", module="attention.", output="o_proj.weight", norm="norm1.weight"),
    _clip(
        "clip",
        *("clip_text_model", "clip_vision_model", "siglip_text_model", "siglip_vision_model", "siglip2_text_model"),
        *("siglip2_vision_model", "altclip_vision_model", "chinese_clip_vision_model", "clipseg_text_model"),
        *("clipseg_vision_model", "idefics_vision", "idefics2_vision", "idefics3_vision", "smolvlm_vision"),
        *("owlvit_text_model", "owlvit_vision_model", "owlv2_text_model", "owlv2_vision_model"),
        norm="layer_norm1.weight",
    ),
    _clip("aimv2", "aimv2_text_model", "aimv2_vision_model", module="attention.", norm="rms_norm1.weight"),
    _clip(
        "internvl vision",
        "internvl_vision",
        module="attention.",
        output="projection_layer.weight",
        norm="layernorm_before.weight",
    ),
    _clip("pixtral vision", "pixtral", module="attention.", output="o_proj.weight", norm="attention_norm.weight"),
    Family(
        "wav2vec2",
        model_types=("wav2vec2", "hubert"),
        **projections("attention.", "out_proj.weight"),
        input_norm="layer_norm.weight",
        pre_norm_setting="do_stable_layer_norm",
    ),
    Family(
        "data2vec-audio",
        **projections("attention.", "out_proj.weight"),
        model_types=("data2vec-audio",),
        needs_model_type=True,
        unfoldable=POST_NORM,
    ),
    Family(
        "wav2vec2-bert",
        **linear("self_attn.", "linear_q.weight", "linear_k.weight", "linear_v.weight", "linear_out.weight"),
        model_types=("wav2vec2-bert",),
        input_norm="self_attn_layer_norm.weight",
        extras=(r"distance_embedding\.weight",),
        notes=("scores have a part of the query and the distance: qk leaves it out",),
    ),
    _qkv(
        "timesformer",
        "timesformer",
        qkv="attention.attention.qkv.weight",
        output="attention.output.dense.weight",
        norm="layernorm_before.weight",
        unfoldable="its norms were not compared",
    ),
    _qkv(
        "timesformer, time",
        "timesformer",
        qkv="temporal_attention.attention.qkv.weight",
        output="temporal_attention.output.dense.weight",
        norm="temporal_layernorm.weight",
        tower="time",
    ),
    _qkv(
        "blip",
        "instructblip_vision_model",
        "blip_vision_model",
        "blip_2_vision_model",
        qkv="self_attn.qkv.weight",
        output="self_attn.projection.weight",
        norm="layer_norm1.weight",
    ),
    _qkv(
        "timm",
        "qwen2_vl_vision",
        "qwen2_5_vl_vision",
        "qwen3_vl_vision",
        qkv="attn.qkv.weight",
        output="attn.proj.weight",
        norm="norm1.weight",
        needs_model_type=True,  # after h.{layer}. these are litgpt's names, of fewer keys than queries perhaps
    ),
)

_SEVERAL_AXES = "positions have several axes (time, height, width)"
_LAYER = "layers.{layer}."

TEXT_BESIDE_IMAGES = (
    Family(
        "llama, several axes",
        **projections(_LAYER + "self_attn."),
        model_types=("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"),
        needs_model_type=True,
        input_norm=_LAYER + "input_layernorm.weight",
        query_norm=_LAYER + "self_attn.q_norm.weight",
        key_norm=_LAYER + "self_attn.k_norm.weight",
        unrotatable=_SEVERAL_AXES,
    ),
    Family(
        "idefics",
        **projections(_LAYER + "self_attn."),
        model_types=("idefics",),
        needs_model_type=True,
        input_norm=_LAYER + "input_layernorm.weight",
        query_norm=_LAYER + "self_attn.q_layer_norm.weight",
        key_norm=_LAYER + "self_attn.k_layer_norm.weight",
        rotary="halves",
    ),
    Family(
        "mllama vision",
        **projections(_LAYER + "self_attn."),
        model_types=("mllama_vision_model",),
        needs_model_type=True,
        input_norm=_LAYER + "input_layernorm.weight",
    ),
)
