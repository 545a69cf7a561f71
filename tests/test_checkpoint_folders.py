"""Folders of weights as trainers write them, each with its own way of cutting a model up, give the weights back."""

from argparse import Namespace
from pathlib import Path

import msgpack
import numpy as np
import pytest
import torch
from torch import Tensor

from checkpoints import WeightsError
from checkpoints.files.by_name import open_by_name
from checkpoints.files.zero3 import ZeroThree
from checkpoints.sources.folder import open_folder
from tests.expected_weights import expect


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
