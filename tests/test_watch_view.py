"""What somebody who watches a run is shown: the latest numbers, a curve, transitions, and what is wrong."""

import io
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from checkpoints import RunWriter
from probes.__main__ import app
from probes.monitor.sinks import RunDirectory
from probes.series.online import Event
from probes.watch import Polled, Reader, once, watch
from probes.watch.curve import Curve, sparkline
from probes.watch.measured import NewestCheckpoint
from tests.told import EVENT, measurement
from tests.walking_run import write_run
from tests.watched_run import FORK, shown, words, write_small

# what is inside


def test_the_newest_checkpoint_is_measured_where_no_monitor_does(tmp_path):
    text = shown(once(write_small(tmp_path / "run", range(25))))
    assert "probes at step 20, change since step 10 (measured here)" in text
    assert "norm 21.02 +9.98 21.02 +9.98" in text  # sqrt(1 + 21^2), sqrt(1 + 11^2)


def test_what_a_monitor_measured_and_announced_is_shown_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(NewestCheckpoint, "measure", None)
    with RunWriter(tmp_path / "run") as writer:
        sink, reader = RunDirectory(writer), Reader(tmp_path / "run")
        for step in (0, 10, 20):
            sink.scalars(step, {"loss": 1.0})
            sink.rows(measurement(step, float(step)))
            reader.poll()
        with open(tmp_path / "run" / "events.jsonl", "a") as file:
            file.write('nonsense\n{"of": "a later release"}\n')
        sink.event(EVENT)
        text = shown(reader.poll())
    assert "probes at step 20, change since step 10 (measured by the run's monitor)" in text
    assert "effective rank 21 +10" in text
    assert "marginalized effective rank is missing: zero matrix" in text
    assert "cliff loss 12 10 to 15 20 0.0001" in text


def test_measuring_takes_a_tenth_of_the_time(tmp_path, monkeypatch):
    path, runs = write_small(tmp_path / "run", range(25)), []

    def slow(run, **_):
        runs.append(run.steps)
        time.sleep(0.05)
        raise ValueError("unknown architecture")

    monkeypatch.setattr("probes.watch.measured.measure", slow)
    monkeypatch.setattr("probes.watch.measured._PATIENCE", 0.0)
    reader, end = Reader(path), time.monotonic() + 1.2
    while time.monotonic() < end:
        snapshot = reader.poll()
        time.sleep(0.01)
    assert runs[0] == [10, 20]
    assert 2 <= len(runs) <= 3
    assert snapshot.problems == ("ValueError: unknown architecture",)


def test_a_checkpoint_is_measured_once(tmp_path, monkeypatch):
    real, runs = NewestCheckpoint.measure, []
    monkeypatch.setattr(NewestCheckpoint, "measure", lambda self, run: (runs.append(run.steps), real(self, run)))
    monkeypatch.setattr("probes.watch.measured._SHARE", 1.0)
    reader = Reader(write_small(tmp_path / "run", range(15)))
    for _ in range(100):
        snapshot = reader.poll()
        time.sleep(0.01)
    assert runs == [[0, 10]]
    assert snapshot.table is not None


class FakeDetector:
    def __init__(self, metric: str, **options) -> None:
        self.metric, self.values = metric, []

    def add(self, step, value):
        self.values.append((step, value))

    def is_due(self, step):
        return step == 20

    def look(self, step):
        return [
            Event(
                metric=self.metric,
                kind="cliff",
                direction="fall",
                step=15.0,
                low=12.0,
                high=18.0,
                detected_at=step,
                strength=0.5,
                p_value=0.001,
            )
        ]


def test_transitions_are_looked_for_where_no_monitor_does(tmp_path, monkeypatch):
    monkeypatch.setattr("probes.watch.metrics.Detector", FakeDetector)
    reader = Reader(write_small(tmp_path / "run", range(25)), measures=False)
    text = shown(reader.poll())
    assert "transitions (in loss, looked for here)" in text
    assert "cliff loss 15 12 to 18 20 0.001" in text
    values = reader._ours._metrics._detector.values  # type: ignore[union-attr]
    assert values == [(step, 100.0 - step) for step in range(25)]


# runs of others


def test_a_folder_of_steps_is_opened_again_and_again(tmp_path):
    path = write_run(tmp_path / "walk", [0, 100])
    reader = Reader(path, measures=False)
    assert reader.poll().checkpoints == 2
    shutil.copy(path / "step100.safetensors", path / "step200.safetensors")
    snapshot = reader.poll()
    assert (snapshot.name, snapshot.checkpoints, snapshot.last_checkpoint) == ("walk", 3, 200)
    assert snapshot.state.startswith("the last new checkpoint came 0 s ago")
    text = shown(once(path))
    assert "probes at step 200, change since step 100" in text


# the view


def test_a_sparkline_by_hand():
    points = [(0.0, 7.0), (1.0, 5.0), (2.0, 0.0), (3.0, 0.0)]
    assert sparkline(points, 4, log_steps=False) == "█▆▁▁"
    assert sparkline([(0.0, 1.0), (99.0, 0.0)], 4, log_steps=False) == "███▁"  # no value: as the one before
    assert sparkline([(0.0, 1.0), (9.0, 0.0), (99.0, 0.0)], 2) == "█▁"  # 9 is half way from 0 to 99 on a log scale
    assert sparkline([(0.0, 2.0), (1.0, 2.0)], 3) == "▁▁▁"
    assert sparkline([], 3) == ""


def test_a_curve_is_bounded_and_right_at_every_scale():
    curve = Curve()
    for step in range(100_000):
        curve.add(step, 2.0 * step)
    points = curve.points()
    assert len(points) < 5000
    assert points[:3] == [(0, 0), (1, 2), (2, 4)]
    assert all(value == pytest.approx(2 * step) for step, value in points)


def test_once_prints_the_numbers(tmp_path):
    path = write_small(tmp_path / "run", range(25))
    result = CliRunner().invoke(app, ["watch", str(path)])  # not a terminal: once
    assert result.exit_code == 0
    for line in (
        "run run linear-icl state no writer: it has finished, was stopped or was killed",
        "step 24, ",
        "loss 76 █",
        "steps 0 to 24 (log scale), from 76 to 100",
        "accuracy 0.24 checkpoints 3, the last at step 20",
        "probes at step 20",
    ):
        assert line in words(result.output)


def test_what_cannot_be_watched_is_refused_in_one_line(tmp_path):
    for source, reason in (
        (str(tmp_path / "nowhere"), "does not exist"),
        ("hub:a/b", "for runs on this disk"),
    ):
        result = CliRunner().invoke(app, ["watch", source, "--once"])
        assert result.exit_code == 2
        assert reason in result.output


def test_a_file_system_that_hangs_does_not_stop_the_view(tmp_path):
    reader, hangs = Reader(write_small(tmp_path / "run", range(5)), measures=False), threading.Event()
    snapshot = reader.poll()
    polls = iter([lambda: snapshot, lambda: hangs.wait(20) and snapshot])
    reader.poll = lambda: next(polls)()  # type: ignore[method-assign]
    polled = Polled(reader, interval=0.01)
    polled.start()
    time.sleep(0.1)
    object.__setattr__(snapshot, "read_at", snapshot.read_at - 60)
    console = Console(width=100, file=io.StringIO())
    console.print(polled.view(log_steps=True))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "the file system is slow or hangs: read 60 s ago, every 0.01 s" in text
    assert "loss         96" in text
    polled.stop()
    hangs.set()


def test_an_error_that_nobody_thought_of_is_shown_and_survived(tmp_path):
    reader = Reader(tmp_path)
    errors = iter([RuntimeError("never thought of"), None])

    def poll():
        error = next(errors, None)
        if error:
            raise error
        return Reader(tmp_path / "nowhere").poll()

    reader.poll = poll  # type: ignore[method-assign]
    polled = Polled(reader, interval=0.3)
    polled.start()
    time.sleep(0.1)
    assert str(polled.view(True)) == "RuntimeError: never thought of"
    time.sleep(0.5)
    assert polled.failure is None
    assert polled.snapshot is not None
    polled.stop()


def _watch_in_a_terminal(path: Path, terminal: int, code) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs are started without
    with os.fdopen(terminal, "w") as file:
        watch(path, Console(file=file, force_terminal=True, width=100), interval=0.1, measures=False)
    code.value = 7  # it returned, rather than died


def test_the_live_view_follows_the_run_and_ends_with_ctrl_c(tmp_path):
    ours, theirs = os.openpty()
    code = FORK.Value("i", 0)
    process = FORK.Process(target=_watch_in_a_terminal, args=(tmp_path / "run", theirs, code), daemon=True)
    process.start()
    os.close(theirs)
    screen = ""

    def read_until(text: str) -> None:
        nonlocal screen
        end = time.monotonic() + 20
        while text not in screen and time.monotonic() < end:
            screen += os.read(ours, 65536).decode(errors="replace")
        assert text in screen

    read_until("does not exist yet")
    write_small(tmp_path / "run", range(25))
    read_until("3, the last at step 20")
    os.kill(process.pid, signal.SIGINT)
    while process.is_alive():  # what it still prints has to go somewhere
        try:
            os.read(ours, 65536)
        except OSError:
            break
    process.join(20)
    assert code.value == 7
    os.close(ours)
