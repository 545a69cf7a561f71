"""The changes that are looked for in a short record, and AR(1) noise made independent."""

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


def shapes_for(n: int) -> list[Shape]:
    """Every place and width tried among n values."""
    edge, widths, width = short_constants.SHAPE_EDGE, [], 1.0
    while width <= n / short_constants.VALUES_PER_WIDTH:
        widths.append(width)
        width *= short_constants.WIDTH_RATIO
    places = np.arange(edge, n - 1 - edge + 1e-9, 0.5)  # between two values, or with a value half-way down
    shapes = [Shape("step", float(place), width) for width in short_constants.SHARP_STEPS for place in places]
    for kind, spacing, least in (("step", 1.0, edge), ("bump", 0.5, short_constants.BUMP_EDGE)):
        for width in widths:
            low = max(least, (3 if kind == "step" else 2) * width)  # a cliff is seen where both of its sides are
            shapes += [
                Shape(kind, float(place), width) for place in np.arange(low, n - 1 - low + 1e-9, spacing * width)
            ]
    return shapes


def extents_of(shapes: list[Shape], n: int) -> np.ndarray:
    """Numbers [before, at, after; shapes; 2] of two values three widths before every shape, around it and after it."""
    place, width = (np.array([getattr(shape, name) for shape in shapes]) for name in ("place", "width"))
    away = np.maximum(3 * width, 1.0)
    pairs = [(place - away - 1, place - away), (place - 0.5, place + 0.5), (place + away, place + away + 1)]
    return np.clip(np.round(np.array(pairs).transpose(0, 2, 1)), 0, n - 1).astype(int)


def whitened(rho: float, series: np.ndarray) -> np.ndarray:
    """Columns of AR(1) noise made independent, of the variance of the innovations."""
    out = series.copy()
    out[1:] -= rho * series[:-1]
    out[0] *= np.sqrt(1 - rho**2)
    return out


def coloured(rho: float, white: np.ndarray) -> np.ndarray:
    """The inverse of `whitened`."""
    from scipy.signal import lfilter

    start = white.copy()
    start[0] /= np.sqrt(1 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], start, axis=0))
