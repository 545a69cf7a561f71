"""Reading a run: its description, its metrics as a table, and its weights, tensor by tensor and only when asked for."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError, safe_open
from torch import Tensor

from checkpoints.layout import FORMAT, METRICS_FILE, RUN_FILE, VERSION, files_of


class Checkpoint(Mapping):  # of str to Tensor; said in prose, or type checkers would read a tensor to check it
    """The tensors of one file by name. Only the tensor asked for is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, name: str) -> Tensor:
        """One tensor, read now."""
        with self._opened() as file:
            if name not in self._names:
                raise KeyError(f"{self.path} has no tensor {name!r}; it has {', '.join(self._names)}")
            return file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor; it is not read for that."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._names)

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self._names)

    def __repr__(self) -> str:
        """The file; what is in it is not read for that."""
        return f"Checkpoint({str(self.path)!r})"

    @cached_property
    def _names(self) -> tuple[str, ...]:
        with self._opened() as file:
            return tuple(sorted(file.keys()))

    def _opened(self) -> Any:
        try:
            return safe_open(self.path, framework="pt")
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} does not exist") from None
        except SafetensorError as error:
            raise ValueError(
                f"{self.path} cannot be read ({self.path.stat().st_size} bytes): {error}. "
                "It is cut short or not a safetensors file; copy it again or delete it"
            ) from error


class Run:
    """A run on disk. Nothing but its description is read until it is asked for."""

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        self.path = path
        self.name: str = description["name"]
        self.family: str = description["family"]
        self.seed: int | None = description["seed"]
        self.config: dict[str, Any] = description["config"]
        self.theory: dict[str, Any] | None = description["theory"]
        self.packages: dict[str, str] = description["packages"]

    @property
    def steps(self) -> list[int]:
        """Steps with weights, ascending."""
        return list(self._files)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Scalars by step: one row per step, one column per scalar. A last line cut short is left out."""
        rows: dict[int, dict[str, Any]] = {}
        for _, scalars in metric_lines(self.path / METRICS_FILE):
            # a step may be logged in several calls; its scalars belong in one row, the last word counts
            rows.setdefault(scalars.pop("step"), {}).update(scalars)
        index = pd.Index(rows.keys(), name="step", dtype="int64")
        return pd.DataFrame(list(rows.values()), index=index, dtype="float64").sort_index()

    def checkpoint(self, step: int) -> Checkpoint:
        """The weights after `step` updates, read lazily."""
        if step not in self._files:
            raise KeyError(f"run {self.name!r} has no weights at step {step}; it has {_abridged(self.steps)}")
        return Checkpoint(self._files[step])

    def __repr__(self) -> str:
        """Name, family and the steps there are."""
        return f"Run({self.name!r}, {self.family}, {len(self.steps)} checkpoints: {_abridged(self.steps)})"

    @cached_property
    def _files(self) -> dict[int, Path]:
        return files_of(self.path, "step")


def metric_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole lines of a metrics file, as text and as scalars. A last line cut short is left out."""
    if not file.exists():
        return
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                return
            try:
                scalars = json.loads(line)
                scalars["step"] = int(scalars["step"])
            except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{file}, line {number}: not a line of metrics ({error})") from None
            yield line, scalars


def open_run(path: str | Path) -> Run:
    """Open a run directory; raises with what it looked for where there is none."""
    path = Path(path)
    return Run(path, read_description(path))


def read_description(path: Path) -> dict[str, Any]:
    """run.json, checked."""
    file = path / RUN_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: a run directory with {RUN_FILE} is expected")
    if not file.is_file():
        inside = _abridged(sorted(entry.name for entry in path.iterdir())) if path.is_dir() else "a file"
        raise ValueError(f"{path} is not a run: it has no {RUN_FILE} (it holds {inside})")
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f'{file} does not describe a run: "format": "{FORMAT}" is expected')
    if not isinstance(description.get("version"), int):
        raise ValueError(f'{file}: "version" is {description.get("version")!r}, a whole number is expected')
    if description["version"] > VERSION:
        raise ValueError(
            f"{file} has format version {description['version']}, this release reads up to {VERSION}: "
            "upgrade checkpoint-probes"
        )
    missing = [key for key in ("name", "family", "seed", "config", "theory", "packages") if key not in description]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}")
    return description


def _abridged(items: list[Any], most: int = 8) -> str:
    if len(items) <= most:
        return ", ".join(map(str, items)) or "nothing"
    return ", ".join(map(str, [*items[: most - 1], "...", items[-1]]))
