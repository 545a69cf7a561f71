"""What other libraries write: TransformerLens, minGPT, Meta, litgpt, torchtune, OLMo, lucidrains, PyTorch itself."""

from checkpoints.heads.families.parts import LINEAR_IN, LINEAR_OUT, Four, fused, linear
from checkpoints.heads.layout import Family
from checkpoints.heads.weights import Weight


def _per_head(block: str, reads: str, writes: str, kv: str = "") -> Four:
    """TransformerLens' tensors with an axis for the heads."""
    return Four(
        query=Weight(f"{block}W_Q", reads),
        key=Weight(f"{block}{kv}W_K", reads),
        value=Weight(f"{block}{kv}W_V", reads),
        output=Weight(f"{block}W_O", writes),
    )


def _with_fused_pair(query: str, pair: str, output: str) -> Four:
    """A query, and key and value in one matrix."""
    key, value = (Weight(pair, "(part head d_head) d_model", part, parts=2) for part in range(2))
    return Four(query=Weight(query, LINEAR_IN), key=key, value=value, output=Weight(output, LINEAR_OUT))


_LENS, _BY_HEAD = "blocks.{layer}.attn.", "head d_model d_head"
_LENS_LINEAR = ("q.weight", "k.weight", "v.weight", "o.weight")

LIBRARIES = (
    Family(
        "transformer-lens",
        **_per_head(_LENS, _BY_HEAD, "head d_head d_model"),
        any_model_type=True,
        input_norm="blocks.{layer}.ln1.w",
    ),
    Family(
        "transformer-lens grouped",
        **_per_head(_LENS, _BY_HEAD, "head d_head d_model", kv="_"),
        any_model_type=True,
        input_norm="blocks.{layer}.ln1.w",
    ),
    Family(
        "transformer-lens before 1.0",  # every matrix multiplies from the left; W_O is flat
        **_per_head(_LENS, "head d_head d_model", LINEAR_OUT),
        any_model_type=True,
    ),
    Family(
        "transformer-lens solu-old",  # every matrix multiplies from the left; W_O is not flat
        **_per_head(_LENS, "head d_head d_model", "head d_model d_head"),
        any_model_type=True,
        input_norm="blocks.{layer}.norm1.w",
    ),
    Family(
        "transformer-lens bridge of gpt2",  # the bridge cuts c_attn into Linear layers and leaves c_proj a Conv1D
        **linear(_LENS, *_LENS_LINEAR, "(head d_head) d_model"),
        model_types=("gpt2",),
        requires=("blocks.{layer}.mlp.in.weight",),
        disambiguator=Weight("blocks.{layer}.mlp.in.weight", "d_model d_mlp"),
        input_norm="blocks.{layer}.ln1.weight",
        extras=(r"qkv\..*",),
    ),
    Family(
        "transformer-lens bridge",
        **linear(_LENS, *_LENS_LINEAR),
        any_model_type=True,
        disambiguator=Weight("blocks.{layer}.mlp.in.weight", "d_mlp d_model"),
        input_norm="blocks.{layer}.ln1.weight",
        extras=(r"qkv\..*",),
    ),
    Family(
        "transformer-lens native",
        **linear("layers.{layer}.attn.", *_LENS_LINEAR),
        any_model_type=True,
        input_norm="layers.{layer}.ln1.weight",
    ),
    Family(
        "mingpt",
        **linear(_LENS, "query.weight", "key.weight", "value.weight", "proj.weight"),
        model_types=("mingpt",),
        input_norm="blocks.{layer}.ln1.weight",
    ),
    Family(
        "meta",  # Meta's own checkpoints of Llama, and Mistral's: dimensions that turn together lie side by side
        **linear("layers.{layer}.attention.", "wq.weight", "wk.weight", "wv.weight", "wo.weight"),
        any_model_type=True,
        input_norm="layers.{layer}.attention_norm.weight",
        rotary="pairs",
        extras=(r"inner_attention\..*",),
    ),
    Family(
        "torchtune",
        **linear("layers.{layer}.attn.", "q_proj.weight", "k_proj.weight", "v_proj.weight", "output_proj.weight"),
        any_model_type=True,
        unfoldable="norms of torchtune's models differ from model to model",
        unrotatable="torchtune's configs do not say how positions are rotated",
        extras=(r"pos_embeddings\..*", r"[qk]_norm\.scale"),
    ),
    Family(
        "olmo-core",
        **linear("blocks.{layer}.attention.", "w_q.weight", "w_k.weight", "w_v.weight", "w_out.weight"),
        any_model_type=True,
        unfoldable="norms of olmo-core's models differ from model to model",
        unrotatable="olmo-core's configs were not compared",
        extras=(r"[qk]_norm\.weight",),
    ),
    Family(
        "litgpt",  # all queries, then all keys, then all values
        **fused("h.{layer}.attn.qkv.weight", "(slot d_head) d_model", "h.{layer}.attn.proj.weight"),
        kv_head_counts=("n_query_groups",),
        input_norm="h.{layer}.norm_1.weight",
    ),
    Family(
        "litgpt before 0.5",  # queries, key and value of each group together
        **fused("h.{layer}.attn.attn.weight", "(kv slot d_head) d_model", "h.{layer}.attn.proj.weight"),
        kv_head_counts=("n_query_groups",),
        input_norm="h.{layer}.norm_1.weight",
    ),
    Family(
        "olmo's own",
        **fused("blocks.{layer}.att_proj.weight", "(slot d_head) d_model", "blocks.{layer}.attn_out.weight"),
        kv_head_counts=("n_kv_heads",),
        unfoldable="norms of OLMo's own checkpoints differ from model to model",
        rotary="halves",
        unrotatable="OLMo's own configs were not compared",
    ),
    Family(
        "torch",  # torch.nn.MultiheadAttention, wherever it stands
        **fused("in_proj_weight", "(part head d_head) d_model", "out_proj.weight"),
        # a type that is not listed may count the heads of this module elsewhere than those of its others: RF-DETR does
        model_types=("siglip", "siglip2", "siglip_vision_model", "siglip2_vision_model"),
        unfoldable="torch.nn.MultiheadAttention does not say which norm stands before it",
        head_counts=("nhead",),
    ),
    Family(
        "torch, other widths",  # the same with kdim or vdim: keys and values of another stream
        **linear("", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"),
        unfoldable="torch.nn.MultiheadAttention does not say which norm stands before it",
        head_counts=("nhead",),
        crosses=True,
    ),
    *(
        Family(
            f"lucidrains {kind}{name}",  # also x-transformers, wherever it stands
            **four,
            any_model_type=True,
            input_norm="norm.weight",
            head_counts=("heads",),
            crosses=True,
            extras=(r"norm\.gamma", r"norm\.beta"),
        )
        for output, name in (("to_out.weight", ""), ("to_out.0.weight", ", nested"))
        for kind, four in (
            ("qkv", fused("to_qkv.weight", "(part head d_head) d_model", output)),
            ("q, k, v", linear("", "to_q.weight", "to_k.weight", "to_v.weight", output)),
            ("q, kv", _with_fused_pair("to_q.weight", "to_kv.weight", output)),
        )
    ),
)
