"""Folders of weights as trainers write them, each with its own way of cutting a model up, give the weights back."""

import os
import pickle
from argparse import Namespace
from pathlib import Path

import msgpack
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata

from checkpoints import Checkpoint, WeightsError
from checkpoints.files.by_name import open_by_name
from checkpoints.files.distributed import covers
from checkpoints.files.zero3 import ZeroThree
from checkpoints.sources.folder import open_folder

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def expect(checkpoint: Checkpoint, state: dict[str, Tensor]) -> None:
    assert set(checkpoint) == set(state)
    for name, tensor in state.items():
        assert checkpoint[name].dtype == tensor.dtype
        assert torch.equal(checkpoint[name], tensor), name
        assert checkpoint.stored[name].shape == tuple(tensor.shape)
    checkpoint.prefetch(list(state))
    checkpoint.verify()


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3, dtype=torch.float32).to(torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters())
    sum(parameter.float().sum() for parameter in model.parameters()).backward()
    optimizer.step()
    return model, optimizer


def saved_distributed(folder: Path) -> dict[str, Tensor]:
    model, optimizer = model_and_optimizer()
    content = {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": 30, "losses": [torch.ones(2)]}
    dcp.save(content, checkpoint_id=folder, no_dist=True)
    return model.state_dict()


@pytest.mark.parametrize("inner", ["", "pytorch_model_fsdp_0", "model_and_optim"])
def test_a_checkpoint_of_torch_distributed(tmp_path, inner):
    state = saved_distributed(tmp_path / inner)
    checkpoint = open_folder(tmp_path)
    expect(checkpoint, state)
    assert checkpoint.recorded_step == 30


def test_one_that_was_flat_when_it_was_saved_keeps_its_names(tmp_path):
    state = {"model.layers.0.w": torch.randn(3, 4), "model.embed": torch.randn(2).to(torch.float16)}
    dcp.save({**state, "optim.state.w": torch.ones(2)}, checkpoint_id=tmp_path, no_dist=True)
    expect(open_folder(tmp_path), state)


def save_sharded(rank: int, folder: Path) -> dict[str, Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (2,))
    state = {"rows": torch.randn(5, 4), "columns": torch.randn(3, 6), "one": torch.randn(1, 2), "whole": torch.randn(7)}
    shards = {name: distribute_tensor(state[name], mesh, [Shard(int(name == "columns"))]) for name in state}
    dcp.save({"model": {**shards, "whole": state["whole"]}}, checkpoint_id=folder)
    return state


@pytest.mark.slow
@pytest.mark.xdist_group("ranks")
def test_tensors_that_two_processes_hold_parts_of_are_put_together(tmp_path):
    from tests.process_group import on_ranks

    state = on_ranks(2, tmp_path, save_sharded, tmp_path / "step10")[0]
    assert len(list((tmp_path / "step10").glob("*.distcp"))) == 2
    expect(open_folder(tmp_path / "step10"), state)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def metadata(folder: Path) -> Metadata:
    return pickle.loads((folder / ".metadata").read_bytes())


def test_metadata_that_would_run_something_is_refused_and_runs_nothing(tmp_path):
    saved_distributed(tmp_path)
    witness, good = tmp_path / "executed", metadata(tmp_path)
    good.planner_data["model.0.weight"] = Evil(witness)
    for protocol in (2, 4, 5):
        (tmp_path / ".metadata").write_bytes(pickle.dumps(good, protocol))
        with pytest.raises(WeightsError, match=r"\.metadata is refused and nothing of it was run: .*posix\.system"):
            dict(open_folder(tmp_path))
        assert not witness.exists()
    metadata(tmp_path)  # the trap is real
    assert witness.exists()


def lie_about_chunks(content: Metadata) -> None:
    chunks = content.state_dict_metadata["model.0.weight"].chunks
    chunks[0] = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([4, 4]))


def lie_twice(content: Metadata) -> None:
    chunks = content.state_dict_metadata["model.0.weight"].chunks
    chunks.append(ChunkStorageMetadata(torch.Size([1, 0]), torch.Size([3, 5])))


def lie_about_size(content: Metadata) -> None:
    huge = torch.Size([1 << 20, 1 << 20])
    content.state_dict_metadata["model.0.weight"].size = huge
    content.state_dict_metadata["model.0.weight"].chunks[0] = ChunkStorageMetadata(torch.Size([0, 0]), huge)


def change_place(**changes):
    def change(content: Metadata) -> None:
        for index, info in content.storage_data.items():
            if index.fqn == "model.0.weight":
                for key, value in changes.items():
                    setattr(info, key, value)

    return change


LIES = {
    "chunks that leave a hole": (lie_about_chunks, "do not cover"),
    "chunks that overlap": (lie_twice, "do not cover"),
    "a tensor of four terabytes": (lie_about_size, "should be .*, is"),
    "a path that leads out": (change_place(relative_path="../secret.distcp"), "leads out of its folder"),
    "an absolute path": (change_place(relative_path="/etc/passwd"), "leads out of its folder"),
    "a range beyond the file": (change_place(offset=10**9), "cut short or of another save"),
    "a range of another tensor": (change_place(offset=0), "cannot be read|should be"),
    "a negative range": (change_place(offset=-5), "makes no sense"),
    "a compressed chunk": (change_place(transform_descriptors=["zstd"]), "stored transformed"),
    "no places": (lambda content: content.storage_data.clear(), "does not say where"),
    "no tensors": (lambda content: setattr(content, "state_dict_metadata", None), "no state_dict_metadata"),
}


@pytest.mark.parametrize("lie", LIES)
def test_metadata_that_lies_is_refused_by_name(tmp_path, lie):
    saved_distributed(tmp_path)
    content = metadata(tmp_path)
    change, reason = LIES[lie]
    change(content)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(content))
    with pytest.raises(WeightsError, match=reason) as error:
        dict(open_folder(tmp_path))
    assert str(tmp_path) in str(error.value)


def test_chunks_cover_a_shape_only_as_a_grid():
    assert covers((4, 6), {(0, 0): (4, 6)})
    assert covers((4, 6), {(i, j): (2, 3) for i in (0, 2) for j in (0, 3)})
    assert covers((), {(): ()})
    assert covers((0, 3), {})
    assert not covers((4, 6), {(0, 0): (2, 6)})
    assert not covers((4, 6), {(0, 0): (4, 6), (2, 0): (2, 6)})
    assert not covers((4, 6), {(0, 0): (2, 3), (0, 3): (2, 3), (2, 0): (2, 3)})
    assert not covers((4, 6), {})


def test_chunks_without_metadata_say_what_is_missing(tmp_path):
    saved_distributed(tmp_path)
    (tmp_path / ".metadata").unlink()
    with pytest.raises(WeightsError, match=r"has \.distcp files and no \.metadata"):
        open_folder(tmp_path)


def deepspeed_states(folder: Path, state: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True)
    content = {"module": state, "global_steps": 500, "optimizer": None, "param_shapes": [], "ds_config": {"zero": 1}}
    torch.save(content, folder / "mp_rank_00_model_states.pt")
    torch.save({"optimizer_state_dict": {}}, folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt")


def test_deepspeed_within_a_checkpoint_of_the_trainer(tmp_path):
    state = {"a": torch.randn(2, 3), "b": torch.randn(4)}
    deepspeed_states(tmp_path / "checkpoint-500" / "global_step500", state)
    expect(open_folder(tmp_path / "checkpoint-500"), state)
    expect(open_folder(tmp_path / "checkpoint-500" / "global_step500"), state)
    assert open_folder(tmp_path / "checkpoint-500").recorded_step == 500


def zero3(folder: Path, state: dict[str, Tensor], ranks: int, groups: int = 2) -> None:
    """What DeepSpeed's stage 3 leaves: parameters padded to a multiple of the ranks and cut, one after the other."""
    folder.mkdir()
    names = list(state)
    cut = {}
    for name in names:
        flat = state[name].reshape(-1)
        cut[name] = torch.cat([flat, torch.zeros(-len(flat) % ranks)]).chunk(ranks)
    for rank in range(ranks):
        model = {
            "module": {name: torch.empty(0) for name in names} | {"buffer": torch.arange(3)},
            "buffer_names": ["buffer"],
            "param_shapes": [{name: state[name].shape for name in names[i::groups]} for i in range(groups)],
            "frozen_param_shapes": {"frozen": torch.Size([3])},
            "frozen_param_fragments": {"frozen": torch.arange(4.0).chunk(ranks)[rank]},
            "shared_params": {"tied": names[0]},
            "global_steps": 9,
        }
        torch.save(model, folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        vectors = [torch.cat([cut[name][rank] for name in names[i::groups]]) for i in range(groups)]
        optimizer = {"zero_stage": 3, "partition_count": ranks, "fp32_flat_groups": vectors}
        torch.save({"optimizer_state_dict": optimizer}, folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def test_the_pieces_of_zero_3_are_put_together(tmp_path):
    state = {"a": torch.randn(3, 3), "b": torch.randn(5), "c": torch.randn(2, 4), "d": torch.randn(1)}
    zero3(tmp_path / "global_step9", state, ranks=2)
    checkpoint = open_folder(tmp_path / "global_step9")
    expect(checkpoint, state | {"buffer": torch.arange(3), "frozen": torch.arange(3.0), "tied": state["a"]})
    assert isinstance(checkpoint, ZeroThree)
    assert checkpoint.recorded_step == 9


def test_zero_3_with_a_file_missing_says_what_to_run(tmp_path):
    zero3(tmp_path / "s", {"a": torch.randn(8)}, ranks=2, groups=1)
    (tmp_path / "s" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(WeightsError, match=r"2 files of model states and 1 of optimizer states.*zero_to_fp32\.py"):
        open_folder(tmp_path / "s")
    (tmp_path / "s" / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(WeightsError, match=r"one of 2 files, and 1 are here.*zero_to_fp32\.py"):
        dict(open_folder(tmp_path / "s"))


WHOLE = {
    "decoder.layers.0.self_attention.linear_qkv.weight": 0,
    "decoder.layers.0.self_attention.linear_qkv.bias": 0,
    "decoder.layers.0.self_attention.linear_proj.weight": 1,
    "decoder.layers.0.mlp.linear_fc2.weight": 1,
    "embedding.word_embeddings.weight": 0,
}


def megatron(folder: Path, ranks: int, version: float = 3.0, stage: str = "", **args) -> dict[str, Tensor]:
    state = {name: torch.randn(8) if name.endswith("bias") else torch.randn(8, 6) for name in WHOLE}
    norm = {"decoder.layers.0.input_layernorm.weight": torch.randn(6)}
    gate = torch.randn(8, 6)
    for rank in range(ranks):
        part = {name: tensor.chunk(ranks, WHOLE[name])[rank].clone() for name, tensor in state.items()}
        part["decoder.layers.0.mlp.linear_fc1.weight"] = gate.chunk(ranks)[rank].clone()
        (folder / f"mp_rank_{rank:02d}{stage}").mkdir(parents=True)
        content = {"model": part | norm, "args": Namespace(**args), "iteration": 70, "checkpoint_version": version}
        torch.save(content, folder / f"mp_rank_{rank:02d}{stage}" / "model_optim_rng.pt")
    return {**state, **norm, "decoder.layers.0.mlp.linear_fc1.weight": gate}


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_parts_of_megatron_are_joined(tmp_path, ranks):
    state = megatron(tmp_path, ranks, swiglu=False, num_attention_heads=4)
    checkpoint = open_folder(tmp_path)
    expect(checkpoint, state)
    assert checkpoint.recorded_step == 70
    assert checkpoint.recorded_config["num_attention_heads"] == 4


def test_what_may_be_cut_in_two_ways_stays_in_its_parts(tmp_path):
    """With a gate each part has some of both halves: joined one after the other they would be in the wrong order."""
    state = megatron(tmp_path, 2, swiglu=True)
    gate = "decoder.layers.0.mlp.linear_fc1.weight"
    first, second = state.pop(gate).chunk(2)
    expect(open_folder(tmp_path), {**state, f"{gate}.rank0": first, f"{gate}.rank1": second})


def test_parts_that_cannot_be_joined_are_refused(tmp_path):
    megatron(tmp_path / "old", 2, version=1.0)
    with pytest.raises(WeightsError, match=r"format 1\.0, which ordered the heads otherwise"):
        open_folder(tmp_path / "old")
    megatron(tmp_path / "stages", 1, stage="_000")
    megatron(tmp_path / "stages", 1, stage="_001")
    with pytest.raises(WeightsError, match="pipeline-parallel"):
        open_folder(tmp_path / "stages")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_layers_of_gpt_neox_are_one_model(tmp_path, ranks):
    qkv, dense, norm = torch.randn(12, 4), torch.randn(4, 4), torch.randn(4)
    vocabulary = torch.randn(10, 4)
    for rank in range(ranks):
        block = {
            "attention.query_key_value.weight": qkv.chunk(ranks)[rank].clone(),
            "attention.dense.weight": dense.chunk(ranks, 1)[rank].clone(),
            "input_layernorm.weight": norm,
        }
        parts = {
            0: {"word_embeddings.weight": vocabulary.chunk(ranks)[rank].clone()},
            2: block,
            3: block,
            5: {"norm.weight": norm},
        }
        for layer, part in parts.items():
            torch.save(part, tmp_path / f"layer_{layer:02d}-model_{rank:02d}-model_states.pt")
    torch.save({"module": None, "global_steps": 3}, tmp_path / "mp_rank_00_model_states.pt")
    state = {"layer_00.word_embeddings.weight": vocabulary, "layer_05.norm.weight": norm}
    for layer in (0, 1):
        state[f"layers.{layer}.attention.query_key_value.weight"] = qkv
        state[f"layers.{layer}.attention.dense.weight"] = dense
        state[f"layers.{layer}.input_layernorm.weight"] = norm
    expect(open_folder(tmp_path), state)


def test_model_pt_beside_what_olmo_keeps_with_it(tmp_path):
    torch.save({"transformer.wte.weight": torch.ones(2)}, tmp_path / "model.pt")
    torch.save({"step": 3, "w": torch.zeros(1)}, tmp_path / "train.pt")
    torch.save({"state": {}}, tmp_path / "optim.pt")
    expect(open_folder(tmp_path), {"transformer.wte.weight": torch.ones(2)})


def test_arrays_of_numpy(tmp_path):
    arrays = {
        "a/kernel": np.arange(6.0).reshape(2, 3),
        "b": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    }
    arrays |= {
        "h": np.float16([1, 2]),
        "scalar": np.float32(3),
        "empty": np.zeros((0, 2), np.float32),
        "flag": np.array([True]),
    }
    np.savez(tmp_path / "model.npz", **arrays)
    expect(open_folder(tmp_path), {name.replace("/", "."): torch.tensor(array) for name, array in arrays.items()})
    np.savez_compressed(tmp_path / "model.npz", **arrays)
    with pytest.raises(WeightsError, match="compressed"):
        dict(open_folder(tmp_path))
    np.savez(tmp_path / "model.npz", a=np.array([{}], dtype=object))
    with pytest.raises(WeightsError, match=r"model\.npz is refused: 'a\.npy' is an array of"):
        dict(open_folder(tmp_path))


def packed(value):
    """As flax.serialization packs arrays and numbers of NumPy."""
    described = msgpack.packb((value.shape, value.dtype.name, value.tobytes()), use_bin_type=True)
    return msgpack.ExtType(3 if isinstance(value, np.generic) else 1, described)


def test_a_msgpack_file_of_flax(tmp_path):
    kernel = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    chunks = {"__msgpack_chunked_array__": True, "shape": {"0": 2, "1": 3}}
    chunks["chunks"] = {"0": np.arange(4.0), "1": np.arange(4.0, 6.0)}
    content = {
        "params": {"dense": {"kernel": kernel, "bias": np.int8([1, 2])}, "big": chunks},
        "step": 40,
        "opt_state": {},
    }
    (tmp_path / "flax_model.msgpack").write_bytes(msgpack.packb(content, default=packed, strict_types=True))
    checkpoint = open_folder(tmp_path)
    expected = {"dense.kernel": kernel, "dense.bias": np.int8([1, 2]), "big": np.arange(6.0).reshape(2, 3)}
    expect(checkpoint, {name: torch.tensor(array) for name, array in expected.items()})
    assert checkpoint.recorded_step == 40


BROKEN_MSGPACK = {
    "cut short": msgpack.packb({"w": np.ones(9)}, default=packed)[:-5],
    "tables within tables": b"\x81\xa1a" * 5000 + b"\xc0",
    "a list of four billion": b"\x81\xa1a\xdd\xff\xff\xff\xff\xc0",
    "no text": b"\x81\xa2\xff\xfe\xc0",
    "a shape that does not fit": b"\x81\xa1a\xc7\x0c\x01" + msgpack.packb(([9], "int8", b"123"), use_bin_type=True),
    "something after it": msgpack.packb({"w": 1}) + b"x",
    "a number alone": b"\x07",
    "a byte that begins nothing": b"\xc1",
    "nothing": b"",
}


@pytest.mark.parametrize("fault", BROKEN_MSGPACK)
def test_a_broken_msgpack_file_is_refused_by_name(tmp_path, fault):
    (tmp_path / "model.msgpack").write_bytes(BROKEN_MSGPACK[fault])
    with pytest.raises(WeightsError, match=r"model\.msgpack (cannot be read|holds)"):
        dict(open_by_name("model.msgpack", tmp_path / "model.msgpack"))


@pytest.mark.parametrize("change", [b"\x93NUMPZ", b"\x93NUMPY\x01\x00\xff\xff", b""])
def test_a_broken_npz_file_is_refused_by_name(tmp_path, change):
    np.savez(tmp_path / "model.npz", a=np.ones(3))
    content = (tmp_path / "model.npz").read_bytes()
    at = content.index(b"\x93NUMPY")
    (tmp_path / "model.npz").write_bytes(
        content[:at] + change + content[at + len(change) :] if change else content[:80]
    )
    with pytest.raises(WeightsError, match=r"model\.npz cannot be read"):
        dict(open_by_name("model.npz", tmp_path / "model.npz"))


def test_pth_tar_is_what_torch_save_wrote(tmp_path):
    torch.save({"state_dict": {"w": torch.ones(2)}, "epoch": 3}, tmp_path / "model.pth.tar")
    expect(open_folder(tmp_path), {"w": torch.ones(2)})
    import tarfile

    with tarfile.open(tmp_path / "model.pth.tar", "w") as file:
        file.add(__file__)
    with pytest.raises(WeightsError, match=r"model\.pth\.tar is refused: it is a tar archive"):
        dict(open_folder(tmp_path))
