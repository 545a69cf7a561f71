"""Scalars from the training loop to records and sinks, in batches: asking an accelerator for a number makes it wait.

What is in a batch is lost where a process is killed, and with it the values around a transition perhaps. So where there
is a run to go on with, a batch is never more than a hundredth of the steps made, nor than 64, and is handed to the
operating system at once.
"""

import time
from collections.abc import Mapping

from torch import Tensor

from checkpoints.files.in_memory import gathered, is_sharded
from probes.monitor.guard import Guard
from probes.monitor.guarded_sinks import GuardedSinks
from probes.monitor.sinks import RunDirectory
from probes.monitor.tracked_scalars import TrackedScalars

_MOST, _FEWEST = 64, 8
_SHARE = 100
_SECONDS = 1.0


class ScalarLog:
    """Scalars by step, as they were when they came; kept on the first rank only."""

    def __init__(self, tracked: TrackedScalars, sinks: GuardedSinks, guarded: Guard, *, keep: bool) -> None:
        self._tracked, self._sinks, self._guarded, self._keep = tracked, sinks, guarded, keep
        self._buffer: list[tuple[int, Mapping[str, float | Tensor]]] = []
        self._since = time.monotonic()
        self._run: RunDirectory | None = None

    def write_through(self, run: RunDirectory) -> None:
        """There is a run to go on with: it is a sink too, and as little as possible is to be missing from it."""
        self._run = run
        self._sinks.sinks.append(run)

    def _most(self, step: int) -> int:
        """How many steps are buffered at most."""
        return _MOST if self._run is None else min(_MOST, max(_FEWEST, step // _SHARE))

    def add(self, step: int, scalars: Mapping[str, float | Tensor]) -> None:
        """Buffer them, and flush if that is due; what is spread over several processes is gathered by all of them."""
        whole: dict[str, float | Tensor] = {
            name: gathered(value).clone() if isinstance(value, Tensor) else value for name, value in scalars.items()
        }
        if self._keep:
            self._buffer.append((step, whole))
        if len(self._buffer) >= self._most(step) or time.monotonic() - self._since > _SECONDS:
            self.flush()

    def hold(self, step: int, scalars: Mapping[str, float | Tensor]) -> bool:
        """Buffer scalars of a loop that is alone with its model; False where more is to be done, and nothing was."""
        if len(self._buffer) >= self._most(step) - 1 or time.monotonic() - self._since > _SECONDS:
            return False
        for value in scalars.values():
            if not isinstance(value, float):
                break
        else:
            self._buffer.append((step, scalars))
            return True
        if any(is_sharded(value) for value in scalars.values() if isinstance(value, Tensor)):
            return False
        now = {name: one.detach().clone() if isinstance(one, Tensor) else one for name, one in scalars.items()}
        self._buffer.append((step, now))
        return True

    def flush(self) -> None:
        """Bring the scalars buffered so far to the records and the sinks."""
        buffered, self._buffer, self._since = self._buffer, [], time.monotonic()
        rows: list[tuple[int, dict[str, float]]] = []
        for step, scalars in buffered:
            self._guarded(self._read, step, scalars, rows)  # one that is no number costs no other
        begin = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or rows[end][1].keys() != rows[begin][1].keys():
                self._guarded(self._record, rows[begin:end])
                begin = end
        if self._run is not None:
            self._guarded(self._run.writer.flush)
        self._tracked.tell()

    def _read(self, step: int, scalars: Mapping[str, float | Tensor], rows: list[tuple[int, dict[str, float]]]) -> None:
        """The scalars of one step as numbers, to the sinks and to those that are recorded."""
        numbers = {name: float(value) for name, value in scalars.items()}
        if self._sinks.sinks:
            self._sinks.scalars(step, numbers)
        rows.append((step, numbers))

    def _record(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Bring scalars of the same names at several steps to the records."""
        columns = {name: [numbers[name] for _, numbers in rows] for name in rows[0][1]}
        self._tracked.extend([step for step, _ in rows], columns)
