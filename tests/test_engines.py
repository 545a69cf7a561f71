"""The same table to the last bit whichever engine does the work, whoever dies, and however often the job is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

import probes
from checkpoints import open_run
from probes.__main__ import app
from probes.measuring.checkpoint import GramCache, measure_checkpoint
from probes.measuring.engines import Dask, Processes, Serial, engine_named
from probes.measuring.process_pool import divided, next_task
from tests.quick_processes import probes_command, started
from tests.walking_run import STEPS, write_run


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "walk", STEPS)


@pytest.fixture(scope="module")
def run(path):
    return open_run(path)


@pytest.fixture(scope="module")
def table(run):
    return probes.measure(run)


# --- engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_give_the_same_table_to_the_last_bit(run, table):
    pd.testing.assert_frame_equal(probes.measure(run, engine=Processes(2)), table, check_exact=True)
    pd.testing.assert_frame_equal(probes.measure(run, engine="processes:2"), table, check_exact=True)
    with pytest.raises(ValueError, match="engine 'gpu'"):
        probes.measure(run, engine="gpu")


def test_how_much_is_remembered_does_not_change_a_bit(run, table, monkeypatch):
    monkeypatch.setattr("probes.measuring.checkpoint._CACHE", GramCache(limit=0))
    pd.testing.assert_frame_equal(probes.measure(run), table, check_exact=True)
    monkeypatch.setattr("probes.measuring.checkpoint._CACHE", GramCache(limit=100_000))
    again = probes.measure(run, references=("final", 200))
    for probe in table["probe"].unique():
        assert again.loc[again["probe"] == probe, "value"].equals(
            table.loc[table["probe"] == probe, "value"].set_axis(again.index[again["probe"] == probe])
        )


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.xdist_group("dask")
def test_a_dask_cluster_gives_the_same_table_to_the_last_bit(run, table, cluster):
    pd.testing.assert_frame_equal(probes.measure(run, engine=Dask(cluster)), table, check_exact=True)
    address = cluster.scheduler.address.replace("tcp://", "dask://")
    pd.testing.assert_frame_equal(probes.measure(run, engine=engine_named(address)), table, check_exact=True)


def _slow_open(marker: str, opened):
    """Open a checkpoint after saying who does it and waiting: time to kill the worker."""
    Path(marker).joinpath(str(os.getpid())).touch()
    time.sleep(0.3)
    return opened()


@pytest.mark.slow
@pytest.mark.xdist_group("dask")
def test_a_dask_worker_killed_in_the_middle_costs_nothing(run, table, cluster, tmp_path):
    from dataclasses import replace

    entries = [replace(entry, open=partial(_slow_open, str(tmp_path), entry.open)) for entry in run.entries]
    slow = replace(run, entries=entries)
    killer = subprocess.Popen(
        [sys.executable, "-c", KILLER, str(tmp_path), *map(str, cluster.run(os.getpid).values())]
    )  # waits until a worker has begun, then kills it
    found = probes.measure(slow, audit=False, engine=Dask(cluster))
    assert killer.wait() == 0
    pd.testing.assert_frame_equal(found.assign(run=table["run"]), table, check_exact=True)


KILLER = """
import os, signal, sys, time
marker, workers = sys.argv[1], sys.argv[2:]
for _ in range(600):
    begun = set(os.listdir(marker)) & set(workers)
    if begun:
        os.kill(int(begun.pop()), signal.SIGKILL)
        sys.exit(0)
    time.sleep(0.05)
sys.exit(1)
"""


def _deadly(label: str, measuring: int, opened):
    """A checkpoint that kills whoever else opens it, as running out of memory does."""
    if "step300" in label and os.getpid() != measuring:
        os.kill(os.getpid(), signal.SIGKILL)
    return opened()


@pytest.mark.slow
def test_a_checkpoint_that_kills_its_process_costs_its_rows_and_not_the_job(run, table):
    from dataclasses import replace

    entries = [replace(e, open=partial(_deadly, e.label, os.getpid(), e.open)) for e in run.entries]
    found = probes.measure(replace(run, entries=entries), audit=False, engine=Processes(2))
    lost = found["step"] == 300
    assert found.loc[lost, "why_missing"].str.contains("died").all()
    assert found.loc[found["step"] == 400, "why_missing"].str.contains("died").all()  # it opens step 300 too
    rest = ~lost & (found["step"] != 400)
    pd.testing.assert_frame_equal(found[rest], table[rest], check_exact=True)


def test_a_process_walks_neighbours_and_then_takes_over_the_later_half_of_what_is_left():
    queues = divided(list(range(12)), 2)
    assert next_task(queues, 0) == 0  # and there the first one stays
    assert [next_task(queues, 1) for _ in range(12)] == [6, 7, 8, 9, 10, 11, 3, 4, 5, 2, 1, None]
    assert divided([7], 3) == [[], [], [7]]


def _die_once(marker: Path, task):
    if task == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


@pytest.mark.slow
def test_a_process_that_is_killed_costs_nothing_but_trying_its_task_again(tmp_path):
    found = list(Processes(2).run(_die_once, tmp_path / "died", range(6)))
    assert (tmp_path / "died").exists()
    assert sorted(found) == [(number, number, None) for number in range(6)]
    assert found[-1][0] == 1  # last, with nothing beside it


def _leave_a_mark(folder: Path, task):
    while task and not folder.joinpath("go").exists():
        time.sleep(0.01)
    folder.joinpath(f"mark{task}").touch()


@pytest.mark.slow
def test_a_walk_that_is_given_up_leaves_no_process_at_work(tmp_path):
    walking = Processes(2).run(_leave_a_mark, tmp_path, [0, 1])
    assert next(walking)[0] == 0
    walking.close()
    (tmp_path / "go").touch()
    time.sleep(1)
    assert not (tmp_path / "mark1").exists()


def test_engines_are_named_by_text():
    assert engine_named("serial") == Serial()
    assert engine_named("processes:3") == Processes(3)
    assert engine_named("processes") == Processes(os.cpu_count() or 1)
    assert engine_named("dask://host:8786") == Dask("tcp://host:8786")
    for text in ("", "cluster", "processes:0", "processes:x", "dask://", "dask:host"):
        with pytest.raises(ValueError, match="'serial', 'processes', 'processes:4' or 'dask://host:port' is expected"):
            engine_named(text)


# --- killed and taken up ----------------------------------------------------------------------------------------------


def test_parts_are_taken_up_and_parts_of_something_else_are_refused(run, table, tmp_path, monkeypatch):
    class StoppedError(Exception):
        pass

    class OnlyTwo(Serial):
        def run(self, function, common, tasks):
            for result in super().run(function, common, tasks):
                if result[0] == 2:
                    raise StoppedError
                yield result

    with pytest.raises(StoppedError):
        probes.measure(run, resume_dir=tmp_path, engine=OnlyTwo())
    assert len(list(tmp_path.glob("step-*.parquet"))) == 2
    done: list[int] = []

    def noted(plan, task):
        done.append(task.current.step)
        return measure_checkpoint(plan, task)

    monkeypatch.setattr("probes.measuring.measure.measure_checkpoint", noted)
    again = probes.measure(run, resume_dir=tmp_path)
    assert done == STEPS[2:]
    pd.testing.assert_frame_equal(again, table, check_exact=True)
    with pytest.raises(ValueError, match="holds parts of another measurement"):
        probes.measure(run, resume_dir=tmp_path, removed=2)


def test_parts_are_not_taken_up_when_the_files_or_the_config_changed(tmp_path):
    path = write_run(tmp_path / "walk", [0, 1, 2])
    probes.measure(open_run(path), resume_dir=tmp_path / "parts", probes=("norm",))
    with pytest.raises(ValueError, match="files that have changed"):
        probes.measure(open_run(path, config={"n_head": 6}), resume_dir=tmp_path / "parts", probes=("norm",))
    save_file({k: v + 1 for k, v in open_run(path).checkpoint(1).items()}, path / "step1.safetensors")
    with pytest.raises(ValueError, match="files that have changed"):
        probes.measure(open_run(path), resume_dir=tmp_path / "parts", probes=("norm",))


def test_a_folder_with_something_else_in_it_is_neither_used_nor_deleted(path, tmp_path):
    (tmp_path / "t.parquet.parts").mkdir()
    (tmp_path / "t.parquet.parts" / "precious.txt").write_text("")
    result = CliRunner().invoke(app, ["measure", str(path), "-o", str(tmp_path / "t.parquet")])
    assert result.exit_code == 2
    assert "holds something else (precious.txt)" in result.output
    assert (tmp_path / "t.parquet.parts" / "precious.txt").exists()


def test_a_step_that_failed_is_tried_again_by_the_same_command(tmp_path):
    path = write_run(tmp_path / "walk", STEPS)
    file = path / "step300.safetensors"
    whole = file.read_bytes(), file.stat().st_mtime_ns
    file.write_bytes(whole[0][:-10])
    arguments = ["measure", str(path), "-o", str(tmp_path / "t.parquet"), "--no-audit"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "1 steps could not be measured, the first 300" in result.output
    assert probes.read_table(tmp_path / "t.parquet")["value"].notna().any()
    assert (tmp_path / "t.parquet.parts").exists()
    file.write_bytes(whole[0])
    result = CliRunner().invoke(app, arguments)  # another file now, so another measurement: said, not mixed
    assert result.exit_code == 2
    assert "files that have changed" in result.output


def test_a_reference_that_lacks_a_layer_costs_the_distances_and_nothing_else(tmp_path):
    path = write_run(tmp_path / "walk", STEPS)
    tensors = {k: v for k, v in open_run(path).checkpoint(500).items() if not k.startswith("h.1.")}
    save_file(tensors, path / "step500.safetensors")
    table = probes.measure(open_run(path), audit=False)
    norms = table[(table["probe"] == "norm") & (table["step"] < 500)]
    assert norms["value"].notna().all()
    distance = table[(table["probe"] == "subspace_distance") & (table["step"] == 200)]
    assert distance.loc[distance["layer"] == 0, "value"].notna().all()
    assert distance.loc[distance["layer"] == 1, "why_missing"].str.contains("step500.safetensors, which it is").all()
    audited = probes.measure(open_run(path))  # condemned, and so not the reference
    assert audited.attrs["references"] == {"reference": 400}


def test_runs_opened_by_a_relative_path_can_be_measured_from_elsewhere(tmp_path, monkeypatch):
    write_run(tmp_path / "walk", [0, 1])
    monkeypatch.chdir(tmp_path)
    run = open_run("walk")
    monkeypatch.chdir("/")
    assert probes.measure(run, probes=("norm",))["value"].notna().all()


@pytest.mark.slow
def test_killed_at_ten_random_moments_the_same_command_gives_the_same_file(tmp_path):
    path = write_run(tmp_path / "walk", list(range(0, 1000, 20)))

    def begun(output: str) -> BaseProcess:
        return started(probes_command, "measure", str(path), "-o", str(tmp_path / output))

    whole = begun("whole.parquet")
    whole.join()
    assert whole.exitcode == 0
    chance = random.Random(0)
    killed_at_work = 0
    for _ in range(10):
        job = begun("killed.parquet")
        parts = tmp_path / "killed.parquet.parts"
        goal = len(list(parts.glob("step-*"))) + chance.randint(0, 4)
        while job.is_alive() and len(list(parts.glob("step-*"))) < goal:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        job.kill()
        job.join()
        killed_at_work += job.exitcode == -signal.SIGKILL
        assert not (tmp_path / "killed.parquet").exists() or job.exitcode == 0
    assert killed_at_work >= 5
    last = begun("killed.parquet")
    last.join()
    assert last.exitcode == 0
    assert (tmp_path / "killed.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "killed.parquet.parts").exists()
