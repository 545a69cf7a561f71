"""Configs that leave something out, lie, or differ from checkpoint to checkpoint: right numbers, or a reason."""

import itertools
import json
import warnings

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import checkpoints
import probes
from checkpoints.heads.configs import part_of
from checkpoints.heads.families import FAMILIES
from checkpoints.heads.rotary import rotary_of
from probes.__main__ import app

SIZE = 32


def llama_tensors(seed: int) -> dict[str, torch.Tensor]:
    """Attention of two layers in llama's names."""
    generator = torch.Generator().manual_seed(seed)
    return {
        f"model.layers.{layer}.self_attn.{name}_proj.weight": torch.randn(SIZE, SIZE, generator=generator)
        for layer in range(2)
        for name in "qkvo"
    }


def saved_run(folder, *settings):
    """One step per config."""
    for number, given in enumerate(settings):
        place = folder / f"step{number + 1}"
        place.mkdir(parents=True)
        save_file(llama_tensors(number), place / "model.safetensors")
        (place / "config.json").write_text(json.dumps({"model_type": "llama", "rope_theta": 1e4, **given}))
    return folder


class TestConfigsThatDiffer:
    def test_numbers_of_heads_are_asked_for(self, tmp_path):
        folder = saved_run(tmp_path, {"num_attention_heads": 4}, {"num_attention_heads": 8})
        with pytest.warns(UserWarning, match="differ in num_attention_heads"):
            run = checkpoints.open_run(folder)
        with pytest.raises(ValueError, match="how many heads"):
            _ = run.heads
        with pytest.warns(UserWarning, match="differ"):
            run = checkpoints.open_run(folder, config={"num_attention_heads": 4})
        assert run.heads.read(run[1], 0).W_Q.shape[0] == 4

    def test_rotations_refuse_scores_at_a_distance_and_nothing_else(self, tmp_path):
        heads = {"num_attention_heads": 4}
        folder = saved_run(tmp_path, heads, heads | {"rope_theta": 5e5})
        with pytest.warns(UserWarning, match="differ in rope_theta"):
            run = checkpoints.open_run(folder)
        read = run.heads.read(run[1], 0)
        assert read.rotary is None
        assert "not the same in all checkpoints" in str(read.unrotatable)
        assert read.W_Q.shape == (4, SIZE, SIZE // 4)

    def test_other_settings_may_differ(self, tmp_path):
        heads = {"num_attention_heads": 4}
        folder = saved_run(tmp_path, heads | {"use_cache": True}, heads | {"use_cache": False, "head_dim": 8})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = checkpoints.open_run(folder)
        assert run.heads.read(run[1], 0).rotary is not None


def test_a_short_config_rotates_as_the_model_does_by_default_or_not_at_all():
    transformers = pytest.importorskip("transformers")
    types = {kind for family in FAMILIES if family.rotary and not family.unrotatable for kind in family.model_types}
    compared = 0
    for kind in sorted(types & {*transformers.CONFIG_MAPPING}):
        whole = transformers.CONFIG_MAPPING[kind]().to_dict()
        if not (whole.get("rope_parameters") or whole.get("rotary_dim")):
            continue
        compared += 1
        for left_out, layer in itertools.product(("all", "partial_rotary_factor"), (0, 3)):
            short = {"model_type": kind, "layer_types": whole.get("layer_types")}
            if left_out != "all" and (parameters := whole.get("rope_parameters")):
                short["rope_parameters"] = {key: value for key, value in parameters.items() if key != left_out}
            try:
                ours = rotary_of(short, "halves", 64, layer)
            except ValueError:
                continue
            assert ours == rotary_of(whole, "halves", 64, layer), (kind, left_out)
    assert compared > 50


def test_one_rotation_for_layers_of_two_kinds_is_refused():
    short = {"model_type": "gemma3_text", "rope_theta": 1e6, "layer_types": ["sliding_attention", "full_attention"]}
    with pytest.raises(ValueError, match="rope_local_base_freq"):
        rotary_of(short, "halves", 64)
    assert rotary_of(short | {"rope_local_base_freq": 1e4}, "halves", 64).frequencies[1] == 1e4 ** (-1 / 32)


def test_a_backbone_does_not_say_how_many_heads_the_rest_has():
    config = {"model_type": "rf_detr", "backbone_config": {"model_type": "dinov2", "num_attention_heads": 4}}
    assert part_of(config, "backbone.0.encoder.layer.{layer}.")["num_attention_heads"] == 4
    assert "num_attention_heads" not in part_of(config, "transformer.decoder.layers.{layer}.self_attn.")
    own = {"decoder_self_attention_heads": 8, "encoder_config": {"num_attention_heads": 4}}
    assert part_of(own, "decoder.layers.{layer}.") == own


def test_fused_keys_between_one_and_all_are_not_taken_for_gpt_bigcode(tmp_path):
    heads, keys, d_head = 4, 2, SIZE // 4
    tensors = {
        "transformer.h.0.attn.c_attn.weight": torch.randn((heads + 2 * keys) * d_head, SIZE),
        "transformer.h.0.attn.c_proj.weight": torch.randn(SIZE, SIZE),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"4 queries and 2 keys.*another model"):
        _ = checkpoints.open_run(tmp_path, config={"num_attention_heads": heads, "num_key_value_heads": keys}).heads


def test_queries_by_another_name_are_not_called_no_attention(tmp_path):
    save_file({f"blocks.0.mha.W{n}.weight": torch.randn(8, 8) for n in "qkvo"}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"Family\(.*blocks.\{layer\}.mha.Wq.weight"):
        probes.measure(tmp_path)


def test_counts_that_do_not_fit_are_named(tmp_path):
    folder = saved_run(tmp_path, {"num_attention_heads": 8, "num_key_value_heads": 2})
    with pytest.raises(ValueError, match=r"do not fit together.*num_key_value_heads"):
        _ = checkpoints.open_run(folder).heads


def test_weights_beside_those_that_are_read_are_named(tmp_path):
    state = {"optimizer": {"state": {0: torch.ones(2)}}, "rng": {"cpu": torch.ones(2)}, "best": torch.ones(())}
    torch.save({"model": llama_tensors(0), **state}, tmp_path / "plain.pt")
    torch.save({"model": llama_tensors(0), "ema": {"shadow": llama_tensors(1)}, **state}, tmp_path / "averaged.pt")
    heads = {"num_attention_heads": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = checkpoints.open_run(tmp_path / "plain.pt", config=heads).heads
    with pytest.warns(UserWarning, match="under 'model'; left out is what was saved beside them: ema"):
        _ = checkpoints.open_run(tmp_path / "averaged.pt", config=heads).heads


def test_the_command_says_what_it_left_out(tmp_path):
    tensors = llama_tensors(0) | {"model.other.0.cross_attn.strange.weight": torch.randn(8, 8)}
    save_file(tensors, tmp_path / "model.safetensors")
    arguments = ["measure", str(tmp_path), "-o", str(tmp_path / "t.parquet"), "--heads", "4", "--probes", "norm"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "left out: model.other.{}.cross_attn (e.g. model.other.0.cross_attn.strange.weight)" in done.output


@pytest.mark.parametrize(
    "nonsense",
    [
        {"rope_scaling": "x"},
        {"rope_parameters": [1]},
        {"rope_theta": [1]},
        {"rope_parameters": {"rope_type": "linear", "factor": 0.0}},
    ],
)
def test_a_config_that_makes_no_sense_is_a_reason_and_no_traceback(tmp_path, nonsense):
    run = checkpoints.open_run(saved_run(tmp_path, {"num_attention_heads": 4, **nonsense}))
    read = run.heads.read(run[1], 0)
    assert read.rotary is None
    assert read.unrotatable


def test_a_type_that_is_no_name_is_refused_and_none_is_no_type(tmp_path):
    heads = {"num_attention_heads": 4}
    folder = saved_run(tmp_path / "list", heads | {"model_type": ["llama"]})
    with pytest.raises(ValueError, match="a name is expected"):
        checkpoints.open_run(folder)
    run = checkpoints.open_run(saved_run(tmp_path / "null", heads | {"model_type": None}))
    assert run.family == "unknown"
    assert "no config says which model" in str(run.heads.read(run[1], 0).unrotatable)
    with pytest.raises(ValueError, match="a name is expected"):
        _ = checkpoints.open_run(tmp_path / "null", config={"model_type": 3}).heads


def test_a_piece_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="part 7 of x: it has 3"):
        checkpoints.Weight("x", "(part head d_head) d_model", 7)
