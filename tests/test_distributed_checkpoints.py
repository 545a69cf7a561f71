"""Folders of torch.distributed.checkpoint: put together from their chunks, read by a reader that can run nothing."""

import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata

from checkpoints import WeightsError
from checkpoints.files.distributed import covers
from checkpoints.sources.folder import open_folder
from tests.expected_weights import expect

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


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
    "a name that no file has": (change_place(relative_path="a\0.distcp"), "which no file can be called"),
    "a name without end": (change_place(relative_path="a" * 5000), "which no file can be called"),
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
