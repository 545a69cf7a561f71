"""Encoders of text: BERT's names and those of its relatives, which differ in where they normalise.

Names have no layer in them here: attention modules are taken wherever they stand, in `layer.3.` or `layers.3.`.
"""

from typing import Any

from checkpoints.heads.families.parts import POST_NORM, fused, linear
from checkpoints.heads.layout import Family

OTHER_STREAM = "keys and values are read from another stream than queries, and behind another norm"
CONTENT = "qk is between what tokens hold (content to content); the terms with positions are not in it"


def bert(name: str, *model_types: str, module: str = "attention.", inner: str = "self.", **given: Any) -> Family:
    """BERT's four names."""
    names = (f"{inner}query.weight", f"{inner}key.weight", f"{inner}value.weight", "output.dense.weight")
    settings: dict[str, Any] = {"unfoldable": None if "input_norm" in given else POST_NORM, **given}
    return Family(name, model_types=model_types, **linear(module, *names), **settings)


ENCODERS = (
    bert(
        "bert",
        *(
            "bert",
            "roberta",
            "electra",
            "camembert",
            "xlm-roberta",
            "big_bird",
            "canine",
            "ernie",
            "layoutlm",
            "rembert",
        ),
        *("splinter", "tapas", "xmod", "altclip_text_model", "blip_text_model", "chinese_clip_text_model"),
        *("align_text_model", "bert-generation", "bridgetower_text_model", "clap_text_model", "data2vec-text"),
    ),
    bert("roformer", "roformer", unrotatable="its rotary positions were not compared"),
    bert("bert, norm before", "roberta-prelayernorm", input_norm="attention.LayerNorm.weight"),
    bert(
        "esm",
        "esm",
        unfoldable="the names of its norms were not compared",
        unrotatable="its rotary positions were not compared",
    ),
    bert("megatron-bert", "megatron-bert", input_norm="attention.ln.weight"),
    bert("xlm-roberta-xl", "xlm-roberta-xl", input_norm="attention.self_attn_layer_norm.weight"),
    bert(
        "bert, cross",
        "blip_text_model",
        module="crossattention.",
        crosses=True,
        tower="cross",
        unfoldable=OTHER_STREAM,
    ),
    bert("q-former", "blip_2_qformer", "instructblip_qformer", inner="attention."),
    bert(
        "q-former, cross",
        *("blip_2_qformer", "instructblip_qformer"),
        module="crossattention.",
        inner="attention.",
        crosses=True,
        tower="cross",
        unfoldable=OTHER_STREAM,
    ),
    Family(
        "distilbert",
        **linear("attention.", "q_lin.weight", "k_lin.weight", "v_lin.weight", "out_lin.weight"),
        model_types=("distilbert",),
        unfoldable=POST_NORM,
    ),
    Family(
        "albert",
        model_types=("albert",),
        **linear("attention.", "query.weight", "key.weight", "value.weight", "dense.weight"),
        extras=(r"LayerNorm\.(weight|bias)",),
        unfoldable=POST_NORM,
        notes=("one layer is used again and again: its heads are those of every layer",),
    ),
    Family(
        "mpnet",
        model_types=("mpnet",),
        **linear("attention.attn.", "q.weight", "k.weight", "v.weight", "o.weight"),
        unfoldable=POST_NORM,
    ),
    Family(
        "modernbert",
        model_types=("modernbert",),
        unrotatable="its rotary positions were not compared",
        **fused("attn.Wqkv.weight", "(part head d_head) d_model", "attn.Wo.weight"),
        unfoldable="the first layer has no norm before its attention",
    ),
    Family(
        "nomic_bert",
        model_types=("nomic_bert",),
        unrotatable="its rotary positions were not compared",
        **fused("attn.Wqkv.weight", "(part head d_head) d_model", "attn.out_proj.weight"),
        needs_model_type=True,
        unfoldable=POST_NORM,
    ),
    Family(
        "deberta",
        model_types=("deberta",),
        **fused("attention.self.in_proj.weight", "(head part d_head) d_model", "attention.output.dense.weight"),
        extras=(r"(q|v)_bias", r"pos_(q_)?proj\.(weight|bias)"),
        unfoldable=POST_NORM,
        notes=(CONTENT,),
    ),
    Family(
        "deberta-v2",
        model_types=("deberta-v2",),
        **linear(
            "attention.",
            "self.query_proj.weight",
            "self.key_proj.weight",
            "self.value_proj.weight",
            "output.dense.weight",
        ),
        extras=(r"pos_(key_|query_)?proj\.(weight|bias)",),
        unfoldable=POST_NORM,
        notes=(CONTENT,),
    ),
)
