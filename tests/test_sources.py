"""Whatever people have is opened as a run."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from checkpoints import RunWriter, open_run
from tests.small_gpt2 import CONFIG, expect_heads, model, query_of, sharded, state


def test_our_own_run_directory(tmp_path):
    with RunWriter(tmp_path / "run", CONFIG.to_dict(), family="gpt2") as writer:
        for step in (0, 10):
            writer.log(step, loss=1.0)
            writer.save(step, state(step))
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 10]
    expect_heads(run, 10)


def test_the_output_of_a_real_trainer_with_its_log_as_metrics(tmp_path):
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "output"), max_steps=6, save_steps=2, logging_steps=1, report_to=[], use_cpu=True,
        per_device_train_batch_size=2, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 12
    trainer = transformers.Trainer(model=model(), args=arguments, train_dataset=rows)
    trainer.train()
    run = open_run(tmp_path / "output")
    assert run.steps == [2, 4, 6]
    assert run.family == "gpt2"
    assert run.metrics.index.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.metrics["loss"].tolist() == [row["loss"] for row in trainer.state.log_history if "loss" in row]
    trained = trainer.model.state_dict()["transformer.h.1.attn.c_attn.weight"]
    assert torch.equal(run.heads.read(run.checkpoint(6), 1).W_Q[0], trained[:, :8])
    assert [entry.recorded_step() for entry in run.entries if entry.recorded_step] == [2, 4, 6]


@pytest.mark.parametrize("pattern", ["step{}", "pythia-step-{}", "global_step_{}", "iter_{:07d}", "ckpt-{}"])
def test_folders_that_carry_their_step_in_the_name(tmp_path, pattern):
    for step in (1000, 1, 20):
        folder = tmp_path / pattern.format(step)
        folder.mkdir()
        save_file(state(step), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    run = open_run(tmp_path)
    assert run.steps == [1, 20, 1000]
    expect_heads(run, 20)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".safetensors"])
def test_files_that_carry_their_step_in_the_name(tmp_path, suffix):
    for step in (5, 40):
        if suffix == ".safetensors":
            save_file(state(step), tmp_path / f"model-step{step}{suffix}")
        else:
            torch.save(state(step), tmp_path / f"model-step{step}{suffix}")
    (tmp_path / "notes.txt").write_text("step 3 was bad")
    run = open_run(tmp_path, config={"n_head": 2})
    assert run.steps == [5, 40]
    expect_heads(run, 40)


@pytest.mark.parametrize(
    ("wrap", "expected_step"),
    [
        (lambda s: {"model": s, "optimizer": {"state": {}}, "iter_num": 7, "model_args": {"n_head": 2}}, 7),
        (lambda s: {"model": s, "best_val_loss": torch.tensor(1.5), "iter_num": 8}, 8),
        (lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}, "global_step": 9, "n_head": 2}, 9),
        (lambda s: {"model_state_dict": {f"_orig_mod.module.{k}": v for k, v in s.items()}}, 0),
        (lambda s: {"epoch": 3, "model": {"module": s}}, 0),
    ],
)
def test_state_dicts_nested_in_what_trainers_keep_lose_their_wrappers(tmp_path, wrap, expected_step):
    torch.save(wrap(state(3)), tmp_path / "ckpt.pt")
    run = open_run(tmp_path / "ckpt.pt", config={"n_head": 2})
    assert run.steps == [expected_step]
    expect_heads_of_three = run.heads.read(run.checkpoint(expected_step), 1).W_Q[0]
    assert torch.equal(expect_heads_of_three, query_of(3))
    assert "transformer.wte.weight" in run.checkpoint(expected_step)


def test_a_checkpoint_of_the_older_torch_format(tmp_path):
    torch.save(state(2), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    expect = open_run(tmp_path / "old.pth", config={"n_head": 2})
    assert torch.equal(expect.heads.read(expect.checkpoint(0), 1).W_Q[0], query_of(2))


@pytest.mark.parametrize("index", [True, False])
def test_sharded_safetensors_with_and_without_an_index(tmp_path, index):
    sharded(tmp_path / "step3", state(3), index=index)
    run = open_run(tmp_path / "step3")
    assert run.steps == [3]
    expect_heads(run, 3)
    checkpoint = run.checkpoint(3)
    assert len(checkpoint) == len(state(3))
    assert len({stored.file for stored in checkpoint.stored.values()}) == 3


def test_a_snapshot_in_the_hubs_own_cache_whose_files_are_links_to_blobs(tmp_path):
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "abc", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file(state(1), blobs / "1234")
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/1234"))
    assert len(open_run(snapshot).checkpoint(0)) == len(state())


def test_bfloat16_and_float8_and_scalars_are_read_as_they_were_stored(tmp_path):
    tensors = {
        "a": torch.randn(3, 4).bfloat16(),
        "b": torch.randn(5).to(torch.float8_e4m3fn),
        "c": torch.tensor(3),
        "d": torch.zeros(0, 4),
        "e": torch.tensor([True, False]),
        "f": torch.randn(4, 6, dtype=torch.float64).T.contiguous(),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = open_run(tmp_path).checkpoint(0)
    for name, tensor in tensors.items():
        assert checkpoint[name].dtype == tensor.dtype
        assert checkpoint[name].shape == tensor.shape
        assert torch.equal(checkpoint[name].float(), tensor.float())


def test_two_folders_that_claim_one_step_are_both_named(tmp_path):
    for name in ("step10", "copy-step-10", "step20"):
        (tmp_path / name).mkdir()
        save_file(state(10), tmp_path / name / "model.safetensors")
    run = open_run(tmp_path)
    assert run.steps == [10, 20]
    with pytest.raises(
        ValueError, match=r"step 10 more than once, in .*copy-step-10 and .*step10: say which one with open_run"
    ):
        run.checkpoint(10)
    run.checkpoint(20)


def test_optimizers_beside_the_weights_are_not_mistaken_for_them(tmp_path):
    for step in (0, 10):
        torch.save(state(step), tmp_path / f"step{step}_model.pt")
        torch.save({"state": {}}, tmp_path / f"step{step}_optimizer.pt")
    run = open_run(tmp_path, config={"n_head": 2})
    assert run.steps == [0, 10]
    expect_heads(run, 10)
    folder = tmp_path / "checkpoint-500"  # as DeepSpeed leaves it
    (folder / "global_step500").mkdir(parents=True)
    torch.save({"x": torch.zeros(2)}, folder / "global_step500" / "zero_optim_states.pt")
    save_file(state(3), folder / "model.safetensors")
    assert len(open_run(folder).checkpoint(500)) == len(state(3))


def test_one_odd_checkpoint_does_not_decide_what_the_run_is(tmp_path):
    for step in (0, 10, 20):
        save_file(
            {k: v for k, v in state(step).items() if step or ".h.1." not in k}, tmp_path / f"step{step}.safetensors"
        )
    run = open_run(tmp_path, config={"n_head": 2})
    assert run.heads.layers == (0, 1)
    broken = {k: v for k, v in state(0).items() if k != "transformer.h.1.attn.c_proj.weight"}
    save_file(broken, tmp_path / "one.safetensors")
    with pytest.raises(ValueError, match=r"layer 1 lacks transformer\.h\.1\.attn\.c_proj\.weight"):
        _ = open_run(tmp_path / "one.safetensors", config={"n_head": 2}).heads


MEMORY = """
import sys
import torch
from checkpoints import open_run
from probes.circuits import circuits_of
from tests.memory import peak, reset_peak
import probes

run = open_run(sys.argv[1])
circuits = circuits_of(run, ("ov", "qk"))
probes.effective_rank(torch.randn(8, 8))
baseline = reset_peak()
checkpoint, seen = run.checkpoint(0), 0
for layer in run.heads.layers:
    for circuit in circuits.values():
        matrix = circuit.read(checkpoint, layer)
        probes.effective_rank(matrix)
        seen += matrix.left.numel() + matrix.right.numel()
print(peak() - baseline, seen)
"""


@pytest.mark.slow
def test_a_checkpoint_of_two_gigabytes_is_walked_layer_by_layer_in_little_memory(tmp_path):
    """24 layers of width 1280 with wide MLPs: 2.1 GB on disk, peak far below."""
    width, layers = 1280, 24
    config = {"model_type": "gpt2", "n_head": 20, "n_embd": width}
    generator = np.random.default_rng(0)
    noise = torch.from_numpy(generator.standard_normal(17 * width * width, dtype=np.float32))
    weight_map, size = {}, 0
    for shard in range(8):
        tensors = {}
        for layer in range(shard * layers // 8, (shard + 1) * layers // 8):
            tensors[f"h.{layer}.attn.c_attn.weight"] = noise[: 3 * width * width].reshape(width, 3 * width)
            tensors[f"h.{layer}.attn.c_proj.weight"] = noise[width:][: width * width].reshape(width, width)
            tensors[f"h.{layer}.mlp.weight"] = noise[: 10 * width * width].reshape(width, -1)
        file = f"model-{shard + 1:05d}-of-00008.safetensors"
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / file)
        weight_map |= dict.fromkeys(tensors, file)
        size += (tmp_path / file).stat().st_size
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert size > 2e9
    out = subprocess.run([sys.executable, "-c", MEMORY, tmp_path], capture_output=True, text=True, check=True).stdout
    peak, seen = map(int, out.split())
    assert seen == layers * 4 * width * width
    assert 4 * 4 * width * width < peak < 300e6  # more than one layer, or nothing was measured; less than two


def test_one_folder_of_a_step_alone_has_that_step(tmp_path):
    (tmp_path / "step7").mkdir()
    save_file(state(7), tmp_path / "step7" / "model.safetensors")
    assert open_run(tmp_path).steps == [7]
