"""Checkpoints dense where something happens: a ring of recent weights, written when an event says that they matter.

An event is detected after it has happened: about a third of the step later. So copies of the weights are kept in
memory at log-spaced steps, far enough back to reach before it; when it is detected those from before it on are written,
and checkpoints are then written densely until well after it. Besides, a sparse schedule is written whatever happens.

    Monitor(model, checkpoints=AdaptiveCheckpoints("runs/mine"))

With the defaults the copies are 5 % apart and sixteen: they reach back to half of the current step, and take sixteen
times the memory of the weights. The run is read like any other: `open_run`, `measure`.

Of a sharded model each rank copies its own shards. All ranks take part in gathering what is written, one tensor at a
time, and the first one writes it: it has to have room for the whole model.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from checkpoints import Run, RunWriter
from checkpoints.files.in_memory import InMemory
from probes.monitor.distributed import SingleProcess
from probes.monitor.live_weights import LiveWeights
from probes.monitor.steps import Steps
from probes.series.online import Event

_BEFORE = 0.9  # of the lower end of an event's interval: from where on the copies are written
_AFTER = 1.2  # of the step of a late detection: dense at least until there


class AdaptiveCheckpoints:
    """What is written, where, and when.

    writer is a path, where the first rank makes a run with the config of the model, and goes on with it if monitoring
    begins later than at step 0; or a `RunWriter` of your own, on the first rank alone: the others say None.

    schedule is written whatever happens (a ratio, an interval or steps); `ring` copies, `spacing` apart as a ratio, are
    held in memory; after an event checkpoints are `dense` apart, as a ratio, until `until` times the step of the event.
    """

    def __init__(
        self,
        writer: RunWriter | str | Path | None,
        schedule: float | int | Iterable[int] = 1.5,
        *,
        ring: int = 16,
        spacing: float = 1.05,
        dense: float = 1.02,
        until: float = 2.0,
    ) -> None:
        if ring < 1:
            raise ValueError(f"ring is {ring}: at least one copy has to be kept")
        self.writer = writer if isinstance(writer, RunWriter) else None
        self.ring, self.until = ring, until
        self._path = Path(writer) if isinstance(writer, str | Path) else None
        self._sparse, self._spacing, self._dense = Steps(schedule), Steps(float(spacing)), Steps(float(dense))
        self._copies: dict[int, InMemory] = {}
        self._dense_until = -1.0
        self.written: list[int] = []
        """Steps in the order in which they were written."""

    def start(self, step: int, run: Run, processes: SingleProcess) -> None:
        """The step at which monitoring of this run begins. Raises on all ranks if it cannot be written."""
        for steps in (self._sparse, self._spacing, self._dense):
            steps.start(step)
        processes.first(self._open, step, run)

    def step(self, step: int, weights: LiveWeights, processes: SingleProcess) -> None:
        """Write or copy the weights, if that is due now."""
        sparse, spaced, dense = (steps.is_due(step) for steps in (self._sparse, self._spacing, self._dense))
        if sparse or (dense and step <= self._dense_until):
            self._write(step, processes.everywhere(weights.now, f"step {step}"), processes)
        elif spaced:
            self._copies[step] = processes.everywhere(_copy, weights, f"step {step}")
            while len(self._copies) > self.ring:
                del self._copies[min(self._copies)]

    def event(self, event: Event, processes: SingleProcess) -> None:
        """Write the copies from before the event on, and be dense from now on."""
        self._dense_until = max(self._dense_until, self.until * event.step, _AFTER * event.detected_at)
        for step in sorted(self._copies):
            if step >= _BEFORE * event.low:
                self._write(step, self._copies[step], processes)
                del self._copies[step]

    def close(self, step: int, weights: LiveWeights, processes: SingleProcess) -> None:
        """The last weights are always written."""
        try:
            if step not in self.written:
                self._write(step, processes.everywhere(weights.now, f"step {step}"), processes)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the copies, and of the run if it was made here; nothing more is written."""
        self._copies.clear()
        if self._path and self.writer:
            self.writer.close()

    def _open(self, step: int, run: Run) -> None:
        """Make the run, or go on with it."""
        if self._path:
            config = json.loads(json.dumps(dict(run.config), default=str))
            self.writer = RunWriter(self._path, config, family=run.family, circuits=run.circuits, resume=step > 0)
        if self.writer is None:
            raise ValueError("AdaptiveCheckpoints has no writer on the first rank: a path or a RunWriter is expected")

    def _write(self, step: int, checkpoint: InMemory, processes: SingleProcess) -> None:
        """Gather the weights of a step, and write them on the first rank."""
        gathered: dict[str, Tensor] = {}
        for name in checkpoint:
            tensor = checkpoint[name]  # by all ranks, if it is sharded
            if processes.rank == 0:
                gathered[name] = tensor
        processes.first(self._save, step, gathered)
        self.written.append(step)

    def _save(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Write whole tensors; on the first rank, which has the writer."""
        assert self.writer is not None
        self.writer.save(step, tensors)


def _copy(weights: LiveWeights, label: str) -> InMemory:
    """The weights as they are now, which training does not change any more."""
    now = weights.now(label)
    return now.copy_of(list(now), label)
