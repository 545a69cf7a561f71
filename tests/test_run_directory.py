"""A run on disk: written whole or not at all, read lazily, and every way it can be broken said by name."""

import json
import os
import re
import resource
import signal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoints import RunWriter, open_run, schedules


def write_small(path: Path, steps=(0, 10, 20)) -> Path:
    with RunWriter(path, {"width": 4}, family="test", seed=3) as writer:
        for step in steps:
            writer.log(step, loss=1.0 / (step + 1))
            writer.save(step, {"w": torch.full((2, 2), float(step)), "b": torch.zeros(3)})
    return path


def test_what_is_written_is_read_back(tmp_path):
    run = open_run(write_small(tmp_path / "run"))
    assert (run.name, run.family, run.seed, run.config) == ("run", "test", 3, {"width": 4})
    assert run.steps == [0, 10, 20]
    assert run.metrics["loss"].to_dict() == {0: 1.0, 10: 1 / 11, 20: 1 / 21}
    assert set(run.checkpoint(10)) == {"w", "b"}
    assert torch.equal(run.checkpoint(10)["w"], torch.full((2, 2), 10.0))
    assert run.packages["torch"].startswith(torch.__version__.split("+")[0])


def test_a_module_is_saved_by_its_state_dict(tmp_path):
    model = torch.nn.Linear(3, 2)
    with RunWriter(tmp_path / "run") as writer:
        writer.save(0, model)
    saved = open_run(tmp_path / "run").checkpoint(0)
    assert torch.equal(saved["weight"], model.weight)


def test_views_transposes_shared_memory_and_small_types_are_stored_as_they_look(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "transposed": base.T,
        "slice": base[:, 1:3],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "tied": base,
        "tied too": base,
        "half": base.to(torch.bfloat16),
        "needs grad": base.clone().requires_grad_(),
    }
    with RunWriter(tmp_path / "run") as writer:
        writer.save(0, tensors)
    saved = open_run(tmp_path / "run").checkpoint(0)
    for name, tensor in tensors.items():
        assert torch.equal(saved[name], tensor), name
        assert saved[name].dtype == tensor.dtype


def test_only_the_tensor_asked_for_is_read(tmp_path):
    """A file whose data beyond the first tensor is damaged still gives that tensor."""
    with RunWriter(tmp_path / "run") as writer:
        file = writer.save(0, {"a": torch.arange(1000.0), "z": torch.arange(1000.0)})
    content = bytearray(file.read_bytes())
    content[-4000:] = b"\xff" * 4000
    file.write_bytes(content)
    assert torch.equal(open_run(tmp_path / "run").checkpoint(0)["a"], torch.arange(1000.0))


def test_scalars_of_one_step_logged_in_two_calls_share_a_row(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.log(0, loss=1.0)
        writer.log(0, accuracy=0.5)
        writer.log(1, loss=float("nan"))
    metrics = open_run(tmp_path / "run").metrics
    assert metrics.loc[0].to_dict() == {"loss": 1.0, "accuracy": 0.5}
    assert np.isnan(metrics.loc[1, "loss"])


def test_a_line_of_metrics_cut_short_is_ignored_and_dropped_on_resuming(tmp_path):
    path = write_small(tmp_path / "run")
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 30, "lo')
    assert open_run(path).metrics.index.tolist() == [0, 10, 20]
    with RunWriter(path, {"width": 4}, family="test", seed=3, resume=True) as writer:
        writer.log(30, loss=0.5)
    assert open_run(path).metrics.index.tolist() == [0, 10, 20, 30]


def test_going_back_to_a_resume_state_drops_the_metrics_after_it(tmp_path):
    describe = {"config": {"a": 1}}
    with RunWriter(tmp_path / "run", **describe) as writer:
        for step in range(10):
            if step % 4 == 0:
                writer.save_resume(step, {"x": torch.tensor([float(step)])})
            writer.log(step, loss=1.0)
    with RunWriter(tmp_path / "run", **describe, resume=True) as writer:
        assert writer.resume_steps() == [4, 8]  # the last two are kept
        assert writer.resume_state(4)["x"].item() == 4
        writer.go_back(4)
    assert open_run(tmp_path / "run").metrics.index.tolist() == [0, 1, 2, 3]


def test_an_existing_run_is_not_overwritten(tmp_path):
    path = write_small(tmp_path / "run")
    with pytest.raises(FileExistsError, match="already holds a run: pass resume=True"):
        RunWriter(path)
    with pytest.raises(ValueError, match="has another config"):
        RunWriter(path, {"width": 5}, family="test", seed=3, resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(FileExistsError, match="exists and is not a run"):
        RunWriter(tmp_path / "other")


def test_what_is_not_a_run_is_refused_with_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("")
    with pytest.raises(ValueError, match=r"is not a run \(it holds a\.txt\)\. Looked for: a run directory \(run"):
        open_run(tmp_path / "notes")
    (tmp_path / "notes" / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is not JSON"):
        open_run(tmp_path / "notes")
    (tmp_path / "notes" / "run.json").write_text('{"format": "something else"}')
    with pytest.raises(ValueError, match="does not describe a run"):
        open_run(tmp_path / "notes")


def test_a_newer_format_is_refused_with_what_to_do(tmp_path):
    path = write_small(tmp_path / "run")
    description = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(description | {"version": 99}))
    with pytest.raises(ValueError, match="format version 99, this release reads up to 1: upgrade"):
        open_run(path)


def test_a_truncated_checkpoint_is_named(tmp_path):
    path = write_small(tmp_path / "run")
    file = path / "step-000000010.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    run = open_run(path)
    damaged = run.checkpoint(10)
    with pytest.raises(ValueError, match=r"step-000000010\.safetensors cannot be read"):
        damaged["w"]
    assert torch.equal(run.checkpoint(20)["w"], torch.full((2, 2), 20.0))


def test_a_missing_step_or_tensor_is_named_with_what_there_is(tmp_path):
    run = open_run(write_small(tmp_path / "run"))
    with pytest.raises(KeyError, match="no weights at step 7; it has 0, 10, 20"):
        run.checkpoint(7)
    with pytest.raises(KeyError, match="no tensor 'c'; it has b, w"):
        run.checkpoint(0)["c"]


def test_a_damaged_line_of_metrics_is_named(tmp_path):
    path = write_small(tmp_path / "run")
    (path / "metrics.jsonl").write_text('{"step": 0, "loss": 1}\nnonsense\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: not a line of metrics"):
        _ = open_run(path).metrics


def _write_on_a_full_disk(path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    with RunWriter(path, {"width": 4}, family="test", seed=3, resume=True) as writer:
        writer.save(30, {"w": torch.zeros(100_000)})


def _child(path: Path, answer: Path) -> None:
    try:
        _write_on_a_full_disk(path)
    except OSError as error:
        answer.write_text(str(error))


@pytest.mark.usefixtures("durable")
def test_a_full_disk_loses_nothing_and_says_so(tmp_path):
    path = write_small(tmp_path / "run")
    process = get_context("fork").Process(target=_child, args=(path, tmp_path / "answer"))
    process.start()
    process.join(60)
    assert "step-000000030.safetensors could not be written" in (tmp_path / "answer").read_text()
    assert open_run(path).steps == [0, 10, 20]
    assert not list(path.glob(".*"))  # nothing half-written is left


@pytest.mark.usefixtures("durable")
def test_what_is_saved_is_on_the_disk_before_it_is_visible_and_so_are_the_metrics_before_it(tmp_path, monkeypatch):
    """In this order: the metrics, the weights under a name that no reader takes for weights, the directory."""
    flushed, fsync = [], os.fsync

    def watch(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    with RunWriter(tmp_path / "run") as writer:
        writer.log(0, loss=1.0)
        monkeypatch.setattr(os, "fsync", watch)
        writer.save(0, {"w": torch.zeros(1)})
    metrics, weights, directory = flushed
    assert (metrics, directory) == ("metrics.jsonl", "run")
    assert re.fullmatch(r"\.step-000000000\.safetensors\.\w+\.partial", weights)


def test_nothing_to_save_is_refused(tmp_path):
    with RunWriter(tmp_path / "run") as writer, pytest.raises(ValueError, match="step 5: there are no weights"):
        writer.save(5, {})


def test_schedules_begin_at_zero_and_end_at_the_last_step():
    assert schedules.every(30, 100) == (0, 30, 60, 90, 100)
    assert schedules.pythia(2500) == (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 2500)
    assert schedules.explicit([5, 3], 9) == (0, 3, 5, 9)
    steps = np.array(schedules.log_spaced(10_000, 40))
    assert steps[0] == 0
    assert steps[-1] == 10_000
    late = np.diff(np.log(steps[steps > 100]))
    assert late.max() / late.min() < 1.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedules.every(0, 10), "interval is 0"),
        (lambda: schedules.log_spaced(0), "total is 0"),
        (lambda: schedules.explicit([3, 12], 10), r"steps \[12\] lie outside a run of 10 steps"),
    ],
)
def test_impossible_schedules_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_a_kill_left_behind_is_invisible_and_cleared_on_resuming(tmp_path):
    path = write_small(tmp_path / "run")
    for name in (".step-000000030.safetensors.ab12.partial", ".tmpQLltP5"):
        (path / name).write_bytes(b"half")
    assert open_run(path).steps == [0, 10, 20]
    RunWriter(path, {"width": 4}, family="test", seed=3, resume=True).close()
    assert not list(path.glob(".*"))


def test_a_second_writer_is_refused_while_the_first_is_at_work(tmp_path):
    with RunWriter(tmp_path / "run") as first:
        first.log(0, loss=1.0)
        with pytest.raises(RuntimeError, match="is being written by another process or writer"):
            RunWriter(tmp_path / "run", resume=True)
    RunWriter(tmp_path / "run", resume=True).close()


def test_an_unreadable_resume_state_costs_nothing(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in range(10):
            writer.log(step, loss=1.0)
        with pytest.raises(FileNotFoundError):
            writer.resume_state(4)
    assert len(open_run(tmp_path / "run").metrics) == 10


def test_metrics_logged_out_of_order_are_kept_and_sorted(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in (0, 1000, 500, 501):
            writer.log(step, loss=float(step))
        writer.save_resume(900, {"x": torch.zeros(1)})
        writer.go_back(900)
    assert open_run(tmp_path / "run").metrics["loss"].to_dict() == {0: 0, 500: 500, 501: 501}


def test_the_last_word_on_a_scalar_counts_even_if_it_is_not_a_number(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.log(0, loss=3.0)
        writer.log(0, loss=float("nan"))
        writer.log(1, loss=torch.tensor(2.0, requires_grad=True))
    metrics = open_run(tmp_path / "run").metrics
    assert np.isnan(metrics.loc[0, "loss"])
    assert metrics.loc[1, "loss"] == 2
    assert metrics["loss"].dtype == np.float64


def test_going_back_drops_what_comes_again_and_starting_again_drops_everything(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in (0, 10, 20, 30):
            writer.save(step, {"w": torch.zeros(1)})
            writer.save_resume(step, {"x": torch.zeros(1)})
            writer.log(step, loss=1.0)
        writer.go_back(20)
        assert open_run(tmp_path / "run").steps == [0, 10, 20]
        assert writer.resume_steps() == [20]
        writer.go_back(-1)
    run = open_run(tmp_path / "run")
    assert run.steps == []
    assert run.metrics.empty


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda w: w.save(-1, {"w": torch.zeros(1)}), ValueError, "step is -1: it counts updates"),
        (lambda w: w.save(1.5, {"w": torch.zeros(1)}), Exception, "step"),
        (lambda w: w.save(1, {"w": np.zeros(1)}), Exception, "w"),
        (lambda w: (w.close(), w.log(0, loss=1.0)), ValueError, r"the writer of .* is closed"),
        (lambda w: (w.close(), w.save(0, {"w": torch.zeros(1)})), ValueError, r"the writer of .* is closed"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(tmp_path, act, error, message):
    with RunWriter(tmp_path / "run") as writer, pytest.raises(error, match=message):
        act(writer)


def test_asking_for_a_name_does_not_read_the_tensor(tmp_path, monkeypatch):
    checkpoint = open_run(write_small(tmp_path / "run")).checkpoint(0)
    monkeypatch.setattr(type(checkpoint), "__getitem__", None)
    assert "w" in checkpoint
    assert "c" not in checkpoint


def test_a_file_in_the_place_of_a_run_and_a_version_that_is_no_number_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file: a directory is needed"):
        RunWriter(tmp_path / "file")
    path = write_small(tmp_path / "run")
    description = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(description | {"version": "2"}))
    with pytest.raises(ValueError, match="\"version\" is '2', a whole number"):
        open_run(path)
    (path / "run.json").write_text(json.dumps(description | {"version": "a" * 5000}))
    with pytest.raises(ValueError, match=r"run\.json: \"version\" is 'a{100}', a whole number"):
        open_run(path)
    (path / "run.json").write_text(json.dumps(description).replace('"version": 1', f'"version": {"9" * 5000}'))
    with pytest.raises(ValueError, match=r"run\.json is not JSON"):
        open_run(path)
