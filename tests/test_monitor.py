"""A live monitor: the numbers of `measure`, no change to the training, a bounded cost, and no way to kill a run."""

import logging
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from probes.monitor import AdaptiveCheckpoints, Sink
from probes.monitor.budget import Budget
from probes.monitor.steps import Steps
from tests import small_gpt2
from tests.tiny_training import Training

ROOT = Path(__file__).parents[1]
KEYS = ["step", "layer", "head", "circuit", "probe", "component"]


def assert_same_numbers(live: pd.DataFrame, written: pd.DataFrame) -> None:
    """Of the probes that a live monitor has, at the same steps: every row, to rounding."""
    written = written.loc[written["probe"].isin(live["probe"].unique())]
    both = live.merge(written, on=KEYS, suffixes=("_live", ""), how="outer", indicator=True)
    assert (both["_merge"] == "both").all()
    assert len(both) == len(live)
    np.testing.assert_allclose(both["value_live"], both["value"], rtol=1e-6, atol=1e-9)


def test_the_numbers_are_those_of_measure_on_the_checkpoints_of_the_same_steps(tmp_path):
    training = Training(steps=30)
    writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
    with writer, probes.Monitor(training.model, budget=1.0) as monitor:
        writer.save(0, training.model)
        for step, loss in training:
            monitor.step(loss=loss)
            if monitor.measured == step:
                writer.save(step, training.model)
    table = probes.measure(open_run(tmp_path / "run"), audit=False)
    assert set(monitor.table["step"]) == {*range(11), 11, 13, 15, 17, 19, 21, 24, 27, 30}
    assert monitor.table["value"].notna().mean() > 0.9
    assert_same_numbers(monitor.table, table)
    for name in ("family", "circuits", "weight_processing", "versions"):
        assert monitor.table.attrs[name] == table.attrs[name]
    assert monitor.table.attrs["definitions"].items() <= table.attrs["definitions"].items()
    assert set(monitor.table.attrs["definitions"]) == set(monitor.table["probe"])


@pytest.mark.parametrize("threads", [1, 2])
def test_training_is_the_same_bit_for_bit_with_and_without_a_monitor(tmp_path, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        alone = Training(steps=25, dropout=0.1)
        for _ in alone:
            pass
        watched = Training(steps=25, dropout=0.1)
        writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
        with probes.Monitor(
            watched.model, budget=1.0, evaluate=watched.evaluate, checkpoints=AdaptiveCheckpoints(writer)
        ) as monitor:
            for step, loss in watched:
                monitor.step(loss=loss)
                if step == 15:
                    monitor._announce(event(15))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert monitor.failure is None
    assert monitor.budget.done["measurement"] > 15
    for name, weight in alone.model.state_dict().items():
        assert torch.equal(weight, watched.model.state_dict()[name]), name
    assert torch.equal(alone.losses, watched.losses)


def event(step: int, detected_at: int | None = None) -> probes.Event:
    return probes.Event(
        metric="loss",
        kind="cliff",
        step=step,
        low=step - 1,
        high=step + 1,
        detected_at=detected_at or step,
        strength=0.5,
        p_value=1e-6,
    )


def test_an_evaluation_leaves_generators_and_modes_alone():
    training, modes = Training(steps=1), []
    training.model.train()

    def evaluate() -> dict[str, float]:
        modes.append(training.model.training)
        return {"luck": sum(drawn())}

    monitor = probes.Monitor(training.model, evaluate=evaluate)
    seed()
    expected = drawn()
    seed()
    monitor._announce(event(0))
    assert modes == [False]
    assert training.model.training
    assert drawn() == expected
    assert monitor.series("luck").tolist() == [sum(expected)]


def seed() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 (what people seed)


def drawn() -> list[float]:
    return [float(torch.rand(1)), random.random(), np.random.rand()]  # noqa: NPY002


def test_the_loss_of_an_update_belongs_to_the_weights_before_it():
    training = Training(steps=5)
    with probes.Monitor(training.model, step=100) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            monitor.log(test_loss=float(step))
    assert monitor.done == 105
    assert monitor.series("loss").index.tolist() == [100, 101, 102, 103, 104]
    assert monitor.series("loss").tolist() == pytest.approx(training.losses.tolist())
    assert monitor.series("test_loss").index.tolist() == [101, 102, 103, 104, 105]


def test_a_budget_is_kept_and_what_it_costs_is_said():
    now = 0.0
    budget = Budget(0.1, clock=lambda: now)
    assert budget.affords("measurement")  # the first is made to learn what it costs
    with budget.spending(), budget.spending("measurement"):
        now = 2.0
        with budget.not_ours():
            now = 5.0
    assert budget.spent == 2.0
    now = 40.0
    assert not budget.affords("measurement")  # 2 were spent and it takes 5: more than a tenth of 38
    now = 73.0
    assert budget.affords("measurement")
    assert budget.used == pytest.approx(2 / 71)
    assert str(budget) == "2.82 % of the training time (at most 10 %): 1 x measurement (1 left out), 5000.0 ms each"


def test_a_budget_expects_the_highest_cost_of_late_and_keeps_room_for_what_comes_first():
    now = 0.0
    budget = Budget(0.5, clock=lambda: now)
    for seconds in (10.0, 1.0):
        with budget.spending("measurement"):
            now += seconds
    assert budget.cost["measurement"] == pytest.approx(9.0)  # a tenth is forgotten each time
    with budget.spending("look"):
        now += 2.0
    now += 45.0  # 13 were spent, 22.5 may be
    assert budget.affords("measurement")
    assert not budget.affords("measurement", besides=["look"])


def test_a_monitor_thins_itself_out_and_says_so_once(caplog):
    training = Training(steps=50)
    with caplog.at_level(logging.WARNING), probes.Monitor(training.model, budget=1e-4) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    assert monitor.budget.done["measurement"] == 1
    assert monitor.budget.left_out["measurement"] > 10
    assert sum("left out" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        (1.5, [0, 1, 2, 3, 5, 8, 12, 18]),
        (5, [0, 5, 10, 15, 20]),
        ([3, 7, 19], [3, 7, 19]),
    ],
)
def test_schedules_need_no_end(schedule, due):
    steps = Steps(schedule)
    steps.start(0)
    assert [step for step in range(21) if steps.is_due(step)] == due


def test_an_interval_counts_from_zero_wherever_monitoring_begins():
    steps = Steps(5)
    steps.start(3)
    assert [step for step in range(3, 21) if steps.is_due(step)] == [3, 5, 10, 15, 20]


@pytest.mark.parametrize("schedule", [0, 1.0, 0.5, -3, True])
def test_a_schedule_that_means_nothing_is_refused(schedule):
    with pytest.raises(ValueError, match="schedule is"):
        Steps(schedule)


def test_a_step_that_was_jumped_over_is_made_up_for_at_the_next():
    steps = Steps([3, 7])
    steps.start(0)
    assert [step for step in (0, 2, 4, 6, 8, 10) if steps.is_due(step)] == [4, 8]


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


def test_a_loss_is_recorded_as_it_was_when_it_came():
    loss, monitor = torch.tensor(1.0), probes.Monitor(small_gpt2.model(), step=1000)  # no look is due for a while
    monitor.series("ov.norm")  # hands on what is held, so that the next is held for a while
    monitor.step(loss=loss)
    loss.zero_()
    assert monitor.series("loss").tolist() == [1.0]


def test_the_table_keeps_the_latest_rows_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr("probes.monitor.monitor._KEPT_ROWS", 20)
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], schedule=1, budget=1.0)  # 8 rows a step
    for _ in range(5):
        monitor.step()
    assert sorted(set(monitor.table["step"])) == [4, 5]


def test_dips_are_announced_of_probes_and_cliffs_of_everything():
    monitor = probes.Monitor(small_gpt2.model(), watch="*")
    monitor.log(loss=1.0, **{"accuracy.0": 1.0})
    monitor.series("loss")
    kinds = {name: detector.kinds for name, detector in monitor.watched.detectors.items()}
    assert kinds["loss"] == kinds["accuracy.0"] == ("cliff",)
    assert kinds["qk.effective_rank"] == kinds["ov.marginalized_effective_rank.4"] == ("cliff", "dip")


def test_a_scalar_that_is_none_costs_no_other(caplog):
    monitor = probes.Monitor(small_gpt2.model())
    for loss in (1.0, torch.zeros(2), 3.0):
        monitor.step(loss=loss)
    assert monitor.series("loss").tolist() == [1.0, 3.0]
    assert "the monitor failed" in caplog.text


def test_what_is_asked_for_wrongly_is_refused_before_training_begins():
    model = small_gpt2.model()
    with pytest.raises(ValueError, match="final weights"):
        probes.Monitor(model, probes=["subspace_distance"])
    with pytest.raises(ValueError, match="did you mean 'effective_rank'"):
        probes.Monitor(model, probes=["efective_rank"])
    with pytest.raises(ValueError, match="no attention"):
        probes.Monitor(torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="budget is 2"):
        probes.Monitor(model, budget=2)


def test_measuring_copies_no_weights_unless_drift_is_asked_for():
    model = small_gpt2.model()
    monitor = probes.Monitor(model, probes=["norm"])
    assert monitor._measurement._before is None
    kept = probes.Monitor(model)._measurement._before.open()
    assert all(".attn." in name or ".ln_1." in name for name in kept)
    assert kept["transformer.h.0.attn.c_attn.weight"].data_ptr() != model.transformer.h[0].attn.c_attn.weight.data_ptr()
    live = monitor.weights.now("now")
    assert live["transformer.h.0.attn.c_attn.weight"].data_ptr() == model.transformer.h[0].attn.c_attn.weight.data_ptr()


def test_an_event_writes_the_weights_before_it_and_dense_ones_after_it(tmp_path):
    training = Training(steps=120)
    writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
    adaptive, states, most_copies = AdaptiveCheckpoints(writer, schedule=50), {}, 0
    with probes.Monitor(training.model, checkpoints=adaptive, probes=["norm"]) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            states[step] = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
            most_copies = max(most_copies, len(adaptive._copies))
            if step == 60:
                monitor._announce(event(45, detected_at=60))
    writer.close()
    assert monitor.failure is None
    run = open_run(tmp_path / "run")
    assert [s for s in run.steps if s < 39] == [0]  # sparse before
    around = [s for s in run.steps if 39 <= s <= 60]
    assert len(around) >= 7  # what the ring held from before the event on
    assert max(np.diff(around)) <= 5
    assert most_copies == 16
    after = [s for s in run.steps if 60 < s <= 90]
    assert max(np.diff([60, *after, 90])) <= 2  # dense until twice the event's step
    assert [s for s in run.steps if s > 90] == [100, 120]
    for step in run.steps[1:]:
        assert torch.equal(run.checkpoint(step)["transformer.wte.weight"], states[step]["transformer.wte.weight"])


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


MILLION = """
import numpy as np
import probes
from tests import memory, small_gpt2

monitor = probes.Monitor(small_gpt2.model(), sinks=[probes.monitor.Sink()])
noise = np.random.default_rng(0).normal(1, 0.05, 1000).tolist()
for block in range(1000):
    for value in noise:
        monitor.step(loss=value)
    if block == 99:
        before = memory.reset_peak()
assert monitor.failure is None, monitor.failure
print(monitor.done, len(monitor.series("loss")), memory.peak() - before)
"""


@pytest.mark.slow
def test_memory_stays_flat_over_a_million_steps():
    # in a process of its own, whose functions do not check their arguments at every call as those of the tests do
    told = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    steps, entries, growth = map(int, told.split()[-3:])
    assert steps == 1_000_000
    assert entries < 10_000
    assert growth < 4e6  # bytes, over 900 000 steps: eight for every loss would be 7e6
