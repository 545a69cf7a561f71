"""How much time a monitor may take: it counts what it spends, and does only what it can pay for.

    spent + expected cost + what the end will cost <= AIM x share x time spent training

What something costs is the median of the last few times. The first time that is not known, so everything is done once.
The rest of the share is for what cannot be foreseen or seen from in here: a look that has to fit something, the way
into a call and out of it, caches that it leaves cold.
The end is not free: every series is looked at once more and the last weights are measured. That is put aside from the
beginning, as far as it is known (`reserved`).

There is a floor, because a series with holes as long as itself says nothing: whatever the budget, something is done
again when the step has grown by a factor (FLOOR, DEAR_FLOOR) since it was done last. So a very small model pays more
than its share in its first thousand updates, and the share falls from there as 1 / step; what that comes to is said as
soon as it is known.

The clock is that of the wall: on an accelerator a training spends little processor time, and waits all the same.

Writing checkpoints is somebody's wish and not the price of measuring: it has an account of its own.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil, inf, log1p
from time import perf_counter

FLOOR = 1.5
"""Steps grow at most by this from one measurement to the next, where they are due at steps that grow by RATIO."""
RATIO = 1.1
DEAR_FLOOR = 4.0
"""The same of probes that cost more than others, see `probes.monitor.probe_costs`."""
NO_FLOOR = inf
"""Of what costs many times as much, and loses nothing by waiting but time: looks at short series."""
AIM = 0.8
"""Of the share: what is spent by choice."""
AHEAD = 1000
"""Updates whose earnings may be spent before."""
UPDATES_TO_KNOW = 20
"""After so many it is known how long one takes."""
_SOONER = 0.8
_LATELY = 5


class Budget:
    """A share of the training time, in seconds of a clock. 1 means that time is no object."""

    def __init__(self, share: float, clock: Callable[[], float] = perf_counter) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"budget is {share}: a share of the training time, above 0 and at most 1, is expected")
        self.share, self.spent, self.elsewhere, self.clock = share, 0.0, 0.0, clock
        self.done, self.left_out = Counter[str](), Counter[str]()
        self.last_looks = 0
        """How many series were looked at when all was over, whatever the budget said."""
        self.reserved = 0.0
        """Seconds that the end will take."""
        self.total: dict[str, float] = {}
        """Seconds spent on each kind of work."""
        self._lately: dict[str, deque[float]] = {}
        self._last: dict[str, int] = {}
        self._began, self._depth, self._apart = clock(), 0, 0.0

    @property
    def cost(self) -> dict[str, float]:
        """What each kind of work cost lately, in seconds."""
        return {kind: self.cost_of(kind) for kind in self._lately}

    @property
    def training(self) -> float:
        """Seconds since the beginning that were spent neither here nor on another account."""
        return max(self.clock() - self._began - self.spent - self.elsewhere, 0.0)

    @property
    def used(self) -> float:
        """What was spent as a share of the training time."""
        return self.spent / max(self.training, 1e-9)

    @property
    def is_running(self) -> bool:
        """Whether something is being counted now."""
        return self._depth > 0

    def start(self) -> None:
        """Training begins now: what was done before, to get ready, is neither counted nor forgotten as a cost."""
        self._began, self.spent, self.elsewhere = self.clock(), 0.0, 0.0

    def affords(self, kind: str, step: int | None = None, floor: float = FLOOR, *, besides: float = 0.0) -> bool:
        """Whether this kind of work can be paid for now, or is due by the floor at this step; counts what cannot.

        besides is what is sure to be spent as well.
        """
        return self._counted(kind, self.would_afford(kind, step, floor, besides=besides))

    def would_afford(self, kind: str, step: int | None = None, floor: float = FLOOR, *, besides: float = 0.0) -> bool:
        """The same, asked beforehand: nothing is counted."""
        after = self.spent + besides + self.cost_of(kind) + self.reserved
        can = self.share == 1 or kind not in self._lately or after <= AIM * self.share * self.training
        return can or (step is not None and self.is_overdue(kind, step, floor))

    def not_before(self, kind: str, step: int, updates: int, floor: float = FLOOR) -> float:
        """A step before which this kind of work can neither be paid for, at the pace of the updates so far, nor is due.

        Pace may change: what is missing is taken to be earned sooner than it seems.
        """
        training = self.training
        if self.share == 1 or kind not in self._last or updates < UPDATES_TO_KNOW or training <= 0:
            return step
        missing = (self.spent + self.cost_of(kind) + self.reserved) / (AIM * self.share) - training
        return min(step + _SOONER * missing * updates / training, self._due_by(kind, floor))

    def affords_alone(self, kind: str, step: int, updates: int, *, spread: bool = False) -> bool:
        """The same of work that has the share for itself, after so many updates.

        It may run ahead by what AHEAD updates earn: a little work, most of it at the beginning, is not put off. Of much
        work that is wanted all along (spread) half of that is handed out as ln(updates) and half as it is earned: all
        at once, nothing would be left later on.
        """
        earned = self.training
        if 0 < updates < AHEAD:
            ahead = earned * AHEAD / updates
            earned = (earned + ahead * log1p(updates) / log1p(AHEAD)) / 2 if spread else ahead
        after = self.total.get(kind, 0.0) + self.cost_of(kind)
        can = self.share == 1 or updates < 2 or after <= self.share * earned
        return self._counted(kind, can or self.is_overdue(kind, step))

    def cost_of(self, kind: str) -> float:
        """What this kind of work cost lately, in seconds; 0 where that is not known."""
        lately = sorted(self._lately.get(kind, ()))
        half = len(lately) // 2
        return 0.0 if not lately else lately[half] if len(lately) % 2 else (lately[half - 1] + lately[half]) / 2

    def _counted(self, kind: str, can: bool) -> bool:
        if not can:
            self.left_out[kind] += 1
        return can

    def is_overdue(self, kind: str, step: int, floor: float = FLOOR) -> bool:
        """Whether the step has grown by the floor since this kind of work was done."""
        return step >= self._due_by(kind, floor)

    def _due_by(self, kind: str, floor: float) -> float:
        """The step at which it has: inf where there is no floor, 0 where it was never done."""
        last = self._last.get(kind)
        if floor == inf:
            return inf
        return 0 if last is None else max(ceil(floor / RATIO * last), last + 1)

    @contextmanager
    def spending(self, kind: str | None = None, step: int | None = None) -> Iterator[None]:
        """Count the time of what is done inside; what is done inside that again is not counted twice."""
        entered = self.clock()
        self._depth += 1
        apart = self._apart
        try:
            yield
        finally:
            self._depth -= 1
            seconds = self.clock() - entered - (self._apart - apart)
            if kind is not None:
                self.note(kind, seconds, step)
            if self._depth == 0:
                self.spent += seconds

    def note(self, kind: str, seconds: float, step: int | None = None) -> None:
        """Remember what this kind of work took; it is spent where it is counted (`spending`)."""
        self._lately.setdefault(kind, deque(maxlen=_LATELY)).append(seconds)
        self.total[kind] = self.total.get(kind, 0.0) + seconds
        self.done[kind] += 1
        if step is not None:
            self._last[kind] = step

    @contextmanager
    def not_ours(self) -> Iterator[None]:
        """Inside `spending`: what the user asked for and pays for, such as an evaluation. It is training time."""
        entered = self.clock()
        try:
            yield
        finally:
            self._apart += self.clock() - entered

    @contextmanager
    def on_account_of(self, other: "Budget") -> Iterator[None]:
        """Inside `spending`: time that is counted there, and here neither as ours nor as training."""
        entered = self.clock()
        try:
            with other.spending():
                yield
        finally:
            seconds = self.clock() - entered
            self._apart += seconds
            self.elsewhere += seconds

    def floor_share(self, floors: Mapping[str, float], seconds_per_step: float, steps: int = 1000) -> float:
        """What doing these as seldom as possible takes of the first so many updates, as a share of their time."""
        seconds = 0.0
        for kind, floor in floors.items():
            count, step = 1, 1
            while step <= steps:
                count, step = count + 1, max(step + 1, ceil(floor / RATIO * step))
            seconds += count * self.cost_of(kind)
        return seconds / (steps * seconds_per_step)

    def __str__(self) -> str:
        """What was spent, and what was left out for it."""
        parts = [
            f"{done} x {kind}"
            + (f" ({self.left_out[kind]} left out)" if self.left_out[kind] else "")
            + (f", {1e3 * self.cost_of(kind):.1f} ms each" if kind in self._lately else " by the worker")
            for kind, done in self.done.items()
        ]
        return f"{100 * self.used:.2f} % of the training time (at most {100 * self.share:g} %): {'; '.join(parts)}"
