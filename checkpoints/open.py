"""`open_run`: whatever people have, as a run.

open_run("runs/mine")                                     our run directory
open_run("output")                                        Hugging Face Trainer: output/checkpoint-500/ ...
open_run("pythia")                                        folders or files with the step in their names, or below
open_run("mine", steps="model_{step}.pth")                the same where the names leave it open
open_run("olmo", revisions="stage1-*")                    only some of them
open_run("mine", metrics="wandb_export.csv")              with metrics that lie elsewhere
open_run("model.safetensors"), open_run("ckpt.pt")        one checkpoint, sharded or not
open_run("hub:EleutherAI/pythia-70m", revisions="step*")  a hub repository with one revision per step
open_run("s3://bucket/run"), open_run("https://host/run") the same folders in a store or on a web server
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoints.files.checkpoint import abridged
from checkpoints.heads.layout import Family
from checkpoints.remote_path import Place
from checkpoints.run import Run
from checkpoints.sources import run_directory, step_folders, trainer_output, transformer_lens
from checkpoints.sources.below import find_below
from checkpoints.sources.metrics.files import Metrics, read_metrics
from checkpoints.sources.sequence import matching
from checkpoints.sources.stated import Steps, stated_run

if TYPE_CHECKING:
    from checkpoints.hub import Hub
    from checkpoints.store import Store

LAST_STEP = 2**53
"""Beyond that floats, which steps are in series and figures, are no whole numbers any more."""

FOLDERS = (
    (run_directory.find, "a run directory (run.json)"),
    (trainer_output.find, "Hugging Face Trainer output (checkpoint-500/ ...)"),
    (transformer_lens.find, "a TransformerLens repository (checkpoints/*_1000.pth)"),
    (step_folders.find, "folders or files with a number in their names (step1000/, model_1000.pt ...), here or below"),
    (step_folders.find_single, "one checkpoint (*.safetensors, *.pt, *.pth, *.bin, *.ckpt, sharded or not)"),
)


def open_run(
    source: str | Path,
    *,
    revisions: str | None = None,
    steps: Steps | None = None,
    metrics: Metrics | Sequence[Metrics] | None = None,
    config: Mapping[str, Any] | None = None,
    family: Family | str | None = None,
    hub: "Hub | None" = None,
    store: "Store | None" = None,
) -> Run:
    """Open a run; raises with what it looked for where there is none. What a reader must know of it is warned of.

    revisions is a pattern of names, or several ("stage1-*,stage2-ingredient1-*"): of revisions of a hub's repository,
    of files and folders on a disk. steps says which files are which steps: a pattern ("model_{step}.pth"; {epoch} and
    {tokens} say that the numbers are such), a regular expression with one group, a function of the path, or {step:
    path}. metrics are a CSV, JSON lines, event files or a DataFrame, where they do not lie beside the checkpoints;
    several are segments of one run.

    config adds to, or replaces, what the source says of the model's shape, e.g. {"num_attention_heads": 12}. family
    describes how an unknown architecture stores its attention weights, or is the name of a known one to insist on. hub
    (server, cache, token) is for sources that begin with "hub:", store (options, headers, cache) for s3://, gs://,
    https:// and whatever else fsspec knows.
    """
    is_hub, is_store = str(source).startswith("hub:"), "://" in str(source)
    if hub is not None and not is_hub:
        raise ValueError(f"hub is for sources that begin with 'hub:', {str(source)!r} does not")
    if store is not None and not is_store:
        raise ValueError(f"store is for addresses such as s3://bucket/run, {str(source)!r} is none")
    if is_hub:
        from checkpoints.sources.hub import find

        if steps is not None:
            raise ValueError("steps= is for folders on a disk; for a hub's repository say revisions=")
        run = find(str(source).removeprefix("hub:"), revisions or "*", hub)
    elif is_store:
        from checkpoints.sources.store import find as find_in_store

        run = find_in_store(str(source), store, partial(_in_folder, pattern=revisions, steps=steps))
    else:
        run = _in_folder(_existing(Path(source)), revisions, steps)
    beyond = next((entry for entry in run.entries if entry.step > LAST_STEP), None)
    if beyond is not None:
        raise ValueError(f"{beyond.label}: {beyond.step} is no number of steps. Say which number is: steps=, --steps")
    for notice in run.notices:
        warnings.warn(notice, stacklevel=2)
    if config:
        run = replace(run, config={**run.config, **config})
    if metrics is not None:
        run = replace(run, read_metrics=partial(read_metrics, metrics, run.step_unit))
    return replace(run, family_override=family) if family else run


def _existing(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{str(path)!a}: its name is not text (UTF-8). Rename it, or open it by a link") from None
    if not path.exists():
        hint = "" if path.is_absolute() or str(path).count("/") != 1 else f" For a hub repository write 'hub:{path}'."
        raise FileNotFoundError(f"{path} does not exist.{hint}")
    if not path.is_dir() and not path.is_file():
        raise ValueError(f"{path} is neither a file nor a folder")
    return path.absolute()  # a worker may be somewhere else


def _in_folder(path: Place, pattern: str | None, steps: Steps | None) -> Run:
    if steps is not None:
        return _selected(stated_run(path, steps), pattern)
    if path.is_file():
        run = step_folders.find_single(path)
        if run is None:
            endings = "*.safetensors, *.pt, *.pth, *.pth.tar, *.bin, *.ckpt"
            raise ValueError(f"{path} is no file of weights by its ending; one of {endings} is expected, or a folder")
        return run
    found = partial(_numbered, pattern=pattern)
    run = found(path) or find_below(path, found) or step_folders.find_single(path)
    if run is None:
        if not any(path.iterdir()):
            raise ValueError(f"{path} is empty: a folder of checkpoints is expected")
        inside = abridged(sorted(entry.name for entry in path.iterdir()))
        looked_for = "; ".join(what for _, what in FOLDERS)
        chosen = f" that matches {pattern!r}" if pattern else ""
        raise ValueError(f"{path} is not a run{chosen} (it holds {inside}). Looked for: {looked_for}")
    return run


def _numbered(path: Place, pattern: str | None) -> Run | None:
    """The run of several steps that a folder is, None if it is none."""
    for find, _ in FOLDERS[:-2]:
        run = find(path)
        if run is not None:
            return _selected(run, pattern)
    return step_folders.find(path, pattern)


def _selected(run: Run, pattern: str | None) -> Run:
    """Only the checkpoints whose names match."""
    if pattern is None:
        return run
    names = {Path(entry.label).name for entry in run.entries}
    wanted = {*matching(names, pattern)}
    if not wanted:
        raise ValueError(f"{run.source} holds nothing that matches {pattern!r}: {abridged(sorted(names))}")
    return replace(run, entries=[entry for entry in run.entries if Path(entry.label).name in wanted])
