"""What a monitor costs: at which steps something is due, what its budget affords, and how much memory it takes."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import probes
from probes.monitor.budget import Budget
from probes.monitor.steps import Steps
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
