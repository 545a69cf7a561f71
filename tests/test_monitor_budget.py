"""What a monitor costs: at which steps something is due, what its budget affords, and how much memory it takes."""

import logging
import subprocess
import sys
from collections import deque
from contextlib import contextmanager
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import torch

import probes
from probes.monitor.budget import FLOOR, NO_FLOOR, RATIO, Budget
from probes.monitor.resting import Resting
from probes.monitor.steps import Steps
from probes.series.online import Detector
from tests import small_gpt2
from tests.tiny_training import Training

ROOT = Path(__file__).parents[1]


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
    assert not budget.affords("measurement")  # 2 were spent and it takes 2: more than a tenth of 38
    now = 73.0
    assert budget.affords("measurement")
    assert budget.used == pytest.approx(2 / 71)
    assert str(budget) == "2.82 % of the training time (at most 10 %): 1 x measurement (1 left out), 2000.0 ms each"


def test_a_budget_expects_the_median_cost_of_late_so_that_one_slow_start_is_forgotten():
    now = 0.0
    budget = Budget(0.5, clock=lambda: now)
    for seconds in (10.0, 1.0, 2.0):
        with budget.spending("measurement"):
            now += seconds
    assert budget.cost["measurement"] == 2.0
    now += 37.0  # 13 were spent, and four fifths of 18.5 may be by choice
    assert not budget.affords("measurement")
    now += 1.0
    assert budget.affords("measurement")


def test_what_the_end_will_cost_is_put_aside():
    now = 0.0
    budget = Budget(0.1, clock=lambda: now)
    with budget.spending("look"):
        now += 1.0
    now += 26.0  # four fifths of 2.6 may be spent by choice, 1 was
    assert budget.affords("look")
    budget.reserved = 2.0
    assert not budget.affords("look")
    now += 15.0
    assert not budget.affords("look")
    now += 10.0
    assert budget.affords("look")


@pytest.mark.parametrize(("cost", "widest"), [(0.3e-3, 4), (2e-3, 24)])
def test_copies_that_are_wanted_at_every_step_are_spread_and_leave_no_hole(cost, widest):
    now, copied = 0.0, []
    budget = Budget(0.05, clock=lambda: now)
    for step in range(1, 2001):
        now += 4.6e-3
        if budget.affords_alone("copy", step, step, spread=True):
            with budget.spending("copy", step):
                now += cost
            copied.append(step)
    late = [step for step in copied if step > 500]
    assert max(np.diff(late)) <= widest
    assert len([step for step in copied if step <= 100]) >= 0.03 / cost  # of .23 s that the first thousand updates earn
    assert budget.used <= 0.05


def test_a_floor_is_kept_whatever_it_costs():
    now = 0.0
    budget = Budget(0.001, clock=lambda: now)
    done = []
    for step in range(1, 200):
        if budget.affords("measurement", step):
            done.append(step)
            with budget.spending("measurement", step):
                now += 1.0
    assert done[:7] == [1, 2, 3, 5, 7, 10, 14]
    assert max(later / earlier for earlier, later in pairwise(done[3:])) <= 1.5
    assert budget.left_out["measurement"] == 199 - len(done)


def test_another_account_is_neither_ours_nor_training():
    now = 0.0
    budget, other = Budget(0.1, clock=lambda: now), Budget(0.1, clock=lambda: now)
    with budget.spending():
        now += 1.0
        with budget.on_account_of(other):
            now += 5.0
    now += 10.0
    assert (budget.spent, other.spent, budget.training) == (1.0, 5.0, 10.0)


def test_a_monitor_thins_itself_out_to_its_floor_and_says_so_at_once_and_at_the_end(caplog):
    training = Training(steps=50)
    with caplog.at_level(logging.WARNING), probes.Monitor(training.model, budget=1e-4) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    steps = sorted(set(monitor.table["step"]))
    assert steps[:6] == [0, 1, 2, 3, 5, 7]
    assert all(later <= ceil(1.5 * earlier) for earlier, later in pairwise(steps[1:]))
    assert steps[-1] == 50
    left_out = monitor.budget.left_out["measurement"]
    assert left_out > 10
    said = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(said) == 2
    assert f"{left_out} of {left_out + len(steps)} x measurement" in said[1]


def test_what_the_least_costs_is_said_when_it_is_known_how_long_an_update_takes(caplog):
    now = 0.0
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], budget=Budget(0.01, clock=lambda: now))
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            with monkeypatched_cost(monitor, 0.002):
                now += 0.01
                monitor.step()
    assert "an update takes 10.0 ms and a measurement 2.0 ms: at least one per factor 1.5" in caplog.text
    assert "about 0.4 % of the first 1000 updates" in caplog.text


@contextmanager
def monkeypatched_cost(monitor, seconds):
    monitor.budget._lately["measurement"] = deque([seconds])
    yield


def test_cheap_probes_are_measured_first_and_the_table_says_which_were_left_out():
    dear = probes.Probe.of_matrix("dear", lambda matrix: float(sum(np.linalg.norm(matrix) for _ in range(200))))
    model = small_gpt2.model()
    with probes.Monitor(model, probes=["norm", "effective_rank", dear], budget=1e-5) as monitor:
        for _ in range(60):
            monitor.step(loss=1.0)
    kind = "measurement of dear"
    assert monitor._measuring.costs.base == "current"  # what the two of the catalogue read
    assert monitor.budget.cost[kind] > 0
    rows = monitor.table.groupby(["probe", "step"])["why_missing"].agg(lambda why: why.notna().any()).unstack()
    steps = set(rows.columns[~rows.loc["dear"]])
    assert steps == {0, 1, 5, 21, 60}  # once per factor of four in steps, and at the end
    assert not rows.drop("dear").any(axis=None)
    assert rows.shape[1] >= 12
    why = set(monitor.table.loc[lambda t: t["probe"].eq("dear") & t["why_missing"].notna(), "why_missing"])
    assert why == {"left out at this step, to stay within the budget"}
    assert monitor.budget.left_out[kind] == rows.loc["dear"].sum()


def test_the_last_look_is_made_whatever_the_budget_says(caplog):
    noise = np.random.default_rng(0).normal(0, 0.02, 500).tolist()
    with caplog.at_level(logging.WARNING), probes.Monitor(small_gpt2.model(), probes=["norm"], budget=1e-9) as monitor:
        monitor.budget.note("look at a series", 10.0, 400)  # so that none is due by the floor
        for step, value in enumerate(noise):
            monitor.step(loss=3.0 - (step >= 400) + value)
        assert not monitor.detected
    assert [(event.kind, event.detected_at) for event in monitor.detected] == [("cliff", 500)]
    assert "was looked at once more at the end" in caplog.text


def test_a_quiet_step_keeps_what_the_scalars_were_then():
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], schedule=[0], checkpoints=False)
    loss = torch.zeros(())
    for _ in range(60):
        monitor.step(loss=loss)
        loss += 1
    assert monitor._quiet.until > 60  # none of the last ones was anything else
    monitor.close()
    assert monitor.series("loss").tolist() == list(range(60))


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


def test_steps_go_on_as_if_they_had_begun_at_zero():
    whole, later = Steps(1.1), Steps(1.1)
    whole.start(0)
    later.go_on(960)
    assert [s for s in range(2000) if whole.is_due(s) and s >= 960] == [s for s in range(960, 2000) if later.is_due(s)]


@pytest.mark.parametrize("schedule", [0, 1.0, 0.5, -3, True])
def test_a_schedule_that_means_nothing_is_refused(schedule):
    with pytest.raises(ValueError, match="schedule is"):
        Steps(schedule)


def test_a_step_that_was_jumped_over_is_made_up_for_at_the_next():
    steps = Steps([3, 7])
    steps.start(0)
    assert [step for step in (0, 2, 4, 6, 8, 10) if steps.is_due(step)] == [4, 8]


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


def test_what_is_skipped_is_counted_once_it_has_passed():
    steps = Steps(1.1)
    steps.start(10)
    steps.skip(13)
    assert steps.next == 13
    assert (steps.passed(10), steps.passed(12), steps.passed(20)) == (1, 1, 0)
    steps.skip(float("inf"))  # nobody knows when: it goes on as it is
    assert steps.next == 13


def test_before_which_step_something_can_neither_be_paid_for_nor_is_due():
    now = 0.0
    budget = Budget(0.1, clock=lambda: now)
    with budget.spending("look", 100):
        now += 8.0
    now += 50.0  # 100 updates earned 4 by choice; 16 are needed, 150 s more, of which four fifths are waited for
    assert budget.not_before("look", 100, 100, NO_FLOOR) == pytest.approx(100 + 0.8 * 150 / 0.5)
    assert budget.not_before("look", 100, 100, FLOOR) == ceil(100 * FLOOR / RATIO)
    assert budget.not_before("look", 100, 10, NO_FLOOR) == 100  # not known yet how long an update takes
    assert budget.not_before("measurement", 100, 100) == 100  # never done


def test_sleeping_through_what_cannot_be_paid_for_changes_nothing_that_is_done_or_counted(monkeypatch):
    def monitored():
        now = 0.0
        monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], budget=Budget(0.01, clock=lambda: now))
        measure, look, woken = monitor._measurement.measure, Detector.look, []

        def dear(function, seconds):
            def called(*arguments):
                nonlocal now
                now += seconds
                return function(*arguments)

            return called

        monkeypatch.setattr(monitor._measurement, "measure", dear(measure, 0.002))
        monkeypatch.setattr(Detector, "look", dear(look, 0.003))
        weights_changed = monitor._weights_changed
        monkeypatch.setattr(monitor, "_weights_changed", lambda step: woken.append(step) or weights_changed(step))
        for step in range(450):
            now += 0.01
            monitor.step(loss=step * 7919 % 101 / 101)
        monkeypatch.setattr(Detector, "look", look)
        steps = sorted(set(monitor.table["step"]))
        monitor.close()
        return steps, dict(monitor.budget.done), dict(monitor.budget.left_out), len(woken)

    slept = monitored()
    monkeypatch.setattr(Resting, "rest", lambda *_: None)
    awake = monitored()
    assert slept[:3] == awake[:3]
    assert slept[1]["look at a series"] > 0
    assert slept[3] < awake[3]
