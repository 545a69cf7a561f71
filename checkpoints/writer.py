"""Writing a run: metrics at every step, weights at some, and the state from which training can go on.

    with RunWriter("runs/mine", config={...}) as writer:
        for step in range(1000):
            loss = update()
            writer.log(step, loss=loss)
            if step % 100 == 0:
                writer.save(step, model)

A kill at any instant leaves every finished checkpoint readable and no half-written one visible. With `save_resume` and
`resume=True` a later process continues where this one stopped: metrics logged after the last resume state are dropped,
because they will be logged again.
"""

import json
import math
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from checkpoints.layout import (
    FORMAT,
    METRICS_FILE,
    RUN_FILE,
    VERSION,
    files_of,
    resume_file,
    step_file,
    write_json,
    write_tensors,
)
from checkpoints.run import Checkpoint, read_description

_FLUSH_SECONDS = 1.0
_KEPT_RESUME_STATES = 2


class RunWriter:
    """A run directory being written.

    config is whatever describes the run, as JSON. theory, if the model has one, says how its checkpoints relate to it
    (see `probes.align`). An existing run is not touched unless `resume` says to go on with it; then its description
    must be the same. Go on from `resumed_step` with `resume_state`, both None for a new run.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        family: str = "unknown",
        seed: int | None = None,
        theory: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        description = {
            "format": FORMAT,
            "version": VERSION,
            "name": name or self.path.name,
            "family": family,
            "seed": seed,
            "config": dict(config or {}),
            "theory": dict(theory) if theory else None,
            "packages": {package: _version(package) for package in ("checkpoint-probes", "torch", "numpy")},
        }
        self.resumed_step: int | None = None
        self._prepare(json.loads(json.dumps(description)), resume)
        self._metrics = open(self.path / METRICS_FILE, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self._flushed = time.monotonic()

    def log(self, step: int, **scalars: float | Tensor) -> None:
        """One line of metrics. What is not finite is stored as null."""
        numbers = {name: float(value) for name, value in scalars.items()}
        finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self._metrics.write(json.dumps({"step": int(step), **finite}) + "\n")
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def save(self, step: int, weights: torch.nn.Module | Mapping[str, Tensor]) -> Path:
        """The weights after `step` updates: a module, or names and tensors. Metrics logged so far go to disk first."""
        tensors = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
        if not tensors:
            raise ValueError(f"step {step}: there are no weights to save")
        self.flush()
        path = self.path / step_file(step)
        write_tensors(path, tensors, {"step": str(step)})
        return path

    def save_resume(self, step: int, state: Mapping[str, Tensor]) -> None:
        """What training needs to go on after `step` updates: weights, optimizer, generators, data stream."""
        self.flush()
        write_tensors(self.path / resume_file(step), state, {"step": str(step)})
        for old in list(files_of(self.path, "resume").values())[:-_KEPT_RESUME_STATES]:
            old.unlink()

    def resume_steps(self) -> list[int]:
        """Steps from which training can go on."""
        return list(files_of(self.path, "resume"))

    def resume_state(self, step: int) -> dict[str, Tensor]:
        """The state saved at `step`. Metrics after it are dropped from the run: they will come again."""
        state = Checkpoint(self.path / resume_file(step))
        self._metrics.close()
        _drop_metrics(self.path / METRICS_FILE, from_step=step)
        self._metrics = open(self.path / METRICS_FILE, "a", encoding="utf-8")  # noqa: SIM115
        self.resumed_step = step
        return dict(state)

    def flush(self) -> None:
        """Hand the metrics logged so far to the operating system."""
        self._metrics.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Finish writing; what was logged and saved stays."""
        self._metrics.close()

    def __enter__(self) -> "RunWriter":
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whether or not something went wrong."""
        self.close()

    def _prepare(self, description: dict[str, Any], resume: bool) -> None:
        file = self.path / RUN_FILE
        if not file.exists():
            if self.path.exists() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
                raise FileExistsError(f"{self.path} exists and is not a run: choose an empty or a new directory")
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(file, description)
            return
        if not resume:
            raise FileExistsError(f"{self.path} already holds a run: pass resume=True to go on, or another directory")
        existing = read_description(self.path)
        for key in ("family", "seed", "config", "theory"):
            if existing[key] != description[key]:
                raise ValueError(
                    f"{file} has another {key}, so this would not be the same run: there {existing[key]}, "
                    f"here {description[key]}. Choose another directory"
                )
        for left_over in self.path.glob(".*.partial"):
            left_over.unlink()
        _drop_metrics(self.path / METRICS_FILE, from_step=None)


def _drop_metrics(path: Path, from_step: int | None) -> None:
    """Cut the file after its last whole line, and from `from_step` on."""
    if not path.exists():
        return
    keep = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            if from_step is not None and json.loads(line)["step"] >= from_step:
                break
            keep += len(line)
    with open(path, "rb+") as file:
        file.truncate(keep)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
