"""What a monitor detects: a table like that of `find_transitions`, and checkpoints that are dense around an event."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from probes.monitor import AdaptiveCheckpoints
from tests import small_gpt2
from tests.tiny_training import Training
from tests.told import event


@pytest.fixture(scope="module")
def two_cliffs() -> probes.Monitor:
    """A monitor that has seen a loss fall at steps 400 and 900."""
    noise = np.random.default_rng(0).normal(0, 0.02, 1500)
    with probes.Monitor(small_gpt2.model(), probes=["norm"], schedule=1000, budget=1.0) as monitor:
        for step in range(1500):
            monitor.step(loss=3.0 - (step >= 400) - (step >= 900) + noise[step])
    return monitor


def test_events_are_the_table_of_find_transitions_and_when_each_was_detected(two_cliffs):
    events, found = two_cliffs.events, probes.find_transitions(two_cliffs.series("loss"))
    assert events.columns.tolist() == [*found.columns, "metric", "detected_at"]
    assert events[found.columns].dtypes.tolist() == found.dtypes.tolist()
    assert events["detected_at"].dtype == np.int64
    assert events["step"].tolist() == pytest.approx([400, 900], abs=2)
    assert events["metric"].tolist() == ["loss", "loss"]
    assert all(events["detected_at"] > events["high"])


def test_events_are_in_the_table_what_they_are_one_by_one(two_cliffs):
    for name in two_cliffs.events:
        assert two_cliffs.events[name].tolist() == [getattr(one, name) for one in two_cliffs.detected]


def test_what_was_detected_later_and_happened_earlier_comes_first_in_the_table():
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"])
    for one in (event(45, detected_at=60), event(30, detected_at=70)):
        monitor._announce(one)
    assert monitor.events["step"].tolist() == [30, 45]
    assert [one.step for one in monitor.detected] == [45, 30]


def test_where_nothing_was_detected_the_table_has_its_columns_all_the_same(two_cliffs):
    none = probes.Monitor(small_gpt2.model(), probes=["norm"]).events
    assert len(none) == 0
    pd.testing.assert_series_equal(none.dtypes, two_cliffs.events.dtypes)


def test_everything_that_find_transitions_knows_is_announced_and_divergence_of_losses_alone():
    monitor = probes.Monitor(small_gpt2.model(), detect_in="*")
    monitor.log(loss=1.0, accuracy=1.0)
    monitor.series("loss")
    detectors = monitor.tracked.detectors
    assert {detector.kinds for detector in detectors.values()} == {("cliff", "stage", "dip", "spike")}
    assert [name for name, detector in detectors.items() if detector.alarms.diverges] == ["loss"]


def test_of_an_event_that_was_announced_late_the_transition_itself_is_dense(tmp_path):
    training = Training(steps=120)
    writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
    adaptive, states = AdaptiveCheckpoints(writer, schedule=50, most=15, budget=1.0), {}
    with probes.Monitor(training.model, checkpoints=adaptive, probes=["norm"]) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            states[step] = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
            if step == 70:
                monitor._announce(replace(event(45, detected_at=70), width=4.0))
    writer.close()
    assert monitor.failure is None
    run = open_run(tmp_path / "run")
    assert [s for s in run.steps if s < 34] == [0]  # sparse before
    within = [s for s in run.steps if 35 <= s <= 55]
    assert len(within) >= 15
    assert max(np.diff(within)) <= 2
    assert 2 <= len([s for s in run.steps if 55 < s <= 70]) <= 6  # a few until it was announced
    after = [s for s in run.steps if 70 < s <= 77]
    assert 1 <= len(after) <= 4
    assert [s for s in run.steps if s > 78] == [100, 120]
    for step in run.steps[1:]:
        assert torch.equal(run.checkpoint(step)["transformer.wte.weight"], states[step]["transformer.wte.weight"])


def test_copies_that_memory_has_no_room_for_lie_on_disk_and_are_written_all_the_same(tmp_path):
    training, states = Training(steps=60), {}
    writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
    adaptive = AdaptiveCheckpoints(writer, schedule=50, memory=1, budget=1.0)
    with probes.Monitor(training.model, checkpoints=adaptive, probes=["norm"]) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            states[step] = training.model.transformer.wte.weight.detach().clone()
            if step == 40:
                assert len(list((tmp_path / "run").glob(".ring-*"))) > 10
                assert len(adaptive._ring._copies) == 2
                monitor._announce(replace(event(30, detected_at=40), width=2.0))
    assert monitor.failure is None
    assert not list((tmp_path / "run").glob(".ring-*"))
    run = open_run(tmp_path / "run")
    assert {*range(26, 35)} <= set(run.steps)
    for step in range(26, 35):
        assert torch.equal(run.checkpoint(step)["transformer.wte.weight"], states[step])
