"""Training: killed at any moment and started again it is the same run; diverging it says so and keeps what it has."""

import os
import signal
import threading
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from tqdm import tqdm
from typer.testing import CliRunner

from checkpoints import open_run, schedules
from models.__main__ import app, seeds_of
from models.linear_icl.model import LinearICL, LinearICLConfig
from models.training import DivergedError, train

SMALL = LinearICLConfig(batch=8, tasks=16)
STEPS = 600


def train_small(directory: Path, seeds=(0, 1), steps=STEPS) -> list[Path]:
    return train(partial(LinearICL, SMALL), seeds, directory, "small", steps, schedules.every(20, steps), quiet=True)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if not file.name.startswith("resume")}


def kill_twenty_times(directory: Path, window: float, rng: np.random.Generator) -> bool:
    """Start training and kill it, twenty times over; False if it was done before that."""
    for _ in range(20):
        process = get_context("fork").Process(target=train_small, args=(directory,))
        process.start()
        time.sleep(rng.uniform(0, window))
        if not process.is_alive():
            return False
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        for path in directory.glob("*"):
            if (path / "run.json").exists():  # whatever is visible after a kill is whole
                run = open_run(path)
                for step in run.steps:
                    assert torch.isfinite(run.checkpoint(step)["p2"]).all()
    return True


@pytest.mark.slow
@pytest.mark.usefixtures("durable")
def test_killed_at_twenty_random_moments_and_resumed_it_is_the_same_run_byte_for_byte(tmp_path, rng):
    begin = time.monotonic()
    whole = train_small(tmp_path / "whole")
    window = (time.monotonic() - begin) / 8
    directory = tmp_path / "killed"
    for _ in range(8):  # machines speed up and slow down: too slow a killer is made quicker, too quick a one slower
        was_killed = kill_twenty_times(directory, window, rng)
        run = directory / "small-seed0"
        reached = open_run(run).steps[-1] if (run / "run.json").exists() else 0
        if was_killed and reached:
            break
        directory, window = directory.with_name(directory.name + "-again"), window * (1.5 if was_killed else 0.5)
    assert reached > 0  # some of the kills came in the middle of it
    resumed = train_small(directory)
    for one, other in zip(whole, resumed, strict=True):
        assert contents(one).keys() == contents(other).keys()
        for name, content in contents(one).items():
            assert contents(other)[name] == content, name


def draw_for_ever(holds) -> None:
    with tqdm.get_lock():
        holds.set()
        time.sleep(600)


def test_a_process_killed_while_it_draws_a_bar_holds_up_no_other():
    context = get_context("fork")
    holds = context.Event()
    process = context.Process(target=draw_for_ever, args=(holds,))
    process.start()
    assert holds.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    another = threading.Thread(target=tqdm, kwargs={"total": 1, "disable": True}, daemon=True)
    another.start()
    another.join(timeout=5)
    assert not another.is_alive()


def test_a_finished_run_is_left_alone(tmp_path):
    path = train_small(tmp_path, seeds=(0,), steps=60)[0]
    before = {file: file.stat().st_mtime_ns for file in path.iterdir() if "step" in file.name}
    train_small(tmp_path, seeds=(0,), steps=60)
    assert {file: file.stat().st_mtime_ns for file in path.iterdir() if "step" in file.name} == before
    assert len(open_run(path).metrics) == 60


def test_a_run_can_be_made_longer(tmp_path):
    long = train_small(tmp_path / "long", seeds=(0,), steps=100)[0]
    train_small(tmp_path / "grown", seeds=(0,), steps=60)
    grown = train_small(tmp_path / "grown", seeds=(0,), steps=100)[0]
    assert contents(long) == contents(grown)


def test_the_loss_is_logged_at_every_step_and_belongs_to_the_weights_saved_there(tmp_path):
    run = open_run(train_small(tmp_path, seeds=(0,), steps=40)[0])
    assert run.metrics.index.tolist() == list(range(40))
    assert run.steps == [0, 20, 40]
    fresh = LinearICL(SMALL, [0])
    assert run.metrics.loc[0, "loss"] == pytest.approx(float(fresh.update()["loss"]), rel=1e-12)


def test_a_seed_trains_the_same_alone_and_in_a_batch(tmp_path):
    alone = open_run(train_small(tmp_path / "alone", seeds=(1,), steps=200)[0])
    together = open_run(train_small(tmp_path / "together", seeds=(0, 1, 2), steps=200)[1])
    np.testing.assert_allclose(alone.metrics["loss"], together.metrics["loss"], rtol=1e-9)


def test_a_learning_rate_that_diverges_is_named_and_the_checkpoints_so_far_are_kept(tmp_path):
    make = partial(LinearICL, LinearICLConfig(batch=8, learning_rate=50.0))
    with pytest.raises(
        DivergedError, match=r"wild-seed4: the loss is (nan|inf) at step \d+\. The learning rate is too"
    ):
        train(make, [4], tmp_path, "wild", 2000, schedules.every(1, 2000), quiet=True)
    run = open_run(tmp_path / "wild-seed4")
    assert len(run.steps) > 1
    assert torch.isfinite(run.checkpoint(run.steps[1])["p2"]).all()


def test_the_number_of_threads_is_put_back(tmp_path):
    torch.set_num_threads(2)
    train_small(tmp_path, seeds=(0,), steps=20)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_seeds_are_read_as_people_write_them():
    assert seeds_of("3") == [3]
    assert seeds_of("0,2,5") == [0, 2, 5]
    assert seeds_of("0-3,7") == [0, 1, 2, 3, 7]


def test_the_command_says_what_a_run_costs_and_refuses_nonsense():
    help_text = CliRunner().invoke(app, ["linear-icl", "--help"]).output
    assert "Cost:" in help_text
    assert "Expect:" in help_text
    for bad in (["--preset", "huge"], ["--seed", "x"], ["--seed", "1,1"]):
        result = CliRunner().invoke(app, ["linear-icl", *bad])
        assert result.exit_code == 2
        assert "Error" in result.output


def test_other_seeds_join_without_touching_the_finished_ones(tmp_path):
    first = train_small(tmp_path, seeds=(0, 1), steps=100)
    before = [contents(path) for path in first]
    train_small(tmp_path, seeds=(0, 1, 2), steps=100)
    assert [contents(path) for path in first] == before
    assert len(open_run(tmp_path / "small-seed2").metrics) == 100


def test_a_damaged_resume_state_is_passed_over_for_the_one_before(tmp_path):
    whole = train_small(tmp_path / "whole", seeds=(0,), steps=100)[0]
    path = train_small(tmp_path / "damaged", seeds=(0,), steps=60)[0]
    state = path / "resume-000000060.safetensors"
    state.write_bytes(state.read_bytes()[:-9])
    train_small(tmp_path / "damaged", seeds=(0,), steps=100)
    assert contents(path) == contents(whole)


def test_a_run_whose_states_are_all_damaged_is_left_as_it_is(tmp_path):
    path = train_small(tmp_path, seeds=(0,), steps=60)[0]
    for state in path.glob("resume-*"):
        state.write_bytes(b"damaged")
    before = contents(path)
    with pytest.raises(ValueError, match="no state to resume from is readable"):
        train_small(tmp_path, seeds=(0,), steps=100)
    assert contents(path) == before


@pytest.mark.usefixtures("durable")
def test_a_full_disk_while_resuming_throws_nothing_away(tmp_path, monkeypatch):
    path = train_small(tmp_path, seeds=(0,), steps=60)[0]
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 60, "loss": 1.0}\n')  # logged after the last state: resuming has to cut it off
    before = contents(path)

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("checkpoints.writer.write_text", full)
    with pytest.raises(OSError, match="No space left"):
        train_small(tmp_path, seeds=(0,), steps=100)
    assert contents(path) == before


def test_lost_resume_states_mean_beginning_again_with_nothing_counted_twice(tmp_path):
    path = train_small(tmp_path, seeds=(0,), steps=60)[0]
    before = contents(path)
    for state in path.glob("resume-*"):
        state.unlink()
    train_small(tmp_path, seeds=(0,), steps=60)
    assert contents(path) == before


def test_a_run_is_not_made_shorter_and_seeds_are_named_once(tmp_path):
    train_small(tmp_path, seeds=(0,), steps=60)
    with pytest.raises(ValueError, match="already has 60 steps, more than the 40 asked for"):
        train_small(tmp_path, seeds=(0,), steps=40)
    for bad in ((), (1, 1)):
        with pytest.raises(ValueError, match="at least one, and each only once"):
            train_small(tmp_path, seeds=bad)
