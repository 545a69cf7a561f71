"""Sleeping through what there will be no time for, in a process that measures and looks by itself.

Where the budget is used up, a step at which something is due ends in that it is left out, and to find that out costs a
tenth of a millisecond. How much time training earns is known from the steps so far, and so is when the floor will ask
for something whatever the budget: what lies before both is skipped, and counted as left out once it has passed.
"""

from collections import Counter
from math import inf

from probes.monitor.budget import FLOOR, Budget
from probes.monitor.measuring import LOOK, LOOK_FLOORS, MEASUREMENT, SHORT_LOOK, Measuring, look_kind
from probes.monitor.scalar_log import ScalarLog
from probes.monitor.steps import Steps
from probes.monitor.tracked_scalars import TrackedScalars
from probes.series.online.detection import BY_BLOCKS, FEWEST_ENTRIES


class Resting:
    """Skips steps of the two schedules, of measurements and of looks."""

    def __init__(self, budget: Budget, log: ScalarLog, tracked: TrackedScalars, measured: Steps, looks: Steps) -> None:
        self._budget, self._log, self._tracked, self.measured, self.looks = budget, log, tracked, measured, looks
        self._not_looked_at = Counter[str]()
        """How many series of each kind there are to look at, at each of the looks that are skipped."""

    def rest(self, step: int, measuring: Measuring) -> None:
        """Something was done at this step: skip what cannot be paid for before the step at which it can."""
        updates = step - measuring.began
        if measuring.background or not self._budget.left_out:  # the first that is left out is said
            return
        self.measured.skip(self._budget.not_before(MEASUREMENT, step, updates, FLOOR))
        more = len(self._log.buffer)
        entries = max((len(one.record) for one in self._tracked.detectors.values()), default=0) + more
        kinds = [] if entries < FEWEST_ENTRIES else [SHORT_LOOK] if entries < BY_BLOCKS else [SHORT_LOOK, LOOK]
        first = min((self._budget.not_before(kind, step, updates, LOOK_FLOORS[kind]) for kind in kinds), default=inf)
        changes = min(
            (step + wanted - entries for wanted in (FEWEST_ENTRIES, BY_BLOCKS) if wanted > entries), default=inf
        )
        self.looks.skip(min(first, changes))
        self._not_looked_at = Counter(look_kind(one, more) for one in self._tracked.ready_with(more))

    def wake(self, step: int) -> None:
        """Count what was left out on the way to this step."""
        self._budget.left_out[MEASUREMENT] += self.measured.passed(step)
        looks = self.looks.passed(step)
        for kind, series in self._not_looked_at.items() if looks else ():
            self._budget.left_out[kind] += looks * series
