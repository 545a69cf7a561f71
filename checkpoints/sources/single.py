"""One checkpoint by itself, a file or a folder: a run of one step."""

from pathlib import Path

from checkpoints.run import Entry, Run
from checkpoints.sources.folder import FILE_SUFFIXES, config_beside, open_file, opener, weights_in
from checkpoints.sources.names import step_in


def find(path: Path) -> Run | None:
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
