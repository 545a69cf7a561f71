"""W_Q, W_K, W_V and W_O read from files do what the model's own attention does, in every family."""

import math

import pytest
import torch
import transformers

from checkpoints.heads import find_heads
from probes.circuits import ov, ov_folded, qk_at, qk_folded
from tests.tiny_transformers import GROUPED, MODELS, attention_of, build, stored


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


def test_a_model_type_that_no_fitting_family_lists_is_refused_by_name_unless_the_caller_insists():
    model = build("llama")
    config = model.config.to_dict() | {"model_type": "unheard_of"}
    with pytest.raises(ValueError, match=r"model_type 'unheard_of'.*fit llama.*family='llama'"):
        find_heads(stored(model.state_dict()), config)
    layout = find_heads(stored(model.state_dict()), config, family="llama")
    assert layout.notes == ("read as llama because the caller insisted: model_type is 'unheard_of'",)
    heads = layout.read(model.state_dict(), 0)
    assert torch.equal(heads.W_Q[1], model.model.layers[0].self_attn.q_proj.weight[8:16].T)
    with pytest.raises(ValueError, match="qk_at_3: norms and rotation of llama were not checked for model_type 'unh"):
        qk_at(heads, 3)
    with pytest.raises(ValueError, match="qk_folded: norms and rotation of llama were not checked"):
        qk_folded(heads)
    with pytest.raises(ValueError, match=r"no family is called 'lama'; there are .*llama"):
        find_heads(stored(model.state_dict()), config, family="lama")


def test_norms_and_rotation_are_not_guessed_where_no_config_says_which_relative_it_is():
    model = build("llama")
    bare = find_heads(stored(model.state_dict()), {"num_attention_heads": 4}).read(model.state_dict(), 0)
    assert bare.rotary is None
    assert bare.input_norm is None
    for refused in (lambda: qk_at(bare, 3), lambda: qk_folded(bare), lambda: ov_folded(bare)):
        with pytest.raises(ValueError, match="no config says which model this is, and relatives of llama differ"):
            refused()


def test_a_tensor_inside_the_attention_that_a_family_does_not_account_for_is_a_refusal():
    model = build("llama")
    tensors = model.state_dict() | {f"model.layers.{i}.self_attn.lambda_q1": torch.ones(8) for i in (0, 1)}
    for config in ({"num_attention_heads": 4}, model.config.to_dict()):
        with pytest.raises(
            ValueError, match=r"layer 0 holds model\.layers\.0\.self_attn\.lambda_q1 inside its attention"
        ):
            find_heads(stored(tensors), config)
    del tensors["model.layers.0.self_attn.lambda_q1"]
    layout = find_heads(stored(tensors), {"num_attention_heads": 4})
    assert layout.layers == (0,)
    assert "layers 1: layer 1 holds model.layers.1.self_attn.lambda_q1" in str(layout)


def test_a_model_that_normalises_after_attention_has_nothing_to_fold():
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
