"""A training that was killed and goes on: watched as if nothing had happened, from a state or its run directory."""

import json
import logging

import numpy as np
import pandas as pd
import pytest

import probes
from checkpoints import open_run
from tests import small_gpt2

CLIFF, LENGTH = 500, 900
SETTINGS = {"probes": ["norm"], "schedule": 100, "budget": 1.0, "checkpoints": False}


def losses() -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 0.02, LENGTH)
    return 3.0 - (np.arange(LENGTH) >= CLIFF) + noise


def train(monitor: probes.Monitor, steps: range) -> None:
    for loss in losses()[steps.start : steps.stop]:
        monitor.step(loss=float(loss))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> tuple[probes.Monitor, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    with probes.Monitor(small_gpt2.model(), run=folder, **SETTINGS) as monitor:
        train(monitor, range(LENGTH))
    assert len(monitor.events) == 1
    return monitor, open_run(folder).metrics


@pytest.mark.parametrize("killed_at", [CLIFF - 20, CLIFF + 15])
def test_from_a_state_a_cliff_around_the_kill_is_announced_and_every_series_goes_on(unbroken, killed_at):
    first = probes.Monitor(small_gpt2.model(), **SETTINGS)
    train(first, range(killed_at))
    state = json.loads(json.dumps(first.state_dict()))
    first.break_off()
    second = probes.Monitor(small_gpt2.model(), step=killed_at, **SETTINGS)
    second.load_state_dict(state)
    with second:
        train(second, range(killed_at, LENGTH))
    assert_goes_on(second, unbroken[0], killed_at)


@pytest.mark.parametrize(("killed_at", "resumed_at"), [(CLIFF + 30, CLIFF - 10), (CLIFF + 30, CLIFF + 30)])
def test_from_the_run_directory_it_goes_on_by_itself(tmp_path, unbroken, killed_at, resumed_at):
    first = probes.Monitor(small_gpt2.model(), run=tmp_path / "run", **SETTINGS)
    train(first, range(killed_at))
    first.break_off()
    with probes.Monitor(small_gpt2.model(), run=tmp_path / "run", step=resumed_at, **SETTINGS) as second:
        train(second, range(resumed_at, LENGTH))
    assert_goes_on(second, unbroken[0], resumed_at)
    pd.testing.assert_frame_equal(open_run(tmp_path / "run").metrics, unbroken[1])
    written = pd.read_csv(tmp_path / "run" / "probes.csv")
    assert not written.duplicated(["step", "layer", "head", "circuit", "probe"]).any()
    assert len((tmp_path / "run" / "events.jsonl").read_text().splitlines()) == 1


def assert_goes_on(resumed: probes.Monitor, unbroken: probes.Monitor, at: int) -> None:
    assert resumed.failure is None
    (event,), (expected,) = resumed.detected, unbroken.detected
    assert event.step == pytest.approx(expected.step, abs=2)
    assert event.detected_at == expected.detected_at
    pd.testing.assert_series_equal(resumed.series("loss"), unbroken.series("loss"))
    assert sorted({*resumed.table["step"]}) == sorted({*unbroken.table["step"], at})
    pd.testing.assert_frame_equal(
        resumed.autocorrelation_curvature("loss"), unbroken.autocorrelation_curvature("loss"), rtol=1e-9
    )


def test_what_was_announced_before_the_kill_is_not_announced_again(tmp_path):
    told = []
    settings = {**SETTINGS, "run": tmp_path / "run", "on_event": told.append}
    first = probes.Monitor(small_gpt2.model(), **settings)
    train(first, range(LENGTH - 50))
    first.break_off()
    assert len(told) == 1
    with probes.Monitor(small_gpt2.model(), step=LENGTH - 50, **settings) as second:
        train(second, range(LENGTH - 50, LENGTH))
    assert len(told) == 1
    assert len(second.events) == 1


def test_scalars_that_were_lost_with_the_process_are_said(tmp_path, caplog):
    first = probes.Monitor(small_gpt2.model(), run=tmp_path / "run", **SETTINGS)
    train(first, range(50))
    first.break_off()
    with caplog.at_level(logging.WARNING):
        probes.Monitor(small_gpt2.model(), run=tmp_path / "run", step=60, **SETTINGS).break_off()
    assert "has scalars up to step 49, and training goes on at step 60" in caplog.text


def test_a_kill_costs_a_hundredth_of_the_steps_at_most(tmp_path):
    monitor = probes.Monitor(small_gpt2.model(), run=tmp_path / "run", **SETTINGS)
    train(monitor, range(LENGTH))
    on_disk = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()  # as after a kill: nothing was closed
    assert LENGTH - 9 <= len(on_disk) < LENGTH
    monitor.break_off()


def test_a_state_is_taken_when_all_sinks_have_written(tmp_path):
    monitor = probes.Monitor(small_gpt2.model(), sinks=probes.monitor.sinks.CSV(tmp_path / "csv"), **SETTINGS)
    train(monitor, range(30))
    monitor.state_dict()
    assert (tmp_path / "csv" / "scalars.csv").read_text().count("\n") >= 30
    monitor.break_off()


def test_a_run_that_is_there_is_not_begun_again(tmp_path):
    probes.Monitor(small_gpt2.model(), run=tmp_path / "run", **SETTINGS).close()
    with pytest.raises(FileExistsError, match=r"already holds a run.*Monitor\(\.\.\., step=\.\.\.\)"):
        probes.Monitor(small_gpt2.model(), run=tmp_path / "run", **SETTINGS)


def test_a_state_of_another_step_is_refused():
    state = probes.Monitor(small_gpt2.model(), **SETTINGS).state_dict()
    with pytest.raises(ValueError, match=r"the state is of step 0, and this monitor began at step 7.*step=0"):
        probes.Monitor(small_gpt2.model(), step=7, **SETTINGS).load_state_dict(state)
    with pytest.raises(ValueError, match="no state of a Monitor"):
        probes.Monitor(small_gpt2.model(), **SETTINGS).load_state_dict({})
