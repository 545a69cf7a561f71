"""Encoders of Transformers and their kin."""

from checkpoints.heads.families.parts import POST_NORM, linear
from checkpoints.heads.layout import Family

ENCODERS = (
    Family(
        "bert",
        **linear(
            "layer.{layer}.attention.",
            "self.query.weight",
            "self.key.weight",
            "self.value.weight",
            "output.dense.weight",
        ),
        model_types=("bert", "roberta", "electra", "camembert", "xlm-roberta"),
        unfoldable=POST_NORM,
    ),
    Family(
        "distilbert",
        **linear("layer.{layer}.attention.", "q_lin.weight", "k_lin.weight", "v_lin.weight", "out_lin.weight"),
        model_types=("distilbert",),
        unfoldable=POST_NORM,
    ),
)
