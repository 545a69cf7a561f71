"""Every format that is read: what a whole one is, how it is changed, how it is read, and what makes the data right.

A reader may refuse what was changed, with a ValueError or OSError that names the file. What it reads must be right: as
the format's own library reads the same bytes where there is one, and otherwise nothing that is not in the file.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

import checkpoints
import probes
from checkpoints.files.by_name import open_by_name
from checkpoints.hub import Hub
from checkpoints.sources.folder import open_folder
from checkpoints.sources.metrics.files import read_metrics
from checkpoints.store import Store
from checkpoints.web_index import WebShelf
from tests.fuzz import corpus, truth
from tests.fuzz import mutations as change
from tests.fuzz.corpus import Files

Changed = Callable[[Files, random.Random], Files]


@dataclass(frozen=True)
class Form:
    """One format. read is handed the folder with the files; what it gives is held against the files by `check`."""

    files: Callable[[], Files]
    change: Changed
    read: Callable[[Path], Any]
    check: Callable[[Path, Any], None] = lambda folder, found: None
    weight: int = 4
    """How often its turn comes; slow ones less often."""
    seconds: float = 2.0
    """Of CPU that one input may take; the files have a few kB."""


def one(name: str, content: Callable[[], bytes], *changes: change.Change, **more: Any) -> Form:
    """A format of one file of weights."""

    def read(folder: Path) -> dict[str, torch.Tensor]:
        checkpoint = open_by_name(name, folder / name)
        tensors = dict(checkpoint)
        checkpoint.verify()
        _ = checkpoint.recorded_step, checkpoint.recorded_config
        return tensors

    return Form(lambda: {name: content()}, any_of(name, *changes), read, **more)


def any_of(ending: str | tuple[str, ...], *changes: change.Change) -> Changed:
    """One of the files whose names end so, changed in one of these ways; now and then one is not there at all."""

    def changed(files: Files, rng: random.Random) -> Files:
        name = rng.choice([name for name in files if name.endswith(ending)])
        if len(files) > 1 and rng.random() < 0.02:
            return {other: content for other, content in files.items() if other != name}
        return files | {name: rng.choice(changes)(files[name], rng)}

    return changed


def folder_of(files: Callable[[], Files], changed: Changed, **more: Any) -> Form:
    """A format of a whole folder of weights."""
    return Form(files, changed, lambda folder: dict(open_folder(folder)), **more)


# metrics


def metrics_of(name: str, *changes: change.Change, rows: Callable[[bytes], Any] | None = None) -> Form:
    """A file of metrics by itself."""

    def check(folder: Path, found: pd.DataFrame) -> None:
        steps = found.index.to_numpy()
        assert found.index.dtype == np.int64, "the steps are no whole numbers"
        assert (np.diff(steps) > 0).all(), "the steps are not in order, each once"
        assert all(dtype == np.float64 for dtype in found.dtypes), "a column is not of numbers"
        known = rows((folder / name).read_bytes()) if rows is not None else None
        if known is not None:
            truth.nothing_new(found, known)

    whole = corpus.metrics()[name] if name in corpus.metrics() else corpus.event_file()
    return Form(lambda: {name: whole}, any_of(name, *changes), lambda folder: read_metrics(folder / name), check)


# runs


def read_run(folder: Path) -> Any:
    """A run: its steps, metrics, description, weights, and whether it could be gone on with."""
    run = checkpoints.open_run(folder)
    found = run.steps, run.metrics, dict(run.config), [dict(run.checkpoint(step)) for step in run.steps]
    with checkpoints.RunWriter(folder, dict(run.config), seed=run.seed, circuits=run.circuits, resume=True) as writer:
        writer.log(30, loss=1.0)
    return found


def read_trainer(folder: Path) -> Any:
    """A Trainer's output: metrics, heads, recorded steps."""
    run = checkpoints.open_run(folder)
    layers = [run.heads.read(run.checkpoint(run.steps[-1]), layer) for layer in run.heads.layers]
    return run.metrics, [entry.recorded_step() for entry in run.entries if entry.recorded_step], layers


def measured_again(folder: Path) -> pd.DataFrame:
    """A measurement that goes on from what lies in the folder."""
    return probes.measure(checkpoints.open_run(corpus.measured_run()[0]), probes="norm", resume_dir=folder)


def resumed_sink(folder: Path) -> pd.DataFrame:
    """A CSV sink that goes on at step 15."""
    from probes.monitor.sinks import CSV
    from tests.told import tell

    sink = CSV(folder / "csv", resume=True)
    tell(sink, range(15, 30))
    sink.close()
    return pd.read_csv(folder / "csv" / "scalars.csv")


def resumed_run(folder: Path) -> pd.DataFrame:
    """The sink of a run directory that goes on at step 15, and what it has then."""
    from probes.monitor.sinks import RunDirectory
    from tests.told import tell

    with checkpoints.RunWriter(folder, {"width": 5}, seed=3, circuits=corpus.SQUARE, resume=True) as writer:
        tell(RunDirectory(writer), range(15, 30))
    return pd.read_csv(folder / "probes.csv")


def resumed_monitor(folder: Path) -> Any:
    """A monitor that goes on at step 250 from what lies in the folder, for two more."""
    logging.disable()
    try:
        monitor = probes.Monitor(corpus.small_model(), run=folder, step=250, **corpus.MONITORED)
        monitor.step(loss=2.0)
        monitor.step(loss=2.0)
        monitor.break_off()
    finally:
        logging.disable(logging.NOTSET)
    assert monitor.failure is None, f"the monitor stopped: {monitor.failure}"
    return monitor.series("loss")


def watched(folder: Path) -> Any:
    """What `probes watch` shows; a problem is shown, never raised."""
    from probes.watch.reader import Reader

    return Reader(folder, measures=False).poll()


def read_rows(folder: Path) -> pd.DataFrame:
    """A table of probes."""
    return probes.read_table(folder / "table.parquet")


# servers


class Answer:
    """A response, as far as it is looked at."""

    def __init__(self, kind: str) -> None:
        self.headers, self.url = {"Content-Type": kind}, "http://127.0.0.1:1/table/"


def asked(folder: Path) -> Any:
    """What a hub lists: revisions and files."""
    hub = Hub("http://127.0.0.1:1", cache=folder / "cache", token=False, wait=0)
    files = {"refs": (folder / "refs").read_bytes(), "tree": (folder / "tree").read_bytes()}

    def answer(url: str, headers: object, patience: object) -> tuple[bytes, Answer]:
        return files["refs" if url.endswith("/refs") else "tree"], Answer("application/json")

    with patch("checkpoints.hub.answer", answer):
        found = hub.revisions("fuzzed/input")
        return found, [hub.files("fuzzed/input", commit) for commit in list(found.values())[:3]]


def listed(folder: Path) -> Any:
    """What a web server shows for a folder, as a page and as JSON."""

    def answer(url: str, headers: object, patience: object) -> tuple[bytes, Answer]:
        name = "page" if "/page" in url else "table"
        return (folder / name).read_bytes(), Answer("text/html" if name == "page" else "application/json")

    with patch("checkpoints.web_index.answer", answer):
        shelf = WebShelf.at("http://127.0.0.1:1/fuzzed", Store(cache=folder / "cache"), {})[0]
        return [shelf._list("/fuzzed/page"), shelf._list("/fuzzed/table")]


in_pickle = change.in_archive("data.pkl", change.pickle_changed)
FORMS: dict[str, Form] = {
    "torch": one("model.pt", corpus.torch_saved, change.bytes_changed, check=truth.as_saved),
    "torch, its pickle": one("model.pt", corpus.torch_saved, in_pickle, check=truth.as_torch_reads),
    "torch before 1.6": one(
        "model.pt", lambda: corpus.torch_saved(_use_new_zipfile_serialization=False), change.bytes_changed
    ),
    "safetensors": one(
        "model.safetensors",
        lambda: corpus.save_safetensors(corpus.OWN),
        change.bytes_changed,
        change.header_changed,
        check=truth.as_safetensors_reads,
    ),
    "npz": one(
        "model.npz",
        corpus.npz,
        change.bytes_changed,
        change.in_archive(".npy", change.bytes_changed),
        check=truth.as_numpy_reads,
    ),
    "msgpack": one("model.msgpack", corpus.flax, change.bytes_changed, change.packed_changed),
    "shards and their index": folder_of(corpus.sharded, any_of(".json", change.json_changed), check=truth.as_saved),
    "torch.distributed": folder_of(
        corpus.distributed,
        any_of("", change.bytes_changed, change.any_pickle_changed),
    ),
    "ZeRO-3": folder_of(corpus.zero_three, any_of(".pt", change.bytes_changed, in_pickle)),
    "a file per layer": folder_of(corpus.by_layer, any_of(".pt", in_pickle)),
    "run directory": Form(corpus.run_directory, any_of("run.json", change.json_changed), read_run),
    "run directory, its metrics": Form(corpus.run_directory, any_of("metrics.jsonl", change.lines_changed), read_run),
    "Trainer": Form(
        corpus.trainer_output, any_of("trainer_state.json", change.json_changed), read_trainer, truth.whole_steps
    ),
    "config.json": Form(corpus.trainer_output, any_of("config.json", change.json_changed), read_trainer),
    "metrics.csv": metrics_of("metrics.csv", change.csv_changed, rows=truth.csv_rows),
    "metrics.tsv": metrics_of("metrics.tsv", change.csv_changed, rows=truth.csv_rows),
    "metrics.jsonl": metrics_of("metrics.jsonl", change.lines_changed, rows=truth.json_lines),
    "rows.json": metrics_of("rows.json", change.json_changed, rows=truth.json_rows),
    "trainer_state.json": metrics_of("trainer_state.json", change.json_changed, rows=truth.json_rows),
    "an export of W&B": metrics_of("wandb_export.csv", change.csv_changed, rows=truth.csv_rows),
    "metrics.parquet": metrics_of("metrics.parquet", change.bytes_changed),
    "TensorBoard": metrics_of("events.out.tfevents.1", change.events_changed, rows=truth.event_rows),
    "partial results": Form(
        corpus.partial_results,
        lambda files, rng: (
            any_of(".json", change.json_changed) if rng.random() < 0.6 else any_of("", change.bytes_changed)
        )(files, rng),
        measured_again,
        truth.as_measured,
        weight=1,
    ),
    "a table of probes": Form(
        lambda: {"table.parquet": corpus.probes_table()}, any_of("", change.bytes_changed), read_rows
    ),
    "a sink that goes on": Form(
        corpus.csv_sink, any_of(".csv", change.csv_changed), resumed_sink, truth.told_once, weight=1
    ),
    "a run directory that goes on": Form(
        corpus.run_directory,
        any_of(("probes.csv", "events.jsonl"), change.lines_changed, change.csv_changed),
        resumed_run,
        truth.measured_once,
    ),
    "a monitor that goes on": Form(
        corpus.monitored_run,
        any_of(("looks.jsonl", "events.jsonl", "probes.csv"), change.lines_changed, change.csv_changed),
        resumed_monitor,
        truth.known_losses,
        weight=1,
        seconds=6.0,  # it trains for 250 steps: 1 s, and 2.3 under the type checks of the tests on a slow machine
    ),
    "a run that is watched": Form(
        corpus.run_directory, any_of("", change.lines_changed, change.csv_changed, change.bytes_changed), watched
    ),
    "a hub": Form(lambda: {"refs": corpus.REFS, "tree": corpus.TREE}, any_of("", change.json_changed), asked),
    "a web server": Form(
        lambda: {"page": corpus.INDEX, "table": corpus.LISTING},
        any_of("", change.bytes_changed, change.csv_changed),
        listed,
    ),
}
