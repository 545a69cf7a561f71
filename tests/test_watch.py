"""Looking at a run that somebody else writes: whatever happens to it, the view shows what is there and goes on."""

import io
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from checkpoints import RunWriter
from models.linear_icl.model import CIRCUITS
from probes.watch import Reader
from probes.watch.measured import NewestCheckpoint
from probes.watch.run_directory import is_locked
from probes.watch.tail import Tail
from tests.watched_run import FORK, shown, write_small

# a file that grows


class CountingFile(io.FileIO):
    bytes_read = 0

    def read(self, *arguments):
        content = super().read(*arguments)
        CountingFile.bytes_read += len(content)
        return content


def test_every_byte_is_read_once(tmp_path, monkeypatch):
    monkeypatch.setattr("probes.watch.tail.open", lambda path, *_, **__: CountingFile(path), raising=False)
    monkeypatch.setattr(CountingFile, "bytes_read", 0)
    path, tail, lines = tmp_path / "metrics.jsonl", Tail(tmp_path / "metrics.jsonl"), []
    with open(path, "w") as file:
        for number in range(100):
            file.write(f"line {number}\n" + "half of a ")
            file.flush()
            lines += tail.read()
            lines += tail.read()
    assert lines == ["line 0", *(f"half of a line {number}" for number in range(1, 100))]
    assert CountingFile.bytes_read == path.stat().st_size


def test_a_line_cut_short_is_kept_until_the_rest_comes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"st')
    tail = Tail(path)
    assert tail.read() == ['{"step": 0}']
    assert tail.ends_in_mid_line
    with open(path, "a") as file:
        file.write('ep": 1}\n')
    assert tail.read() == ['{"step": 1}']
    assert not tail.ends_in_mid_line


@pytest.mark.parametrize("how", ["replaced", "shortened"])
def test_a_file_that_is_replaced_or_shortened_is_read_again(tmp_path, how):
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("1\n2\n3\nhalf")
    tail = Tail(path)
    tail.read()
    assert not tail.began_again
    if how == "replaced":
        other.write_text("1\n2\n9\n10\n11\n")
        os.replace(other, path)
    else:
        path.write_text("1\n2\n")
    assert tail.read() == (["1", "2", "9", "10", "11"] if how == "replaced" else ["1", "2"])
    assert tail.began_again
    assert tail.read() == []
    assert not tail.began_again


def test_a_long_file_is_read_in_pieces_and_of_some_only_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("probes.watch.tail._AT_ONCE", 10)
    path = tmp_path / "a"
    path.write_text("".join(f"{number}\n" for number in range(10, 20)))
    tail, lines = Tail(path), []
    while not lines or tail.behind:
        lines += tail.read()
    assert lines == [str(number) for number in range(10, 20)]
    assert Tail(path, only_last=7).read() == ["18", "19"]  # the 7 bytes begin in the middle of 17


# a run that is written, killed, resumed


def _write_until_killed(path: Path, ready) -> None:
    with RunWriter(path) as writer:
        for step in range(1_000_000):
            writer.log(step, loss=1.0 / (step + 1))
            if step == 10:
                writer.save(step, {"w": torch.zeros(1)})  # this flushes
                ready.set()
            time.sleep(0.001)


def test_a_writer_that_is_killed_is_reported_and_what_it_wrote_is_shown(tmp_path):
    ready = FORK.Event()
    process = FORK.Process(target=_write_until_killed, args=(tmp_path / "run", ready), daemon=True)
    process.start()
    assert ready.wait(20)
    reader = Reader(tmp_path / "run", measures=False)
    assert reader.poll().state == "being written"
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    reader.poll()  # what it had still written
    snapshot = reader.poll()
    assert snapshot.state.startswith("no writer")
    assert snapshot.last_step is not None
    assert snapshot.last_step >= 10
    assert (snapshot.checkpoints, snapshot.last_checkpoint) == (1, 10)


def test_a_cut_last_line_means_that_the_writer_was_killed(tmp_path):
    path = write_small(tmp_path / "run", range(5))
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "lo')
    assert "it was killed (the last line" in Reader(path).poll().state


def test_a_resumed_run_is_shown_as_it_is_now(tmp_path):
    path, reader = write_small(tmp_path / "run", range(31)), Reader(tmp_path / "run", measures=False)
    assert reader.poll().last_step == 30
    with RunWriter(path, family="linear-icl", circuits=CIRCUITS, resume=True) as writer:
        writer.go_back(10)
        writer.log(10, loss=-1.0)
        writer.flush()
        snapshot = reader.poll()
    assert (snapshot.last_step, snapshot.latest["loss"], snapshot.last_checkpoint) == (10, (10, -1.0), 10)
    assert snapshot.curve[-1] == (10, -1)


def test_the_speed_is_that_of_the_last_minute(tmp_path, monkeypatch):
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr("probes.watch.run_directory.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with RunWriter(tmp_path / "run") as writer:
        reader = Reader(tmp_path / "run", measures=False)
        reader.poll()
        for step in range(1000):
            writer.log(step, loss=1.0)
            writer.flush()
            if step % (10 if step < 500 else 100) == 0:  # slow at first
                last = reader.poll()
    seconds_per_poll = 20  # the clock is asked twice in a poll
    assert last.speed == f"{100 / seconds_per_poll:.3g} steps/s"


def test_asking_for_the_lock_does_not_keep_a_writer_from_beginning(tmp_path):
    write_small(tmp_path / "run", range(1))
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            is_locked(tmp_path / "run" / "run.json")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(50):
            RunWriter(tmp_path / "run", family="linear-icl", circuits=CIRCUITS, resume=True).close()
    finally:
        stopped.set()
        asking.join()


# a run that is not there, or not any more, or another one


def test_a_run_that_does_not_exist_yet_is_waited_for_and_one_that_vanishes_is_remembered(tmp_path):
    reader = Reader(tmp_path / "run", measures=False)
    assert "does not exist yet" in shown(reader.poll())
    (tmp_path / "run").mkdir()
    assert "empty: waiting" in shown(reader.poll())
    write_small(tmp_path / "run", range(5))
    assert reader.poll().last_step == 4
    shutil.rmtree(tmp_path / "run")
    gone = reader.poll()
    assert gone.state.startswith("gone")
    assert gone.last_step == 4
    write_small(tmp_path / "run", range(3), name="another")
    assert (reader.poll().name, reader.poll().last_step) == ("another", 2)


def test_a_run_that_another_takes_the_place_of_is_forgotten(tmp_path):
    reader = Reader(write_small(tmp_path / "run", range(25)), measures=False)
    reader.poll()
    write_small(tmp_path / "new", range(3))
    shutil.move(tmp_path / "run", tmp_path / "old")
    shutil.move(tmp_path / "new", tmp_path / "run")
    snapshot = reader.poll()
    assert (snapshot.name, snapshot.last_step, snapshot.checkpoints) == ("new", 2, 1)


def test_what_is_damaged_or_no_run_is_a_line_in_the_view(tmp_path):
    path = write_small(tmp_path / "run", range(5))
    with open(path / "metrics.jsonl", "a") as file:
        file.write('nonsense\n[1]\n{"step": 7, "loss": 2}\n')
    snapshot = Reader(path, measures=False).poll()
    assert snapshot.last_step == 7
    assert snapshot.problems == ("metrics.jsonl: 2 damaged lines are left out",)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    assert "is not a run (it holds notes.txt" in shown(Reader(tmp_path / "other", measures=False).poll())


def test_what_must_be_known_of_how_a_run_was_found_is_in_the_view_and_not_on_the_screen(tmp_path, recwarn):
    for name in ("epoch1.pt", "epoch2.pt", "best.pt"):
        torch.save({"w": torch.ones(2)}, tmp_path / name)
    reader = Reader(tmp_path, measures=False)
    for _ in range(2):
        snapshot = reader.poll()
        assert snapshot is not None
        assert [text.rpartition(" ")[2] for text in snapshot.problems] == ["epoch", "best.pt"]
    assert not [warning for warning in recwarn if "best.pt" in str(warning.message)]


def test_one_listing_a_poll(tmp_path, monkeypatch):
    reader, listings = Reader(write_small(tmp_path / "run", range(25))), []
    for name in ("listdir", "scandir"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real: (listings.append(a), real(*a))[1])
    monkeypatch.setattr(NewestCheckpoint, "measure", lambda *_: None)
    for _ in range(3):
        reader.poll()
    assert len(listings) == 3
