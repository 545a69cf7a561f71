"""Every planted fault is found at its step, and twenty healthy runs are left alone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from checkpoints import open_run, schedules
from checkpoints.audit import audit
from checkpoints.audit.fault import KINDS
from checkpoints.audit.fingerprint import fingerprint
from checkpoints.audit.spacing import gaps
from tests.training_series import SETTINGS, Series, copied, healthy, in_first_shard, written

pytestmark = pytest.mark.xdist_group("audit")  # the little runs are trained once per process

EVEN_RUN, LOG_RUN, PYTHIA_RUN, BFLOAT_RUN, SGD_RUN, NOISY_RUN = 0, 1, 2, 8, 12, 10


@pytest.mark.parametrize("number", range(20))
def test_a_healthy_run_raises_no_alarm(tmp_path, number):
    found = audit(open_run(written(healthy(number), tmp_path, sharded=number % 2 == 1)))
    assert found.is_sound, str(found)
    assert found.condemned == {}
    assert (found.table["verdict"] == "sound").all()
    assert len(found.table) == len(healthy(number))


def test_the_runs_that_ship_with_the_project_are_sound():
    reference = Path(__file__).parents[1] / "checkpoints" / "reference" / "linear-icl"
    found = audit(open_run(reference))
    assert found.is_sound, str(found)


# --- faults in the weights: from a healthy series, the broken one and what must be said of it

Planted = tuple[Series, dict[int, str]]


def at(series: Series, index: int) -> int:
    return list(series)[index]


def identical_neighbours(number: int, first: int, length: int) -> Planted:
    series = copied(healthy(number))
    group = list(series)[first : first + length]
    for step in group[1:]:
        series[step] = series[group[0]]
    return series, dict.fromkeys(group, "repeated")


def final_weights(number: int, *places: int) -> Planted:
    series = copied(healthy(number))
    for place in places:
        series[at(series, place)] = series[at(series, -1)]
    return series, {at(series, place): "final_weights" for place in places}


def final_tensors(number: int, place: int, belongs: Callable[[str], bool]) -> Planted:
    series = copied(healthy(number))
    step, last = at(series, place), series[at(series, -1)]
    series[step] |= {name: tensor for name, tensor in last.items() if belongs(name)}
    return series, {step: "final_weights"}


def all_final(number: int) -> Planted:
    series = copied(healthy(number))
    last = at(series, -1)
    return {step: series[last] for step in series}, dict.fromkeys(list(series)[:-1], "final_weights")


def copy_of_another(number: int, place: int, source: int) -> Planted:
    series = copied(healthy(number))
    series[at(series, place)] = series[at(series, source)]
    return series, {at(series, place): "copy"}


def swapped(number: int, place: int) -> Planted:
    series = copied(healthy(number))
    a, b = list(series)[place:][:2]
    series[a], series[b] = series[b], series[a]
    return series, {a: "swapped", b: "swapped"}


def other_dtype(number: int, place: int, dtype: torch.dtype) -> Planted:
    series = copied(healthy(number))
    step = at(series, place)
    series[step] = {name: tensor.to(dtype) for name, tensor in series[step].items()}
    return series, {step: "dtype"}


def other_shape(number: int, place: int, change: Callable[[dict], None]) -> Planted:
    series = copied(healthy(number))
    change(series[at(series, place)])
    return series, {at(series, place): "shape"}


def not_finite(number: int, place: int, value: float) -> Planted:
    series = copied(healthy(number))
    series[at(series, place)]["layers.1.weight"][3, 5] = value
    return series, {at(series, place): "not_finite"}


def foreign(number: int, place: int, change: Callable[[dict], dict], belongs=lambda name: True) -> Planted:
    series = copied(healthy(number))
    step = at(series, place)
    series[step] |= {name: tensor for name, tensor in change(series[step]).items() if belongs(name)}
    return series, {step: "excursion"}


def another_run(tensors: dict) -> dict:
    return healthy(20)[300]  # the settings of run 0, from another seed


def negated(tensors: dict) -> dict:
    return {name: -tensor for name, tensor in tensors.items()}


def shuffled(tensors: dict) -> dict:
    return {name: tensor.flatten().roll(7).reshape(tensor.shape) for name, tensor in tensors.items()}


def another_run_from_there_on(number: int, place: int) -> Planted:
    series = copied(healthy(number))
    other = healthy(number + 20)
    for step in list(series)[place:]:
        series[step] = other[step]
    return series, {at(series, place): "jump"}


def stale_shard(number: int, place: int) -> Planted:
    series = copied(healthy(number))
    before, step = series[at(series, place - 1)], at(series, place)
    series[step] |= {name: tensor for name, tensor in before.items() if in_first_shard(name)}
    return series, {step: "partly_repeated"}


def drop(name: str) -> Callable[[dict], None]:
    return lambda tensors: tensors.pop(name)


def cut(name: str) -> Callable[[dict], None]:
    return lambda tensors: tensors.update({name: tensors[name][:-1].clone()})


def transposed(tensors: dict) -> None:
    tensors["head.weight"] = tensors["head.weight"].T.contiguous()


PLANTED: dict[str, Callable[[], Planted]] = {
    "two identical neighbours": lambda: identical_neighbours(EVEN_RUN, 5, 2),
    "three identical consecutive steps": lambda: identical_neighbours(LOG_RUN, 12, 3),
    "identical neighbours in bfloat16": lambda: identical_neighbours(BFLOAT_RUN, 9, 2),
    "the first two steps identical, ten apart": lambda: identical_neighbours(EVEN_RUN, 0, 2),
    "final weights once": lambda: final_weights(EVEN_RUN, 4),
    "final weights at the start": lambda: final_weights(LOG_RUN, 0),
    "final weights at three steps": lambda: final_weights(PYTHIA_RUN, 2, 3, 6),
    "final weights just before the end": lambda: final_weights(EVEN_RUN, -2),
    "every step serves the final weights": lambda: all_final(EVEN_RUN),
    "every step serves the final weights, other run": lambda: all_final(BFLOAT_RUN),
    "first shard is the final one": lambda: final_tensors(EVEN_RUN, 6, in_first_shard),
    "second shard is the final one": lambda: final_tensors(LOG_RUN, 9, lambda name: not in_first_shard(name)),
    "one tensor is the final one": lambda: final_tensors(SGD_RUN, 3, lambda name: name == "layers.2.weight"),
    "a later step again": lambda: copy_of_another(EVEN_RUN, 4, 9),
    "an earlier step again": lambda: copy_of_another(LOG_RUN, 15, 11),
    "neighbours exchanged": lambda: swapped(EVEN_RUN, 5),
    "neighbours exchanged, log-spaced": lambda: swapped(LOG_RUN, 14),
    "neighbours exchanged, SGD": lambda: swapped(SGD_RUN, 4),
    "the last two exchanged": lambda: swapped(EVEN_RUN, -2),
    "the last two exchanged, log-spaced": lambda: swapped(LOG_RUN, -2),
    "the first two exchanged": lambda: swapped(EVEN_RUN, 0),
    "weights of another run, second to last": lambda: foreign(EVEN_RUN, -2, another_run),
    "one step in bfloat16": lambda: other_dtype(EVEN_RUN, 7, torch.bfloat16),
    "one step in float64": lambda: other_dtype(LOG_RUN, 3, torch.float64),
    "the last step in float16": lambda: other_dtype(PYTHIA_RUN, -1, torch.float16),
    "a tensor cut": lambda: other_shape(EVEN_RUN, 3, cut("layers.0.weight")),
    "a tensor missing": lambda: other_shape(LOG_RUN, 3, drop("norm.bias")),
    "a tensor transposed": lambda: other_shape(PYTHIA_RUN, 5, transposed),
    "one NaN": lambda: not_finite(EVEN_RUN, 2, torch.nan),
    "one infinity": lambda: not_finite(LOG_RUN, -1, torch.inf),
    "NaN in bfloat16": lambda: not_finite(BFLOAT_RUN, 5, torch.nan),
    "weights of another run": lambda: foreign(EVEN_RUN, 8, another_run),
    "weights of another run, log-spaced": lambda: foreign(LOG_RUN, 14, another_run),
    "negated": lambda: foreign(SGD_RUN, 6, negated),
    "shuffled": lambda: foreign(NOISY_RUN, 10, shuffled),
    "second shard of another run": lambda: foreign(EVEN_RUN, 8, another_run, lambda name: not in_first_shard(name)),
    "another run from there on": lambda: another_run_from_there_on(EVEN_RUN, 8),
    "another run from there on, SGD": lambda: another_run_from_there_on(SGD_RUN, 10),
    "first shard of the step before": lambda: stale_shard(EVEN_RUN, 6),
    "first shard of the step before, log-spaced": lambda: stale_shard(LOG_RUN, 17),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_where_it_is_and_nowhere_else(tmp_path, fault):
    series, expected = PLANTED[fault]()
    found = audit(open_run(written(series, tmp_path, sharded="shard" in fault)))
    assert {f.step: f.kind for f in found.faults} == expected, str(found)
    condemned = {step for step, kind in expected.items() if KINDS[kind][0] == "condemned"}
    assert found.condemned.keys() == condemned
    if "shard is the final one" in fault:
        number = 1 if fault.startswith("first") else 2
        assert f"all of model-0000{number}-of-00002.safetensors" in found.faults[0].evidence


# --- faults in the files ----------------------------------------------------------------------------------------------


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


def test_attention_that_is_frozen_on_purpose_is_told_from_a_run_that_never_moved(tmp_path):
    from probes import measure
    from tests.walking_run import write_run

    path = write_run(tmp_path / "walk", [0, 10, 20, 30])
    frozen = load_file(path / "step0.safetensors")
    for step in (0, 10, 20, 30):
        save_file(frozen | {"mlp.weight": torch.randn(20, 20) + step}, path / f"step{step}.safetensors")
    assert measure(open_run(path), probes=("norm",)).attrs["condemned"] == {}
    for step in (0, 10, 20):
        save_file(load_file(path / "step30.safetensors"), path / f"step{step}.safetensors")
    assert list(measure(open_run(path), probes=("norm",)).attrs["condemned"]) == ["0", "10", "20"]


def test_float8_weights_can_be_audited(tmp_path):
    series = {step: {"w": torch.randn(30, 30).to(torch.float8_e4m3fn)} for step in (1, 2, 3)}
    assert not audit(open_run(written(series, tmp_path))).condemned.keys() - {2}  # a walk of noise may be an excursion


def test_attention_alone_can_be_audited_and_is_on_a_hub(tmp_path):
    from checkpoints.hub import Hub
    from tests.hub_server import HubServer, serving
    from tests.test_hub import revision

    revisions = {f"step{step}": revision(0) for step in (1000, 2000, 3000)} | {"step4000": revision(1)}
    server = HubServer("a/b", revisions)
    with serving(server) as address:
        run = open_run("hub:a/b", hub=Hub(address, cache=tmp_path))
        found = audit(run)
        assert found.condemned.keys() == {1000, 2000, 3000}
        attention = sum(run.checkpoint(1000).stored[n].bytes for i in run.heads.layers for n in run.heads.names(i))
        assert server.body_bytes < 2.5 * attention  # and the shards that revisions share were fetched once


# --- fingerprints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 70_000, 2**20 + 77, 3 * 2**20])
def test_distances_of_sketches_are_distances_of_tensors(size):
    generator = torch.Generator().manual_seed(size)
    a, b = (torch.randn(size, generator=generator) for _ in range(2))
    ratios = [
        np.linalg.norm(fingerprint(a).sketch - fingerprint(a + scale * b).sketch) / (scale * float(b.norm()))
        for scale in (1.0, 1e-2)
    ]
    assert ratios == pytest.approx([1, 1], abs=0.3)  # 1 / sqrt(128) is one standard deviation


def test_the_sketch_does_not_confuse_what_repeats_from_chunk_to_chunk():
    """Equal chunks with opposite signs differ by much; a sketch with the same signs in every chunk could not tell."""
    chunk = torch.randn(2**20, generator=torch.Generator().manual_seed(0))
    size = float(chunk.norm()) * 2**0.5
    for tensor in (torch.cat([chunk, chunk]), torch.cat([chunk, -chunk])):
        assert np.linalg.norm(fingerprint(tensor).sketch) == pytest.approx(size, rel=0.3)


def test_one_bit_changes_the_digest_and_layout_in_memory_does_not():
    tensor = torch.randn(40, 30)
    changed = tensor.clone()
    changed[3, 4] = torch.nextafter(changed[3, 4], torch.tensor(torch.inf))
    assert fingerprint(tensor).digest != fingerprint(changed).digest
    assert fingerprint(tensor.T.contiguous().T).digest == fingerprint(tensor).digest


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_command_prints_the_verdicts_and_exits_with_them(tmp_path):
    from probes.__main__ import app

    run = CliRunner()
    path = written(healthy(EVEN_RUN), tmp_path / "healthy")
    result = run.invoke(app, ["audit", str(path)])
    assert result.exit_code == 0, result.output
    assert "16 steps, 0 condemned, 0 suspect, 16 sound" in result.output
    series, _ = PLANTED["first shard is the final one"]()
    path = written(series, tmp_path / "broken", sharded=True)
    result = run.invoke(app, ["audit", str(path), "--output", str(tmp_path / "verdicts.csv")])
    assert result.exit_code == 1
    assert "120  condemned  final_weights" in result.output
    assert "120,condemned,final_weights" in (tmp_path / "verdicts.csv").read_text()
    result = run.invoke(app, ["audit", str(tmp_path / "nothing")])
    assert result.exit_code == 2
    assert "does not exist" in result.output
    assert len(SETTINGS) == 20


def test_damage_to_a_byte_in_the_middle_is_seen_where_it_matters(tmp_path):
    """A flipped exponent bit makes an entry huge: the step is far from its neighbours or not finite."""
    path = written(healthy(EVEN_RUN), tmp_path)
    file = path / "step160" / "model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        if tensors[name].ndim > 1:
            bits = tensors[name].view(torch.int32)
            bits[0, 0] = bits[0, 0] ^ (1 << 30)
    save_file(tensors, file)
    assert audit(open_run(path)).condemned.keys() == {160}
