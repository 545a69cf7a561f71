"""Sinks as `Monitor(sinks=...)` takes them: by name, as objects, one or several; everything else is refused at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import probes
from checkpoints import RunWriter, open_run
from probes.monitor.callbacks.huggingface import MonitorCallback
from probes.monitor.sinks import CSV, Parquet, RunDirectory, TensorBoard, made_sinks
from tests import small_gpt2
from tests.told import tell

ROOT = Path(__file__).parents[1]


def monitored(sinks) -> probes.Monitor:
    return probes.Monitor(small_gpt2.model(), probes=["norm"], sinks=sinks)


def test_one_sink_needs_no_list(tmp_path):
    with monitored(CSV(tmp_path / "csv")) as monitor:
        monitor.step(loss=1.0)
    assert pd.read_csv(tmp_path / "csv" / "scalars.csv")["value"].tolist() == [1.0]


def test_names_write_into_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monitored(["csv", "tensorboard", "parquet"]) as monitor:
        monitor.step(loss=1.0)
    (home,) = (tmp_path / "monitor").iterdir()
    assert home.name.startswith("live-")
    assert sorted(path.name for path in home.iterdir()) == ["csv", "table.parquet", "tensorboard"]
    assert [type(sink) for sink in monitor.sinks.sinks] == [CSV, TensorBoard, Parquet]


def test_in_a_run_directory_they_go_on_with_what_is_there(tmp_path):
    for _ in range(2):
        (sink,) = made_sinks("csv", "live", tmp_path)
        tell(sink, range(3))
        sink.close()
    assert len(pd.read_csv(tmp_path / "csv" / "scalars.csv")) == 3


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("cvs", ValueError, r"'cvs' is no sink: a name \(csv, parquet, tensorboard, trackio, wandb\)"),
        (["csv", "tensor board"], ValueError, "'tensor board' is no sink"),
        (CSV, TypeError, r"the class CSV \(make one: CSV\(\.\.\.\)\)"),
        ([CSV], TypeError, r"the class CSV \(make one"),
        (3, TypeError, r"sinks is 3 \(a int\)"),
        ([Path("runs")], TypeError, r"is no sink: a name .* RunDirectory\(path\)"),
        ([print], TypeError, "is no sink"),
    ],
)
def test_what_is_no_sink_is_refused_when_the_monitor_is_made_with_what_is_possible(given, error, said):
    with pytest.raises(error, match=said):
        monitored(given)
    with pytest.raises(error, match=said):
        MonitorCallback(sinks=given)


def test_a_run_directory_of_a_path_is_made_closed_and_resumed(tmp_path):
    with monitored(RunDirectory(tmp_path / "run")) as monitor:
        for step in range(10):
            monitor.step(loss=float(step))
    assert open_run(tmp_path / "run").metrics["loss"].tolist() == [*range(10)]
    with RunWriter(tmp_path / "run", resume=True):
        pass  # the sink let go of it
    sink = RunDirectory(str(tmp_path / "run"), resume=True)
    sink.scalars(8, {"loss": 80.0})
    sink.close()
    assert open_run(tmp_path / "run").metrics["loss"].tolist() == [*range(8), 80]
    with pytest.raises(FileExistsError):
        RunDirectory(tmp_path / "run")


def test_importing_sinks_imports_no_tracker():
    code = "import sys, probes.monitor.alerts; print({'wandb', 'trackio', 'tensorboard'} & {*sys.modules})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "set()"


@pytest.mark.slow
def test_trackio_keeps_rows_of_any_order_with_their_step_and_is_alerted(tmp_path):
    code = """
import json
from trackio.sqlite_storage import SQLiteStorage
from probes.monitor.alerts import trackio_alert
from probes.monitor.sinks import Trackio
from tests.told import EVENT, event, measurement
sink = Trackio("project", name="mine")
sink.scalars(20, {"loss": 0.5, "accuracy": float("nan")})
sink.rows(measurement(10))
sink.event(EVENT)
trackio_alert()(event(30))
sink.close()
rows = [{k: v for k, v in row.items() if k != "timestamp"} for row in SQLiteStorage.get_logs("project", "mine")]
print("READ", json.dumps([rows, [(a["title"], a["text"], a["level"]) for a in SQLiteStorage.get_alerts("project")]]))
"""
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    rows, alerts = json.loads(out.stdout.split("READ", 1)[1].splitlines()[0])
    assert rows == [
        {"loss": 0.5, "step": 20},
        {"ov/effective_rank/layer 0": 2.0, "step": 10},
        {"events/cliff of loss": 12.5, "step": 20},
    ]
    assert sorted(title for title, _, _ in alerts) == ["cliff of loss", "cliff of loss at step 30"]
