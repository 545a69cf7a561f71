"""Most updates ask for nothing but that their scalars are kept: this is done in a few microseconds.

What a monitor does at every update is small, and still the larger part of its price for a small model, because between
two updates everything that it uses has left the processor's cache. So it is asked once, when something was done, at
which step something will be due again; up to there a step is a line in a buffer.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any

from torch import Tensor

from probes.monitor.adaptive import AdaptiveCheckpoints
from probes.monitor.budget import Budget
from probes.monitor.measuring import Measuring
from probes.monitor.scalar_log import ScalarLog
from probes.monitor.steps import Steps

_POLL = 8
"""Updates between two questions to a worker that has something to answer."""


class QuietSteps:
    """Up to which step nothing is due, for a monitor that is alone with its model."""

    def __init__(
        self, budget: Budget, log: ScalarLog, checkpoints: AdaptiveCheckpoints | None, *schedules: Steps
    ) -> None:
        self._budget, self._log, self._checkpoints, self._schedules = budget, log, checkpoints, schedules
        self.until = 0
        """The first step that is not quiet."""

    def wait(self, step: int, measuring: Measuring) -> None:
        """Something was done at this step: find out when the next is due."""
        due = min(steps.next for steps in self._schedules)
        if self._checkpoints:
            due = min(due, self._checkpoints.next_due)
        if measuring.is_waiting:
            due = min(due, step + _POLL)
        self.until = ceil(min(due, step + 1e9))

    def takes(self, step: Any, scalars: Mapping[str, float | Tensor]) -> bool:
        """Keep the scalars of an update before `until`; False where that is not all there is to do."""
        if type(step) is not int or not 0 < step < self.until:
            return False
        began = self._budget.clock()
        try:
            return self._log.hold(step - 1, scalars)
        except Exception:
            return False  # where it is guarded, and said, it fails again
        finally:
            self._budget.spent += self._budget.clock() - began
