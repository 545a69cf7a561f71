"""Checkpoints dense where something happens: a ring of recent weights, written when an event says that they matter.

An event is announced after it has happened: about a third of the step later. So copies of the weights are kept in
memory at log-spaced steps, far enough back to reach before it; an announcement writes those from before the event on,
and checkpoints are then written densely until well after it. Besides, a sparse schedule is written whatever happens.

    writer = RunWriter("runs/mine", config={...})
    Monitor(model, checkpoints=AdaptiveCheckpoints(writer))

With the defaults the copies are 5 % apart and sixteen: they reach back to half of the current step, and take sixteen
times the memory of the weights. The run is read like any other: `open_run`, `measure`.
"""

from collections.abc import Iterable

from torch import Tensor

from checkpoints import RunWriter
from checkpoints.files.in_memory import whole
from probes.monitor.live_weights import LiveWeights
from probes.monitor.ranks import Alone
from probes.monitor.steps import Steps
from probes.online import Event

_BEFORE = 0.9  # of the lower end of an event's interval: from where on the copies are written
_AFTER = 1.2  # of the step of a late announcement: dense at least until there


class AdaptiveCheckpoints:
    """What is written, and when.

    schedule is written whatever happens (a ratio, an interval or steps); `ring` copies, `spacing` apart as a ratio, are
    held in memory; after an event checkpoints are `dense` apart, as a ratio, until `until` times the step of the event.
    """

    def __init__(
        self,
        writer: RunWriter,
        schedule: float | int | Iterable[int] = 1.5,
        *,
        ring: int = 16,
        spacing: float = 1.05,
        dense: float = 1.02,
        until: float = 2.0,
    ) -> None:
        if ring < 1:
            raise ValueError(f"ring is {ring}: at least one copy has to be kept")
        self.writer, self.ring, self.until = writer, ring, until
        self._sparse, self._spacing, self._dense = Steps(schedule), Steps(float(spacing)), Steps(float(dense))
        self._copies: dict[int, dict[str, Tensor]] = {}
        self._dense_until = -1.0
        self.written: list[int] = []
        """Steps in the order in which they were written."""

    def start(self, step: int) -> None:
        """The step at which monitoring begins."""
        for steps in (self._sparse, self._spacing, self._dense):
            steps.start(step)

    def step(self, step: int, weights: LiveWeights, ranks: Alone) -> None:
        """Write or copy the weights, if that is due now."""
        sparse, spaced, dense = (steps.is_due(step) for steps in (self._sparse, self._spacing, self._dense))
        if sparse or (dense and step <= self._dense_until):
            self._write(step, weights.now(f"step {step}").tensors, ranks)
        elif spaced:
            now = weights.now(f"step {step}").tensors
            self._copies[step] = {name: tensor.detach().clone() for name, tensor in now.items()}
            while len(self._copies) > self.ring:
                del self._copies[min(self._copies)]

    def event(self, event: Event, ranks: Alone) -> None:
        """Write the copies from before the event on, and be dense from now on."""
        for step in sorted(self._copies):
            if step >= _BEFORE * event.low:
                self._write(step, self._copies[step], ranks)
                del self._copies[step]
        self._dense_until = max(self._dense_until, self.until * event.step, _AFTER * event.announced)

    def close(self, step: int, weights: LiveWeights, ranks: Alone) -> None:
        """The last weights are always written."""
        if step not in self.written:
            self._write(step, weights.now(f"step {step}").tensors, ranks)
        self._copies.clear()

    def _write(self, step: int, tensors: dict[str, Tensor], ranks: Alone) -> None:
        gathered = {name: whole(tensor) for name, tensor in tensors.items()}  # by all ranks, if it is sharded
        if ranks.rank == 0:
            self.writer.save(step, gathered)
        self.written.append(step)
