"""The course of a scalar in bounded memory: means over stretches of steps that grow with the step.

A stretch at step t is about t / 400 steps long, so a view of a hundred columns loses nothing, on a logarithmic or a
linear axis, and a run of a billion steps takes eight thousand means.
"""

import math

_PER_E_FOLD = 400


class Curve:
    """Steps and values, thinned."""

    def __init__(self) -> None:
        self.first: float | None = None
        self._stretches: dict[int, list[float]] = {}

    def add(self, step: float, value: float) -> None:
        """One more value; one that is not a number is left out."""
        if not math.isfinite(value):
            return
        self.first = value if self.first is None else self.first
        stretch = self._stretches.setdefault(int(_PER_E_FOLD * math.log1p(step)), [0.0, 0.0, 0])
        stretch[0] += step
        stretch[1] += value
        stretch[2] += 1

    def points(self) -> list[tuple[float, float]]:
        """Steps, ascending, and the mean value there."""
        return [(step / n, value / n) for _, (step, value, n) in sorted(self._stretches.items())]
