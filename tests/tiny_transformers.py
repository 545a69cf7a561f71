"""A tiny model of every Hugging Face family that is read here, with weights that show, and its attention as it runs."""

import torch
import transformers
from torch import Tensor

from checkpoints.files import Stored

COMMON = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}
GPT = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 50, "n_positions": 64}
GROUPED = {**COMMON, "num_key_value_heads": 2}

# by case: model class, its config, which family must be found, where its attention modules are
MODELS = {
    "gpt2": ("GPT2LMHeadModel", GPT, "gpt2", "transformer.h.{}.attn"),
    "gpt-neox": ("GPTNeoXForCausalLM", COMMON, "gpt-neox", "gpt_neox.layers.{}.attention"),
    "llama": ("LlamaForCausalLM", COMMON, "llama", "model.layers.{}.self_attn"),
    "llama, grouped, odd head_dim": (
        "LlamaForCausalLM",
        {**GROUPED, "head_dim": 12, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
        "llama",
        "model.layers.{}.self_attn",
    ),
    "mistral, grouped": ("MistralForCausalLM", GROUPED, "llama", "model.layers.{}.self_attn"),
    "qwen2, grouped": ("Qwen2ForCausalLM", GROUPED, "llama", "model.layers.{}.self_attn"),
    "qwen3, grouped, qk norm, odd head_dim": (
        "Qwen3ForCausalLM",
        {**GROUPED, "head_dim": 20},
        "llama",
        "model.layers.{}.self_attn",
    ),
    "olmo2, grouped, qk norm": ("Olmo2ForCausalLM", GROUPED, "olmo2", "model.layers.{}.self_attn"),
    "gptj": ("GPTJForCausalLM", {**GPT, "rotary_dim": 4}, "gptj", "transformer.h.{}.attn"),
    "opt": (
        "OPTForCausalLM",
        {**COMMON, "ffn_dim": 48, "word_embed_proj_dim": 32},
        "opt",
        "model.decoder.layers.{}.self_attn",
    ),
    "bert": ("BertForMaskedLM", COMMON, "bert", "bert.encoder.layer.{}.attention"),
    "roberta": (
        "RobertaForMaskedLM",
        {**COMMON, "max_position_embeddings": 80},
        "bert",
        "roberta.encoder.layer.{}.attention",
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"n_layers": 2, "dim": 32, "n_heads": 4, "hidden_dim": 48, "vocab_size": 50, "max_position_embeddings": 64},
        "distilbert",
        "distilbert.transformer.layer.{}.attention",
    ),
}


def build(case: str):
    name, settings, _, _ = MODELS[case]
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**settings, attn_implementation="eager")).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("bias"):
                parameter.zero_()  # heads are their weights
            elif "norm" in key or "ln_" in key or "LayerNorm" in key:
                parameter.copy_(torch.rand_like(parameter) + 0.5)
            elif parameter.ndim == 2:
                parameter.normal_(std=0.3)  # patterns that are far from uniform
    return model


def stored(tensors: dict[str, Tensor]) -> dict[str, Stored]:
    return {name: Stored(tensor.dtype, tuple(tensor.shape), "memory") for name, tensor in tensors.items()}


def attention_of(model, module_name: str):
    """Input, output and pattern of one attention module of the model, as it runs."""
    seen = {}

    def hook(module, args, kwargs, output):
        seen["input"] = args[0] if args else kwargs["hidden_states"]
        seen["output"], seen["pattern"] = output[0], output[1]

    module = model.get_submodule(module_name)
    if (inner := getattr(module, "self", None)) is not None:  # BERT: the output projection adds the residual and norms
        parts = [
            inner.register_forward_hook(hook, with_kwargs=True),
            module.output.dense.register_forward_hook(lambda *a: seen.update(output=a[2])),
        ]
    else:
        parts = [module.register_forward_hook(hook, with_kwargs=True)]
    with torch.no_grad():
        model(torch.arange(3, 19)[None], output_attentions=True)
    for part in parts:
        part.remove()
    return seen["input"][0].double(), seen["output"][0].double(), seen["pattern"][0].double()
