"""Our own run directory (see `checkpoints.layout`): run.json, metrics.jsonl, step-000001000.safetensors."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from checkpoints.files.checkpoint import abridged
from checkpoints.layout import FORMAT, METRICS_FILE, MOST_STEPS, RUN_FILE, VERSION, files_of
from checkpoints.remote_path import Place
from checkpoints.run import Entry, Run, metrics_table
from checkpoints.sources.folder import dangling_links, open_file

_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("name", str, "a text"),
    ("family", str, "a text"),
    ("seed", int | None, "a whole number or null"),
    ("config", dict, "a table"),
    ("theory", dict | None, "a table or null"),
    ("packages", dict, "a table"),
)
"""What must stand under the names of run.json."""


def find(path: Place) -> Run | None:
    """The run that a directory holds, None if it is not a run directory."""
    if not (path / RUN_FILE).is_file():
        return None
    description = read_description(path)
    return replace(described(path, description, files_of(path, "step")), notices=dangling_links(path))


def described(path: Place, description: Mapping[str, Any], files: Mapping[int, Place]) -> Run:
    """The run of this description and these files of weights, by step."""
    return Run(
        source=str(path),
        name=description["name"],
        entries=[Entry(step, str(file), partial(open_file, file)) for step, file in files.items()],
        family=description["family"],
        config=description["config"],
        seed=description["seed"],
        theory=description["theory"],
        circuits=description["circuits"],
        packages=description["packages"],
        read_metrics=partial(read_metrics, path / METRICS_FILE),
    )


def read_metrics(file: Place) -> pd.DataFrame:
    """Scalars by step: one row per step, one column per scalar. A last line cut short is left out."""
    return metrics_table(((scalars.pop("step"), scalars) for _, scalars in metric_lines(file)), file)


def metric_lines(file: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole lines of a metrics file, as text and as scalars. A last line cut short is left out."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        for number, content in enumerate(lines, start=1):
            if not content.endswith(b"\n"):
                return
            try:
                line = content.decode()
                scalars = _scalars(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{file}, line {number}: not a line of metrics ({str(error)[:200]}). Mend or remove the line"
                ) from None
            yield line, scalars


def _scalars(row: Any) -> dict[str, Any]:
    """What a line says, as floats by name and the step; raises ValueError where it is something else."""
    step = row.get("step") if isinstance(row, dict) else None
    if type(step) is not int or not 0 <= step < MOST_STEPS:
        raise ValueError(f'"step" is {str(step)[:40]!r}, a whole number is expected')
    odd = [key for key, value in row.items() if value is not None and type(value) not in (int, float)]
    if odd:
        raise ValueError(f"{odd[0][:40]!r} is {str(row[odd[0]])[:40]!r}, a number or null is expected")
    return {key: value if key == "step" else _as_float(value) for key, value in row.items()}


def _as_float(value: float | None) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        raise ValueError("a number is too large for a float") from None


def read_description(path: Place) -> dict[str, Any]:
    """The content of run.json; raises where it is not there, not ours or not whole."""
    file = path / RUN_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: a run directory with {RUN_FILE} is expected")
    if not file.is_file():
        inside = abridged(sorted(entry.name for entry in path.iterdir())) if path.is_dir() else "a file"
        raise ValueError(f"{path} is not a run: it has no {RUN_FILE} (it holds {inside})")
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f'{file} does not describe a run: "format": "{FORMAT}" is expected')
    written = description.get("version")
    if type(written) is not int:
        raise ValueError(f'{file}: "version" is {str(written)[:100]!r}, a whole number is expected')
    if written > VERSION:
        raise ValueError(
            f"{file} has format version {str(written)[:100]}, this release reads up to {VERSION}: "
            "upgrade checkpoint-probes"
        )
    missing = [key for key in ("name", "family", "seed", "config", "theory", "packages") if key not in description]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}")
    for key, kind, expected in _KINDS:
        if not isinstance(description[key], kind):
            raise ValueError(f'{file}: "{key}" is {str(description[key])[:100]!r}, {expected} is expected')
    circuits = description.setdefault("circuits", None)
    if circuits is not None and not (isinstance(circuits, dict) and circuits):
        raise ValueError(f'{file}: "circuits" is {str(circuits)[:100]!r}, descriptions by name or null is expected')
    return description
