"""Checkpoints with a number in their names, many in a folder or one by itself.

`step1000/`, `model_10.pth`, `epoch=0-step=100.ckpt`, `10/` ... What the names say is read in `sources.names`, which of
them are the run is decided in `sources.sequence`. A checkpoint by itself whose name counts nothing has the step that it
records, or 0.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from checkpoints.files import Checkpoint, WeightsError
from checkpoints.files.checkpoint import abridged
from checkpoints.files.in_folder import BESIDE_WEIGHTS
from checkpoints.files.torch_file import TorchFile
from checkpoints.remote_path import Place
from checkpoints.run import Entry, Run
from checkpoints.sources.folder import (
    config_beside,
    config_of_all,
    dangling_links,
    is_weights_file,
    open_file,
    opener,
    weights_in,
)
from checkpoints.sources.metrics.beside import metrics_beside
from checkpoints.sources.names import EPOCH, NUMBER, STEP, bare_numbers, believed, counts_in, pattern_of, stem, step_in
from checkpoints.sources.sequence import NamedRun, matching, run_in_names


def find(path: Place, pattern: str | None = None) -> Run | None:
    """The run in a folder of numbered checkpoints, None if nothing in it is one. pattern: of their names, "step*"."""
    names = matching(_candidates(path), pattern)
    try:
        found = run_in_names(
            names,
            lambda steps: f'open_run("{path}", steps="{steps}")',
            lambda revisions: f'open_run("{path}", revisions="{revisions}")',
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not found.placed:
        return None
    files = all((path / one.name).is_file() for one in found.placed)
    if found.unit == NUMBER and files and _whole(path) is not None:
        return None  # the parts of one checkpoint
    if len(found.placed) == 1 and (path / found.placed[0].name).is_dir() and _whole(path, below=0) is not None:
        return None  # one checkpoint that keeps its optimizer in a folder of that name
    _require_checkpoints(path, [path / one.name for one in found.placed])
    return run_of(path, found)


def _require_checkpoints(path: Place, places: list[Place]) -> None:
    """Refuse folders that hold several checkpoints each (`epoch_1/step_100.pt`): which numbers are the steps?"""
    first = places[0]
    if not first.is_dir() or _whole(first) is not None:
        return
    inner = find(first)
    if inner is not None and len(inner.entries) > 1:
        names = [entry.label.rpartition("/")[2] for entry in inner.entries]
        pattern = pattern_of(names[0], believed(counts_in(names[0])) or bare_numbers(names[0])[0])
        raise ValueError(
            f"{path}: {first.name} and its like hold several checkpoints each ({abridged(names, 4)}). Say which "
            f'numbers are the steps: open_run("{path}", steps="*/{pattern}"), or open one: open_run("{first}")'
        )


def run_of(path: Place, found: NamedRun) -> Run:
    """The run of these names in a folder."""
    entries = [
        Entry(
            one.step,
            str(path / one.name),
            opener(path / one.name),
            stage=one.stage,
            stage_step=one.stage_step,
            tokens=one.tokens,
        )
        for one in found.placed
    ]
    places = [path / one.name for one in found.placed]
    config, differences = config_of_all(*(place for place in reversed(places) if place.is_dir()), path)
    if not config:
        config = config_in(places[-1])
    unit = _unit_inside(entries) if found.unit == NUMBER else found.unit
    return Run(
        source=str(path),
        name=path.resolve().name,
        entries=entries,
        family=config.get("model_type", "unknown"),
        config=config,
        read_metrics=metrics_beside(path, unit),
        step_unit=unit,
        notices=(
            *unit_notices(path.resolve().name, unit),
            *found.notices,
            *left_out(found.left_out),
            *dangling_links(path),
            *differences,
        ),
    )


def unit_notices(name: str, unit: str) -> tuple[str, ...]:
    """What to say where numbers are no updates."""
    if unit in (STEP, NUMBER):
        return ()
    return (
        f"{name}: the numbers in the names are {unit}s and not updates. run.step_unit says so; `step` is the {unit}",
    )


def left_out(names: tuple[str, ...]) -> tuple[str, ...]:
    """What to say of weights that lie beside the run."""
    return (f"left out, not among the numbered checkpoints of the run: {abridged(list(names))}",) if names else ()


def _candidates(path: Place) -> Iterator[str]:
    """Names of what may be a checkpoint: files of weights, folders whose names count something or that hold weights.

    Arrays (.npz, .msgpack) are taken for weights only where nothing else is there: beside weights they are data.
    """
    names = list(_all_candidates(path))
    weights = [name for name in names if not name.endswith((".npz", ".msgpack"))]
    yield from weights or names


def _all_candidates(path: Place) -> Iterator[str]:
    for entry in sorted(path.iterdir()):
        if BESIDE_WEIGHTS.search(entry.name) or entry.name.startswith("."):
            continue
        if entry.is_file():
            if is_weights_file(entry.name):
                yield entry.name
        elif entry.is_dir() and (believed(counts_in(entry.name)) or _whole(entry) is not None):
            yield entry.name


def _whole(folder: Place, below: int = 2) -> Checkpoint | None:
    """The one checkpoint in a folder; None where there is none, or several."""
    try:
        return weights_in(folder, below)
    except (OSError, ValueError):
        return None


def _unit_inside(entries: list[Entry]) -> str:
    """What numbers count that have no word, by what the checkpoints themselves record."""
    recorded = [_recorded(entry) for entry in {entries[0].step: entries[0], entries[-1].step: entries[-1]}.values()]
    if all(entry.step == steps for entry, (steps, _) in recorded):
        return STEP
    if all(epoch is not None and abs(entry.step - epoch) <= 1 for entry, (_, epoch) in recorded):
        return EPOCH
    return NUMBER


def _recorded(entry: Entry) -> tuple[Entry, tuple[int | None, int | None]]:
    """The step and the epoch that a checkpoint records, None for what it does not."""
    try:
        checkpoint = entry.open()
        return entry, (checkpoint.recorded_step, _recorded_epoch(checkpoint))
    except (OSError, ValueError):
        return entry, (None, None)


def _recorded_epoch(checkpoint: Checkpoint) -> int | None:
    content = checkpoint.archive.content if isinstance(checkpoint, TorchFile) else None
    epoch = content.get("epoch") if isinstance(content, Mapping) else None
    return epoch if type(epoch) is int else None


def find_single(path: Place) -> Run | None:
    """One checkpoint, a file or a folder, as a run of one step: that of its name, of its content, or 0."""
    if path.is_file():
        if not is_weights_file(path.name):
            return None
        checkpoint = open_file(path)
        config = config_beside(path.parent) or checkpoint.recorded_config
        name = stem(path.resolve().name)
    else:
        try:
            checkpoint = weights_in(path)
        except WeightsError as error:
            raise WeightsError(f"{error}. {_how_to_choose(path)}") from None
        if checkpoint is None:
            return None
        config, name = config_beside(path) or checkpoint.recorded_config, path.resolve().name
    count = believed(counts_in(path.resolve().name))
    step = count.number if count else checkpoint.recorded_step
    unit = count.unit if count else STEP
    return Run(
        source=str(path),
        name=name,
        entries=[Entry(step or 0, str(path), opener(path))],
        family=config.get("model_type", "unknown"),
        config=config,
        step_unit=unit,
        notices=unit_notices(name, unit),
    )


def _how_to_choose(path: Place) -> str:
    files = sorted(entry.name for entry in path.iterdir() if is_weights_file(entry.name))
    each = " or ".join(f'open_run("{path / name}")' for name in files[:3])
    steps = ", ".join(f'{number}: "{name}"' for number, name in enumerate(files[:2]))
    return f'To open one: {each}. If they are one run, say the steps: open_run("{path}", steps={{{steps}, ...}})'


def config_in(place: Place) -> dict[str, Any]:
    """What a trainer kept of the model's shape inside the checkpoint (nanoGPT: `model_args`); {} if nothing."""
    try:
        checkpoint = open_file(place) if place.is_file() else weights_in(place)
        return checkpoint.recorded_config if checkpoint is not None else {}
    except (OSError, ValueError):
        return {}  # a damaged file is reported when it is read, or by the audit, not here


__all__ = ["find", "find_single", "left_out", "run_of", "step_in", "unit_notices"]
