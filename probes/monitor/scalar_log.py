"""Scalars from the training loop to records and sinks, in batches: asking an accelerator for a number makes it wait.

A batch is read for every look, and is never more than half of the steps made before, nor than 128: what cannot wait for
a look (`alarms`) is found in it. What is in it is lost where a process is killed, and with it the values around a
transition perhaps. So where there is a run to go on with, a batch is at most a hundredth of the steps, and 64, and is
handed to the operating system at once.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from checkpoints.files.in_memory import gathered
from probes.monitor.guard import Guard
from probes.monitor.guarded_sinks import GuardedSinks
from probes.monitor.sinks import RunDirectory
from probes.monitor.tracked_scalars import TrackedScalars

_MOST, _FEWEST = 128, 8
_SHARE = 100
_FLOAT = {float}
_SECONDS, _SECONDS_UNSEEN = 1.0, 10.0
"""How old a batch may become: where somebody may be looking on at a sink, and where nobody is."""

Rows = list[tuple[int, Mapping[str, Any]]]
"""Steps with their scalars, as numbers."""


class ScalarLog:
    """Scalars by step, as they were when they came; kept on the first rank only."""

    def __init__(self, tracked: TrackedScalars, sinks: GuardedSinks, guarded: Guard, *, keep: bool) -> None:
        self._tracked, self._sinks, self._guarded, self._keep = tracked, sinks, guarded, keep
        self.buffer: list[tuple[int, Mapping[str, float | Tensor]]] = []
        """Scalars with their steps since the last flush, which was at `since`; see `QuietSteps`."""
        self.since = time.monotonic()
        self.room = 2
        """How many steps are buffered before the next flush; at first few, to say soon what is watched."""
        self._run: RunDirectory | None = None

    @property
    def patience(self) -> float:
        """Seconds after which a batch is read, however small."""
        return _SECONDS if self._sinks.sinks else _SECONDS_UNSEEN

    def write_through(self, run: RunDirectory) -> None:
        """There is a run to go on with: it is a sink too, and as little as possible is to be missing from it."""
        self._run = run
        self._sinks.sinks.append(run)

    def add(self, step: int, scalars: Mapping[str, float | Tensor]) -> None:
        """Buffer them, and flush if that is due; what is spread over several processes is gathered by all of them."""
        whole: dict[str, float | Tensor] = {
            name: gathered(value).clone() if isinstance(value, Tensor) else value for name, value in scalars.items()
        }
        if self._keep:
            self.buffer.append((step, whole))
        if len(self.buffer) >= self.room or time.monotonic() - self.since > self.patience:
            self.flush()

    def flush(self) -> None:
        """Bring the scalars buffered so far to the records and the sinks."""
        buffered, self.since = self.buffer[:], time.monotonic()
        self.buffer.clear()  # which stays the same list, see `QuietSteps`
        if buffered:
            made = buffered[-1][0]
            self.room = min(_MOST, made // 2) if self._run is None else min(_MOST // 2, made // _SHARE)
            self.room = max(_FEWEST, self.room)
        for name, at, values in _columns(self._numbers(buffered)):
            self._guarded(self._tracked.extend, name, at, values)
        self._tracked.decide()
        if self._run is not None:
            self._guarded(self._run.writer.flush)
        self._tracked.tell()

    def _numbers(self, buffered: list[tuple[int, Mapping[str, float | Tensor]]]) -> Rows:
        """The scalars of every step as numbers, which the sinks are told; one that is none costs those of its step."""
        rows: Rows = []
        for step, scalars in buffered:
            if set(map(type, scalars.values())) == _FLOAT:
                rows.append((step, scalars))  # as nearly always
            else:
                try:
                    rows.append((step, {name: float(value) for name, value in scalars.items()}))
                except Exception as error:
                    self._guarded.failed(error)
                    continue
            if self._sinks.sinks:
                self._sinks.scalars(*rows[-1])
        return rows


def _columns(rows: Rows) -> Iterator[tuple[str, list[int], list[float]]]:
    """Every scalar by its name, with the steps that have it."""
    names, steps = dict[str, Any](), [step for step, _ in rows]
    for _, scalars in rows:
        names.update(scalars)
    for name in names:
        values = [scalars[name] for _, scalars in rows if name in scalars]
        at = steps if len(values) == len(rows) else [step for step, scalars in rows if name in scalars]
        yield name, at, values
