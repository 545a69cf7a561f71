"""Circuits with rotation, and with the gains of norms folded in, against the arithmetic of the models themselves."""

from dataclasses import replace

import torch

from checkpoints.heads import find_heads
from probes.circuits import ov, ov_folded, qk, qk_at, qk_folded
from tests.tiny_transformers import build, stored


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
