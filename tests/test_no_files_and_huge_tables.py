"""What is no file at all, files that would make gigabytes of themselves, and steps and names that are none.

They are said and left out, or refused: when they are read, and when they are written.
"""

import json
import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import checkpoints
import probes
from checkpoints import RunWriter, WeightsError, open_run
from checkpoints.files.byte_source import LocalFile
from checkpoints.sources.metrics.files import read_metrics
from tests.fuzz import corpus
from tests.fuzz.mutations import _record


def written_by_tensorboard(folder):
    from torch.utils.tensorboard.writer import SummaryWriter

    with SummaryWriter(str(folder), filename_suffix="x") as writer:
        for step in range(NAMES):
            writer.add_scalar(f"k{step}", 1.0, step)


NAMES = 4000
UNIQUE = [{"step": step, f"k{step}": 1.0} for step in range(NAMES)]
LINES = "".join(json.dumps(row) + "\n" for row in UNIQUE)
SPARSE = {
    "metrics.jsonl": lambda path: path.write_text(LINES),
    "rows.json": lambda path: path.write_text(json.dumps(UNIQUE)),
    "trainer_state.json": lambda path: path.write_text(json.dumps({"log_history": UNIQUE})),
    "metrics.csv": lambda path: path.write_text(
        "step" + "".join(f",c{i}" for i in range(15_000)) + "\n1" * 2000 + "\n"
    ),
    "wide.csv": lambda path: path.write_text("step" + "".join(f",c{i}" for i in range(30_000)) + "\n"),
    "tb": written_by_tensorboard,
    "m.parquet": lambda path: pq.write_table(pa.table({"step": pa.array(np.zeros(20_000_000, np.int8))}), path),
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_small_file_that_would_make_a_huge_table_is_refused_by_name(tmp_path, name):
    """The first of them, 130 kB, took 800 MB."""
    SPARSE[name](tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name}.* rows of .* names.*(no table of metrics|can hold)"):
        read_metrics(tmp_path / name)


def test_a_run_with_a_name_of_its_own_in_every_line_is_refused_and_watched(tmp_path):
    from probes.watch.reader import Reader

    with checkpoints.RunWriter(tmp_path / "run"):
        pass
    (tmp_path / "run" / "metrics.jsonl").write_text(LINES)
    with pytest.raises(ValueError, match=r"metrics\.jsonl: 4000 rows of 4000 names"):
        _ = open_run(tmp_path / "run").metrics
    before = time.process_time()
    assert Reader(tmp_path / "run", measures=False).poll().main == "k0"
    assert time.process_time() - before < 5


@pytest.mark.parametrize("name", ["metrics.jsonl", "rows.json", "trainer_state.json"])
def test_half_a_character_is_no_name_of_a_metric(tmp_path, name):
    row = {"step": 0, "\ud800": 1.0}
    as_text = {"metrics.jsonl": json.dumps(row) + "\n", "rows.json": json.dumps([row])}
    (tmp_path / name).write_text(as_text.get(name, json.dumps({"log_history": [row]})))
    with pytest.raises(ValueError, match=rf"{name}: .*ud800.* is no name of a metric"):
        read_metrics(tmp_path / name)


def test_half_a_character_is_not_written_as_a_name_either(tmp_path):
    with checkpoints.RunWriter(tmp_path / "run") as writer:
        writer.log(0, loss=1.0)
        with pytest.raises(ValueError, match="is no name of a metric"):
            writer.log(1, **{"\ud800": 1.0})
    assert open_run(tmp_path / "run").metrics.index.tolist() == [0]
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps({"step": 0, "\ud800": 1.0}) + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: .* is no name of a metric"):
        _ = open_run(tmp_path / "run").metrics


def test_a_parquet_file_whose_text_is_none_is_named(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"t\xff")])
    pq.write_table(pa.table({"step": [1], "note": bad}), tmp_path / "m.parquet")
    with pytest.raises(ValueError, match=r"m\.parquet is not a table: .*UTF8"):
        read_metrics(tmp_path / "m.parquet")


def test_a_table_of_probes_with_more_rows_than_its_file_can_say_is_refused_unread(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(corpus.probes_table())
    monkeypatch.setattr("probes.measuring.tables._SMALL", -(10**6))
    with pytest.raises(ValueError, match=r"t\.parquet says that it has 36 rows, far more than a file of its size"):
        probes.read_table(tmp_path / "t.parquet")


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("name", ["events.out.tfevents.1", "metrics.csv", "step9.pt", "trainer_state.json"])
def test_pipes_devices_and_links_in_a_circle_are_left_out_and_said(tmp_path, name):
    """An event file that was a pipe was waited for, and /dev/zero read for ever."""
    torch.save({"w": torch.ones(2, 2)}, tmp_path / "step1.pt")
    torch.save({"w": torch.ones(2, 2)}, tmp_path / "step2.pt")
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)):
        (tmp_path / name).unlink(missing_ok=True)
        make(tmp_path / name)
        run = open_run(tmp_path)
        assert run.steps == [1, 2]
        assert not len(run.metrics)
        assert f"left out, neither files nor folders: {name}" in run.notices or "links to something" in run.notices[0]


def test_a_pipe_is_neither_a_run_nor_metrics_nor_a_table(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    torch.save({"w": torch.ones(2, 2)}, tmp_path / "step1.pt")
    for read in (open_run, read_metrics):
        with pytest.raises(ValueError, match=r"a\.csv is neither a file nor a folder"):
            read(tmp_path / "a.csv")
    with pytest.raises(ValueError, match=r"a\.csv is not a parquet file"):
        probes.read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("replaces", [True, False])
def test_a_file_that_is_changed_between_two_reads_is_refused(tmp_path, replaces):
    """Half of one save and half of the next would be weights that nobody ever had."""
    file = tmp_path / "a"
    file.write_bytes(b"1" * 64)
    source = LocalFile(file)
    assert bytes(source.read(0, 8)) == bytes(source.read(8, 16)) == b"1" * 8
    if replaces:
        (tmp_path / "b").write_bytes(b"2" * 64)
        os.replace(tmp_path / "b", file)
    else:
        file.write_bytes(b"2" * 64)
        os.utime(file, ns=(0, 0))
    with pytest.raises(WeightsError, match="a was changed while it was being read"):
        source.read(16, 24)
    assert bytes(LocalFile(file).read(16, 24)) == b"2" * 8


def test_a_step_that_could_not_be_read_again_is_refused_when_it_is_written(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for write in (lambda: writer.log(2**62, loss=1.0), lambda: writer.save(10**30, {"w": torch.ones(1)})):
            with pytest.raises(ValueError, match="no run has made so many updates"):
                write()
        writer.log(2**62 - 1, loss=1.0)
    assert open_run(tmp_path / "run").metrics.index.tolist() == [2**62 - 1]


def test_who_was_slower_with_a_new_run_is_told_so_even_if_its_file_was_tidied_up(tmp_path, monkeypatch):
    """The faster one removes what it takes for left over from a kill."""
    link = os.link

    def faster(temporary, path):
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", link)
            RunWriter(tmp_path / "run").close()
        link(temporary, path)

    monkeypatch.setattr(os, "link", faster)
    with pytest.raises(FileExistsError, match="already holds a run"):
        RunWriter(tmp_path / "run")


def test_a_tensor_whose_number_is_of_another_type_is_refused(tmp_path):
    """0.5 as a float, said to be an integer, was read as 1056964608."""
    tensor = b"\x08\x03*\x04\x00\x00\x00?"
    value = b"\n\x02lrB" + bytes([len(tensor)]) + tensor
    event = b"\x10\x01*" + bytes([len(value) + 2]) + b"\n" + bytes([len(value)]) + value
    (tmp_path / "events.out.tfevents.1").write_bytes(_record(event))
    with pytest.raises(ValueError, match=r"tfevents\.1 is damaged: the number of a scalar is of another type"):
        read_metrics(tmp_path)
    (tmp_path / "events.out.tfevents.1").write_bytes(_record(event.replace(b"\x08\x03", b"\x08\x01")))
    assert read_metrics(tmp_path)["lr"].to_dict() == {1: 0.5}


def test_a_step_beyond_all_floats_costs_its_line_where_a_run_is_watched(tmp_path):
    from probes.watch.reader import Reader

    with RunWriter(tmp_path / "run") as writer:
        writer.log(3, loss=1.0)
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 10**400, "loss": 1.0}) + "\n")
    seen = Reader(tmp_path / "run", measures=False).poll()
    assert seen.last_step == 3
    assert seen.latest["loss"] == (3, 1.0)
