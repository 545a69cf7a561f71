"""Jobs that meet each other, are stopped, or find what an earlier one left damaged."""

import json
import multiprocessing
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise

import pandas as pd
import pytest
import torch

import checkpoints
import probes
from probes.measuring.engines import Processes

SQUARE = {"w": {"tensors": ["w"], "pattern": "r c -> 1 1 r c"}}


def small_run(folder, steps=range(4)):
    with checkpoints.RunWriter(folder, circuits=SQUARE) as writer:
        for step in steps:
            writer.save(step, {"w": torch.randn(5, 5, generator=torch.Generator().manual_seed(step))})
    return checkpoints.open_run(folder)


def _open_at_once(folder, barrier, opened):
    barrier.wait()
    try:
        writer = checkpoints.RunWriter(folder, resume=True)
    except (FileExistsError, RuntimeError):
        return
    began = time.monotonic()
    time.sleep(0.1)
    opened.put((began, time.monotonic()))
    writer.close()


def test_of_several_writers_that_begin_a_run_at_once_one_opens_it(tmp_path):
    forked = multiprocessing.get_context("fork")
    for attempt in range(6):
        barrier, opened = forked.Barrier(6), forked.Queue()
        folder = tmp_path / f"run{attempt}"
        writers = [forked.Process(target=_open_at_once, args=(folder, barrier, opened)) for _ in range(6)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        held = [opened.get(timeout=1)]
        while not opened.empty():  # who comes later, when the first is done, goes on with its run
            held.append(opened.get(timeout=1))
        assert all(end < start for (_, end), (start, _) in pairwise(sorted(held))), "two writers held the same run"
        assert [file.name for file in folder.iterdir()] == ["run.json"]


def test_a_second_job_on_the_same_folder_is_refused_and_the_folder_is_free_afterwards(tmp_path):
    from probes.measuring.partial_results import PartialResults

    run = small_run(tmp_path / "run")
    first = PartialResults(tmp_path / "parts", "somebody else")
    with pytest.raises(ValueError, match="is being written by another measurement"):
        probes.measure(run, probes="norm", resume_dir=tmp_path / "parts")
    first.close()
    assert len(probes.measure(run, probes="norm", resume_dir=tmp_path / "parts")) == 4


def _cannot_be_sent(common, task):
    return (lambda: task) if task == 1 else task


def test_a_result_that_cannot_be_sent_back_costs_itself_alone():
    results = {number: (result, why) for number, result, why in Processes(2).run(_cannot_be_sent, None, [0, 1, 2])}
    assert results[0] == (0, None)
    assert results[2] == (2, None)
    assert results[1][0] is None or callable(results[1][0])  # what pickles functions by value may well send it
    blocked = {number: why for number, _, why in Processes(1).run(_a_lock, None, [0, 1])}
    assert "nothing came back" in blocked[0]
    assert len(blocked) == 2


def _a_lock(common, task):
    import threading

    return threading.Lock()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("audit.json", b"{"),
        ("audit.json", b"[]"),
        ("audit.json", {"audit": '{"run": "a", "steps": ["0"], "faults": []}'}),
        ("audit.json", {"audit": '{"run": "a", "steps": [0], "faults": [[0, "unheard of", "x"]]}'}),
        ("measurement.json", b"\xff\xfe"),
        ("measurement.json", b"[" * 100_000),
        ("step-000000002.parquet", b"PAR1 and then nothing"),
        ("step-000000002.parquet", b""),
    ],
    ids=[
        "cut audit",
        "no audit",
        "steps that are text",
        "a fault that is none",
        "no text",
        "too deep",
        "cut part",
        "empty part",
    ],
)
def test_what_an_earlier_job_left_damaged_is_set_aside_and_computed_again(tmp_path, name, damage):
    run, parts = small_run(tmp_path / "run"), tmp_path / "parts"
    whole = probes.measure(run, resume_dir=parts)
    assert (parts / name).exists()
    if isinstance(damage, dict):
        damage = json.dumps(json.loads((parts / name).read_bytes()) | damage).encode()
    (parts / name).write_bytes(damage)
    with pytest.warns(UserWarning, match=f"{name} is damaged"):
        again = probes.measure(run, resume_dir=parts)
    pd.testing.assert_frame_equal(again, whole)
    assert (parts / f"{name}.damaged").read_bytes() == damage


def test_damage_that_shows_only_when_a_part_is_read_is_said_and_mended_by_the_next_call(tmp_path):
    run, parts = small_run(tmp_path / "run"), tmp_path / "parts"
    whole = probes.measure(run, resume_dir=parts)
    part = parts / "step-000000002.parquet"
    content = bytearray(part.read_bytes())
    content[4:200] = bytes(196)
    part.write_bytes(content)
    with (
        pytest.warns(UserWarning, match="set aside"),
        pytest.raises(ValueError, match=r"step 2: .* the same call again"),
    ):
        probes.measure(run, resume_dir=parts)
    pd.testing.assert_frame_equal(probes.measure(run, resume_dir=parts), whole)


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path):
    small_run(tmp_path / "run", range(400))
    command = [sys.executable, "-m", "probes", "measure", str(tmp_path / "run"), "-o", str(tmp_path / "t.parquet")]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs do not
    with subprocess.Popen(command, stderr=-1, stdout=-1, text=True, preexec_fn=heeds) as job:
        parts = tmp_path / "t.parquet.parts"
        while job.poll() is None and not (parts.exists() and any(parts.glob("step-*.parquet"))):
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        _, said = job.communicate()
    assert job.returncode == 130
    assert "the same command again goes on" in said
    assert "Traceback" not in said
    done = len(list(parts.glob("step-*.parquet")))
    assert 0 < done < 400
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert len(probes.read_table(tmp_path / "t.parquet")["step"].unique()) == 400


HANDS_OVER_NONSENSE = """
import torch, probes
model = torch.nn.Linear(4, 4)
monitor = probes.Monitor(model, circuits={"w": {"tensors": ["weight"], "pattern": "r c -> 1 1 r c"}})
monitor.step("a")
monitor.step(torch.tensor(2.5), loss=1.0)
monitor.log([], accuracy=0.5)
monitor.step(loss=object(), other=1.0)
monitor.close()
print(monitor.done, monitor.series("accuracy").to_dict())
"""


def test_nothing_handed_to_a_monitor_raises_into_the_training():
    """In a process without run-time type checks, which would raise before the monitor does not."""
    told = subprocess.run([sys.executable, "-c", HANDS_OVER_NONSENSE], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "3 {2.0: 0.5}"
    assert told.stderr.count("as the step") == 1
    assert "monitor.step(loss=loss)" in told.stderr
