"""The course of every head, in bounded memory: which ones changed most, and how.

Of the probes that are measured one is followed, the effective rank or else the norm. The head that went furthest from
where it began comes first.
"""

import math
from dataclasses import dataclass

from probes.watch.curve import Curve

FOLLOWED = ("effective_rank", "norm")
"""Probes, the first of them that is there is shown."""

Head = tuple[str, str, int, int]
"""Tower, circuit, layer, head."""


@dataclass(frozen=True)
class HeadCourse:
    """One head: its name, the probe, and its course."""

    name: str
    probe: str
    points: list[tuple[float, float]]

    @property
    def change(self) -> float:
        """From the first to the last value."""
        return self.points[-1][1] - self.points[0][1]


class HeadCurves:
    """Takes in numbers of heads as they come."""

    def __init__(self) -> None:
        self._curves: dict[str, dict[Head, Curve]] = {}

    def add(self, step: int, head: Head, probe: str, value: float) -> None:
        """One number of one head; those of other probes are not followed."""
        if probe in FOLLOWED and math.isfinite(value):
            self._curves.setdefault(probe, {}).setdefault(head, Curve()).add(step, value)

    def clear(self) -> None:
        """Begin again."""
        self._curves.clear()

    def courses(self) -> list[HeadCourse]:
        """Those with two values or more, the one that went furthest first."""
        probe = next((name for name in FOLLOWED if name in self._curves), None)
        if probe is None:
            return []
        found = []
        for (tower, circuit, layer, head), curve in self._curves[probe].items():
            points = curve.points()
            if len(points) > 1:
                where = f"{tower} {layer}.{head}" if tower else f"{layer}.{head}"
                found.append(HeadCourse(f"{circuit} {where}", probe, points))
        return sorted(found, key=lambda course: -abs(course.change))
