"""What goes wrong in a monitor, in its sinks or in what it is given: it is said once, and training goes on."""

import logging

import pytest
import torch

import probes
from checkpoints import RunWriter
from probes.monitor import AdaptiveCheckpoints, Sink
from tests import small_gpt2
from tests.tiny_training import Training
from tests.told import event


class Broken(Sink):
    def scalars(self, step, scalars):
        raise OSError("No space left on device")

    def rows(self, table):
        raise ConnectionError("gone")


class Kept(Sink):
    def __init__(self):
        self.steps, self.tables, self.closed = [], [], 0

    def scalars(self, step, scalars):
        self.steps.append(step)

    def rows(self, table):
        self.tables.append(table)

    def close(self):
        self.closed += 1


def test_a_lost_sink_loses_its_rows_and_nothing_else(caplog):
    training, broken, kept = Training(steps=20), Broken(), Kept()
    with caplog.at_level(logging.WARNING), probes.Monitor(training.model, sinks=[broken, kept], budget=1.0) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    assert kept.steps == list(range(20))
    assert sum(map(len, kept.tables)) == len(monitor.table)
    assert kept.closed == 1
    assert monitor.failure is None
    assert sum("the sink Broken failed" in record.getMessage() for record in caplog.records) == 1
    assert monitor.sinks.lost[broken] == 20 + monitor.budget.done["measurement"]


def test_an_error_in_the_monitor_is_reported_once_and_never_reaches_the_training(caplog, monkeypatch):
    training = Training(steps=20)
    with caplog.at_level(logging.WARNING), probes.Monitor(training.model, budget=1.0) as monitor:
        monkeypatch.setattr(monitor._measurement, "measure", lambda step: 1 / 0)
        monkeypatch.setattr(monitor, "on_event", lambda event: [][0])
        for _, loss in training:
            monitor.step(loss=loss)
        monitor._announce(event(20))
    said = [r.getMessage() for r in caplog.records if "the monitor failed" in r.getMessage()]
    assert len(said) == 1
    assert "division by zero" in said[0]
    assert "monitor.close()" in said[0]
    assert monitor.series("loss").tolist() == pytest.approx(training.losses.tolist())


def test_a_loss_that_is_no_number_does_not_stop_it():
    training = Training(steps=4)
    with probes.Monitor(training.model) as monitor:
        for (_, loss), factor in zip(training, (1, float("nan"), float("inf"), 1), strict=True):
            monitor.step(loss=loss * factor)
    assert monitor.failure is None
    assert monitor.series("loss").index.tolist() == [0, 3]


def test_a_scalar_that_is_none_costs_no_other(caplog):
    monitor = probes.Monitor(small_gpt2.model())
    for loss in (1.0, torch.zeros(2), 3.0):
        monitor.step(loss=loss)
    assert monitor.series("loss").tolist() == [1.0, 3.0]
    assert "the monitor failed" in caplog.text


def test_a_full_disk_costs_checkpoints_and_not_the_run(tmp_path, monkeypatch):
    training = Training(steps=30)
    writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
    adaptive = AdaptiveCheckpoints(writer, schedule=10)

    def full(step, weights):
        raise OSError("No space left on device")

    monkeypatch.setattr(writer, "save", full)
    with probes.Monitor(training.model, checkpoints=adaptive, budget=1.0) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    assert isinstance(monitor.failure, OSError)
    assert len(training.losses) == 30
    assert monitor.table["step"].max() == 30  # measuring went on
