"""A run is used like a mapping from steps to checkpoints, and a notebook shows what it is, come what may."""

import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from checkpoints import RunWriter, open_run
from checkpoints.audit import Audit, Fault, audit
from checkpoints.files.byte_source import LocalFile
from checkpoints.hub import Hub
from checkpoints.notebook import in_bytes
from tests.hub_server import HubServer, serving
from tests.small_gpt2 import CONFIG, state


@pytest.fixture
def run(tmp_path):
    with RunWriter(tmp_path / "mine", CONFIG.to_dict(), family="gpt2") as writer:
        for step in (0, 10, 200):
            writer.log(step, loss=2.0 / (step + 1), accuracy=float("nan") if step else 0.5)
            writer.save(step, state(step))
    return open_run(tmp_path / "mine")


def words(html: str) -> str:
    """What is read, without the tags."""
    return " ".join(re.sub("<[^>]*>", " ", html).split())


# --- steps and checkpoints


def test_a_run_has_the_length_and_the_steps_of_its_checkpoints(run):
    assert len(run) == 3
    assert list(run) == [0, 10, 200]
    assert list(reversed(run)) == [200, 10, 0]
    assert 10 in run
    assert 11 not in run
    assert "10" not in run


def test_a_step_gives_its_checkpoint(run):
    name = "transformer.wte.weight"
    assert [step for step in run if torch.equal(run[step][name], state(10)[name])] == [10]
    assert run[np.int64(200)].label == run.checkpoint(200).label


def test_a_position_is_not_taken_for_a_step(run):
    with pytest.raises(KeyError, match=r"run\[-1\]: a step is expected and no position; the last one is run\["):
        run[-1]
    with pytest.raises(KeyError, match="no weights at step 1; it has 0, 10, 200"):
        run[1]


@pytest.mark.parametrize("key", [slice(0, 2), 1.0, "final"])
def test_what_cannot_be_a_step_is_refused(run, key):
    with pytest.raises(Exception, match=r"step"):
        run[key]


def test_a_run_without_checkpoints_is_still_a_run(tmp_path):
    RunWriter(tmp_path / "empty").close()
    empty = open_run(tmp_path / "empty")
    assert len(empty) == 0
    assert list(empty) == []
    assert empty
    assert repr(empty) == "Run('empty', unknown, no checkpoints)"
    assert "no checkpoints" in words(empty._repr_html_())


# --- what is shown


def test_a_run_shows_its_name_family_steps_heads_and_last_metrics(run):
    assert repr(run) == "Run('mine', gpt2, 3 checkpoints, steps 0 to 200)"
    assert words(run._repr_html_()) == (
        f"Run mine family gpt2 source {run.source} checkpoints 3 checkpoints, steps 0 to 200 "
        "heads 2 layers x 2 heads of 8, d_model 16 (gpt2) last metrics loss 0.00995025 at 200, accuracy 0.5 at 0 "
        "to draw it probes.plot.loss(run), probes.plot.heads(run), probes.plot.spectrum(run, head)"
    )


def test_looking_at_a_run_keeps_nothing_that_may_still_grow(run):
    run._repr_html_()
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 300, "loss": 0.125}\n')
    assert "loss 0.125 at 300" in words(run._repr_html_())
    assert run.metrics.index[-1] == 300


def test_a_run_that_describes_its_circuits_shows_their_names(tmp_path):
    matrix = {"tensors": ["w"], "pattern": "row column -> 1 1 row column"}
    with RunWriter(tmp_path / "run", circuits={"ov": matrix, "gamma": matrix}) as writer:
        writer.save(7, {"w": torch.eye(2)})
    assert "1 checkpoint, step 7 circuits ov, gamma" in words(open_run(tmp_path / "run")._repr_html_())


def test_a_checkpoint_shows_where_it_is_and_how_much_is_in_it(run, tmp_path):
    size = sum(tensor.nbytes for tensor in state(0).values())
    assert repr(run[10]) == f"SafetensorsFile({run[10].label!r}, {len(state(0))} tensors, {in_bytes(size)})"
    torch.save({"w": torch.zeros(7)}, tmp_path / "one.pt")
    assert repr(open_run(tmp_path / "one.pt")[0]).endswith("one.pt', 1 tensor, 28 bytes)")
    assert [in_bytes(count) for count in (999, 1500, 2_340_000)] == ["999 bytes", "1.5 kB", "2.3 MB"]


def test_heads_show_their_number_and_size_and_no_numbers(run):
    assert repr(run.heads) == "HeadLayout(gpt2, 2 layers x 2 heads of 8, d_model 16)"
    heads = run.heads.read(run[0], 1)
    assert repr(heads) == "Heads(2 heads of 8, d_model 16, input_norm)"
    assert "W_O (2, 8, 16) torch.float32" in words(heads._repr_html_())
    assert "layers 0, 1 tensors of layer 0 transformer.h.0.attn.c_attn.weight" in words(run.heads._repr_html_())


def test_grouped_heads_and_layers_of_several_sizes_are_told(tmp_path):
    def layer(number: int, heads: int) -> dict[str, torch.Tensor]:
        shapes = {"W_Q": (heads, 8, 2), "_W_K": (2, 8, 2), "_W_V": (2, 8, 2), "W_O": (heads, 2, 8)}
        return {f"blocks.{number}.attn.{name}": torch.randn(shape) for name, shape in shapes.items()}

    save_file(layer(0, 4) | layer(1, 4), tmp_path / "step1.safetensors")
    assert str(open_run(tmp_path).heads) == "2 layers x 4 heads of 2 (2 key-value heads), d_model 8"
    save_file(layer(0, 4) | layer(1, 2), tmp_path / "step1.safetensors")
    assert str(open_run(tmp_path).heads) == "2 layers of 2 to 4 heads, d_model 8"


def test_an_audit_shows_its_verdicts(run):
    assert repr(audit(run)) == "Audit(mine: 3 steps, 0 condemned, 0 suspect, 3 sound)"
    found = Audit("mine", [0, 10], [Fault(10, "copy", "that of step 0")])
    assert words(found._repr_html_()) == (
        "mine: 2 steps, 1 condemned, 0 suspect, 1 sound step verdict fault evidence 10 condemned copy that of step 0"
    )
    many = Audit("mine", range(50), [Fault(step, "jump", "far") for step in range(50)])
    assert words(many._repr_html_()).endswith("19 suspect jump far and 30 more")


def test_names_from_files_are_escaped(tmp_path):
    evil = "<script>alert(1)</script>"
    with RunWriter(tmp_path / "run", name=evil, family=evil) as writer:
        writer.log(0, **{evil: 1.0})
        writer.save(0, {evil: torch.ones(1)})
    run = open_run(tmp_path / "run")
    found = Audit(evil, [0], [Fault(0, "copy", evil)])
    for html in (run._repr_html_(), found._repr_html_()):
        assert "<script" not in html
        assert "&lt;script&gt;alert(1)" in html


def test_what_cannot_be_read_is_said_where_it_would_stand(run):
    (run.path / "metrics.jsonl").write_text("nonsense\n")
    for file in run.path.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    assert "cut short" in repr(run[0])
    html = words(run._repr_html_())
    assert re.search(r"heads cannot be told: .*cut short", html)
    assert re.search(r"last metrics cannot be told: .*line 1: not a line of metrics", html)
    fresh = open_run(run.path)
    fresh.entries = None
    assert repr(fresh).startswith("Run('mine', gpt2, cannot be told: ")


def test_looking_at_a_run_on_a_hub_asks_the_server_nothing(tmp_path):
    index = b'{"weight_map": {"w": "model-00001-of-00001.safetensors"}}'
    files = {"model.safetensors.index.json": index, "model-00001-of-00001.safetensors": b""}
    server = HubServer("a/b", {"step1": files, "step2": files | {"model.safetensors.index.json": index + b"\n"}})
    with serving(server) as address:
        run = open_run("hub:a/b", hub=Hub(address, cache=tmp_path))
        checkpoint = run[1]
        before = len(server.requests)
        assert repr(checkpoint).endswith(", not read yet)")
        assert "2 checkpoints, steps 1 to 2 heads not looked for yet: run.heads" in words(run._repr_html_())
        assert len(server.requests) == before


def test_an_old_torch_file_is_shown_by_its_head_alone(tmp_path, monkeypatch):
    torch.save({"w": torch.zeros(10**6)}, tmp_path / "step1.pt", _use_new_zipfile_serialization=False)
    read, asked = LocalFile.read, []
    monkeypatch.setattr(LocalFile, "read", lambda file, start, stop: asked.append(stop) or read(file, start, stop))
    checkpoint = open_run(tmp_path, config={"n_head": 1})[1]
    assert repr(checkpoint).endswith(", 1 tensor, 4.0 MB)")
    assert max(asked) <= 2**20
