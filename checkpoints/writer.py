"""Writing a run: metrics at every step, weights at some, and the state from which training can go on.

    with RunWriter("runs/mine", config={...}) as writer:
        for step in range(1001):
            if step % 100 == 0:
                writer.save(step, model)          # step k: after k updates
            if step < 1000:
                writer.log(step, loss=update())   # the loss of those weights

A kill at any instant leaves every finished checkpoint readable and no half-written one visible. With `save_resume` and
`resume=True` a later process continues where this one stopped (`resume_state`, `go_back`): metrics logged after that
are dropped, because they will be logged again. One process at a time: a second writer on the same directory is refused
where files can be locked; on Windows they are not, and seeing to that is left to whoever starts them.
"""

import json
import math
import os
import time
import weakref
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch
from torch import Tensor

from checkpoints import layout
from checkpoints.circuits import described_circuit
from checkpoints.files.safetensors_file import SafetensorsFile
from checkpoints.layout import (
    FORMAT,
    METRICS_FILE,
    RUN_FILE,
    VERSION,
    as_step,
    create_json,
    files_of,
    left_overs,
    resume_file,
    step_file,
    write_tensors,
    write_text,
)
from checkpoints.run import require_text
from checkpoints.sources.run_directory import metric_lines, read_description

_FLUSH_SECONDS = 1.0
_KEPT_RESUME_STATES = 2
_LOCK_ATTEMPTS = 10  # who asks whether a run is being written holds the lock for a moment


class RunWriter:
    """A run directory being written.

    config is whatever describes the run, as JSON. theory, if the model has one, says how its checkpoints relate to it
    (see `probes.align`). circuits say, for weights that are not those of attention heads, which matrices are to be
    measured and how they are made of the tensors saved (see `checkpoints.circuits`). An existing run is not touched
    unless `resume` says to go on with it; then its description must be the same; `resume_steps`, `resume_state` and
    `go_back` let training go on from where it stopped.
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
        circuits: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        for circuit, said in (circuits or {}).items():
            described_circuit(said, f"{self.path.name}, circuit {circuit!r}")
        description = {
            "format": FORMAT,
            "version": VERSION,
            "name": name or self.path.name,
            "family": family,
            "seed": seed,
            "config": dict(config or {}),
            "theory": dict(theory) if theory else None,
            "circuits": dict(circuits) if circuits else None,
            "packages": {package: _version(package) for package in ("checkpoint-probes", "torch", "numpy")},
        }
        self._metrics = self.path / METRICS_FILE
        self._held = bytearray()
        """Lines of metrics that are not written yet."""
        self._is_mended = False
        self._lock: TextIO | None = None
        self._closed = False
        self._prepare(json.loads(json.dumps(description)), resume)
        self._flushed = time.monotonic()
        self._at_exit = weakref.finalize(self, layout.append_at_exit, self._metrics, self._held, os.getpid())

    def log(self, step: int, **scalars: float | Tensor) -> None:
        """One line of metrics, written within about a second. What is not finite is stored as null.

        On a disk that is full this raises, by name; what is held is written once there is room, and nothing is lost.
        """
        self._require_open()
        step = as_step(step)
        require_text(scalars, str(self._metrics))
        numbers = {
            name: float(value.detach() if isinstance(value, Tensor) else value) for name, value in scalars.items()
        }
        finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self._held += (json.dumps({"step": step, **finite}) + "\n").encode()
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def save(self, step: int, weights: torch.nn.Module | Mapping[str, Tensor]) -> Path:
        """The weights after `step` updates: a module, or names and tensors. Metrics logged so far go to disk first."""
        step = as_step(step)
        tensors = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
        if not tensors:
            raise ValueError(f"step {step}: there are no weights to save")
        self.flush(to_disk=True)
        path = self.path / step_file(step)
        write_tensors(path, tensors, {"step": str(step)})
        return path

    def save_resume(self, step: int, state: Mapping[str, Tensor]) -> None:
        """What training needs to go on after `step` updates: weights, optimizer, generators, data stream."""
        step = as_step(step)
        self.flush(to_disk=True)  # before the state: it must never be ahead of the metrics
        write_tensors(self.path / resume_file(step), state, {"step": str(step)})
        states = files_of(self.path, "resume")
        earlier = [other for other in states if other <= step]
        for other in set(states) - set(earlier[-_KEPT_RESUME_STATES:]):
            states[other].unlink()

    def resume_steps(self) -> list[int]:
        """Steps from which training can go on."""
        return list(files_of(self.path, "resume"))

    def resume_state(self, step: int) -> dict[str, Tensor]:
        """The state saved at `step`, read and nothing else: call `go_back` to go on from there."""
        return dict(SafetensorsFile(self.path / resume_file(step)))

    def go_back(self, step: int) -> None:
        """Drop metrics from `step` on, and weights and states after it: they will come again. -1 drops everything."""
        self.flush()
        _keep_metrics(self._metrics, below=step)
        for kind in ("step", "resume"):
            for other, file in files_of(self.path, kind).items():
                if other > step:
                    file.unlink()

    def flush(self, *, to_disk: bool = False) -> None:
        """Hand the metrics logged so far to the operating system, or all the way to the disk."""
        self._require_open()
        self._flushed = time.monotonic()
        self._write()
        if to_disk and self._metrics.exists():
            with open(self._metrics, "rb") as file:
                layout.to_disk(file.fileno())

    def close(self) -> None:
        """Finish writing; what was logged and saved stays. Raises, closed all the same, where metrics had no room."""
        try:
            if not self._closed and self._lock is not None:
                self._write()
        finally:
            if self._lock is not None:
                self._lock.close()
            self._lock, self._closed = None, True
            if hasattr(self, "_at_exit"):
                self._at_exit.detach()

    def __enter__(self) -> "RunWriter":
        """The writer itself, closed when the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whether or not something went wrong."""
        self.close()

    def _prepare(self, description: dict[str, Any], resume: bool) -> None:
        file = self.path / RUN_FILE
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"{self.path} is a file: a directory is needed")
        if not file.exists():
            if self.path.exists() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
                raise FileExistsError(f"{self.path} exists and is not a run: choose an empty or a new directory")
            self.path.mkdir(parents=True, exist_ok=True)
            if create_json(file, description):
                self._take_lock()
                return
        if not resume:
            raise FileExistsError(f"{self.path} already holds a run: pass resume=True to go on, or another directory")
        existing = read_description(self.path)
        for key in ("family", "seed", "config", "theory", "circuits"):
            if existing[key] != description[key]:
                other = "other" if key == "circuits" else "another"
                raise ValueError(
                    f"{file} has {other} {key}, so this would not be the same run: there {str(existing[key])[:1000]}, "
                    f"here {str(description[key])[:1000]}. Choose another directory"
                )
        self._take_lock()

    def _take_lock(self) -> None:
        """One writer at a time; the system lets go of the lock when this process ends, however it ends."""
        self._lock = open(self.path / RUN_FILE, encoding="utf-8")  # noqa: SIM115 (closed by close)
        try:
            import fcntl
        except ImportError:
            return
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if attempt == _LOCK_ATTEMPTS - 1:
                    self.close()
                    raise RuntimeError(f"{self.path} is being written by another process or writer") from None
                time.sleep(0.02)
        for left_over in left_overs(self.path):
            left_over.unlink()

    def _write(self) -> None:
        """Append what is held; the first time, a last line that an earlier process left cut short is dropped."""
        if self._held and not self._is_mended:
            _keep_metrics(self._metrics, below=None)
            self._is_mended = True
        layout.append(self._metrics, self._held)

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError(f"the writer of {self.path} is closed")


def _keep_metrics(path: Path, below: int | None) -> None:
    """Keep the whole lines, of steps under `below` if that is given; the file is only touched if that changes it."""
    if not path.exists():
        return
    kept = "".join(line for line, scalars in metric_lines(path) if below is None or scalars["step"] < below)
    if len(kept.encode()) != path.stat().st_size:
        write_text(path, kept)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
