"""Where a monitor's numbers go: what is handed in is read back with the real library; what is there already stays."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from probes.measuring.tables import COLUMNS, read_table
from probes.monitor.sinks import CSV, Parquet, RunDirectory, TensorBoard, WandB
from probes.monitor.sinks.run_directory import read_event
from probes.series.online import Event
from tests import small_gpt2
from tests.told import EVENT, accumulated, event, measurement, tell
from tests.wandb_file import history, records

# what is told is read back


def test_csv_files_are_read_back(tmp_path):
    sink = CSV(tmp_path / "logs")
    tell(sink, range(25))
    sink.close()
    scalars = pd.read_csv(tmp_path / "logs" / "scalars.csv")
    assert scalars["value"].to_list() == [1.0 / (step + 1) for step in range(25)]  # to the last bit
    table = pd.read_csv(tmp_path / "logs" / "probes.csv")
    assert list(table.columns) == [*COLUMNS, "tower"]
    assert "nan" not in (tmp_path / "logs" / "probes.csv").read_text()
    assert table["step"].to_list() == [0] * 3 + [10] * 3 + [20] * 3
    assert table.loc[7].dropna().to_dict() == measurement(20, 20.0).loc[1, table.loc[7].dropna().index].to_dict()
    event = pd.read_csv(tmp_path / "logs" / "events.csv").loc[0]
    assert event[["metric", "kind", "step", "detected_at", "p_value"]].to_list() == ["loss", "cliff", 12.5, 20, 1e-4]


def test_what_was_detected_is_written_as_it_is_in_the_table_of_the_monitor(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        sinks = [CSV(tmp_path / "csv"), RunDirectory(writer)]
        with probes.Monitor(small_gpt2.model(), probes=["norm"], sinks=sinks) as monitor:
            for step in (30, 45):
                monitor._announce(event(step, detected_at=step + 7))
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    written = pd.DataFrame([json.loads(line) for line in lines]).astype({"width": "float64"})  # null: not known
    assert len(monitor.events) == 2
    for table in (pd.read_csv(tmp_path / "csv" / "events.csv"), written):
        pd.testing.assert_frame_equal(table, monitor.events, check_dtype=False)
        assert table["detected_at"].dtype == np.int64


def test_scalars_may_be_new_at_any_step(tmp_path):
    sink = CSV(tmp_path)
    sink.scalars(0, {"loss": 2.0})
    sink.scalars(1, {"loss": 1.0, "accuracy, mean": 0.5})
    sink.close()
    wide = pd.read_csv(tmp_path / "scalars.csv").pivot_table(index="step", columns="name", values="value")
    assert wide.loc[1].to_dict() == {"accuracy, mean": 0.5, "loss": 1.0}


def test_csv_lines_are_on_disk_before_the_run_ends(tmp_path, monkeypatch):
    clock = iter(np.arange(0.0, 100.0, 0.3))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    sink = CSV(tmp_path)
    for step in range(20):
        sink.scalars(step, {"loss": 1.0})
    written = len((tmp_path / "scalars.csv").read_text().splitlines()) - 1
    assert 10 <= written < 20  # some are held for a second, not one write per step


def test_parquet_is_read_back_with_its_definitions(tmp_path):
    sink = Parquet(tmp_path / "table.parquet")
    tell(sink, range(25))
    assert read_table(tmp_path / "table.parquet.parts" / "step-000000010.parquet")["value"][1] == 12
    sink.close()
    table = read_table(tmp_path / "table.parquet")
    assert table["step"].unique().tolist() == [0, 10, 20]
    assert table.attrs == measurement(0).attrs
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]


def test_a_parquet_without_measurements_leaves_nothing(tmp_path):
    Parquet(tmp_path / "table.parquet").close()
    assert not list(tmp_path.iterdir())


def test_tensorboard_shows_scalars_means_over_heads_and_events(tmp_path):
    sink = TensorBoard(tmp_path)
    tell(sink, range(25))
    sink.rows(measurement(30).assign(value=[1.0, 2.0, 3.0]))
    sink.close()
    events = accumulated(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(s, np.float32(1 / (s + 1))) for s in range(25)]
    ranks = {e.step: e.value for e in events.Scalars("ov/effective_rank/layer 0")}
    assert ranks == {0: 1, 10: 11, 20: 21, 30: 1.5}
    only = events.Scalars("qk/marginalized_effective_rank k=4/layer 1")
    assert [(e.step, e.value) for e in only] == [(30, 3.0)]  # where no head has a number there is no point
    text = events.Tensors("events/loss/text_summary")
    assert [(e.step, e.tensor_proto.string_val[0].decode()) for e in text] == [(20, str(EVENT))]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    import wandb

    for name, value in {"DIR": str(tmp_path), "MODE": "offline", "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    yield tmp_path
    wandb.teardown()


def the_file(folder: Path) -> Path:
    """The one file W&B wrote, whole: its service process may be at it until it ends."""
    import wandb

    wandb.teardown()
    (file,) = folder.rglob("*.wandb")
    return file


@pytest.mark.slow
def test_wandb_keeps_rows_of_any_order_with_their_step(offline):
    sink = WandB("project")
    sink.scalars(20, {"loss": 0.5, "accuracy": math.nan})
    sink.rows(measurement(10))
    sink.event(EVENT)
    sink.close()
    file = the_file(offline)
    assert history(file) == [
        {"loss": 0.5, "step": 20},
        {"ov/effective_rank/layer 0": 2.0, "step": 10},
        {"events/cliff of loss": 12.5, "step": 20},
    ]
    metrics = [record.metric for record in records(file) if record.HasField("metric")]
    assert {metric.name: metric.step_metric for metric in metrics} == {
        "loss": "step",
        "ov/effective_rank/layer 0": "step",
        "events/cliff of loss": "step",
    }


def test_a_wandb_run_of_somebody_else_is_used_and_not_finished(offline):
    import wandb

    with wandb.init(project="theirs") as run:
        sink = WandB()
        assert sink.run is run
        with pytest.raises(ValueError, match="name: a W&B run is going on"):
            WandB(name="another")
        sink.scalars(3, {"loss": 0.5})
        sink.close()
        run.log({"after": 1})
    file = the_file(offline)
    assert history(file) == [{"loss": 0.5, "step": 3}, {"after": 1}]


def test_a_run_directory_holds_everything_and_is_still_a_run(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        sink = RunDirectory(writer)
        tell(sink, range(25))
        sink.close()
        writer.save(25, {"w": torch.zeros(1)})  # the writer that was handed in is still open
    run = open_run(tmp_path / "run")
    assert run.steps == [25]
    assert len(run.metrics) == 25
    assert pd.read_csv(tmp_path / "run" / "probes.csv")["step"].unique().tolist() == [0, 10, 20]
    assert str(read_event((tmp_path / "run" / "events.jsonl").read_text())) == str(EVENT)


# what is there is not overwritten


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(FileExistsError, match=r"holds thesis\.tex: choose an empty or a new folder, or pass resume"):
        CSV(tmp_path)
    (tmp_path / "t.parquet").write_text("")
    with pytest.raises(FileExistsError, match=r"t\.parquet exists: choose another name, or pass resume=True"):
        Parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"the name of a \.parquet file is expected"):
        Parquet(tmp_path / "t.csv")


def test_a_file_that_is_not_ours_is_not_touched(tmp_path):
    (tmp_path / "scalars.csv").write_text("my,own,file\n1,2,3\n")
    with pytest.raises(ValueError, match=r"scalars\.csv is not ours: its first line should be 'step,name,value'"):
        CSV(tmp_path, resume=True).scalars(0, {"loss": 1.0})
    assert (tmp_path / "scalars.csv").read_text() == "my,own,file\n1,2,3\n"


# what is not finite is missing


def test_what_is_not_finite_is_missing_everywhere(tmp_path):
    table, scalars = measurement(0, math.inf), {"loss": math.inf, "accuracy": math.nan}
    strange = Event(
        metric="loss",
        kind="cliff",
        direction="fall",
        step=1.0,
        low=-math.inf,
        high=math.nan,
        detected_at=3,
        strength=1.0,
        p_value=0.0,
    )
    with RunWriter(tmp_path / "run") as writer:
        sinks = CSV(tmp_path / "csv"), Parquet(tmp_path / "t.parquet"), TensorBoard(tmp_path / "tb")
        for sink in (*sinks, RunDirectory(writer)):
            sink.scalars(0, scalars)
            sink.rows(table)
            sink.event(strange)
            sink.close()
    assert (tmp_path / "csv" / "scalars.csv").read_text() == "step,name,value\n0,loss,\n0,accuracy,\n"
    for read in (pd.read_csv(tmp_path / "csv" / "probes.csv"), read_table(tmp_path / "t.parquet")):
        assert read["value"].isna().all()
        assert read["why_missing"][0] == "it was inf"
    assert (tmp_path / "csv" / "events.csv").read_text().splitlines()[1] == "1.0,,,cliff,fall,1.0,0.0,,loss,3"
    assert json.loads((tmp_path / "run" / "events.jsonl").read_text())["low"] is None
    assert math.isnan(read_event((tmp_path / "run" / "events.jsonl").read_text()).low)
    assert open_run(tmp_path / "run").metrics.isna().all(axis=None)
    assert accumulated(tmp_path / "tb").Tags()["scalars"] == []
    assert table["value"][0] == math.inf  # what was handed in is as it was


# libraries that may not be there


@pytest.mark.parametrize(("sink", "library"), [(TensorBoard, "tensorboard"), (WandB, "wandb")])
def test_a_missing_library_is_named_with_what_to_install(tmp_path, monkeypatch, sink, library):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"pip install 'checkpoint-probes\[{library}\]'"):
        sink(str(tmp_path))
