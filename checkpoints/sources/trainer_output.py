"""What the Hugging Face Trainer leaves: `checkpoint-500/`, `checkpoint-1000/` ... each with a `trainer_state.json`."""

import json
import math
import re
from functools import partial
from typing import Any

import pandas as pd

from checkpoints.files.in_folder import BESIDE_WEIGHTS
from checkpoints.remote_path import Place
from checkpoints.run import Entry, Run, metrics_table
from checkpoints.sources.folder import config_of_all, dangling_links, is_weights_file, opener
from checkpoints.sources.metrics.beside import metrics_beside
from checkpoints.sources.step_folders import left_out

STATE_FILE = "trainer_state.json"


def find(path: Place) -> Run | None:
    """The run in a Trainer's output folder, None if this is not one: a state says that the numbers are steps."""
    folders = sorted(
        (int(match[1]), folder)
        for folder in path.iterdir()
        if (match := re.fullmatch(r"checkpoint-(\d+)", folder.name)) and folder.is_dir()
    )
    if not any((folder / STATE_FILE).is_file() for _, folder in folders):
        return None  # somebody else's folders of that name: see step_folders
    config, differences = config_of_all(*(folder for _, folder in reversed(folders)), path)
    return Run(
        source=str(path),
        name=path.resolve().name,
        entries=[Entry(step, str(folder), opener(folder), partial(global_step, folder)) for step, folder in folders],
        family=config.get("model_type", "unknown"),
        config=config,
        read_metrics=partial(read_metrics, path, [folder for _, folder in folders]),
        notices=(*left_out(_beside(path, {folder for _, folder in folders})), *dangling_links(path), *differences),
    )


def _beside(path: Place, folders: set[Place]) -> tuple[str, ...]:
    """Weights in the output that are none of its steps: those saved at the end."""
    others = [entry for entry in sorted(path.iterdir()) if entry not in folders]
    return tuple(
        entry.name
        for entry in others
        if entry.is_file() and is_weights_file(entry.name) and not BESIDE_WEIGHTS.search(entry.name)
    )


def global_step(folder: Place) -> int | None:
    """The step that the Trainer recorded in this checkpoint."""
    if not (folder / STATE_FILE).is_file():
        return None
    step = _state(folder).get("global_step")
    if step is not None and (type(step) is not int or step < 0):
        raise ValueError(f"{folder / STATE_FILE}: global_step is {str(step)[:40]!r}, a whole number is expected")
    return step


def read_metrics(path: Place, folders: list[Place]) -> pd.DataFrame:
    """The log of the latest checkpoint that has one: it repeats those of the earlier ones. Else what lies beside."""
    for folder in reversed(folders):
        if (folder / STATE_FILE).is_file():
            history = _state(folder).get("log_history") or []
            if not isinstance(history, list):
                raise ValueError(f"{folder / STATE_FILE}: log_history is no list of what was logged")
            if history:
                return metrics_table((_logged(entry, folder / STATE_FILE) for entry in history), folder / STATE_FILE)
    return metrics_beside(path, "step")()


def _logged(entry: Any, file: Place) -> tuple[int, dict[str, float]]:
    """One entry of the log: its step and its numbers. What is no number (a text, a list) is not a metric."""
    step = entry.get("step") if isinstance(entry, dict) else None
    if isinstance(step, bool) or not isinstance(step, int | float) or step % 1 or not 0 <= step < 2**62:
        raise ValueError(f"{file}: an entry of log_history has {str(step)[:40]!r} for its step: {str(entry)[:100]}")
    numbers = {key: value for key, value in entry.items() if isinstance(value, int | float) and key != "step"}
    try:
        return int(step), {key: float(value) for key, value in numbers.items()}
    except OverflowError:
        raise ValueError(f"{file}: step {step} logs a number that is too large for a float") from None


def _state(folder: Place) -> dict[str, Any]:
    file = folder / STATE_FILE
    try:
        state = json.loads(file.read_text(encoding="utf-8"), parse_constant=lambda _: math.nan)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {str(error)[:200]}. Copy it again or delete it") from None
    if not isinstance(state, dict):
        raise ValueError(f"{file} is not a Trainer's state")
    return state
