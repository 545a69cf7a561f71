"""Every matrix of a checkpoint by what it is for: names taken apart, read as stored, measured like a head."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import checkpoints
import probes
from checkpoints.files.in_memory import InMemory
from checkpoints.heads import TowerLayer
from checkpoints.matrices import find_matrices

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 50}


def found_in(model, config=None):
    checkpoint = InMemory(dict(model.state_dict()), "the model")
    return find_matrices(checkpoint.stored, config), checkpoint


def saved(folder, states, **described):
    with checkpoints.RunWriter(folder, **described) as writer:
        for step, state in states.items():
            writer.save(step, state)
    return checkpoints.open_run(folder)


def test_the_words_of_the_field_find_the_matrices_of_a_language_model():
    config = transformers.LlamaConfig(**SMALL)
    layouts, checkpoint = found_in(transformers.LlamaForCausalLM(config))
    for word, name in {
        "mlp_in": "model.layers.1.mlp.up_proj.weight",
        "mlp_gate": "model.layers.1.mlp.gate_proj.weight",
        "mlp_out": "model.layers.1.mlp.down_proj.weight",
        "self_attn.q_proj": "model.layers.1.self_attn.q_proj.weight",
    }.items():
        assert layouts[word].layers == (0, 1)
        assert torch.equal(layouts[word].read(checkpoint, 1)[0][0], checkpoint[name])
    assert layouts["embed"].names(0) == ["model.embed_tokens.weight"]
    assert layouts["unembed"].names(0) == ["lm_head.weight"]
    assert layouts["input_layernorm"].kind == "gain"
    assert layouts["input_layernorm"].read(checkpoint, 1)[0].shape == (1, 1, 32)


def test_a_router_is_no_gate_and_experts_are_heads():
    config = transformers.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=3)
    layouts, checkpoint = found_in(transformers.MixtralForCausalLM(config))
    assert "mlp_gate" not in layouts
    assert layouts["mlp_out"].read(checkpoint, 0)[0].shape == (3, 32, 48)
    alone = {
        f"layers.{n}.mlp.experts.{e}.down_proj.weight": torch.full((2, 5), 10.0 * n + e)
        for n in (0, 1)
        for e in range(3)
    }
    layout = find_matrices(InMemory(alone, "experts by themselves").stored)["mlp_out"]
    assert layout.layers == (0, 1)
    assert layout.read(alone, 1)[0][:, 0, 0].tolist() == [10, 11, 12]
    one_layer = {name: tensor for name, tensor in alone.items() if name.startswith("layers.0.")}
    assert find_matrices(InMemory(one_layer, "one layer").stored)["mlp_out"].layers == (0,)


def test_encoder_and_decoder_are_towers_and_what_one_alone_has_is_not():
    size = {
        "d_model": 32,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 50,
        "max_position_embeddings": 20,
    }
    layouts, checkpoint = found_in(
        transformers.BartModel(transformers.BartConfig(encoder_layers=2, decoder_layers=1, **size))
    )
    assert set(layouts["mlp_in"].layers) == {
        TowerLayer("encoder", 0),
        TowerLayer("encoder", 1),
        TowerLayer("decoder", 0),
    }
    read = layouts["mlp_in"].read(checkpoint, TowerLayer("encoder", 1))[0][0]
    assert torch.equal(read, checkpoint["encoder.layers.1.fc1.weight"])
    assert layouts["encoder_attn.q_proj"].layers == (0,)


def test_kernels_are_out_by_all_else_and_numbers_that_never_change_are_no_layers():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5), torch.nn.Conv1d(2, 4, 3))
    state = {
        "stem.conv.weight": net[0].weight,
        "blocks.0.net.0.weight": torch.ones(2, 3),
        "blocks.1.net.0.weight": torch.ones(2, 3),
    }
    layouts = find_matrices(InMemory(state, "a net").stored)
    assert layouts["stem.conv"].read(state, 0)[0].shape == (1, 8, 75)
    assert layouts["net.0"].layers == (0, 1)
    sequential = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3)).state_dict()
    assert find_matrices(InMemory(sequential, "an MLP").stored)["weight"].layers == (0, 2)


def test_what_is_not_a_matrix_is_left_out():
    state = {"a.weight": torch.ones(3, 3, dtype=torch.int64), "b.bias": torch.ones(4, 4), "c.scale": torch.ones(5)}
    assert find_matrices(InMemory(state, "odds and ends").stored) == {}


def test_an_adapter_is_its_product_scaled_as_its_config_says(tmp_path):
    generator = torch.Generator().manual_seed(0)
    state = {}
    for layer in (0, 1):
        for module in ("q_proj", "v_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            state[f"{name}.lora_A.weight"] = torch.randn(4, 32, generator=generator)
            state[f"{name}.lora_B.weight"] = torch.randn(16, 4, generator=generator)
    checkpoint = InMemory(state, "an adapter")
    up, down = (state[f"base_model.model.model.layers.1.self_attn.q_proj.lora_{side}.weight"] for side in "BA")
    for config, scale in (
        ({}, 1.0),
        ({"lora_alpha": 16}, 4.0),
        ({"lora_alpha": 16, "use_rslora": True}, 8.0),
        ({"lora_alpha": 16, "alpha_pattern": {"q_proj": 2}}, 0.5),
    ):
        layouts = find_matrices(checkpoint.stored, config)
        assert list(layouts) == ["lora_q_proj", "lora_v_proj"]
        left, right = layouts["lora_q_proj"].read(checkpoint, 1)
        assert torch.allclose(left[0] @ right[0], scale * up @ down)
    assert "not scaled" in find_matrices(checkpoint.stored)["lora_q_proj"].as_stored
    run = saved(tmp_path / "run", {0: state}, config={"lora_alpha": 16})
    table = probes.measure(run, "lora_q_proj", probes=("norm", "effective_rank"))
    norm = table.loc[(table["probe"] == "norm") & (table["layer"] == 1), "value"].item()
    assert norm == pytest.approx(float((4 * up.double() @ down.double()).norm()), rel=1e-12)


def test_a_trainers_folders_of_adapters_are_a_run_and_say_that_they_hold_no_attention(tmp_path):
    for step in (10, 20):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        tensors = {f"base_model.model.model.layers.0.self_attn.q_proj.lora_{side}.weight": torch.randn(shape)
                   for side, shape in (("A", (4, 32)), ("B", (16, 4)))}  # fmt: skip
        safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
    run = checkpoints.open_run(tmp_path)
    with pytest.warns(UserWarning, match="no attention.*lora_q_proj"):
        table = probes.measure(run, probes="norm")
    assert table["circuit"].unique().tolist() == ["lora_q_proj"]
    assert table.attrs["matrices"]["lora_q_proj"].endswith("times alpha / r")


def test_matrices_are_measured_as_dense_matrices_are(tmp_path):
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=50, n_positions=16)
    states = {step: transformers.GPT2LMHeadModel(config).state_dict() for step in (0, 10)}
    run = saved(tmp_path / "run", states, config=config.to_dict())
    table = probes.measure(run, ("ov", "mlp_in", "embed"), audit=False)
    assert table["circuit"].unique().tolist() == ["ov", "mlp_in", "embed"]
    found = table.loc[(table["circuit"] == "mlp_in") & (table["probe"] == "effective_rank") & (table["layer"] == 1)]
    weights = states[10]["transformer.h.1.mlp.c_fc.weight"].double().numpy()
    assert found["value"].iloc[-1] == pytest.approx(probes.effective_rank(weights), rel=1e-12)
    assert table.attrs["matrices"]["mlp_in"] == "transformer.h.{layer}.mlp.c_fc.weight (32, 128), as stored"
    everything = probes.measure(run, "matrices", probes="norm", audit=False)
    assert {"mlp_in", "attn.c_attn", "unembed"} <= {*everything["circuit"]}
    gains = probes.measure(run, "gains", probes="norm", audit=False)
    assert {*gains["circuit"]} == {"ln_1", "ln_2", "ln_f"}
    assert np.allclose(gains["value"], np.sqrt(32))


def test_a_name_that_is_not_there_lists_what_is(tmp_path):
    run = saved(tmp_path / "run", {0: torch.nn.Linear(4, 3).state_dict() | {"head.weight": torch.ones(3, 3)}})
    with pytest.raises(
        ValueError, match=r"no circuit is called 'mlp_im'; there are ov, .*matrices of run 'run': .*head"
    ):
        probes.measure(run, "mlp_im")


def test_a_model_without_attention_says_so_and_its_matrices_are_measured(tmp_path):
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=50, state_size=4)
    run = saved(tmp_path / "run", {0: transformers.MambaForCausalLM(config).state_dict()}, config=config.to_dict())
    with pytest.warns(UserWarning, match=r"no attention here; measured are its matrices embed, .*mixer\.in_proj"):
        table = probes.measure(run, probes="norm")
    assert {"embed", "mixer.in_proj", "mixer.out_proj"} <= {*table["circuit"]}
    sequential = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3)).state_dict()
    run = saved(tmp_path / "mlp", {0: sequential})
    with pytest.warns(UserWarning, match="no attention here"):
        assert probes.measure(run, probes="norm")["layer"].tolist() == [0, 2]


def test_weights_that_are_not_floating_point_are_said_to_be_left_out(tmp_path):
    weights = {"a.weight": torch.ones(8, 8), "b.weight": torch.ones(8, 8, dtype=torch.int8), "step": torch.tensor([1])}
    run = saved(tmp_path / "run", {0: weights})
    table = probes.measure(run, "matrices", probes="norm")
    assert table["circuit"].unique().tolist() == ["a"]
    assert table.attrs["left_out"] == ["1 tensors that are not floating point: b.weight"]
