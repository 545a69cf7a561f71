"""Every fault planted in the weights is found at its step, and twenty healthy runs are left alone."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from checkpoints import open_run
from checkpoints.audit import audit
from checkpoints.audit.audit import judge
from checkpoints.audit.fault import KINDS
from checkpoints.audit.fingerprint import fingerprint
from tests.attention_series import HABITS, trained
from tests.planted_faults import EVEN_RUN, PLANTED
from tests.planted_in_transformers import PLANTED as IN_TRANSFORMERS
from tests.planted_in_transformers import changed, merged_adapter
from tests.training_series import SETTINGS, healthy, written

pytestmark = pytest.mark.xdist_group("audit")  # the little runs are trained once per process


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


@pytest.mark.parametrize("number", range(len(HABITS)))
def test_no_habit_of_honest_training_is_condemned(number):
    found = judged(trained(number))
    assert [fault for fault in found if fault.verdict == "condemned"] == []
    odd = {7: {"unchanged"}, 8: {"repeated"}, 22: {"resumed"}}
    assert {fault.kind for fault in found} == odd.get(number, set())


@pytest.mark.parametrize("fault", IN_TRANSFORMERS)
def test_a_fault_in_part_of_a_transformer_is_found_where_it_is_and_condemns_nothing_else(fault):
    series, expected = IN_TRANSFORMERS[fault]()
    found = judged(series)
    by_step = {step: {one.kind for one in found if one.step == step} for step in expected}
    assert {step: bool(kinds & by_step[step]) for step, kinds in expected.items()} == dict.fromkeys(expected, True)
    assert {one.step for one in found if one.verdict == "condemned"} <= {*expected}


def judged(series):
    return judge({step: {n: fingerprint(t, "model") for n, t in tensors.items()} for step, tensors in series.items()})


@pytest.mark.parametrize("law", [lambda step: 1.0 + step, lambda step: 1 + math.log1p(step), lambda step: step**-0.5])
def test_matrices_that_all_grow_by_one_law_are_not_taken_for_scaled(law):
    matrices = {f"layers.{n}.weight": torch.randn(16, 16, generator=torch.Generator().manual_seed(n)) for n in range(6)}
    series = {step: {name: law(step) * m for name, m in matrices.items()} for step in (1, 3, 10, 30, 100, 300, 1000)}
    assert not [fault for fault in judged(series) if fault.kind == "scaled"]


def test_a_small_adapter_merged_between_distant_steps_is_not_seen():
    """What an audit cannot tell: half of the size of attention is no more than training itself moves it there."""
    series, _ = changed(1, 15, merged_adapter, on=True)
    assert judged(series) == []


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
        assert found.condemned == {}  # a learning rate of zero would do the same
        assert {fault.step: fault.kind for fault in found.faults} == dict.fromkeys((1000, 2000, 3000), "repeated")
        attention = sum(run.checkpoint(1000).stored[n].bytes for i in run.heads.layers for n in run.heads.names(i))
        assert server.body_bytes < 2.5 * attention  # and the shards that revisions share were fetched once


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
