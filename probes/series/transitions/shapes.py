"""The changes that are looked for among values, or among means over bins: steps and bumps of many widths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Shape:
    """A change: a step down (kind "step") or a bump up (kind "bump"), its place and width in numbers of values."""

    kind: str
    place: float
    width: float

    def __call__(self, n: int) -> Series:
        """Its course over n values: from 1 to 0 for a step, up to 1 and back for a bump."""
        away = (np.arange(n) - self.place) / self.width
        return 0.5 * (1 - np.tanh(away / 2)) if self.kind == "step" else np.exp(-0.5 * away**2)

    def finer(self) -> "list[Shape]":
        """Itself and shapes up to half-way to its neighbours on the grid."""
        is_sharp = self.width < 1
        spacing = 0.5 if is_sharp else self.width if self.kind == "step" else 0.5 * self.width
        ratio = short_constants.FINER_SHARP if is_sharp else short_constants.FINER
        places = [self.place + share * spacing for share in (0.0, -0.4, -0.2, 0.2, 0.4)]
        widths = [self.width, self.width / ratio, self.width * ratio]
        least = short_constants.SHARP if self.kind == "step" else 1.0
        return [Shape(self.kind, place, width) for width in widths if width >= least for place in places]


class ShapeGrid:
    """Shapes that are tried among n values: their courses [values, shapes], which of them are steps, and extents.

    extents are numbers [before, at, after; shapes; averaged] of values three widths before every shape, around it,
    after. is_fine: no shapes between these are tried.
    """

    def __init__(self, shapes: Sequence[Shape], n: int, averaged: int = 2, *, is_fine: bool = False) -> None:
        self.shapes, self.n, self.is_fine = list(shapes), n, is_fine
        self.courses = np.column_stack([shape(n) for shape in shapes])
        self.are_steps = np.array([shape.kind == "step" for shape in shapes])
        place, width = (np.array([getattr(shape, name) for shape in shapes]) for name in ("place", "width"))
        away, more = np.maximum(3 * width, 1.0)[:, None], np.arange(averaged)
        place = place[:, None]
        places = [place - away - more, place + np.linspace(-0.5, 0.5, averaged), place + away + more]
        self.extents = np.clip(np.round(np.array(places)), 0, n - 1).astype(int)


def steps_and_bumps(n: int) -> ShapeGrid:
    """Every place and width tried among n values of a short record."""
    return ShapeGrid([*steps_among(n, short_constants.SHARP_STEPS), *_bumps(n)], n)


def steps_among(n: int, sharp: Sequence[float]) -> list[Shape]:
    """Steps of many widths, a width apart; those of the sharp ones between two values or with a value half-way down."""
    edge = short_constants.SHAPE_EDGE
    places = np.arange(edge, n - 1 - edge + 1e-9, 0.5)
    shapes = [Shape("step", float(place), width) for width in sharp for place in places]
    for width in _widths(n):
        low = max(edge, 3 * width)  # a cliff is seen where both of its sides are
        shapes += [Shape("step", float(place), width) for place in np.arange(low, n - 1 - low + 1e-9, width)]
    return shapes


def _bumps(n: int) -> list[Shape]:
    shapes = []
    for width in _widths(n):
        low = max(short_constants.BUMP_EDGE, 2 * width)
        shapes += [Shape("bump", float(place), width) for place in np.arange(low, n - 1 - low + 1e-9, 0.5 * width)]
    return shapes


def _widths(n: int) -> list[float]:
    widths, width = [], 1.0
    while width <= n / short_constants.VALUES_PER_WIDTH:
        widths.append(width)
        width *= short_constants.WIDTH_RATIO
    return widths
