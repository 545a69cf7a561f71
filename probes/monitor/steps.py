"""At which steps something is due, without knowing how long the run will be; and what is taken for a step at all."""

import logging
import math
import operator
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from checkpoints.layout import MOST_STEPS

logger = logging.getLogger("probes.monitor")

LOOK_RATIO = 1.1
"""Steps of looks for transitions grow by it."""


class StepNumber:
    """Reads the number of updates from what a training loop hands over, which may be anything; it never raises."""

    def __init__(self) -> None:
        self._was_said = False

    def of(self, given: Any, otherwise: int, positional: tuple[Any, ...] = ()) -> int:
        """The number handed in; `otherwise` where there is none, and where it is something else, which is said once.

        positional is what came without a name: a whole number is the step, anything else is refused.
        """
        if positional and given is None:
            given, positional = positional[0], positional[1:]
        try:
            if positional:
                raise TypeError
            number = otherwise if given is None else operator.index(given)
            if not 0 <= number < MOST_STEPS:
                raise ValueError
            return number
        except Exception:
            if not self._was_said:
                several = f" and {len(positional)} more without a name" if positional else ""
                logger.warning(
                    "the monitor was handed a %s%s as the step, where a whole number of updates is expected: calls are "
                    "counted instead, and it is not recorded. A loss has to be named: monitor.step(loss=loss). This is "
                    "said once",
                    type(given).__name__,
                    several,
                )
                self._was_said = True
            return otherwise


class Steps:
    """Log-spaced by a ratio (1.1: ten steps, then every tenth more), every k steps, or just the ones given."""

    def __init__(self, schedule: float | int | Iterable[int] = 1.1) -> None:
        self._listed: list[int] | None = None
        if isinstance(schedule, bool):
            raise ValueError(f"schedule is {schedule}: a ratio, an interval or steps are expected")
        if isinstance(schedule, int | float):
            if (isinstance(schedule, float) and not schedule > 1) or schedule < 1:
                raise ValueError(
                    f"schedule is {schedule}: an interval (a whole number of steps), a ratio above 1 such as 1.1, "
                    "or steps are expected"
                )
            self.by = schedule
        else:
            self._listed = sorted({int(step) for step in schedule})
        self._next: float = 0 if self._listed is None else self._listed_after(-1)
        self._skipped: list[int] = []

    @property
    def next(self) -> float:
        """The next step that is due."""
        return self._next

    def start(self, step: int) -> None:
        """Begin at this step; it is due if it is listed, or always if nothing is."""
        self._next = step if self._listed is None else self._listed_after(step - 1)

    def go_on(self, step: int) -> None:
        """Go on at this step with the steps that are due when one begins at 0."""
        self.start(0)
        while self._next < step:
            self._next = self._after(int(self._next))

    def is_due(self, step: int) -> bool:
        """Whether a step is due; asked once per step, in order."""
        if step < self._next:
            return False
        self._next = self._after(step)
        return True

    def skip(self, before: float) -> None:
        """Nothing is due before this step any more."""
        while self._next < before < math.inf:
            self._skipped.append(int(self._next))
            self._next = self._after(int(self._next))

    def passed(self, step: int) -> int:
        """How many of the steps that were skipped came up to this one, since that was asked last."""
        count = bisect_right(self._skipped, step)
        del self._skipped[:count]
        return count

    def _after(self, step: int) -> float:
        """The next step that is due after this one."""
        if self._listed is not None:
            return self._listed_after(step)
        if isinstance(self.by, float):
            return max(step + 1, math.ceil(step * self.by))
        return (step // self.by + 1) * self.by

    def _listed_after(self, step: int) -> float:
        """The next of the given steps; infinity after the last."""
        assert self._listed is not None
        place = bisect_right(self._listed, step)
        return self._listed[place] if place < len(self._listed) else math.inf
