"""An audit of a published series without reading any weights: one request per revision, the hashes that it lists."""

import json

import pytest
import torch
from safetensors.torch import save
from typer.testing import CliRunner

from checkpoints import open_run
from checkpoints.audit import audit_hashes
from checkpoints.audit.hashes import judge_hashes
from checkpoints.hub import Hub
from probes.__main__ import app
from tests.hub_server import HubServer, serving
from tests.published_model import torch_saved

STEPS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]


def series(content: dict[int, float], kind: str = "model.safetensors") -> HubServer:
    """A repository in which the weights of a step are those of the number given for it."""
    write = save if kind.endswith("safetensors") else torch_saved
    revisions = {
        f"step{step}": {
            "config.json": json.dumps({"model_type": "none"}).encode(),
            kind: write({"w": torch.full((500,), float(value))}),
            "optimizer.bin": b"the same everywhere",
        }
        for step, value in content.items()
    }
    return HubServer("some/series", {"main": {"README.md": b"x"}, **revisions})


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_final_weights_that_are_served_early_are_found_without_reading_any(kind, tmp_path):
    server = series({step: 1000 if step in (64, 128) else step for step in STEPS}, kind)
    with serving(server) as address:
        run = open_run("hub:some/series", hub=Hub(address, cache=tmp_path))
        found = audit_hashes(run)
        assert {(f.step, f.kind) for f in found.faults} == {(64, "final_weights"), (128, "final_weights")}
        assert set(found.condemned) == {64, 128}
        asked = [path for path, _ in server.requests]
        assert sum("/tree/" in path for path in asked) == len(STEPS)  # one request for each revision
        assert not [path for path in asked if path.endswith(kind)]
        assert "no weights were read" in str(found)


def test_identical_revisions_are_all_named_and_a_warm_up_from_zero_is_not():
    def content(values):
        return {step: {"model.safetensors": str(value)} for step, value in values.items()}

    assert judge_hashes(content({0: 7, 1: 7, 2: 8, 4: 9})) == []
    three = judge_hashes(content({10: 1, 20: 5, 30: 5, 40: 5, 50: 6}))
    assert [(f.step, f.kind, f.evidence) for f in three] == [
        (20, "repeated", "every file is that of step 30, 40"),
        (30, "repeated", "every file is that of step 20, 40"),
        (40, "repeated", "every file is that of step 20, 30"),
    ]
    assert judge_hashes(content({1: 1})) == []


def test_a_shard_of_another_step_is_pointed_at_and_a_frozen_one_is_not():
    steps = [{"a": f"a{step}", "b": "frozen", "c": f"c{step}"} for step in range(6)]
    assert judge_hashes(dict(enumerate(steps))) == []
    steps[4]["c"] = "c1"
    (fault,) = judge_hashes(dict(enumerate(steps)))
    assert (fault.step, fault.kind, fault.evidence) == (4, "partly_repeated", "c is that of step 1")


def test_a_revision_that_cannot_be_listed_or_lists_no_weights_is_said(tmp_path):
    server = series({step: step for step in (1, 2, 3, 4)})  # of the first and the last the config was read already
    server.revisions["step3"] = {"README.md": b"no weights"}
    with serving(server) as address:
        run = open_run("hub:some/series", hub=Hub(address, cache=tmp_path, wait=0.0005))
        server.tamper = lambda handler, path: (
            "/tree/" in path and server.commits[path.split("/")[-1]] == "step2" and (handler.send(404, b"") or True)
        )
        found = audit_hashes(run)
    assert [(f.step, f.kind) for f in found.faults] == [(2, "unreadable"), (3, "unreadable")]
    assert "404" in found.faults[0].evidence
    assert "lists no weights" in found.faults[1].evidence


def test_the_command_line_says_it_with_an_exit_code(tmp_path, monkeypatch):
    server = series({1: 1, 2: 4, 3: 3, 4: 4})
    with serving(server) as address:
        monkeypatch.setattr("checkpoints.hub.constants.ENDPOINT", address)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        result = CliRunner().invoke(app, ["audit", "hub:some/series", "--hashes-only"])
    assert result.exit_code == 1, result.output
    assert "final_weights" in result.output
    assert "4 steps, 1 condemned" in result.output
    save_to = tmp_path / "step1.safetensors"
    save_to.write_bytes(save({"w": torch.ones(2)}))
    local = CliRunner().invoke(app, ["audit", str(tmp_path / "step1.safetensors"), "--hashes-only"])
    assert local.exit_code == 2
    assert "nobody lists the hashes of its files" in local.output
    both = CliRunner().invoke(app, ["audit", "hub:some/series", "--hashes-only", "--tensors", "all"])
    assert both.exit_code == 2
