"""Whatever people have is opened as a run; whatever is broken or malicious is refused by name, and nothing runs."""

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save, save_file

from checkpoints import RunWriter, WeightsError, open_run
from checkpoints.sources.names import step_in

CONFIG = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=20, n_positions=8)


def model(step: int = 0):
    torch.manual_seed(step)
    return transformers.GPT2LMHeadModel(CONFIG)


def state(step: int = 0) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model(step).state_dict().items() if name != "lm_head.weight"}


def query_of(step: int):
    return state(step)["transformer.h.1.attn.c_attn.weight"][:, :8]


def expect_heads(run, step: int) -> None:
    """The second layer's first query head, laid out by hand."""
    assert torch.equal(run.heads.read(run.checkpoint(step), 1).W_Q[0], query_of(step))


# --- what is opened ------------------------------------------------------------------------------------------------


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


def sharded(folder: Path, tensors: dict, *, index: bool = True) -> dict:
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(tensors)
    parts = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    table = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    return table


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


def test_names_that_claim_a_step():
    assert step_in("step143000") == 143000
    assert step_in("stage1-step1000-tokens4B") == 1000
    assert step_in("epoch=2-step=1000.ckpt") == 1000
    assert step_in("checkpoint-500") == 500
    assert step_in("global_step_0000012") == 12
    for name in ("main", "footstep1", "model-00001-of-00002", "tokens4B", "v2.1", "step"):
        assert step_in(name) is None, name


def test_two_folders_that_claim_one_step_are_both_named(tmp_path):
    for name in ("step10", "copy-step-10", "step20"):
        (tmp_path / name).mkdir()
        save_file(state(10), tmp_path / name / "model.safetensors")
    run = open_run(tmp_path)
    assert run.steps == [10, 20]
    with pytest.raises(ValueError, match=r"step 10 more than once, in .*copy-step-10 and .*step10: keep one"):
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


# --- what is refused -----------------------------------------------------------------------------------------------


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["zip", "legacy", "raw pickle", "nested"])
def test_a_malicious_pickle_never_executes_and_is_named(tmp_path, form):
    file, witness = tmp_path / "model.pt", tmp_path / "executed"
    evil = Evil(witness)
    if form == "raw pickle":
        file.write_bytes(pickle.dumps({"w": evil}))
    else:
        content = {"model": {"w": torch.zeros(2)}, "config": evil} if form == "nested" else {"w": evil}
        torch.save(content, file, _use_new_zipfile_serialization=form != "legacy")
    with pytest.raises(WeightsError, match=r"model\.pt is refused and nothing of it was run: .*(posix\.system|system)"):
        open_run(file)
    assert not witness.exists()
    pickle.loads(pickle.dumps(evil))  # the trap is real: unpickling it does execute
    assert witness.exists()


def good() -> bytes:
    return save({"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)})


def with_table(table: dict | str, data: bytes = b"\0" * 40) -> bytes:
    text = table if isinstance(table, str) else json.dumps(table)
    return struct.pack("<Q", len(text)) + text.encode() + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BROKEN = {
    "empty": (b"", "it is empty"),
    "cut in the table": (good()[:20], "cut short"),
    "cut in the data": (good()[:-3], "cut short"),
    "cut to five bytes": (good()[:5], "cut short"),
    "zero-filled": (b"\0" * 500, "filled with zeros"),
    "wrong byte order": (struct.pack(">Q", len(good()) - 48) + good()[8:], "wrong byte order"),
    "something else": (b"PK\x03\x04 this is a zip file, or claims to be one", "not a safetensors file"),
    "not json": (with_table("{nonsense"), "not JSON"),
    "a list": (with_table("[1, 2]"), "not a table"),
    "a name twice": (
        with_table(f'{{"w": {json.dumps(ENTRY)}, "w": {json.dumps({**ENTRY, "data_offsets": [8, 16]})}}}', b"\0" * 16),
        "lists 'w' twice",
    ),
    "overlap": (with_table({"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 12]}}, b"\0" * 12), "overlap or hole"),
    "hole": (with_table({"a": ENTRY, "b": {**ENTRY, "data_offsets": [12, 20]}}, b"\0" * 20), "overlap or hole"),
    "size and shape": (with_table({"a": {**ENTRY, "shape": [3]}}, b"\0" * 8), "cannot have 8 bytes"),
    "negative": (with_table({"a": {**ENTRY, "shape": [-2]}}, b"\0" * 8), "not all whole numbers"),
    "unknown dtype": (with_table({"a": {**ENTRY, "dtype": "Q7"}}, b"\0" * 8), "dtype 'Q7'"),
    "trailing bytes": (good() + b"extra", "followed by something else"),
    "a dtype that is a list": (with_table({"a": {**ENTRY, "dtype": ["F32"]}}, b"\0" * 8), "dtype"),
    "brackets without end": (with_table("[" * 200_000), "not JSON"),
    "no offsets": (with_table({"a": {"dtype": "F32"}}, b""), "not described by"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_safetensors_file_is_refused_by_name(tmp_path, fault):
    content, reason = BROKEN[fault]
    (tmp_path / "step1.safetensors").write_bytes(content)
    (tmp_path / "step2.safetensors").write_bytes(good())
    run = open_run(tmp_path)
    with pytest.raises(WeightsError, match=rf"step1\.safetensors cannot be read: .*{reason}"):
        _ = run.checkpoint(1).stored
    assert torch.equal(run.checkpoint(2)["w"], torch.arange(6.0).reshape(2, 3))


def test_whole_files_are_read_as_the_formats_own_library_reads_them(tmp_path):
    """The check of the checks: what the library accepts and writes, we accept and read the same."""
    from safetensors.torch import load_file

    save_file(state(5), tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs, ours = load_file(tmp_path / "model.safetensors"), open_run(tmp_path).checkpoint(0)
    assert set(theirs) == set(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.parametrize("content", [b"", b"\0" * 3000, b"not a pickle at all"])
def test_a_broken_torch_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.pt (cannot be read|is refused)"):
        open_run(tmp_path / "model.pt")


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_torch_file_is_refused_by_name(tmp_path, keep):
    torch.save(state(), tmp_path / "model.pt")
    content = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(WeightsError, match=r"model\.pt (cannot be read|is refused)"):
        open_run(tmp_path / "model.pt")


def test_a_torch_file_of_something_else_says_what_it_holds(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(WeightsError, match=r"list\.pt holds a list, not a state dict"):
        open_run(tmp_path / "list.pt")
    torch.save({"lr": 0.1, "epoch": 3}, tmp_path / "settings.pt")
    with pytest.raises(WeightsError, match=r"settings\.pt holds no tensors by name, only lr, epoch"):
        open_run(tmp_path / "settings.pt")


def rewritten(file: Path, change) -> None:
    """The archive with its entries passed through `change`: (name, content) to a list of (ZipInfo or name, content)."""
    with zipfile.ZipFile(file) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry in entries:
            for name, content in change(*entry):
                archive.writestr(name, content)
    file.write_bytes(buffer.getvalue())


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("../../escaped", "leads outside"),
        ("/tmp/escaped-absolute", "leads outside"),
        ("..\\escaped", "leads outside"),
        (link("archive/link"), "symbolic link"),
        ("archive/version", "twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_path_tricks_is_refused_and_nothing_is_written(tmp_path, extra, reason):
    torch.save(state(), tmp_path / "archive.pt")
    rewritten(
        tmp_path / "archive.pt", lambda n, c: [(n, c), (extra, b"/etc/passwd")] if n.endswith("version") else [(n, c)]
    )
    with pytest.raises(WeightsError, match=rf"archive\.pt is refused: .*{reason}"):
        open_run(tmp_path / "archive.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["archive.pt"]


def test_an_index_that_names_paths_outside_its_folder_is_refused(tmp_path):
    table = sharded(tmp_path / "step3", state(3))
    save_file(state(3), tmp_path / "outside.safetensors")
    name = sorted(table["weight_map"])[0]
    index = tmp_path / "step3" / "model.safetensors.index.json"
    for trick in ("../outside.safetensors", str(tmp_path / "outside.safetensors"), "..\\outside.safetensors", "C:x"):
        index.write_text(json.dumps({"weight_map": table["weight_map"] | {name: trick}}))
        with pytest.raises(WeightsError, match=r"index\.json is refused: it names .*leads out of its folder"):
            open_run(tmp_path / "step3")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(table["weight_map"], "link.safetensors")}))
    (tmp_path / "step3" / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    snapshot = tmp_path / "models--a--b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(tmp_path / "models--a--b" / "elsewhere")
    save_file(state(3), tmp_path / "models--a--b" / "elsewhere")
    with pytest.raises(WeightsError, match="a link that leads out"):
        open_run(snapshot)
    with pytest.raises(WeightsError, match=r"'link\.safetensors', a link that leads out"):
        open_run(tmp_path / "step3").checkpoint(3)


def test_an_index_that_lies_is_refused_and_the_shards_alone_can_be_read(tmp_path):
    folder = tmp_path / "step3"
    table = sharded(folder, state(3))
    index, names = folder / "model.safetensors.index.json", sorted(table["weight_map"])
    wrong = table["weight_map"] | {names[0]: table["weight_map"][names[1]]}
    for weight_map, reason in (
        (wrong, rf"the index says that '{names[0]}' is in model-00002.* and it is in model-00001"),
        (table["weight_map"] | {"ghost": table["weight_map"][names[0]]}, "'ghost' is in .* and it is in none of them"),
        ({k: v for k, v in table["weight_map"].items() if k != names[0]}, f"'{names[0]}' is in no shard"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(WeightsError, match=reason):
            _ = open_run(folder).checkpoint(3).stored
    index.write_text(json.dumps({"weight_map": table["weight_map"] | {"x": "model-00009-of-00003.safetensors"}}))
    with pytest.raises(WeightsError, match=r"names model-00009-of-00003\.safetensors, which is not there"):
        open_run(folder)
    for nonsense in ("{", "[]", '{"weight_map": 3}', '{"weight_map": {}}'):
        index.write_text(nonsense)
        with pytest.raises(WeightsError, match=r"is not an index of shards|names no shard"):
            open_run(folder)
    index.unlink()
    expect_heads(open_run(folder), 3)


def test_a_tensor_in_two_shards_and_a_missing_shard_are_named(tmp_path):
    sharded(tmp_path / "step3", state(3), index=False)
    first, second = (tmp_path / "step3" / f"model-0000{i}-of-00003.safetensors" for i in (1, 2))
    second.write_bytes(first.read_bytes())
    with pytest.raises(WeightsError, match=r"is in model-00001-of-00003\.safetensors and in model-00002"):
        _ = open_run(tmp_path / "step3").checkpoint(3).stored
    second.unlink()
    with pytest.raises(WeightsError, match="lacks shard 2 of 3"):
        open_run(tmp_path / "step3")


def test_a_name_with_and_without_its_wrapper_is_refused(tmp_path):
    torch.save({"module.w": torch.zeros(2), "w": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(WeightsError, match=r"'w' and 'module\.w' are both 'w' once unwrapped"):
        _ = open_run(tmp_path / "model.pt").checkpoint(0).stored


def test_open_run_says_what_it_looked_for_and_suggests_the_hub(tmp_path):
    with pytest.raises(FileNotFoundError, match="write 'hub:EleutherAI/pythia-70m'"):
        open_run("EleutherAI/pythia-70m")
    with pytest.raises(ValueError, match=r"revisions and hub are for sources that begin with 'hub:'"):
        open_run(tmp_path, revisions="step*")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match="is not a run"):
        open_run(tmp_path / "a.txt")


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
