"""W_Q, W_K, W_V and W_O read from files do what the model's own attention does, in every family."""

import math
from dataclasses import replace

import pytest
import torch
import transformers
from torch import Tensor

import probes
from checkpoints import Family, Weight
from checkpoints.files import Stored
from checkpoints.heads import find_heads
from checkpoints.heads.families import FAMILIES
from probes.circuits import ov, ov_folded, ov_grouped, qk, qk_at, qk_folded, qk_grouped

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


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("layer", [0, 1])
def test_our_weights_with_the_models_own_pattern_give_the_attention_modules_output(case, layer):
    model = build(case)
    layout = find_heads(stored(model.state_dict()), model.config.to_dict())
    assert layout.family.name == MODELS[case][2]
    assert layout.layers == (0, 1)
    inputs, output, pattern = attention_of(model, MODELS[case][3].format(layer))
    circuit = ov(layout.read(model.state_dict(), layer))
    ours = (pattern @ inputs @ circuit.left.double() @ circuit.right.double()).sum(0)
    assert output.abs().max() > 0.1
    assert torch.allclose(ours, output, atol=1e-5 * float(output.abs().max()) + 1e-6)


@pytest.mark.parametrize("case", MODELS)
def test_our_queries_and_keys_give_the_models_own_pattern(case):
    """With rotation, and with query and key norms, where the family has them."""
    model = build(case)
    heads = find_heads(stored(model.state_dict()), model.config.to_dict()).read(model.state_dict(), 1)
    inputs, _, pattern = attention_of(model, MODELS[case][3].format(1))
    query, key = inputs @ heads.W_Q.double(), inputs @ heads.W_K.double()
    if "qk norm" in case:
        whole = "olmo" in case  # OLMo 2 divides by the size over all heads, Qwen 3 head by head
        query, key = normed(query, heads.query_norm, whole), normed(key, heads.key_norm, whole)
    key = key.repeat_interleave(heads.group, 0)
    length, d_head = query.shape[1:]
    scores = torch.empty(pattern.shape, dtype=torch.float64)
    for m in range(length):
        for n in range(length):
            turn = heads.rotary.matrix(m - n, d_head) if heads.rotary else torch.eye(d_head, dtype=torch.float64)
            scores[:, m, n] = torch.einsum("hi,ij,hj->h", query[:, m], turn, key[:, n])
    scores /= math.sqrt(d_head)
    if "bert" not in case:
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    assert pattern.max(-1).values.mean() > 0.2
    assert torch.allclose(scores.softmax(-1), pattern, atol=1e-5)


def normed(vectors, gain, over_all_heads):
    axes = (0, 2) if over_all_heads else (2,)
    return vectors / (vectors.pow(2).mean(axes, keepdim=True) + 1e-6).sqrt() * gain[:, None].double()


def test_every_family_named_in_the_table_of_hugging_face_models_is_tested_here():
    tested = {family for _, _, family, _ in MODELS.values()}
    assert {family.name for family in FAMILIES if family.model_types} - tested == {"transformer-lens bridge of gpt2"}


# --- the layouts of TransformerLens, nanoGPT and minGPT, laid out by hand from the same heads -------------------


def random_heads(head=3, kv_head=3, d_model=12, d_head=4):
    torch.manual_seed(1)
    return {
        "W_Q": torch.randn(head, d_model, d_head),
        "W_K": torch.randn(kv_head, d_model, d_head),
        "W_V": torch.randn(kv_head, d_model, d_head),
        "W_O": torch.randn(head, d_head, d_model),
    }


def flat_in(matrix):  # torch.nn.Linear: rows of one head after the other
    return torch.cat([m.T for m in matrix])


def flat_out(matrix):
    return torch.cat([m.T for m in matrix], dim=1)


def linear(names, weights, prefix):
    return {prefix + n: (flat_out if k == "W_O" else flat_in)(weights[k]) for n, k in zip(names, weights, strict=True)}


def layouts(w):
    block = "blocks.0.attn."
    fused = torch.cat([flat_in(w[k]) for k in ("W_Q", "W_K", "W_V")])
    yield "transformer-lens", {block + k: v for k, v in w.items()}
    yield (
        "transformer-lens before 1.0",
        {block + k: w[k].mT for k in ("W_Q", "W_K", "W_V")} | {block + "W_O": flat_out(w["W_O"])},
    )
    yield "transformer-lens solu-old", {block + k: v.mT for k, v in w.items()}
    yield "transformer-lens bridge", linear(("q.weight", "k.weight", "v.weight", "o.weight"), w, block)
    yield "transformer-lens native", linear(("q.weight", "k.weight", "v.weight", "o.weight"), w, "layers.0.attn.")
    yield "mingpt", linear(("query.weight", "key.weight", "value.weight", "proj.weight"), w, block)
    yield (
        "nanogpt",
        {"transformer.h.0.attn.c_attn.weight": fused, "transformer.h.0.attn.c_proj.weight": flat_out(w["W_O"])},
    )


@pytest.mark.parametrize("number", range(7))
def test_layouts_without_a_transformers_config_give_the_same_heads(number):
    weights = random_heads()
    name, tensors = list(layouts(weights))[number]
    layout = find_heads(stored(tensors), {"n_heads": 3})
    assert layout.family.name == name
    found = layout.read(tensors, 0)
    for key, matrix in weights.items():
        assert torch.equal(getattr(found, key), matrix), key


def test_grouped_transformer_lens_tensors_stay_grouped_and_circuits_expand_them():
    weights = random_heads(head=6, kv_head=2)
    tensors = {f"blocks.0.attn.{k if k in ('W_Q', 'W_O') else '_' + k}": v for k, v in weights.items()}
    heads = find_heads(stored(tensors), {}).read(tensors, 0)
    assert heads.W_K.shape[0] == 2
    assert heads.group == 3
    expanded, grouped = ov(heads), ov_grouped(heads)
    assert expanded.shape == (6, 12, 12)
    assert grouped.shape == (2, 12, 36)
    dense, wide = expanded.left @ expanded.right, grouped.left @ grouped.right
    assert torch.allclose(wide[1, :, 12:24], dense[4])
    dense, tall = qk(heads).left @ qk(heads).right, qk_grouped(heads).left @ qk_grouped(heads).right
    assert tall.shape == (2, 36, 12)
    assert torch.allclose(tall[1, 12:24], dense[4])


def test_the_same_spectra_as_the_bridge_without_building_the_model():
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    for case, architecture in (("gpt2", "GPT2LMHeadModel"), ("gpt-neox", "GPTNeoXForCausalLM")):
        model = build(case)
        tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        bridge = build_bridge_from_module(model, architecture, hf_config=model.config)
        layout = find_heads(stored(tensors), model.config.to_dict())
        wrapped = find_heads(stored(bridge.state_dict()), model.config.to_dict())  # and from the bridge's own names
        for layer in (0, 1):
            attention = bridge.blocks[layer].attn
            for heads in (layout.read(tensors, layer), wrapped.read(bridge.state_dict(), layer)):
                theirs = torch.linalg.svdvals((attention.W_V @ attention.W_O).double())[:, :8]
                assert torch.allclose(probes.singular_values(ov(heads)), theirs, rtol=1e-5), case
                theirs = torch.linalg.svdvals((attention.W_Q @ attention.W_K.mT).double())[:, :8]
                assert torch.allclose(probes.singular_values(qk(heads)), theirs, rtol=1e-5), case


def test_a_native_transformer_lens_model_is_read_from_the_bridge_and_from_inside_it():
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_native(
        {"d_model": 32, "d_head": 8, "n_heads": 3, "n_layers": 2, "n_ctx": 10, "d_vocab": 20, "attn_only": True,
         "normalization_type": None, "act_fn": None, "seed": 0}
    )  # fmt: skip
    for tensors, name in (
        (bridge.state_dict(), "transformer-lens bridge"),
        (bridge.original_model.state_dict(), "transformer-lens native"),
    ):
        clean = {probes_name(k): v for k, v in tensors.items()}
        layout = find_heads(stored(clean), {"n_heads": 3})
        assert layout.family.name == name
        for layer in (0, 1):
            heads = layout.read(clean, layer)
            for key in ("W_Q", "W_K", "W_V", "W_O"):
                assert torch.equal(getattr(heads, key), getattr(bridge.blocks[layer].attn, key)), (name, key)


def probes_name(name):
    from checkpoints.files.checkpoint import without_wrappers

    return without_wrappers(name)


def test_a_circuit_at_a_relative_position_is_the_score_of_rotated_queries_and_keys():
    """Against the model's own cos and sin, at positions the pattern test does not reach."""
    model = build("gpt-neox")
    heads = find_heads(stored(model.state_dict()), model.config.to_dict()).read(model.state_dict(), 0)
    x = torch.randn(1, 64, 32)
    cos, sin = model.gpt_neox.rotary_emb(x, torch.arange(64)[None])
    from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb

    query, key = (x @ w for w in (heads.W_Q, heads.W_K))
    query, key = apply_rotary_pos_emb(query[None], key[None], cos, sin)
    circuit = qk_at(heads, 50)
    ours = torch.einsum("i,hij,j->h", x[0, 60].double(), circuit.left @ circuit.right, x[0, 10].double())
    assert torch.allclose(ours.float(), (query[0, :, 60] * key[0, :, 10]).sum(-1), atol=1e-3)
    assert torch.allclose(qk_at(heads, 0).left.float(), heads.W_Q)


def test_folding_multiplies_the_gains_of_the_norms_in_and_changes_nothing_else():
    model = build("qwen3, grouped, qk norm, odd head_dim")
    heads = find_heads(stored(model.state_dict()), model.config.to_dict()).read(model.state_dict(), 0)
    x, y = torch.randn(32), torch.randn(32)
    assert heads.input_norm is not None
    left, right = ov_folded(heads).left, ov_folded(heads).right
    assert torch.allclose(x @ left @ right, (x * heads.input_norm) @ ov(heads).left @ ov(heads).right, atol=1e-5)
    folded, gain = qk_folded(heads), heads.input_norm
    query = (x * gain) @ heads.W_Q * heads.query_norm
    key = (y * gain) @ heads.W_K * heads.key_norm
    expected = (query * key.repeat_interleave(heads.group, 0)).sum(-1)
    assert torch.allclose((x @ folded.left * (folded.right @ y)).sum(-1), expected, atol=1e-4)
    plain = replace(heads, input_norm=None, query_norm=None, key_norm=None)
    assert torch.equal(qk_folded(plain).left, qk(heads).left)


def test_a_norm_after_attention_is_folded_into_what_is_written():
    model = build("olmo2, grouped, qk norm")
    heads = find_heads(stored(model.state_dict()), model.config.to_dict()).read(model.state_dict(), 0)
    x, gain = torch.randn(32), model.model.layers[0].post_attention_layernorm.weight.detach()
    folded, plain = ov_folded(heads), ov(heads)
    assert torch.allclose(x @ folded.left @ folded.right, (x @ plain.left @ plain.right) * gain, atol=1e-4)


def test_norms_and_rotation_are_not_guessed_for_relatives_that_share_the_names():
    model = build("llama")
    config = model.config.to_dict()
    for other in ("gemma", "cohere"):
        heads = find_heads(stored(model.state_dict()), config | {"model_type": other}).read(model.state_dict(), 0)
        assert heads.input_norm is None
        with pytest.raises(ValueError, match="qk_at_3: this model has no rotary positions, or no config"):
            qk_at(heads, 3)
    bare = find_heads(stored(model.state_dict()), {"num_attention_heads": 4}).read(model.state_dict(), 0)
    assert bare.rotary is None
    model = build("opt")
    after = model.config.to_dict() | {"do_layer_norm_before": False}
    assert find_heads(stored(model.state_dict()), after).read(model.state_dict(), 0).input_norm is None
    assert (
        find_heads(stored(model.state_dict()), model.config.to_dict()).read(model.state_dict(), 0).input_norm
        is not None
    )


def test_heads_wider_than_the_model_are_read():
    config = transformers.Qwen3Config(**{**GROUPED, "head_dim": 64})
    model = transformers.Qwen3ForCausalLM(config)
    assert find_heads(stored(model.state_dict()), config.to_dict()).read(model.state_dict(), 0).W_Q.shape == (4, 32, 64)


def test_an_unknown_layout_lists_what_looks_like_attention_and_can_be_described():
    tensors = {
        "trunk.0.mixer.to_q.weight": torch.randn(6, 8),
        "trunk.0.mixer.to_k.weight": torch.randn(6, 8),
        "trunk.0.mixer.to_v.weight": torch.randn(6, 8),
        "trunk.0.mixer.attn_out.weight": torch.randn(8, 6),
        "trunk.0.mlp.weight": torch.randn(32, 8),
    }
    with pytest.raises(ValueError, match=r"no attention in a layout known here.*attn_out.weight \(8, 6\).*Family\("):
        find_heads(stored(tensors), {})
    family = Family(
        "mine",
        query=Weight("trunk.{layer}.mixer.to_q.weight", "(head d_head) d_model"),
        key=Weight("trunk.{layer}.mixer.to_k.weight", "(head d_head) d_model"),
        value=Weight("trunk.{layer}.mixer.to_v.weight", "(head d_head) d_model"),
        output=Weight("trunk.{layer}.mixer.attn_out.weight", "d_model (head d_head)"),
    )
    heads = find_heads(stored(tensors), {"n_heads": 2}, family=family).read(tensors, 0)
    assert heads.W_Q.shape == (2, 8, 3)
    assert torch.equal(heads.W_O[1], tensors["trunk.0.mixer.attn_out.weight"][:, 3:].T)


def test_what_does_not_fit_is_said_with_names_and_shapes():
    name, tensors = list(layouts(random_heads()))[3]
    assert name == "transformer-lens bridge"
    with pytest.raises(ValueError, match=r'how many heads does blocks\.0\.attn\.q\.weight have.*"num_attention_heads"'):
        find_heads(stored(tensors), {})
    with pytest.raises(ValueError, match=r"blocks\.0\.attn\.q\.weight is \(12, 12\).*with 5 heads"):
        find_heads(stored(tensors), {"n_heads": 5})
    short = tensors | {"blocks.0.attn.o.weight": torch.zeros(7, 12)}
    with pytest.raises(ValueError, match="do not fit together"):
        find_heads(stored(short), {"n_heads": 3})
    two = {f"{model}.{name}": tensor for model in ("student", "teacher") for name, tensor in tensors.items()}
    with pytest.raises(ValueError, match=r"several models: attention under 'student\.', 'teacher\.'"):
        find_heads(stored(two), {"n_heads": 3})


def test_the_older_transposed_layout_of_a_published_grokking_run():
    """The layout that ../shared/external holds: [head, d_head, d_model] and a flat W_O."""
    weights = random_heads(head=4, kv_head=4, d_model=128, d_head=32)
    tensors = list(layouts(weights))[1][1]
    assert tuple(tensors["blocks.0.attn.W_O"].shape) == (128, 128)
    heads = find_heads(stored(tensors), {}).read(tensors, 0)  # W_Q says how many heads there are in W_O
    assert torch.equal(heads.W_O, weights["W_O"])
