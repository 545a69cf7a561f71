"""Who measures: this process, or a worker beside it. Either way what was found comes back as answers.

Of a sharded model all ranks gather what is handed over, and the worker of the first rank measures all of it.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from probes.monitor.background import Answer, Background, DiedError
from probes.monitor.budget import FLOOR, NO_FLOOR, Budget
from probes.monitor.distributed import SingleProcess
from probes.monitor.live_measure import LiveMeasurement
from probes.monitor.probe_costs import ProbeCosts
from probes.monitor.slot_measurement import SlotMeasurement
from probes.monitor.spending_notes import affords
from probes.monitor.tracked_scalars import TrackedScalars
from probes.monitor.worker import Measured
from probes.series.online import Detector, Event
from probes.series.online.detection import FEWEST_ENTRIES, MOST_TESTED

logger = logging.getLogger("probes.monitor")

MEASUREMENT, HAND_OVER = "measurement", "hand-over of weights to the worker"
LOOK, SHORT_LOOK = "look at a series", "look at a short series"
RESUMED = "training was resumed here, and the weights of the measurement before were not kept"
LOOK_FLOORS = {LOOK: FLOOR, SHORT_LOOK: NO_FLOOR}
_PATIENCE = 60.0  # seconds, with a worker at the end


class Measuring:
    """A measurement, its cost, and the worker if there is one (on the first rank)."""

    def __init__(self, measurement: LiveMeasurement, processes: SingleProcess, budget: Budget) -> None:
        self.measurement, self.processes, self.budget = measurement, processes, budget
        self.costs = ProbeCosts(measurement.plan.probes, budget)
        self.background: Background | None = None
        self.began, self.worker_seconds = 0, 0.0
        """Of processor time that a worker spent."""

    def start(self, step: int, background: bool) -> None:
        """Get ready, on the first rank: do what is slow the first time, or let a worker do it."""
        self.began = step
        import scipy.optimize
        import scipy.special  # noqa: F401 (slow to import, and the first look should not be)

        if background:
            self.background = Background(self.measurement)
            if step > 0:
                self.background.forget(RESUMED)
        else:
            self.measurement.warm_up()
            self._warm_up(step)

    @property
    def kind(self) -> str:
        """What measuring costs the training: all of it, or a copy for the worker."""
        return HAND_OVER if self.background else MEASUREMENT

    @property
    def is_waiting(self) -> bool:
        """Whether a worker has something to answer."""
        return self.background is not None and self.background.is_waiting

    def is_affordable(self, step: int) -> bool:
        """Whether there is time, and room in the worker's slots."""
        if not self.background:
            return affords(self.budget, MEASUREMENT, step)
        if self.background.has_room:
            return self.budget.affords_alone(HAND_OVER, step, step - self.began)
        self.budget.left_out[HAND_OVER] += 1
        return False

    @property
    def floors(self) -> dict[str, float]:
        """How seldom measuring is done at least."""
        return {self.kind: FLOOR, **({} if self.background else self.costs.floors)}

    def measure(self, step: int, *, all_probes: bool = False) -> Iterator[Answer]:
        """Measure now, on all ranks: one answer, or none yet where a worker does it."""
        if self.processes.first(self._has_room):
            with self.budget.spending(HAND_OVER, step):
                self._hand_over(step)
            return
        besides = self.budget.cost_of(MEASUREMENT)
        only = None if all_probes or not self.measurement.cost else self.costs.chosen(step, besides)
        began, began_cpu = self.budget.clock(), time.thread_time()
        with self.budget.spending():
            found, failure = self.measurement.measure(step, only)
        seconds, cpu = self.budget.clock() - began, max(time.thread_time() - began_cpu, 1e-9)
        cost = self.measurement.cost
        dear = self.costs.note(step, cost, only, seconds / cpu) if cost else 0.0
        self.budget.note(MEASUREMENT, max(seconds - dear, 0.0), step)
        yield Measured(step, 0, found, failure, 0.0)

    def _reserve(self, looks: int) -> None:
        """Put aside what the end will cost: so many last looks, and a measurement; nothing where a worker is.

        Of a run that goes on, no series stays short.
        """
        cost_of = self.budget.cost_of
        self.budget.reserved = 0.0 if self.background else cost_of(MEASUREMENT) + looks * cost_of(LOOK)

    def may_look(self, step: int, tracked: TrackedScalars, more: int) -> bool:
        """Whether there is time to look at a series, once it has so many more values: else those ready are left out.

        Then what is buffered of them need not be read either.
        """
        self._reserve(len(tracked.detectors))
        kinds = Counter(look_kind(detector, more) for detector in tracked.ready_with(more))
        if not kinds or self.background or self.processes.count > 1:
            return bool(kinds)
        if any(self.budget.would_afford(kind, step, LOOK_FLOORS[kind]) for kind in kinds):
            return True
        for kind, count in kinds.items():
            affords(self.budget, kind, step, LOOK_FLOORS[kind])  # which says it, the first time
            self.budget.left_out[kind] += count - 1
        return False

    def look(
        self, step: int, ready: Mapping[str, Detector], *, last: bool = False
    ) -> Iterator[tuple[str, list[Event]]]:
        """Look at those of the series that there is time for, the last time at all; a worker says later what it found.

        The ranks of a sharded model have to know at once what is found: it is not left to a worker there.
        """
        self.budget.last_looks += len(ready) * last
        if self.background and self.processes.count == 1:
            done = self.background.look(step, ready)
            self.budget.done[LOOK] += done
            self.budget.left_out[LOOK] += len(ready) - done
            return
        for name, detector in ready.items():
            kind = look_kind(detector)
            if last or affords(self.budget, kind, step, LOOK_FLOORS[kind]):
                with self.budget.spending(kind, step):
                    found = detector.look(step)
                yield name, found

    def answers(self, *, last: bool = False) -> Iterator[Answer]:
        """What a worker has answered; the last time, what it still has to answer is waited for."""
        if not self.background:
            return
        try:
            yield from self.background.finish(_PATIENCE) if last else self.background.answers()
        except DiedError as error:
            logger.warning(
                "%s: what it left undone is measured here, and so is all that follows, within the budget", error
            )
            background, self.background = self.background, None
            here = SlotMeasurement(self.measurement.plan, background.slots)
            yield from background.unfinished(here)
            self.measurement.take_over(here)
            background.end()
            self._warm_up(0)

    def end(self) -> None:
        """No worker is left behind."""
        if self.background:
            self.background.end()
            self.worker_seconds, self.background = self.background.seconds, None

    def _has_room(self) -> bool:
        return self.background is not None and self.background.has_room

    def _hand_over(self, step: int) -> None:
        """Copy the weights for the worker; of a sharded model all ranks gather them first, whatever comes of it."""
        now = self.processes.everywhere(self.measurement.weights.now, f"the model at step {step}")
        if self.processes.count > 1:
            now = now.gathered(self.measurement.names)
        if self.background:
            self.background.measure(step, now)

    def _warm_up(self, step: int) -> None:
        """The first look takes several times as long as the next; and what the next costs is known from then on."""
        for length in (FEWEST_ENTRIES, MOST_TESTED, 400, 400, 400):
            detector = Detector("warm-up")
            for at in range(length):
                detector.add(at, (at * 7919 % 101) / 101)
            with self.budget.spending(look_kind(detector), max(step, FEWEST_ENTRIES)):
                detector.look(length)
        for kind in (LOOK, SHORT_LOOK):
            self.budget.done.pop(kind)


def look_kind(detector: Detector, more: int = 0) -> str:
    """Where a look is counted, once there are so many more values: at few of them it takes many times as long."""
    return SHORT_LOOK if detector.is_short_with(more) else LOOK
