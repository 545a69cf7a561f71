"""Scalars from the training loop to records and sinks, in batches: asking an accelerator for a number makes it wait."""

import time
from collections.abc import Mapping

from torch import Tensor

from checkpoints.files.in_memory import gathered
from probes.monitor.guard import Guard
from probes.monitor.guarded_sinks import GuardedSinks
from probes.monitor.tracked_scalars import TrackedScalars

_MOST = 64
_SECONDS = 1.0


class ScalarLog:
    """Scalars by step, as they were when they came; kept on the first rank only."""

    def __init__(self, tracked: TrackedScalars, sinks: GuardedSinks, guarded: Guard, *, keep: bool) -> None:
        self._tracked, self._sinks, self._guarded, self._keep = tracked, sinks, guarded, keep
        self._buffer: list[tuple[int, dict[str, float | Tensor]]] = []
        self._since = time.monotonic()

    def add(self, step: int, scalars: Mapping[str, float | Tensor]) -> None:
        """Buffer them, and flush if that is due; what is spread over several processes is gathered by all of them."""
        whole: dict[str, float | Tensor] = {
            name: gathered(value).clone() if isinstance(value, Tensor) else value for name, value in scalars.items()
        }
        if self._keep:
            self._buffer.append((step, whole))
        if len(self._buffer) >= _MOST or time.monotonic() - self._since > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Bring the scalars buffered so far to the records and the sinks."""
        buffered, self._buffer, self._since = self._buffer, [], time.monotonic()
        for step, scalars in buffered:
            self._guarded(self._record, step, scalars)  # one that is no number costs no other
        self._tracked.tell()

    def _record(self, step: int, scalars: Mapping[str, float | Tensor]) -> None:
        """Bring the scalars of one step to the records and the sinks, as numbers."""
        numbers = {name: float(value) for name, value in scalars.items()}
        self._sinks.scalars(step, numbers)
        self._tracked.add(step, numbers)
