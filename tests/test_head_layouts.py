"""Layouts without a transformers config, laid out by hand from the same heads; unknown ones and what does not fit."""

import pytest
import torch

import probes
from checkpoints import Family, Weight
from checkpoints.files.checkpoint import without_wrappers
from checkpoints.heads import find_heads
from probes.circuits import ov, ov_grouped, qk, qk_grouped
from tests.tiny_transformers import build, stored


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


@pytest.mark.parametrize("number", range(len(list(layouts(random_heads())))))
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
        clean = {without_wrappers(k): v for k, v in tensors.items()}
        layout = find_heads(stored(clean), {"n_heads": 3})
        assert layout.family.name == name
        for layer in (0, 1):
            heads = layout.read(clean, layer)
            for key in ("W_Q", "W_K", "W_V", "W_O"):
                assert torch.equal(getattr(heads, key), getattr(bridge.blocks[layer].attn, key)), (name, key)


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
    layout = find_heads(stored(two), {"n_heads": 3})
    assert layout.layers == (("student", 0), ("teacher", 0))
    assert str(layout) == ("student: 1 layer x 3 heads of 4, d_model 12; teacher: 1 layer x 3 heads of 4, d_model 12")
    assert layout.names(layout.layers[1])[0] == "teacher.blocks.0.attn.q.weight"


def test_the_older_transposed_layout_of_a_published_grokking_run():
    """The layout that ../shared/external holds: [head, d_head, d_model] and a flat W_O."""
    weights = random_heads(head=4, kv_head=4, d_model=128, d_head=32)
    tensors = list(layouts(weights))[1][1]
    assert tuple(tensors["blocks.0.attn.W_O"].shape) == (128, 128)
    heads = find_heads(stored(tensors), {}).read(tensors, 0)  # W_Q says how many heads there are in W_O
    assert torch.equal(heads.W_O, weights["W_O"])
