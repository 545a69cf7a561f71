"""What needs no test and no patience: a value that is not a number, and a loss that leaves for good.

    not finite   NaN or infinite. Said at the first one; again only after as many finite values as the record then has
                 had in a tenth of its steps, so that a loss that stays NaN is one event
    divergence   five values in a row above everything seen before by more than the whole range seen before, and by as
                 much as the highest again. "Before" ends a tenth of the steps ago: the climb itself is not in it

Both are judged as every value comes, not at the next look: a run that diverges is seldom there at the next look. The
climb of a loss that comes to rest on a higher level is a transition like any other, a cliff that rises; what is said
here is that of which no end is seen. There is no null under which these had a p-value: that of a value that is not
finite is 0, that of a divergence NaN. How often they are raised where nothing happens is counted with everything else.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from probes.series.online.record import LARGEST, are_finite

IN_A_ROW = 5
_KNOWN = 100  # finite values before there is a range to leave
_AGO = 1.1  # ratio of the steps between which the range is taken
_HIGHER = 1.0  # times the highest value


@dataclass(frozen=True)
class Alarm:
    """What happened from which step on: "not finite" or "divergence", and where it leads."""

    kind: str
    step: float
    direction: str


class Alarms:
    """Sees every value of one series, and says at once what cannot wait. `diverges`: whether climbing is bad news."""

    def __init__(self, *, diverges: bool) -> None:
        self.diverges = diverges
        self._finite, self._quiet_until = 0, 0.0
        self._low, self._high = math.inf, -math.inf  # of all values so far
        self._known_low, self._known_high, self._next = math.inf, -math.inf, 0.0  # of those up to a tenth ago
        self._above: list[float] = []
        self._has_diverged = False

    def add(self, step: float, value: float) -> Alarm | None:
        """Judge one more value."""
        if not -LARGEST <= value <= LARGEST:
            is_new, self._quiet_until = step >= self._quiet_until, _AGO * step + 1
            leads = "none" if math.isnan(value) else "rise" if value > 0 else "fall"
            return Alarm("not finite", step, leads) if is_new else None
        self._finite += 1
        found = self._diverged(step, value) if self.diverges and not self._has_diverged else None
        self._low, self._high = min(value, self._low), max(value, self._high)
        if step >= self._next:
            self._known_low, self._known_high, self._next = self._low, self._high, _AGO * step
        return found

    def extend(self, steps: Sequence[float], values: Sequence[float]) -> list[tuple[Alarm, float]]:
        """Judge several, one after the other: what is raised, and at which of the steps."""
        if not values:
            return []
        if not are_finite(values) or (self.diverges and not self._has_diverged and max(values) > self._most):
            raised = [(self.add(step, value), step) for step, value in zip(steps, values, strict=True)]
            return [(alarm, step) for alarm, step in raised if alarm is not None]
        self._finite += len(values)  # all of them within what is known, which only grows
        self._above.clear()
        begin = 0
        while begin < len(values):
            end = bisect_left(steps, self._next, begin) + 1  # where the range is taken anew
            some = values[begin:end]
            self._low, self._high = min(self._low, *some), max(self._high, *some)
            if end <= len(values):
                self._known_low, self._known_high, self._next = self._low, self._high, _AGO * steps[end - 1]
            begin = end
        return []

    @property
    def _most(self) -> float:
        """What lies above this leaves the range; as long as nothing is known of it, nothing does."""
        if self._finite < _KNOWN:
            return -math.inf
        span, top = self._known_high - self._known_low, self._known_high
        return max(top + span, top + _HIGHER * abs(top))

    def _diverged(self, step: float, value: float) -> Alarm | None:
        """A divergence, if this is the last of enough values in a row."""
        if self._finite <= _KNOWN or not value > self._most:
            self._above.clear()
            return None
        self._above.append(step)
        if len(self._above) < IN_A_ROW:
            return None
        self._has_diverged = True
        return Alarm("divergence", self._above[0], "rise")
