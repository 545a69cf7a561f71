"""Disks that are full while something is written: the error names the file, nothing half-written is left, it goes on.

On a real disk of half a megabyte where one can be mounted, and with a limit on the size of files where not. And a clock
that is set back, which nothing here may depend on.
"""

import os
import re
import resource
import subprocess
import time
from multiprocessing import get_context

import pytest
import torch
from typer.testing import CliRunner

from checkpoints import RunWriter, open_run
from tests.kills.campaigns import an_own_run

SIZE = 1 << 19


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk, leave: int) -> None:
    """Leave so many bytes."""
    with open(disk / "filler", "wb") as file:
        free = os.statvfs(disk)
        file.write(bytes(max(0, free.f_bavail * free.f_bsize - leave)))


def probes_command(*arguments: object):
    from probes.__main__ import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


COMMANDS = {
    "measure": ("t.parquet", ("-o", "OUT/t.parquet", "--probes", "norm")),
    "audit": ("verdicts.csv", ("-o", "OUT/verdicts.csv")),
    "report": ("report.html", ("-o", "OUT/report.html", "--tables", "OUT/tables")),
}


def run_command(command, folder):
    options = [option.replace("OUT", str(folder)) for option in COMMANDS[command][1]]
    return probes_command(command, an_own_run(), *options)


def content(command, folder) -> bytes:
    found = (folder / COMMANDS[command][0]).read_bytes().replace(str(folder).encode(), b"")
    return re.sub(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", b"", found) if command == "report" else found


@pytest.mark.parametrize("command", ["measure", "audit"])
@pytest.mark.filterwarnings("ignore")
def test_a_command_on_a_full_disk_names_the_file_and_goes_on_once_there_is_room(command, disk, tmp_path):
    whole, there = tmp_path / "whole", disk / "there"
    whole.mkdir()
    there.mkdir()
    assert run_command(command, whole).exit_code in (0, 1)
    stopped = 0
    for leave in (0, 4096, 12_288):
        fill(disk, leave)
        result = run_command(command, there)
        if result.exit_code == 2:
            stopped += 1
            assert "No space left" in result.output
            assert str(there) in result.output
            assert not (there / COMMANDS[command][0]).exists()
            assert not list(disk.rglob("*.partial"))
        (disk / "filler").unlink()
    assert stopped
    assert run_command(command, there).exit_code in (0, 1)
    assert content(command, there) == content(command, whole)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_report_on_a_full_disk_names_the_file_and_goes_on_once_there_is_room(disk, tmp_path):
    fill(disk, 65_536)
    result = run_command("report", disk)
    assert result.exit_code == 2
    assert "No space left" in result.output
    assert str(disk) in result.output
    assert not (disk / "report.html").exists()
    assert not list(disk.rglob("*.partial"))


def test_a_run_on_a_full_disk_loses_nothing_that_was_logged(disk):
    writer = RunWriter(disk / "run")
    writer.save(0, {"w": torch.ones(5)})
    fill(disk, 6_000)  # in the middle of a line
    for step in range(2000):
        writer.log(step, loss=1.0 / (step + 1))
    with pytest.raises(OSError, match=r"metrics\.jsonl could not be written: .*No space left.*held and tried again"):
        writer.flush()
    with pytest.raises(OSError, match=r"could not be written: .*No space left"):
        writer.save(1, {"w": torch.ones(50_000)})
    assert not list((disk / "run").glob(".*"))
    assert open_run(disk / "run").steps == [0]
    (disk / "filler").unlink()
    writer.save(1, {"w": torch.ones(5)})
    writer.close()
    metrics = open_run(disk / "run").metrics
    assert metrics.index.to_list() == [*range(2000)]
    assert metrics["loss"].to_list() == [1.0 / (step + 1) for step in range(2000)]


def test_closing_on_a_full_disk_raises_and_lets_go_of_the_run(disk):
    writer = RunWriter(disk / "run")
    fill(disk, 0)
    writer.log(0, loss=1.0)
    with pytest.raises(OSError, match=r"metrics\.jsonl could not be written"):
        writer.close()
    (disk / "filler").unlink()
    with RunWriter(disk / "run", resume=True) as again:
        again.log(0, loss=1.0)
    assert len(open_run(disk / "run").metrics) == 1


def _limited(folder, said) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
    result = run_command("measure", folder)
    said.put((result.exit_code, result.output))


@pytest.mark.filterwarnings("ignore")
def test_files_that_may_not_grow_are_named_without_a_disk_of_ones_own(tmp_path):
    forked, an_own = get_context("fork"), an_own_run()
    said = forked.SimpleQueue()
    job = forked.Process(target=_limited, args=(tmp_path, said))
    job.start()
    code, output = said.get()
    job.join()
    assert code == 2
    assert re.search(rf"error: {tmp_path}.* could not be written: .*File too large", output)
    assert not (tmp_path / "t.parquet").exists()
    assert run_command("measure", tmp_path).exit_code == 0
    assert len(open_run(an_own)) == 20


def test_a_clock_that_is_set_back_changes_nothing(tmp_path, monkeypatch):
    """Times of files run backwards from step to step; what is a run, and what was measured of it, does not."""
    times = iter(range(10**9, 0, -(10**6)))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    circuits = {"w": {"tensors": ["w"], "pattern": "r c -> 1 1 r c"}}
    for attempt in range(2):
        with RunWriter(tmp_path / "run", circuits=circuits, resume=True) as writer:
            for step in range(3 * attempt, 3 * attempt + 3):
                writer.log(step, loss=1.0)
                file = writer.save(step, {"w": torch.randn(5, 5, generator=torch.Generator().manual_seed(step))})
                os.utime(file, (next(times), next(times)))
    run = open_run(tmp_path / "run")
    assert run.steps == [*range(6)]
    assert run.metrics.index.to_list() == [*range(6)]
    from probes import measure

    first = measure(run, probes="norm", resume_dir=tmp_path / "parts")
    os.utime(tmp_path / "parts" / "measurement.json", (1, 1))
    assert measure(open_run(tmp_path / "run"), probes="norm", resume_dir=tmp_path / "parts").equals(first)
