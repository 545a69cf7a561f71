"""How fast a panel is at every place, beside panels in which nothing happens.

Few series are tested, not many. At every place and width (`windows`) the speeds |d value / d ln(step)| of all series,
each over its own mean, are reduced to a few numbers: the mean over all, the mean of the fastest tenth, the mean by
layer. The logarithm of such a number over that of its faster side is compared with the same place in panels in which
nothing happens, and the largest excess anywhere with the largest of each of them. The tail of these maxima is a Gumbel
law; that is where p-values below 1 / panels come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from probes.events.windows import Windows

FASTER, TURNED = 1.5, 0.5
"""How many times faster than on either side, or against the direction of both sides, a series is in a burst. What a
burst means; see `windows` for what is not one."""

FASTEST = 0.1
"""Share of the series whose mean speed is looked at beside the mean of all."""

FEWEST_FOR_FASTEST = 8
"""Series for the fastest to be told from all."""

FURTHEST_SHIFT = 0.25
"""Of a series in the second null, as a share of all places. Tuned on a uniform and a log-spaced schedule; .15 makes no
difference."""

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Judged:
    """The given panel beside those in which nothing happens: by width [judged, group]."""

    scores: list[np.ndarray]
    ratios: list[np.ndarray]
    reduced: list[np.ndarray]
    maxima: Float64[np.ndarray, " panels"]

    def p_value(self, score: float) -> float:
        """Counted; where at most ten of the maxima are as large, from a Gumbel law with their mean and spread."""
        maxima = self.maxima
        counted = (1 + int((maxima >= score).sum())) / (1 + len(maxima))
        if counted > 10 / (1 + len(maxima)) or maxima.std() == 0:  # all alike: a panel without any noise
            return counted
        scale = float(maxima.std(ddof=1)) * np.sqrt(6) / np.pi
        return float(-np.expm1(-np.exp(-(score - maxima.mean()) / scale - np.euler_gamma)))


def groups_of(layers: Int64[np.ndarray, " series"]) -> dict[int, np.ndarray]:
    """The series of each group: all under -1, and of each layer where there are several."""
    each = np.unique(layers)
    groups = {-1: np.ones(len(layers), dtype=np.float32) / len(layers)}
    if len(each) > 1:
        groups |= {int(layer): ((layers == layer) / (layers == layer).sum()).astype(np.float32) for layer in each}
    return groups


def speeds_of(panels: np.ndarray, windows: Windows) -> np.ndarray:
    """[panel, place, series], each series over its own mean, each place over what it is in all panels."""
    speeds = np.abs(windows.speed.astype(np.float32) @ panels)
    speeds /= speeds.mean(1, keepdims=True) + _TINY
    return speeds / (speeds.mean((0, 2), keepdims=True) + _TINY)


def shifted(speeds: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The speeds [place, series] as they are, and with every series shifted by its own amount, `count` times."""
    places, series = speeds.shape
    furthest = max(4, int(np.ceil(FURTHEST_SHIFT * places)))
    at = np.arange(places)[:, None] + rng.integers(-furthest, furthest + 1, (count, 1, series))
    moved = np.take_along_axis(speeds[None], np.clip(at, 0, places - 1), axis=1)
    others = (np.arange(series) + rng.integers(1, series, (count, 1))) % series
    empty = (at < 0) | (at >= places)
    filled = np.where(empty, np.moveaxis(speeds[:, others], 0, 1), moved)
    return np.concatenate([speeds[None], filled])


def reduced_to(speeds: np.ndarray, groups: dict[int, np.ndarray]) -> np.ndarray:
    """[panel, place, group]: the mean of all, by layer, and, last, of the fastest tenth where there are enough."""
    means = speeds @ np.stack(list(groups.values()), axis=1)
    series = speeds.shape[2]
    if series < FEWEST_FOR_FASTEST:
        return means
    first = series - _tenth(series)
    fastest = np.partition(speeds, first, axis=2)[..., first:].mean(2)
    return np.concatenate([means, fastest[..., None]], axis=2)


def share_bursting(
    panel: np.ndarray, windows: Windows, speeds: np.ndarray, groups: dict[int, np.ndarray]
) -> Float64[np.ndarray, "judged group"]:
    """Share of the series, each counted by its speed [judged, series], that are in a burst, by group."""
    speed = windows.speed @ panel
    here, left, right = speed[windows.judged], windows.left @ speed, windows.right @ speed
    along = here * np.sign(left + right) / (np.maximum(np.abs(left), np.abs(right)) + _TINY)
    is_so = (along >= FASTER) | (along <= -TURNED)
    columns = [(is_so * speeds) @ weights / (speeds @ weights + _TINY) for weights in groups.values()]
    series = speeds.shape[1]
    if series >= FEWEST_FOR_FASTEST:
        fastest = np.argpartition(speeds, series - _tenth(series), axis=1)[:, series - _tenth(series) :]
        columns.append(np.take_along_axis(is_so, fastest, axis=1).mean(1))
    return np.stack(columns, axis=1).astype(np.float64)


def _tenth(series: int) -> int:
    return int(np.ceil(FASTEST * series))


def judge(reduced: list[np.ndarray], windows: Sequence[Windows], least_spread: float) -> Judged:
    """The first panel beside all others, from what `reduced_to` makes of them, by width."""
    scores, ratios, maxima = [], [], []
    for speed, one in zip(reduced, windows, strict=True):
        sides = np.maximum(one.left.astype(np.float32) @ speed, one.right.astype(np.float32) @ speed)
        ratio = np.log(speed[:, one.judged] + _TINY) - np.log(sides + _TINY)
        spread = ratio.std(0)
        spread = (spread + spread.mean(0)) / 2 + least_spread
        score = (ratio - ratio.mean(0)) / spread
        scores.append(score[0])
        ratios.append(np.exp(ratio[0]))
        maxima.append(score[1:].max((1, 2)))
    return Judged(scores, ratios, [speed[0] for speed in reduced], np.max(maxima, axis=0).astype(np.float64))
