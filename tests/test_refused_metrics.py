"""Metrics, descriptions and states that are damaged: a ValueError that names the file and the line, never another.

Each of these was found by `make fuzz`, or by hand, as another exception, a message of 100,000 characters, or as a
number that the file does not say.
"""

import json
import struct

import numpy as np
import pandas as pd
import pytest
import torch

import checkpoints
import probes
from checkpoints import open_run
from checkpoints.sources.metrics.files import read_metrics
from checkpoints.sources.metrics.tensorboard import masked_crc
from tests.fuzz import corpus
from tests.told import measurement, tell

DEEP = b"[" * 100_000
HUGE = b"1" + b"0" * 400


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"step": 3.7, "loss": 1}', "'3.7', a whole number"),
        (b'{"step": "3", "loss": 1}', "'3', a whole number"),
        (b'{"step": -1, "loss": 1}', "'-1', a whole number"),
        (b'{"step": 1e400, "loss": 1}', "a whole number"),
        (b'{"step": true, "loss": 1}', "'True', a whole number"),
        (b'{"step": ' + b"9" * 30 + b', "loss": 1}', "a whole number"),
        (b'{"step": 3, "loss": [1]}', "'loss' is '\\[1\\]', a number or null"),
        (b'{"step": 3, "loss": ' + HUGE + b"}", "too large"),
        (b'{"step": 3, "l\xff": 1}', "utf-8"),
        (b"[]", "a whole number"),
        (DEEP, "recursion"),
    ],
)
def test_a_line_of_a_run_that_is_no_metrics_is_named(tmp_path, line, said):
    with checkpoints.RunWriter(tmp_path) as writer:
        writer.log(0, loss=1.0)
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(line + b"\n")
    with pytest.raises(ValueError, match=rf"metrics\.jsonl, line 2: not a line of metrics \(.*{said}"):
        _ = open_run(tmp_path).metrics


@pytest.mark.parametrize(
    ("key", "value"), [("config", "x"), ("name", 3), ("seed", 1.5), ("theory", []), ("packages", None), ("family", {})]
)
def test_a_description_of_other_kinds_is_refused(tmp_path, key, value):
    checkpoints.RunWriter(tmp_path).close()
    description = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(description | {key: value}))
    with pytest.raises(ValueError, match=rf'run\.json: "{key}" is .* is expected'):
        open_run(tmp_path)


def test_a_pattern_without_end_is_refused_in_a_short_message(tmp_path):
    for axis in ("[" * 100_000, "a " * 300_000):
        with pytest.raises(ValueError, match="pattern") as caught:
            checkpoints.RunWriter(tmp_path, circuits={"w": {"tensors": ["w"], "pattern": f"r {axis} -> 1 1 r c"}})
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"global_step": 10, "log_history": [{"loss": 1.0}]}, "None' for its step"),
        ({"global_step": 10, "log_history": [{"step": 2.5, "loss": 1.0}]}, "'2.5' for its step"),
        ({"global_step": 10, "log_history": [{"step": 1e30, "loss": 1.0}]}, "for its step"),
        ({"global_step": 10, "log_history": [7]}, "None' for its step"),
        ({"global_step": 10, "log_history": {"a": 1}}, "log_history is no list"),
        ({"global_step": 10, "log_history": [{"step": 1, "loss": 10**400}]}, "too large"),
    ],
)
def test_a_log_of_a_trainer_that_makes_no_sense_is_named(tmp_path, state, said):
    write_trainer(tmp_path, json.dumps(state).encode())
    with pytest.raises(ValueError, match=rf"checkpoint-10/trainer_state\.json: .*{said}"):
        _ = open_run(tmp_path).metrics


def test_a_state_of_brackets_and_a_step_that_is_none_are_named(tmp_path):
    write_trainer(tmp_path, DEEP)
    with pytest.raises(ValueError, match=r"trainer_state\.json is not JSON"):
        _ = open_run(tmp_path).metrics
    for step in (5.5, "5", True, [], -5):
        write_trainer(tmp_path, json.dumps({"global_step": step}).encode())
        with pytest.raises(ValueError, match=r"trainer_state\.json: global_step is .*, a whole number is expected"):
            open_run(tmp_path).entries[-1].recorded_step()


def write_trainer(folder, state: bytes) -> None:
    for name, content in (corpus.trainer_output() | {"checkpoint-10/trainer_state.json": state}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.jsonl", b'{"step": 1}\n\xff\xfe\n{"step": 2}\n'),
        ("m.jsonl", b'{"step": 1, "a": ' + DEEP + b"\n"),
        ("m.json", b'[{"step": ' + DEEP),
        ("m.json", b'[{"step": 1, "\\ud800": "\\ud800"}]'),
        ("m.csv", b"step,loss\n1e30,1\n"),
        ("m.csv", b"step,loss\n" + b"9" * 25 + b",1\n"),
        ("m.csv", b'step,loss\n1,"2\n'),
        ("m.parquet", b"PAR1 and nothing more"),
        ("m.parquet", corpus.metrics()["metrics.parquet"].replace(b"PAR1", b"PAR2")),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_file_of_metrics_that_cannot_be_read_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"m\.{name[2:]}") as caught:
        read_metrics(tmp_path / name)
    assert len(str(caught.value)) < 1000


def test_a_number_beyond_all_floats_costs_its_column_and_not_the_table(tmp_path):
    (tmp_path / "m.csv").write_bytes(b"step,loss,odd\n1,0.5,1\n2,0.25," + HUGE + b"\n")
    with pytest.warns(UserWarning, match=r"left out, since they are no numbers: odd"):
        found = read_metrics(tmp_path / "m.csv")
    assert found["loss"].to_dict() == {1: 0.5, 2: 0.25}
    assert list(found) == ["loss"]


def test_rows_without_a_step_are_said(tmp_path):
    (tmp_path / "m.csv").write_text("step,loss\n1,0.5\nx,7\n2,0.25\n")
    with pytest.warns(UserWarning, match="1 rows are left out, since column 'step' says no step there"):
        assert read_metrics(tmp_path / "m.csv")["loss"].to_dict() == {1: 0.5, 2: 0.25}


def test_the_last_line_of_a_table_that_was_cut_short_is_left_out_and_said(tmp_path):
    """0.25 cut after 0.2 is a number, and not the one that was logged."""
    (tmp_path / "m.csv").write_text("step,loss\n1,0.5\n2,0.2")
    with pytest.warns(UserWarning, match="last line has no end and is left out"):
        assert read_metrics(tmp_path / "m.csv")["loss"].to_dict() == {1: 0.5}


def test_rows_longer_than_the_header_are_refused_and_not_moved_by_a_column(tmp_path):
    """pandas would take the first column for an index: the loss for the step, the rate for the loss."""
    (tmp_path / "m.csv").write_text("step,loss,lr\n0,1.0,0.5,9\n1,2.0,0.25,9\n")
    with pytest.raises(ValueError, match=r"m\.csv is not a table: .*header"):
        read_metrics(tmp_path / "m.csv")
    (tmp_path / "m.csv").write_text("step,loss,\n0,1.0,\n1,2.0,\n")
    assert read_metrics(tmp_path / "m.csv")["loss"].to_dict() == {0: 1.0, 1: 2.0}


def test_lines_of_json_are_ended_by_line_feeds_alone(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1, "loss": 0.5, "note": "a\u2028b"}\n', encoding="utf-8")
    with pytest.warns(UserWarning, match="no numbers: note"):
        assert read_metrics(tmp_path / "m.jsonl")["loss"].to_dict() == {1: 0.5}


def record(content: bytes) -> bytes:
    head = struct.pack("<Q", len(content))
    return head + struct.pack("<I", masked_crc(head)) + content + struct.pack("<I", masked_crc(content))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (b"\x10\x01*\x0d\n\x0b\n\x04loss\x15\x00\x00", "over the end"),
        (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "has no end"),
        (b"\x10\x01*\x09\n\x07\x0a\x00\x15\x00\x00\x00?", "no name"),
        (b"\x10\x01*\x0a\n\x08\n\x01\xff\x15\x00\x00\x00?", "not text"),
        (b"\x13\x01", "no protocol buffer"),
    ],
)
def test_an_event_that_is_none_is_named(tmp_path, event, said):
    (tmp_path / "events.out.tfevents.1").write_bytes(record(event))
    with pytest.raises(ValueError, match=rf"events\.out\.tfevents\.1 is damaged: .*{said}"):
        read_metrics(tmp_path / "events.out.tfevents.1")


def test_an_event_that_is_something_else_in_the_end_has_no_scalars(tmp_path):
    """An event is one of several things; TensorBoard takes the last that it says."""
    loss = b"\x10\x01*\x0d\n\x0b\n\x04loss\x15\x00\x00\x00?"
    (tmp_path / "events.out.tfevents.1").write_bytes(record(loss))
    assert read_metrics(tmp_path / "events.out.tfevents.1")["loss"].to_dict() == {1: 0.5}
    (tmp_path / "events.out.tfevents.1").write_bytes(record(loss + b"J\x00"))
    assert read_metrics(tmp_path / "events.out.tfevents.1").empty


def test_a_flipped_bit_in_a_table_of_probes_is_found_by_its_checksum(tmp_path):
    """Values stand in the file as they are; without checksums of its pages a changed one would be believed."""
    values = np.random.default_rng(0).normal(size=400)
    table = pd.concat([measurement(step, float(values[step])) for step in range(400)], ignore_index=True)
    from probes.measuring.tables import write_table

    write_table(table, tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    wrong = 0
    for place in range(8, len(content) - 8, len(content) // 60):
        (tmp_path / "t.parquet").write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        try:
            wrong += not probes.read_table(tmp_path / "t.parquet").equals(table)
        except ValueError as error:
            wrong += "t.parquet" not in str(error)
    assert not wrong


def test_a_sink_that_goes_on_names_a_damaged_file(tmp_path):
    from probes.monitor.sinks import CSV

    for damage in (b"1,loss,0.5,7\n", b"\xff\xfe,loss,1\n", b"1,l\ross,0.5  \n", b'1,loss,"\n'):
        folder = tmp_path / str(len(damage))
        sink = CSV(folder)
        tell(sink, range(5))
        sink.close()
        with open(folder / "scalars.csv", "ab") as file:
            file.write(damage)
        with pytest.raises(ValueError, match=r"scalars\.csv is damaged.*Move it away"):
            CSV(folder, resume=True).scalars(20, {"loss": 1.0})


@pytest.mark.parametrize(
    "line", ["null", "[]", pytest.param(DEEP.decode(), id="deep"), "{}", '{"detected_at": "20"}', '{"detected_at": 1']
)
def test_a_run_directory_that_goes_on_names_a_damaged_list_of_events(tmp_path, line):
    from probes.monitor.sinks import RunDirectory

    sink = RunDirectory(tmp_path / "run")
    tell(sink, range(25))
    sink.close()
    with open(tmp_path / "run" / "events.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"events\.jsonl is damaged.*Move it away"):
        RunDirectory(tmp_path / "run", resume=True).scalars(20, {"loss": 1.0})


DAMAGE = {
    "no state": ("looks.jsonl", lambda text: text.replace('"state"', '"stat"', 1)),
    "a state that is a list": ("looks.jsonl", lambda text: text.replace('{"dict"', '{"tuple"', 1)),
    "another setting": ("looks.jsonl", lambda text: text.replace('"_looks"', '"record"', 1)),
    "text for a number": ("looks.jsonl", lambda text: text.replace('["_looks", 1]', '["_looks", "1"]', 1)),
    "no transition": ("looks.jsonl", lambda text: text.replace('["_known", []]', '["_known", [3]]', 1)),
    "a transition of other fields": ("looks.jsonl", lambda text: text.replace('"direction"', '"way"', 1)),
    "an event of other fields": ("events.jsonl", lambda text: text.replace('"direction"', '"way"', 1)),
    "an event of no name": ("events.jsonl", lambda text: text.replace('"metric": "loss"', '"metric": {}', 1)),
    "an event of text": (
        "events.jsonl",
        lambda text: text.replace('"strength": 0', '"strength": "0', 1).replace(', "p_v', '", "p_v', 1),
    ),
    "values that are none": ("probes.csv", lambda text: text.replace(",ov,norm,,", ",ov,norm,,x", 1)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_monitor_that_goes_on_names_a_damaged_file(tmp_path, damage):
    file, change = DAMAGE[damage]
    for name, content in corpus.monitored_run().items():
        (tmp_path / name).write_bytes(content)
    text = (tmp_path / file).read_text()
    (tmp_path / file).write_text(change(text))
    assert change(text) != text
    with pytest.raises(ValueError, match=rf"{file} is damaged.*Move it away"):
        probes.Monitor(corpus.small_model(), run=tmp_path, step=250, **corpus.MONITORED)


def test_an_audit_of_brackets_within_text_is_set_aside(tmp_path):
    run = open_run(corpus.measured_run()[0])
    whole = probes.measure(run, probes="norm", resume_dir=tmp_path / "parts")
    kept = json.loads((tmp_path / "parts" / "audit.json").read_text())
    (tmp_path / "parts" / "audit.json").write_text(json.dumps(kept | {"audit": DEEP.decode()}))
    with pytest.warns(UserWarning, match=r"audit\.json is damaged"):
        pd.testing.assert_frame_equal(probes.measure(run, probes="norm", resume_dir=tmp_path / "parts"), whole)


def test_messages_stay_readable_whatever_a_file_is_called_within(tmp_path):
    from safetensors.torch import save

    header = json.dumps({"w": {"dtype": "[" * 100_000, "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(checkpoints.WeightsError, match="known are") as caught:
        dict(open_run(tmp_path / "a.safetensors").checkpoint(0))
    assert len(str(caught.value)) < 2500
    (tmp_path / "step1").mkdir()
    (tmp_path / "step1" / "model-00001-of-00001.safetensors").write_bytes(save({"w": torch.ones(1)}))
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors" + "[" * 3000}}
    (tmp_path / "step1" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(checkpoints.WeightsError, match="which is not there") as caught:
        open_run(tmp_path / "step1")
    assert len(str(caught.value)) < 2500


@pytest.mark.parametrize("line", ["null", "[" * 100_000, "3", "{", '{"kind": 1}'])
def test_a_line_that_is_no_event_costs_itself_where_a_run_is_watched(tmp_path, line):
    from probes.watch.reader import Reader

    for name, content in corpus.run_directory().items():
        (tmp_path / name).write_bytes(content)
    before = Reader(tmp_path, measures=False).poll()
    with open(tmp_path / "events.jsonl", "a") as file:
        file.write(line + "\n")
    assert len(before.events) == 1
    assert Reader(tmp_path, measures=False).poll().events == before.events


def test_a_line_that_is_no_measurement_costs_itself_where_a_run_is_watched(tmp_path):
    from probes.watch.reader import Reader

    for name, content in corpus.run_directory().items():
        (tmp_path / name).write_bytes(content)
    before = Reader(tmp_path, measures=False).poll().table
    with open(tmp_path / "probes.csv", "ab") as file:
        file.write(b"a,30,0,0,o\rv,norm,,1.0,,\n")
    assert Reader(tmp_path, measures=False).poll().table.equals(before)


def test_a_damaged_measurement_is_a_problem_that_is_shown_where_a_run_is_watched(tmp_path):
    from probes.watch.reader import Reader

    for name, content in corpus.run_directory().items():
        (tmp_path / name).write_bytes(content)
    with open(tmp_path / "probes.csv", "ab") as file:
        file.write(b"a,30,0,0,ov,norm,0.5,1.0,,\n")
    assert "probes.csv is damaged" in Reader(tmp_path, measures=False).poll().problems[0]
