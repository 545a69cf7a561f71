"""Sinks of runs that are killed and resumed, and on disks that are full: nothing twice, nothing lost that had room."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from checkpoints import RunWriter, open_run
from probes.measuring.tables import read_table
from probes.monitor.sinks import CSV, Parquet, RunDirectory, TensorBoard
from tests.told import EVENT, accumulated, measurement, tell

# a run that is resumed goes back


def test_a_resumed_run_directory_keeps_nothing_of_the_past_that_did_not_happen(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        tell(RunDirectory(writer), range(25))
        writer.save_resume(15, {"x": torch.zeros(1)})
    with RunWriter(tmp_path / "run", resume=True) as writer:
        writer.go_back(15)
        tell(RunDirectory(writer), range(15, 17))
    assert pd.read_csv(tmp_path / "run" / "probes.csv")["step"].unique().tolist() == [0, 10]
    assert (tmp_path / "run" / "events.jsonl").read_text() == ""
    assert open_run(tmp_path / "run").metrics.index.tolist() == list(range(17))


def test_a_resumed_csv_has_every_step_once(tmp_path):
    tell(CSV(tmp_path), range(25))  # killed: not closed
    for name in ("scalars.csv", "probes.csv"):
        with open(tmp_path / name, "a") as file:
            file.write("17,lo")
    sink = CSV(tmp_path, resume=True)
    tell(sink, range(15, 40))
    sink.close()
    assert pd.read_csv(tmp_path / "scalars.csv")["step"].to_list() == list(range(40))
    assert pd.read_csv(tmp_path / "probes.csv")["step"].to_list() == sorted([0, 10, 20, 30] * 3)
    assert pd.read_csv(tmp_path / "events.csv")["detected_at"].to_list() == [20]


def tell_parquet(path: Path, is_closed: bool) -> None:
    """Twenty-five steps, and then it is closed or simply gone."""
    sink = Parquet(path)
    tell(sink, range(25))
    if is_closed:
        sink.close()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_resumed_parquet_has_every_step_once(tmp_path, is_closed):
    tell_parquet(tmp_path / "t.parquet", is_closed)
    sink = Parquet(tmp_path / "t.parquet", resume=True)
    sink.scalars(15, {"loss": 1.0})
    sink.rows(measurement(17))
    sink.close()
    table = read_table(tmp_path / "t.parquet")
    assert table["step"].unique().tolist() == [0, 10, 17]
    assert table.attrs == measurement(0).attrs


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_parquet_that_is_resumed_and_told_nothing_keeps_what_it_has(tmp_path, is_closed):
    tell_parquet(tmp_path / "t.parquet", is_closed)
    Parquet(tmp_path / "t.parquet", resume=True).close()
    assert read_table(tmp_path / "t.parquet")["step"].unique().tolist() == [0, 10, 20]


def test_a_kill_while_parquet_parts_are_removed_loses_nothing(tmp_path):
    sink = Parquet(tmp_path / "t.parquet")
    tell(sink, range(25))
    first = (sink.parts / "step-000000000.parquet").read_bytes()
    sink.close()
    sink.parts.mkdir()
    (sink.parts / "step-000000000.parquet").write_bytes(first)
    Parquet(tmp_path / "t.parquet", resume=True).close()
    assert read_table(tmp_path / "t.parquet")["step"].unique().tolist() == [0, 10, 20]


def test_a_resumed_tensorboard_hides_what_comes_again(tmp_path):
    first = TensorBoard(tmp_path)
    tell(first, range(25))
    first.close()
    second = TensorBoard(tmp_path, resume=True)
    tell(second, range(15, 18))
    second.close()
    assert [event.step for event in accumulated(tmp_path).Scalars("loss")] == list(range(18))


def test_a_second_tensorboard_in_a_folder_hides_nothing(tmp_path):
    for name in ("theirs", "ours"):
        sink = TensorBoard(tmp_path)
        sink.scalars(0, {name: 1.0})
        sink.close()
    assert set(accumulated(tmp_path).Tags()["scalars"]) == {"theirs", "ours"}


# a full disk


def full(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/full")


@pytest.mark.parametrize(
    ("name", "act", "lines"),
    [
        ("scalars.csv", lambda sink: (sink.scalars(20, {"loss": 1.0}), sink.close()), 1),
        ("probes.csv", lambda sink: sink.rows(measurement(20)), 3),
        ("events.csv", lambda sink: sink.event(EVENT), 1),
    ],
)
def test_a_full_disk_names_the_file_and_loses_nothing_once_there_is_room(tmp_path, name, act, lines):
    sink = CSV(tmp_path)
    sink.scalars(0, {})
    before = (tmp_path / name).read_text()
    full(tmp_path / name)
    with pytest.raises(OSError, match=rf"{name} could not be written: .*No space left.*held and tried again"):
        act(sink)
    (tmp_path / name).unlink()
    (tmp_path / name).write_text(before)
    sink.close()
    assert len(pd.read_csv(tmp_path / name)) == lines


def test_a_full_disk_is_named_by_the_run_directory_and_by_parquet(tmp_path, monkeypatch):
    with RunWriter(tmp_path / "run") as writer:
        sink = RunDirectory(writer)
        sink.scalars(0, {"loss": 1.0})
        full(tmp_path / "run" / "probes.csv")
        with pytest.raises(OSError, match=r"probes\.csv could not be written: .*No space left"):
            sink.rows(measurement(0))
        full(tmp_path / "run" / "events.jsonl")
        with pytest.raises(OSError, match=r"events\.jsonl could not be written: .*No space left"):
            sink.event(EVENT)
    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    sink = Parquet(tmp_path / "t.parquet")
    with pytest.raises(OSError, match=r"step-000000010\.parquet could not be written: No space left"):
        sink.rows(measurement(10))
    assert not list((tmp_path / "t.parquet.parts").iterdir())


def fail(*_, **__):
    raise OSError("No space left")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_tensorboard_names_its_folder_and_begins_a_new_file_when_there_is_room(tmp_path, monkeypatch):
    from tensorboard.summary.writer.record_writer import RecordWriter

    sink = TensorBoard(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "write", fail)
        with pytest.raises(OSError, match=r"the event file could not be written: No space left.*in a minute"):
            sink.event(EVENT)
        with pytest.raises(OSError, match=f"{tmp_path} could not be written less than a minute ago"):
            sink.scalars(1, {"loss": 1.0})
    sink._rests_until = 0.0
    sink.scalars(2, {"loss": 1.0})
    sink.close()
    assert [event.step for event in accumulated(tmp_path).Scalars("loss")] == [2]


def test_what_could_not_be_written_for_long_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("probes.monitor.sinks.lines._MOST_BYTES", 100)
    sink = CSV(tmp_path)
    sink.scalars(0, {})
    full(tmp_path / "scalars.csv")
    sink.scalars(1, dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1.0))
    with pytest.raises(OSError, match=r"scalars\.csv: .* could not be written and are held; this is lost: 2,loss"):
        sink.scalars(2, {"loss": 1.0})


@pytest.mark.slow
def test_what_is_held_is_written_when_a_process_ends_without_closing_and_no_library_was_imported_for_it(tmp_path):
    code = (
        "import sys\n"
        "from probes.monitor.sinks import CSV\n"
        f"sink = CSV({str(tmp_path)!r})\n"
        "sink.scalars(0, {'loss': 1.0})\n"
        "print([name for name in ('tensorboard', 'wandb') if name in sys.modules])\n"
        "raise SystemExit(3)"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (3, "[]"), done.stderr
    assert len(pd.read_csv(tmp_path / "scalars.csv")) == 1
