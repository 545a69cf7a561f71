"""What goes wrong in a monitor, in its sinks or in what it is given: it is said once, and training goes on."""

import logging

import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
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
        monkeypatch.setattr(monitor._measurement, "measure", lambda step, only: 1 / 0)
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


def test_a_loss_without_a_name_is_refused_with_what_was_meant_and_training_goes_on(caplog):
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"])
    with caplog.at_level(logging.WARNING):
        monitor.step(torch.tensor(2.5))
        monitor.step(2.5, 0.9)
        monitor.log(0.5)
        monitor.step(7, loss=1.0)
    said = [record.getMessage() for record in caplog.records if "as the step" in record.getMessage()]
    assert len(said) == 1
    assert "handed a Tensor" in said[0]
    assert "monitor.step(loss=loss)" in said[0]
    assert monitor.failure is None
    assert monitor.done == 7
    assert monitor.series("loss").to_dict() == {6.0: 1.0}


@pytest.mark.parametrize("step", [10**30, 2**62, -1])
def test_a_step_that_no_run_has_made_is_not_written_into_the_run(tmp_path, step):
    """Nobody could have read the metrics of that run again."""
    with probes.Monitor(small_gpt2.model(), probes=["norm"], run=tmp_path / "run", checkpoints=False) as monitor:
        monitor.step(loss=1.0)
        monitor.step(step, loss=2.0)
        monitor.log(step, accuracy=0.5)
    assert monitor.done == 2
    assert open_run(tmp_path / "run").metrics["loss"].dropna().to_dict() == {0: 1.0, 1: 2.0}


class PlainAttention(torch.nn.Module):
    def __init__(self, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.c_attn, self.c_proj = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)


class PlainGPT(torch.nn.Module):
    """As people write it by hand: the number of heads is nowhere but in the attention module."""

    def __init__(self, *heads: int) -> None:
        super().__init__()
        blocks = [torch.nn.ModuleDict({"attn": PlainAttention(n_head)}) for n_head in heads]
        self.transformer = torch.nn.ModuleDict({"h": torch.nn.ModuleList(blocks)})


def test_the_number_of_heads_is_found_on_the_module_of_a_plain_gpt():
    monitor = probes.Monitor(PlainGPT(4, 4), probes=["norm"])
    assert sorted(monitor.table["head"].unique()) == [0, 1, 2, 3]


def test_where_modules_disagree_it_is_asked_for_in_words_of_the_monitor():
    with pytest.raises(ValueError, match=r'pass config=\{"num_attention_heads": \.\.\.\} to Monitor\(') as raised:
        probes.Monitor(PlainGPT(4, 2), probes=["norm"])
    assert "open_run" not in str(raised.value)
