"""Faults that the files themselves show: steps that are missing, unreadable, there twice or another than they say."""

import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from checkpoints import open_run, schedules
from checkpoints.audit import audit
from checkpoints.audit.spacing import gaps
from tests.planted_faults import EVEN_RUN, at
from tests.training_series import healthy, written

pytestmark = pytest.mark.xdist_group("audit")  # the little runs are trained once per process


@pytest.mark.parametrize("remove", [[5], [9], [6, 7], [13]])
def test_a_gap_in_an_even_schedule_is_found(tmp_path, remove):
    series = healthy(EVEN_RUN)
    steps = [step for i, step in enumerate(series) if i not in remove]
    found = audit(open_run(written({step: series[step] for step in steps}, tmp_path)))
    after = at(series, max(remove) + 1)
    assert [(f.step, f.kind) for f in found.faults] == [(after, "gap")]
    assert f"{len(remove)} step" in found.faults[0].evidence


def test_gaps_in_other_schedules():
    doubling = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert gaps(doubling) == []
    assert gaps([s for s in doubling if s != 32]) == [(64, 1)]
    assert gaps(schedules.pythia(143_000)) == []
    assert gaps([s for s in schedules.pythia(143_000) if s not in (71_000, 72_000)]) == [(73_000, 2)]
    assert gaps(schedules.log_spaced(100_000, 60)) == []
    assert gaps([0, 10, 20, 30, 100, 200, 300, 1000, 2000, 3000]) == []  # a schedule that changes
    assert gaps([3]) == gaps([]) == gaps([0, 5]) == []


@settings(deadline=None, max_examples=50)
@given(st.integers(50, 10**6), st.integers(8, 120))
def test_log_spaced_schedules_have_no_gaps(total, count):
    assert gaps(schedules.log_spaced(total, count)) == []


@pytest.mark.parametrize("place", [2, 8, -1])
def test_an_unreadable_step_is_named_with_the_reason(tmp_path, place):
    series = healthy(EVEN_RUN)
    path, step = written(series, tmp_path), at(series, place)
    file = path / f"step{step}" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    found = audit(open_run(path))
    assert [(f.step, f.kind) for f in found.faults] == [(step, "unreadable")]
    assert "cut short" in found.condemned[step]


@pytest.mark.parametrize("name", ["copy-step-40", "step40-old", "step_40"])
def test_two_folders_for_one_step_are_found(tmp_path, name):
    path = written(healthy(EVEN_RUN), tmp_path)
    shutil.copytree(path / "step60", path / name)
    found = audit(open_run(path))
    assert [(f.step, f.kind) for f in found.faults] == [(40, "duplicate")]


def test_a_step_that_records_another_step_is_found(tmp_path):
    """A Trainer's folder that was renamed, and a nanoGPT file that was."""
    for step in (100, 200, 300, 400):
        folder = tmp_path / "output" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file(healthy(EVEN_RUN)[step // 5], folder / "model.safetensors")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": 250 if step == 200 else step}))
    found = audit(open_run(tmp_path / "output"))
    assert [(f.step, f.kind) for f in found.faults] == [(200, "wrong_step")]
    (tmp_path / "nano").mkdir()
    for step in (100, 200, 300):
        content = {"model": healthy(EVEN_RUN)[step // 5], "iter_num": 200 if step == 300 else step}
        torch.save(content, tmp_path / "nano" / f"ckpt-{step}.pt")
    found = audit(open_run(tmp_path / "nano"))
    assert [(f.step, f.kind) for f in found.faults] == [(300, "wrong_step")]


def test_names_that_count_something_else_than_the_recorded_step_are_no_fault(tmp_path):
    for epoch in range(5):
        content = {"model": healthy(EVEN_RUN)[60 * epoch], "global_step": 1200 * (epoch + 1)}
        torch.save(content, tmp_path / f"epoch_{epoch}.pt")
    assert audit(open_run(tmp_path)).is_sound


def test_a_flipped_bit_in_a_large_record_of_a_torch_file_is_seen_by_its_checksum(tmp_path):
    for step in (1, 2, 3):
        torch.save(
            {"w": torch.randn(300, 300, generator=torch.Generator().manual_seed(step))}, tmp_path / f"step{step}.pt"
        )
    damaged = bytearray((tmp_path / "step2.pt").read_bytes())
    place = len(damaged) // 2
    damaged[place] ^= 1
    (tmp_path / "step2.pt").write_bytes(damaged)
    found = audit(open_run(tmp_path))
    assert {fault.step: fault.kind for fault in found.faults if fault.kind == "unreadable"} == {2: "unreadable"}
    assert "step2.pt" in found.condemned[2]


def test_measuring_compares_checksums_too(tmp_path):
    """Attention alone is read, and what was changed in it is seen; without an audit the step fails by name."""
    from probes import measure
    from tests.walking_run import write_run

    path = write_run(tmp_path / "walk", [0, 10, 20])
    for file in path.glob("*.safetensors"):
        torch.save(load_file(file), file.with_suffix(".pt"))
        file.unlink()
    damaged = bytearray((path / "step10.pt").read_bytes())
    place = damaged.index(load_file_bytes(path)) + 4
    damaged[place] ^= 1
    (path / "step10.pt").write_bytes(damaged)
    assert list(measure(open_run(path), probes="norm").attrs["condemned"]) == ["10"]
    assert "another checksum" in measure(open_run(path), probes="norm", audit=False).attrs["failed"]["10"]


def load_file_bytes(path) -> bytes:
    tensors = torch.load(path / "step10.pt", weights_only=True)
    return tensors["h.0.attn.c_attn.weight"].numpy().tobytes()
