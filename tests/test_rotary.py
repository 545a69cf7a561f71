"""Rotations as Transformers computes them, from configs in the words of every generation."""

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from checkpoints.heads.rotary import rotary_of
from probes.circuits import qk_at
from tests.tiny_transformers import COMMON, stored

SCALED = {
    "linear": {"factor": 2.5},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512},
    "yarn, untruncated": {"factor": 4.0, "original_max_position_embeddings": 512, "truncate": False, "beta_fast": 8.0},
    "yarn, as deepseek": {
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.707,
        "mscale_all_dim": 1.0,
    },
    "proportional": {"partial_rotary_factor": 0.25},
}


@pytest.mark.parametrize("case", SCALED)
def test_frequencies_and_factor_are_those_of_transformers(case):
    kind = case.split(",")[0]
    rope = {"rope_type": kind, "rope_theta": 50_000.0, **SCALED[case]}
    config = transformers.LlamaConfig(**{**COMMON, "head_dim": 64, "rope_parameters": rope})
    theirs, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    ours = rotary_of(config.to_dict(), "halves", 64)
    assert torch.tensor(ours.frequencies) == pytest.approx(theirs, rel=1e-5)
    assert ours.factor == pytest.approx(factor)
    assert not torch.allclose(theirs, 50_000.0 ** (-torch.arange(32) / 32), rtol=1e-3)


def test_layers_of_two_kinds_turn_differently_and_some_not_at_all():
    config = {
        "model_type": "x",
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 8.0},
        },
    }
    assert rotary_of(config, "halves", 4, 0).frequencies == pytest.approx((1.0, 0.1))
    assert rotary_of(config, "halves", 4, 1).frequencies == pytest.approx((0.125, 0.00125))
    older = {"model_type": "x", "layer_types": config["layer_types"], "rope_local_base_freq": 100.0}
    older["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    assert rotary_of(older, "halves", 4, 0).frequencies == pytest.approx((1.0, 0.1))
    assert rotary_of(older, "halves", 4, 1).frequencies == pytest.approx((0.125, 0.00125))
    assert rotary_of({"model_type": "x", "no_rope_layers": [1, 0]}, "halves", 4, 1).frequencies == ()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "no config says how positions are rotated"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "type 'dynamic' depend on the length"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "type 'longrope' depend on the length"),
        ({"rope_theta": 1e4, "alibi": True}, "ALiBi"),
        ({"rope_theta": 5e5, "use_scaled_rope": True}, "use_scaled_rope"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "no layer_types in the config"),
        ({"rotary_dim": 80}, "80 rotary dimensions in heads of 64"),
    ],
)
def test_what_cannot_be_told_is_refused_with_its_own_reason(config, reason):
    with pytest.raises(ValueError, match=reason):
        rotary_of(config, "halves", 64)


@pytest.mark.parametrize("case", ["llama3", "yarn"])
def test_scores_at_a_distance_are_those_of_the_models_own_attention(case):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    from checkpoints.heads import find_heads

    rope = {"rope_type": case, "rope_theta": 500.0, **SCALED[case], "original_max_position_embeddings": 16}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**COMMON, "rope_parameters": rope}))
    layout = find_heads(stored(model.state_dict()), model.config.to_dict())
    heads = layout.read(model.state_dict(), 0)
    x = torch.randn(1, 30, 32)
    query, key = ((x @ weight)[None] for weight in (heads.W_Q, heads.W_K))
    query, key = apply_rotary_pos_emb(query, key, *model.model.rotary_emb(x, torch.arange(30)[None]))
    circuit = qk_at(heads, 13)
    ours = torch.einsum("i,hir,hrj,j->h", x[0, 25].double(), circuit.left, circuit.right, x[0, 12].double())
    assert torch.allclose(ours.float(), (query[0, :, 25] * key[0, :, 12]).sum(-1), atol=1e-4)
    assert [note.split(",")[0] for note in layout.notes] == (
        ["rotary positions multiply every score by 1.29648"] if case == "yarn" else []
    )
