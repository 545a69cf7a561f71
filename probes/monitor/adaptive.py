"""Checkpoints dense where something happens: a ring of recent weights, written when an event says that they matter.

An event is detected after it has happened: about a third of the step later. So copies of the weights are kept at
log-spaced steps, back to half of the current one (see `ring`). When an event is detected, those of the transition
itself are written densely (within two and a half widths, up to `most` of them), from before it until now a few more,
and after it some until it is surely over. Besides, a sparse schedule is written whatever happens.

    Monitor(model, run="runs/mine")                                             with the defaults
    Monitor(model, run="runs/mine", checkpoints=AdaptiveCheckpoints(schedule=1.2))
    Monitor(model, checkpoints=AdaptiveCheckpoints("runs/mine"))                checkpoints alone

Copying and writing have a budget of their own (5 % of the training time): copies are left out where they would exceed
it, however much was written; the sparse schedule is written whatever it costs. The run is read like any other:
`open_run`, `measure`.

Of a sharded model each rank copies its own shards. All ranks take part in gathering what is written, one tensor at a
time, and the first one writes it: it has to have room for the whole model. Nothing of it is kept on disk before.
"""

import json
from collections.abc import Iterable
from math import isfinite
from pathlib import Path

import numpy as np
from torch import Tensor

from checkpoints import Run, RunWriter
from checkpoints.files.checkpoint import Checkpoint
from checkpoints.files.in_memory import InMemory
from probes.monitor.budget import Budget
from probes.monitor.distributed import SingleProcess
from probes.monitor.live_weights import LiveWeights
from probes.monitor.ring import Ring
from probes.monitor.steps import Steps
from probes.series.online import Event

_WIDTHS = 2.5  # either side of an event: dense there
_NEAR = 0.02  # of the step of an event: dense there however sharp it is
_BEFORE = 0.8  # of the lower end of an event's interval: from where on copies are written
_AFTER = 1.1  # of the step of a late detection: some at least until there
_COPY, _WRITE = "copy of weights", "checkpoint"


class AdaptiveCheckpoints:
    """What is written, where, and when.

    writer is a path, where the first rank makes a run with the config of the model, and goes on with it if monitoring
    begins later than at step 0; or a `RunWriter` of your own, on the first rank alone: the others say None; or nothing,
    where the monitor has a `run`.

    schedule is written whatever happens (a ratio, an interval or steps). Copies take at most `memory` bytes on each
    rank, those beyond that lie on disk. Of a transition up to `most` checkpoints are written; around it and after an
    event they are `dense` apart, as a ratio, until `until` times the step of the event. budget is the largest share of
    the training time for all of this.
    """

    def __init__(
        self,
        writer: RunWriter | str | Path | None = None,
        schedule: float | int | Iterable[int] = 1.5,
        *,
        memory: int = 2**28,
        most: int = 40,
        dense: float = 1.05,
        until: float = 1.6,
        budget: float | Budget = 0.05,
    ) -> None:
        if most < 1 or memory < 1:
            raise ValueError(f"most is {most} and memory {memory}: at least one checkpoint and one byte are expected")
        self.writer = writer if isinstance(writer, RunWriter) else None
        self.memory, self.most, self.until = memory, most, until
        self.budget = budget if isinstance(budget, Budget) else Budget(budget)
        self._path = Path(writer) if isinstance(writer, str | Path) else None
        self._sparse, self._dense, self._dense_ratio = Steps(schedule), Steps(float(dense)), float(dense)
        self._ring, self._spacing = Ring(2, 0, None), Steps(1.5)
        self._dense_until, self._began = -1.0, 0
        self.written: list[int] = []
        """Steps in the order in which they were written."""

    def start(
        self, step: int, run: Run, weights: LiveWeights, processes: SingleProcess, writer: RunWriter | None = None
    ) -> None:
        """The step at which monitoring of this run begins. Raises on all ranks if it cannot be written."""
        self._began = step
        processes.first(self._open, step, run, writer)
        folder = self.writer.path if self.writer and processes.count == 1 else None
        self._ring = processes.everywhere(lambda: Ring.of(weights.own_bytes(), self.memory, folder))
        self._spacing = Steps(processes.first(lambda: self._ring.spacing))
        self.budget.start()
        for steps in (self._sparse, self._spacing, self._dense):
            steps.start(step)

    @property
    def next_due(self) -> float:
        """The next step at which something may have to be written or copied."""
        return min(steps.next for steps in (self._sparse, self._spacing, self._dense))

    def step(self, step: int, weights: LiveWeights, processes: SingleProcess) -> None:
        """Write or copy the weights, if that is due now."""
        sparse, spaced, dense = (steps.is_due(step) for steps in (self._sparse, self._spacing, self._dense))
        if sparse or (dense and step <= self._dense_until):
            self._write(step, processes.everywhere(weights.now, f"step {step}"), processes)
        elif spaced and processes.first(self._affords_copy, step):
            with self.budget.spending(_COPY, step):
                self._ring.add(step, processes.everywhere(_copy, weights, f"step {step}"))

    def _affords_copy(self, step: int) -> bool:
        return self.budget.affords_alone(_COPY, step, step - self._began, spread=True)

    def event(self, event: Event, processes: SingleProcess) -> None:
        """Write the copies of what has happened, densely in the transition itself, and some from now on."""
        self._dense_until = max(self._dense_until, self.until * event.step, _AFTER * event.detected_at)
        for step in processes.first(self._chosen, event):
            self._write(step, self._ring.take(step), processes)
            self._ring.discard(step)

    def close(self, step: int, weights: LiveWeights, processes: SingleProcess) -> None:
        """The last weights are always written."""
        try:
            if step not in self.written:
                self._write(step, processes.everywhere(weights.now, f"step {step}"), processes)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the copies, and of the run if it was made here; nothing more is written."""
        self._ring.clear()
        if self._path and self.writer:
            self.writer.close()

    def _chosen(self, event: Event) -> list[int]:
        """Which of the copies are written: of the transition up to `most`, evenly; else some `dense` apart."""
        reaches = (_WIDTHS * event.width, event.high - event.step, event.step - event.low, _NEAR * event.step)
        reach = max(reach for reach in reaches if isfinite(reach))
        there = np.array(self._ring.steps)
        inside = there[np.abs(there - event.step) <= reach]
        if len(inside) > self.most:
            inside = inside[np.unique(np.linspace(0, len(inside) - 1, self.most).round().astype(int))]
        chosen, last = list(inside), 0.0
        for step in there[(there >= _BEFORE * event.low) & (np.abs(there - event.step) > reach)]:
            if step >= self._dense_ratio * last:
                chosen.append(step)
                last = float(step)
        return sorted({int(step) for step in chosen} - set(self.written))

    def _open(self, step: int, run: Run, writer: RunWriter | None) -> None:
        """Make the run, or go on with it."""
        if self._path:
            config = json.loads(json.dumps(dict(run.config), default=str))
            self.writer = RunWriter(self._path, config, family=run.family, circuits=run.circuits, resume=step > 0)
        self.writer = self.writer or writer
        if self.writer is None:
            raise ValueError(
                "AdaptiveCheckpoints has nowhere to write on the first rank: Monitor(..., run=...), "
                "or AdaptiveCheckpoints(path or RunWriter)"
            )

    def _write(self, step: int, checkpoint: Checkpoint, processes: SingleProcess) -> None:
        """Gather the weights of a step, and write them on the first rank."""
        with self.budget.spending(_WRITE):
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
