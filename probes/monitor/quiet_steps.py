"""Most updates ask for nothing but that their scalars are kept: this is done in a few microseconds.

What a monitor does at every update is small, and still the larger part of its price for a small model, because between
two updates everything that it uses has left the processor's cache. So it is asked once, when something was done, at
which step something will be due again; up to there a step is a line in a buffer.
"""

from collections.abc import Mapping
from math import ceil
from time import monotonic
from typing import Any

from torch import Tensor

from checkpoints.files.in_memory import is_sharded
from probes.monitor.adaptive import AdaptiveCheckpoints
from probes.monitor.budget import Budget
from probes.monitor.measuring import Measuring
from probes.monitor.resting import Resting
from probes.monitor.scalar_log import ScalarLog
from probes.monitor.steps import Steps

_POLL, _POLL_SHARE = 8, 64
"""Updates between two questions to a worker that has something to answer: so many, or this part of all, if more."""

_TIMED = 16
"""One quiet step in so many is timed, and stands for all: a clock costs as much as the rest of such a step."""


class QuietSteps:
    """Up to which step nothing is due, for a monitor that is alone with its model.

    What a quiet step needs lies side by side in here, in slots.
    """

    __slots__ = (
        "_budget",
        "_buffer",
        "_checkpoints",
        "_deadline",
        "_log",
        "_resting",
        "_room",
        "_schedules",
        "until",
    )

    def __init__(
        self, budget: Budget, log: ScalarLog, checkpoints: AdaptiveCheckpoints | None, resting: Resting, other: Steps
    ) -> None:
        self._budget, self._log, self._checkpoints, self._resting = budget, log, checkpoints, resting
        self._schedules = (resting.measured, resting.looks, other)
        self._buffer = log.buffer
        self.until, self._room, self._deadline = 0, 0, 0.0
        """The first step that is not quiet; how many are buffered until then at most, and until when."""

    def wait(self, step: int, measuring: Measuring) -> None:
        """Something was done at this step: find out when the next is due."""
        self._resting.rest(step, measuring)
        due = min(steps.next for steps in self._schedules)
        if self._checkpoints:
            due = min(due, self._checkpoints.next_due)
        if measuring.is_waiting:
            due = min(due, step + max(_POLL, step // _POLL_SHARE))
        log = self._log
        self.until, self._room, self._deadline = ceil(min(due, step + 1e9)), log.room - 1, log.since + log.patience

    def takes(self, step: Any, scalars: Mapping[str, float | Tensor]) -> bool:
        """Keep the scalars of an update before `until`; False where that is not all there is to do.

        All of it stands here, however long: every call and every object more is one that has left the cache.
        """
        buffer = self._buffer
        if type(step) is not int or not 0 < step < self.until or len(buffer) >= self._room:
            return False
        began = self._budget.clock() if step % _TIMED == 0 else None
        if monotonic() > self._deadline:
            return False
        for value in scalars.values():
            if type(value) is not float:
                now = _as_they_are(scalars)
                break
        else:
            now = scalars
        if now:
            buffer.append((step - 1, now))
        if began is not None:
            self._budget.spent += _TIMED * (self._budget.clock() - began)
        return now is not None


def _as_they_are(scalars: Mapping[str, float | Tensor]) -> dict[str, float | Tensor] | None:
    """Copies of what may change before it is read; None where something is spread over processes, or is no scalar."""
    try:
        if any(is_sharded(value) for value in scalars.values() if isinstance(value, Tensor)):
            return None
        return {name: one.detach().clone() if isinstance(one, Tensor) else one for name, one in scalars.items()}
    except Exception:
        return None  # where it is guarded, and said, it fails again
