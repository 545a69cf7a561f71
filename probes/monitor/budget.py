"""How much time a monitor may take: it counts what it spends, and does only what it can pay for.

    spent + expected cost <= share x time spent training

What something costs is what it cost lately, at the most. The first time that is not known, so everything is done once:
a run shorter than a hundred measurements (at 1 %) therefore spends more than its share, on one of each kind.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

_FORGET = 0.9


class Budget:
    """A share of the training time, in seconds of a clock. 1 means that time is no object."""

    def __init__(self, share: float, clock: Callable[[], float] = perf_counter) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"budget is {share}: a share of the training time, above 0 and at most 1, is expected")
        self.share, self.spent, self._clock = share, 0.0, clock
        self.cost: dict[str, float] = {}
        """What each kind of work cost lately, in seconds: the most, forgotten by a tenth each time."""
        self.done, self.left_out = Counter[str](), Counter[str]()
        self._began, self._depth = clock(), 0

    @property
    def training(self) -> float:
        """Seconds since the beginning that were not spent here."""
        return self._clock() - self._began - self.spent

    @property
    def used(self) -> float:
        """What was spent as a share of the training time."""
        return self.spent / max(self.training, 1e-9)

    def affords(self, kind: str, besides: Iterable[str] = ()) -> bool:
        """Whether this kind of work can be paid for now, and others `besides`; counts what cannot."""
        cost = sum(self.cost.get(name, 0.0) for name in (kind, *besides))
        can = self.share == 1 or kind not in self.cost or self.spent + cost <= self.share * self.training
        if not can:
            self.left_out[kind] += 1
        return can

    @contextmanager
    def spending(self, kind: str | None = None) -> Iterator[None]:
        """Count the time of what is done inside; what is done inside that again is not counted twice."""
        entered = self._clock()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            seconds = self._clock() - entered
            if kind is not None:
                self.cost[kind] = max(seconds, _FORGET * self.cost.get(kind, 0.0))
                self.done[kind] += 1
            if self._depth == 0:
                self.spent += seconds

    @contextmanager
    def not_ours(self) -> Iterator[None]:
        """Inside `spending`: what the user asked for and pays for, such as an evaluation."""
        entered = self._clock()
        try:
            yield
        finally:
            self.spent -= self._clock() - entered

    def __str__(self) -> str:
        """What was spent, and what was left out for it."""
        parts = [
            f"{done} x {kind}"
            + (f" ({self.left_out[kind]} left out)" if self.left_out[kind] else "")
            + f", {1e3 * self.cost[kind]:.1f} ms each"
            for kind, done in self.done.items()
        ]
        return f"{100 * self.used:.2f} % of the training time (at most {100 * self.share:g} %): {'; '.join(parts)}"
