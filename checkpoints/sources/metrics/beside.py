"""Metrics that lie beside checkpoints, found without being told: one kind is taken, the others are said.

In the folder of the checkpoints and, where that is only the place where a trainer puts them (`version_0/checkpoints`),
in the one above: a Trainer's state, metrics.csv or metrics.jsonl, event files (also under runs/, logs/, tensorboard/),
exports of W&B, or the one other CSV or JSON-lines file that has a column of steps.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd

from checkpoints.files.checkpoint import abridged
from checkpoints.remote_path import Place
from checkpoints.run import metrics_table
from checkpoints.sources.metrics.files import event_files, read_metrics
from checkpoints.sources.metrics.tables import NoStepsError, first_step, joined, require_segments

NESTED = ("checkpoints", "checkpoint", "ckpts", "ckpt", "weights", "models", "snapshots", "saved_models")
"""Folders that hold the checkpoints of a run and nothing else of it."""

_NAMES = ("metrics", "log", "logs", "history", "train_log", "training_log", "results")
_EVENTS = (".", "runs", "logs", "tensorboard", "tb", "tb_logs", "events")


def metrics_beside(path: Place, unit: str) -> Callable[[], pd.DataFrame]:
    """How to read, later, the metrics that lie beside the checkpoints of a folder."""
    return partial(_read_beside, path, unit)


def _read_beside(path: Place, unit: str) -> pd.DataFrame:
    found = [files for folder in _folders(path) for files in _kinds(folder)]
    for number, files in enumerate(found):
        try:
            metrics = _read_segments(files, unit)
        except NoStepsError as error:
            warnings.warn(f"metrics beside the checkpoints are not used: {error}", stacklevel=2)
            continue
        others = [str(file) for rest in found[number + 1 :] for file in rest]
        if others:
            warnings.warn(
                f"metrics are those of {abridged([str(file) for file in files])}; not read: {abridged(others)} (take "
                "them with open_run(..., metrics=...))",
                stacklevel=2,
            )
        if unit == "number" and len(metrics):
            warnings.warn(
                f"metrics of {path.name} are by step, and the names of its checkpoints do not say that they count it",
                stacklevel=2,
            )
        return metrics
    return metrics_table()


def _folders(path: Place) -> list[Place]:
    return [path, path.parent] if path.name in NESTED else [path]


def _kinds(folder: Place) -> Iterator[list[Place]]:
    """The metrics of each kind in a folder, the surest first; several files of a kind are segments of one run."""
    tables = sorted(file for file in folder.iterdir() if file.suffix in (".csv", ".tsv", ".jsonl") and file.is_file())
    state = folder / "trainer_state.json"
    exports = [file for file in tables if file.name.startswith("wandb_export")]
    named = [file for file in tables if file.stem in _NAMES]
    rest = [file for file in tables if file not in exports and file not in named and not file.name.startswith(".")]
    if state.is_file():
        yield [state]
    for file in named:
        yield [file]
    for name in _EVENTS:
        events = event_files(folder / name)
        if events:
            yield events
        elif name != "." and (folder / name).is_dir():
            below = [sub for sub in sorted((folder / name).iterdir()) if sub.is_dir() and event_files(sub)]
            if below:
                yield below
    if exports:
        yield exports
    for file in rest:
        yield [file]


def _read_segments(files: list[Place], unit: str) -> pd.DataFrame:
    """Files of one kind: event files of one folder together, others as segments in the order of their steps."""
    if "tfevents" in files[0].name:
        return read_metrics(files[0].parent, unit)
    parts = [read_metrics(file, unit) for file in files]
    if len(parts) == 1:
        return parts[0]
    ordered = sorted(zip(parts, files, strict=True), key=lambda pair: first_step(pair[0]))
    parts, names = [part for part, _ in ordered], [file.name for _, file in ordered]
    require_segments(parts, names, str(files[0].parent))
    return joined(parts, str(files[0].parent))
