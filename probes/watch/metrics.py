"""What the scalars of a run say so far: the latest of each, the course of each, and transitions in the loss."""

import json
import math
from collections.abc import Mapping

from checkpoints.layout import as_step
from probes.monitor.roles import role
from probes.series.online import Detector, Event
from probes.watch.curve import Curve


class Metrics:
    """The scalars of a run as they come, in bounded memory."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.latest: dict[str, tuple[int, float]] = {}
        self.curves: dict[str, Curve] = {}
        self.main: str | None = None
        """The scalar to look at: the loss, or what is called something like it, or the first."""
        self.events: list[Event] = []
        self.damaged = 0
        """Lines that are not scalars."""
        self._detector: Detector | None = None
        self._detected = -1

    @property
    def events_source(self) -> str:
        """Who looks for transitions; nothing if nobody does."""
        return f"in {self.main}, looked for here" if self._detector else ""

    def add_line(self, line: str) -> None:
        """A line of metrics.jsonl; one that is damaged is counted and left out."""
        try:
            scalars = json.loads(line)
            step = as_step(scalars.pop("step"))
            numbers = {name: math.nan if value is None else float(value) for name, value in scalars.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            self.damaged += 1
            return
        self.add(step, numbers)

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """The scalars of a step; transitions are looked for in the main one, if it is a loss."""
        self.last_step = step if self.last_step is None else max(step, self.last_step)
        for name, value in scalars.items():
            self.latest[name] = step, value
            if name not in self.curves:
                self.curves[name] = Curve()
                self.main = name if self.main is None else min(self.main, name, key=_rank)
            self.curves[name].add(step, value)
        if self.main is not None and self.main in scalars and role(self.main) in ("loss", "score"):
            self._detect(self.main, step, scalars[self.main])

    def _detect(self, name: str, step: int, value: float) -> None:
        """One more value of the main scalar, and a look at its course if that is due."""
        if self._detector is None or self._detector.metric != name:
            self._detector, self._detected = Detector(name, diverges=role(name) == "loss"), -1
        if step <= self._detected:
            return
        self._detected = step
        alarm = self._detector.add(step, value)
        self.events += [alarm] if alarm else []
        if self._detector.is_due(step):
            self.events += self._detector.look(step)


def _rank(name: str) -> tuple[bool, int]:
    """The loss first, then what is called something like it, then a score; the others as they are."""
    return name != "loss", {"loss": 0, "score": 1, "unknown": 2}.get(role(name), 3)
