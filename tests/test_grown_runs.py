"""Runs in which the model grew, links that lead nowhere, steps that cannot be read: each is said."""

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import probes
from checkpoints import open_run
from checkpoints.audit import audit
from checkpoints.hub import Hub
from checkpoints.sources.hub import content_hashes
from tests.hub_server import HubServer, serving
from tests.walking_run import write_run


def without_the_second_layer(path, *steps):
    for step in steps:
        file = path / f"step{step}.safetensors"
        save_file({name: tensor for name, tensor in load_file(file).items() if ".1." not in name}, file)


def test_a_model_that_grew_is_pointed_at_and_its_early_steps_are_measured(tmp_path):
    path = write_run(tmp_path / "walk", [0, 10, 20, 30, 40, 50])
    whole = probes.measure(open_run(path), probes="norm")
    without_the_second_layer(path, 0, 10)
    found = audit(open_run(path))
    assert {fault.step: fault.kind for fault in found.faults} == {0: "grown", 10: "grown"}
    assert found.condemned == {}
    table = probes.measure(open_run(path), probes="norm")
    assert table.attrs["failed"] == table.attrs["condemned"] == {}
    assert "h.1.attn.c_attn.weight is none, in most steps (24, 72)" in table.attrs["notes"][0]
    lacks = (table["step"] < 20) & (table["layer"] == 1)
    assert table.loc[lacks, "value"].isna().all()
    assert table.loc[lacks, "why_missing"].str.contains("has no tensor 'h.1.attn").all()
    assert table.loc[~lacks, "value"].equals(whole.loc[~lacks, "value"])


def test_layers_that_few_steps_have_are_not_measured_and_that_is_said(tmp_path):
    path = write_run(tmp_path / "walk", [0, 10, 20, 30, 40, 50])
    without_the_second_layer(path, 0, 10, 20, 30)
    table = probes.measure(open_run(path), probes="norm")
    assert set(table["layer"]) == {0}
    assert "2 tensors that only later steps have, not most: h.1.attn.c_attn.weight" in table.attrs["left_out"][0]


@pytest.mark.parametrize("steps", [(20,), (0,), (50,), (10, 30)])
def test_a_layer_that_is_missing_in_between_or_at_one_end_alone_is_condemned(tmp_path, steps):
    path = write_run(tmp_path / "walk", [0, 10, 20, 30, 40, 50])
    without_the_second_layer(path, *steps)
    assert set(audit(open_run(path)).condemned) == {*steps}


def test_links_that_lead_nowhere_are_said(tmp_path):
    path = write_run(tmp_path / "walk", [0, 10, 20])
    (path / "step30.safetensors").symlink_to(tmp_path / "gone")
    with pytest.warns(UserWarning, match=r"links to something that is not there \(any more\): step30\.safetensors"):
        assert open_run(path).steps == [0, 10, 20]
    (tmp_path / "step7").mkdir()
    (tmp_path / "step7" / "model.safetensors").symlink_to(tmp_path / "gone")
    (tmp_path / "step8").mkdir()
    save_file(load_file(path / "step0.safetensors"), tmp_path / "step8" / "model.safetensors")
    with pytest.raises(ValueError, match=r"step7 holds no weights .*not there \(any more\): model\.safetensors"):
        _ = open_run(tmp_path, revisions="step*").checkpoint(7).stored


def test_a_step_that_cannot_be_read_is_said_at_the_end_and_by_the_exit_code(tmp_path):
    from probes.__main__ import app

    path = write_run(tmp_path / "walk", [0, 10, 20])
    command = ["measure", str(path), "-o", str(tmp_path / "t.parquet"), "--probes", "norm"]
    assert CliRunner().invoke(app, command).exit_code == 0
    (path / "step10.safetensors").write_bytes(b"")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "1 steps could not be read, the first 10: unreadable: " in result.output
    assert "it is empty" in result.output


def test_hashes_of_weights_that_lie_in_folders_are_compared_too(tmp_path):
    files = {"README.md": b"x", "global_step5/mp_rank_00_model_states.pt": b"a", "global_step5/optim_states.pt": b"b"}
    server = HubServer("a/b", {"step5": files, "step6": {"model/__0_0.distcp": b"c", "model/.metadata": b"d"}})
    with serving(server) as address:
        hub = Hub(address, cache=tmp_path)
        found = [set(content_hashes(hub, "a/b", commit)) for commit in hub.revisions("a/b").values()]
    assert found == [{"global_step5/mp_rank_00_model_states.pt"}, {"model/__0_0.distcp"}]
