"""Layouts without a transformers config, laid out by hand from the same heads; unknown ones and what does not fit."""

import re

import pytest
import torch

import checkpoints
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


def by_group(w):  # the queries that share a key, then the key, then the value
    group = len(w["W_Q"]) // len(w["W_K"])
    slots = [[*w["W_Q"][g * group : (g + 1) * group], w["W_K"][g], w["W_V"][g]] for g in range(len(w["W_K"]))]
    return flat_in([slot for slots_of_group in slots for slot in slots_of_group])


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
    yield "meta", linear(("wq.weight", "wk.weight", "wv.weight", "wo.weight"), w, "layers.0.attention.")
    yield (
        "torchtune",
        linear(("q_proj.weight", "k_proj.weight", "v_proj.weight", "output_proj.weight"), w, "layers.0.attn."),
    )
    yield (
        "olmo-core",
        linear(("w_q.weight", "w_k.weight", "w_v.weight", "w_out.weight"), w, "model.blocks.0.attention."),
    )
    yield "olmo's own", {"blocks.0.att_proj.weight": fused, "blocks.0.attn_out.weight": flat_out(w["W_O"])}
    yield "litgpt", {"h.0.attn.qkv.weight": fused, "h.0.attn.proj.weight": flat_out(w["W_O"])}
    yield (
        "litgpt before 0.5",
        {"h.0.attn.attn.weight": by_group(w), "h.0.attn.proj.weight": flat_out(w["W_O"])},
    )
    yield (
        "torch",
        {"layers.0.self_attn.in_proj_weight": fused, "layers.0.self_attn.out_proj.weight": flat_out(w["W_O"])},
    )
    yield "torch", {"attention.in_proj_weight": fused, "attention.out_proj.weight": flat_out(w["W_O"])}
    yield "torch", {"in_proj_weight": fused, "out_proj.weight": flat_out(w["W_O"])}
    lucid = "transformer.layers.0.0."
    yield "lucidrains qkv, nested", {lucid + "to_qkv.weight": fused, lucid + "to_out.0.weight": flat_out(w["W_O"])}
    yield "lucidrains q, k, v", linear(("to_q.weight", "to_k.weight", "to_v.weight", "to_out.weight"), w, lucid)
    yield (
        "lucidrains q, kv",
        {
            lucid + "to_q.weight": flat_in(w["W_Q"]),
            lucid + "to_kv.weight": torch.cat([flat_in(w["W_K"]), flat_in(w["W_V"])]),
            lucid + "to_out.weight": flat_out(w["W_O"]),
        },
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
    with pytest.raises(ValueError, match=r"no attention in a layout known here.*attn_out.weight \(8, 6\)") as refused:
        find_heads(stored(tensors), {})
    pasted = re.search(r"family=(checkpoints\.Family\(.*?\)\))\)", str(refused.value))
    assert pasted
    family = eval(pasted[1], {"checkpoints": checkpoints})
    assert family == Family(
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


GROUPED = {
    "litgpt": lambda w: {
        "h.0.attn.qkv.weight": torch.cat([flat_in(w[k]) for k in ("W_Q", "W_K", "W_V")]),
        "h.0.attn.proj.weight": flat_out(w["W_O"]),
    },
    "litgpt before 0.5": lambda w: {
        "h.0.attn.attn.weight": by_group(w),
        "h.0.attn.proj.weight": flat_out(w["W_O"]),
    },
    "meta": lambda w: linear(("wq.weight", "wk.weight", "wv.weight", "wo.weight"), w, "layers.0.attention."),
}


@pytest.mark.parametrize("name", GROUPED)
def test_how_many_keys_are_shared_follows_from_the_shapes_where_no_config_says_so(name):
    weights = random_heads(head=4, kv_head=2, d_model=32, d_head=8)
    tensors = GROUPED[name](weights)
    layout = find_heads(stored(tensors), {"n_heads": 4})
    assert layout.family.name == name
    found = layout.read(tensors, 0)
    for key, matrix in weights.items():
        assert torch.equal(getattr(found, key), matrix), key
    with pytest.raises(
        ValueError, match=r"with 4 heads|do not fit together"
    ):  # a config that says otherwise is not overruled
        find_heads(stored(tensors), {"n_heads": 4, "n_kv_heads": 4, "n_query_groups": 4})


def test_several_modules_of_torch_are_towers_and_their_numbers_layers():
    model = torch.nn.Transformer(12, 3, 2, 2, 16, batch_first=True).eval()
    tensors = model.state_dict()
    layout = find_heads(stored(tensors), {"nhead": 3})
    assert [str(layer) for layer in layout.layers] == [
        *("encoder 0", "encoder 1", "decoder 0", "decoder 1", "cross 0", "cross 1")
    ]
    heads = layout.read(tensors, checkpoints.heads.TowerLayer("cross", 1))
    x, memory = torch.randn(1, 5, 12), torch.randn(1, 7, 12)
    with torch.no_grad():
        for part in model.decoder.layers[1].multihead_attn.parameters():
            part.zero_() if part.ndim == 1 else None
        written, pattern = model.decoder.layers[1].multihead_attn(x, memory, memory, average_attn_weights=False)
    scores = x[0] @ heads.W_Q @ (memory[0] @ heads.W_K).mT / 2
    assert torch.allclose(scores.softmax(-1), pattern[0], atol=1e-6)
    assert torch.allclose((pattern[0] @ memory[0] @ heads.W_V @ heads.W_O).sum(0), written[0], atol=1e-5)


def test_a_nested_config_is_asked_by_the_words_in_front_of_the_names():
    _, tensors = list(layouts(random_heads()))[7]
    towers = {f"model.{tower}.{name}": t for tower in ("language_model", "vision_tower") for name, t in tensors.items()}
    config = {"text_config": {"num_attention_heads": 6}, "vision_config": {"num_attention_heads": 3}}
    layout = find_heads(stored(towers), config)
    assert str(layout) == ("text: 1 layer x 6 heads of 2, d_model 12; vision: 1 layer x 3 heads of 4, d_model 12")
    listed = config | {"vision_config": {"num_attention_heads": 3, "model_type": "llama"}}
    assert find_heads(stored(towers), listed).layers == layout.layers


def test_without_anything_named_like_a_query_there_is_no_attention():
    tensors = {"net.0.weight": torch.zeros(4, 3), "net.2.weight": torch.zeros(1, 4)}
    with pytest.raises(checkpoints.NoAttentionError, match=r"no attention here.*net\.0\.weight \(4, 3\)"):
        find_heads(stored(tensors), {})
    with pytest.raises(checkpoints.NoAttentionError, match="mamba has none"):
        find_heads(stored(tensors), {"model_type": "mamba"})
    with pytest.raises(ValueError, match="'diffllama' is not read: its heads pair up"):
        find_heads(stored(tensors), {"model_type": "diffllama"})
