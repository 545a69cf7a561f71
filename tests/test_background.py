"""Measuring in a worker process: the same numbers, nothing lost however training ends, and no process left behind."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import open_run
from probes.monitor.background import Background
from tests import small_gpt2
from tests.test_monitor import assert_same_numbers
from tests.tiny_training import Training

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def both() -> tuple[Training, probes.Monitor, Training, probes.Monitor]:
    """The same training measured here, and by a worker."""
    found = []
    for background in (False, True):
        training = Training(steps=40, dropout=0.1)
        with probes.Monitor(training.model, budget=1.0, background=background, detect_in="*") as monitor:
            for _, loss in training:
                monitor.step(loss=loss)
        found += [training, monitor]
    return tuple(found)


def test_the_numbers_are_the_same_to_the_last_bit(both):
    _, here, _, worker = both
    assert worker.failure is None
    assert worker.budget.done["hand-over of weights to the worker"] == here.budget.done["measurement"] > 15
    pd.testing.assert_frame_equal(here.table, worker.table)
    for name in here.tracked.records:
        pd.testing.assert_series_equal(here.series(name), worker.series(name))


def test_training_is_the_same_bit_for_bit(both):
    for one, other in zip(both[0].model.parameters(), both[2].model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(both[0].losses, both[2].losses)


def test_no_worker_is_left_behind_when_it_is_closed(both):
    assert both[3]._measuring.background is None
    assert both[3]._measuring.worker_seconds > 0
    assert not children()


def children() -> list[str]:
    """Processes of ours that measure."""
    listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "probes.monitor.worker" in line]


def test_a_dead_worker_is_said_once_and_what_it_left_undone_is_measured_here(caplog):
    training = Training(steps=30)
    with caplog.at_level(logging.WARNING), probes.Monitor(training.model, budget=1.0, background=True) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            if step == 12:
                monitor._measuring.background.process.kill()
    assert sum("the worker ended with SIGKILL" in record.getMessage() for record in caplog.records) == 1
    assert monitor.failure is None
    assert set(monitor.table["step"]) == {*range(12), 13, 15, 17, 19, 21, 24, 27, 30}
    alone = Training(steps=30)
    with probes.Monitor(alone.model, budget=1.0) as here:
        for _, loss in alone:
            here.step(loss=loss)
    assert_same_numbers(monitor.table, here.table)


def test_probes_defined_on_the_spot_go_along_and_what_finds_no_free_slot_is_left_out_and_counted(monkeypatch):
    largest = probes.Probe.of_matrix("largest", lambda matrix: np.abs(matrix).max())
    with probes.Monitor(small_gpt2.model(), probes=[largest], budget=1.0, background=True) as monitor:
        monkeypatch.setattr(Background, "has_room", False)
        for _ in range(10):
            monitor.step(loss=1.0)
        monkeypatch.undo()
    assert monitor.budget.left_out["hand-over of weights to the worker"] == 10
    assert monitor.table.groupby("step")["value"].max().gt(0).to_dict() == {0: True, 10: True}


def test_what_cannot_be_handed_to_another_process_is_refused_before_training_begins():
    import threading

    lock = threading.Lock()
    own = probes.Probe.of_matrix("locked", lambda matrix: float(lock.locked()))
    with pytest.raises(ValueError, match=r"background=True has to hand circuits and probes to another process"):
        probes.Monitor(small_gpt2.model(), probes=[own], background=True)


SCRIPT = """
import os, signal, sys, time
import probes
from tests.tiny_training import Training


def train(folder, ending):
    training = Training(steps=60)
    with probes.Monitor(training.model, run=folder, background=True, budget=1.0, checkpoints=False) as monitor:
        print(ending, monitor._measuring.background.process.pid, flush=True)
        for step, loss in training:
            monitor.step(loss=loss)
            if step == 40 and ending == "exception":
                raise RuntimeError("planted")
            if step == 40:
                os.kill(os.getpid(), signal.Signals[ending])
                time.sleep(60)


for ending in sys.argv[2:]:
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        train(f"{sys.argv[1]}/{ending}", ending)
    print("ended", ending, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_however_training_ends_nothing_measured_is_lost_and_no_process_is_left(tmp_path):
    endings = {"exception": 1, "SIGINT": -signal.SIGINT, "SIGTERM": -signal.SIGTERM}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *endings], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    for ending, code in endings.items():
        assert f"ended {ending} {code}\n" in done.stdout, done.stderr
        worker = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith(ending))
        assert is_gone(int(worker))
        run = open_run(tmp_path / ending)
        assert run.metrics.index.tolist() == list(range(40))
        measured = pd.read_csv(tmp_path / ending / "probes.csv")
        assert set(measured["step"]) >= {*range(11), 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37}


def is_gone(process: int) -> bool:
    """Whether a process ends within seconds."""
    for _ in range(50):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
