"""Checkpoints with the step in their names, many in a folder or one by itself.

`step1000/`, `pythia-step-1000/`, `model-step1000.pt` ... Where a name counts several things, `names.WORDS` says which
is the step; a checkpoint by itself whose name counts nothing has the step that it records, or 0.
"""

from pathlib import Path

from checkpoints.files.in_folder import BESIDE_WEIGHTS
from checkpoints.run import Entry, Run
from checkpoints.sources.folder import FILE_SUFFIXES, config_beside, open_file, opener, weights_in
from checkpoints.sources.names import step_in


def find(path: Path) -> Run | None:
    """The run in a folder of steps, None if nothing in it is called a step."""
    found = []
    for entry in path.iterdir():
        step = step_in(entry.name)
        if (
            step is not None
            and not BESIDE_WEIGHTS.search(entry.name)
            and (entry.is_dir() or entry.suffix in FILE_SUFFIXES)
        ):
            found.append((step, entry))
    if not found or (len(found) == 1 and found[0][1].is_dir() and weights_in(path) is not None):
        return None  # none, or one checkpoint that keeps its optimizer in a folder of that name
    found.sort()
    last = found[-1][1]
    config = config_beside(*(entry for _, entry in reversed(found) if entry.is_dir()), path)
    if not config and last.is_file():
        config = config_in(last)
    return Run(
        source=str(path),
        name=path.resolve().name,
        entries=[Entry(step, str(entry), opener(entry)) for step, entry in found],
        family=config.get("model_type", "unknown"),
        config=config,
    )


def find_single(path: Path) -> Run | None:
    """One checkpoint, a file or a folder, as a run of one step: that of its name, of its content, or 0."""
    if path.is_file():
        if path.suffix not in FILE_SUFFIXES:
            return None
        checkpoint = open_file(path)
        config = config_beside(path.parent) or checkpoint.recorded_config
        step = step_in(path.name)
        step = checkpoint.recorded_step if step is None else step
    else:
        if weights_in(path) is None:
            return None
        config, step = config_beside(path), step_in(path.resolve().name)
    return Run(
        source=str(path),
        name=path.resolve().stem if path.is_file() else path.resolve().name,
        entries=[Entry(step or 0, str(path), opener(path))],
        family=config.get("model_type", "unknown"),
        config=config,
    )


def config_in(file: Path) -> dict:
    """What a trainer kept of the model's shape inside the checkpoint (nanoGPT: `model_args`); {} if nothing."""
    try:
        return open_file(file).recorded_config
    except ValueError:
        return {}  # a damaged file is reported when it is read, or by the audit, not here
