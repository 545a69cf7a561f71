"""When many series move at once: the test that every event of weights rests on.

Few series are tested, not many. At every place and width (`windows`) the speeds |d value / d ln(step)| of all series,
each over its own mean, are reduced to a few numbers: the mean over all, the mean of the fastest tenth, the mean by
layer. A burst is a place where such a number is larger than on either side, and where the series that make it up are at
least 1.5 times faster than on either side of it, or turn round (half of them, each counted by its speed). How often
noise makes one is counted on panels in which nothing happens (`noise`), which get exactly the same treatment, the given
panel being one more among them: each place is compared with the same place in all of them, and the largest excess
anywhere with the largest of each. The tail of these maxima is a Gumbel law; that is where p-values below 1 / panels
come from. Of a panel whose checkpoints resolve it without noise, differences below a tenth are none: there a burst is
what no smooth curve shows.

Where there are a dozen series or more, a second null is put beside the first: each series shifted by an amount of its
own, up to a quarter of all places. It keeps every step that a series makes, and no two at one time; so that steps of
single series, however large, are not a burst of all. What a shift leaves empty at the ends is filled with the speeds of
some other series at those places. (Mirrored at the ends, a step would stand twice among them, and the first and last
places that can be judged would raise false alarms; around the whole circle, steps that crowd late in ln(step), as on a
uniform schedule, would.) The larger p-value counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from probes.events.noise import measure_noise, panels_like
from probes.events.windows import Windows

FASTER, TURNED = 1.5, 0.5
"""How many times faster than on either side, or against the direction of both sides, a series is in a burst. What a
burst means; see `windows` for what is not one."""

FASTER_TOGETHER = 1.2
"""How many times faster the reduced number is: those that do not take part are among them."""

PANELS = 99
"""In which nothing happens, for each null."""

FASTEST = 0.1
"""Share of the series whose mean speed is looked at beside the mean of all."""

FEWEST_FOR_FASTEST, FEWEST_TO_SHIFT = 8, 12
"""Series for the fastest to be told from all, and for the second null."""

FURTHEST_SHIFT = 0.25
"""Of a series in the second null, as a share of all places. Tuned on a uniform and a log-spaced schedule; .15 makes no
difference."""

APART = 1.5
"""Bursts nearer to a surer one than so many widths, of either, are the same."""

LEAST_SPREAD, RESOLVED_SPREAD = 0.01, 0.1
"""Of ln(speed over side speed) among panels in which nothing happens, at least; the second where there is no noise."""

_TINY = 1e-12


@dataclass(frozen=True)
class Burst:
    """A place at which a panel is fast.

    at, low, high   ln(step) of its peak, and the stretch in which more than half of the excess speed is left
    width           of the window that shows it best
    group           which series: -1 all, -2 the fastest tenth, else the number of a layer
    ratio           speed over that of the faster side
    score           excess over the same place in panels in which nothing happens, in standard deviations
    p_value         how often such a panel has as large a score anywhere
    speeds          of each series there, over what is usual for it and for the place
    series_p_values how often a series of a panel in which nothing happens is as fast there
    changes         of each series from the window before to the one after
    is_resolved     whether the panel shows no noise (`noise`), so that the p-value says little
    """

    at: float
    low: float
    high: float
    width: float
    group: int
    ratio: float
    score: float
    p_value: float
    speeds: np.ndarray
    series_p_values: np.ndarray
    changes: np.ndarray
    is_resolved: bool = False


def find_bursts(
    x: Float64[np.ndarray, " times"],
    panel: Float64[np.ndarray, "times series"],
    layers: Int64[np.ndarray, " series"],
    windows: Sequence[Windows],
    *,
    alpha: float,
    rng: np.random.Generator,
    panels: int = PANELS,
) -> list[Burst]:
    """Bursts with p <= alpha, the surest first."""
    groups, panel = _groups(layers), panel - panel.mean(0)  # float32 below: of a large offset it would keep little
    noise = measure_noise(x, panel)
    nothing = panels_like(x, panel, noise, panels, rng)
    everything = np.concatenate([panel[None], nothing]).astype(np.float32)
    speeds = [_speeds(everything, one) for one in windows]
    least = RESOLVED_SPREAD if noise.is_resolved else LEAST_SPREAD
    noisy = _judge([_reduced(s, groups) for s in speeds], windows, least)
    bursting = [_bursting(panel, one, s[0, one.judged], groups) for one, s in zip(windows, speeds, strict=True)]
    found = _surest(noisy, bursting, windows, groups, alpha)
    found = [(cell, _with_series(burst, panel, windows[cell[0]], speeds[cell[0]], cell[1])) for cell, burst in found]
    found = [(cell, replace(burst, is_resolved=noise.is_resolved)) for cell, burst in found]
    if not found or panel.shape[1] < FEWEST_TO_SHIFT:
        return [burst for _, burst in found]
    shifted = _judge([_reduced(_shifted(s[0], panels, rng), groups) for s in speeds], windows, least)
    both = [
        replace(burst, p_value=max(burst.p_value, shifted.p_value(_nearby(shifted, windows, burst))))
        for _, burst in found
    ]
    return [burst for burst in both if burst.p_value <= alpha]


def _nearby(judged: "_Judged", windows: Sequence[Windows], burst: Burst) -> float:
    """The largest score, of any group and width, within a width of a burst."""
    near = [np.abs(one.judged_at - burst.at) <= burst.width for one in windows]
    return max(float(scores[close].max()) for scores, close in zip(judged.scores, near, strict=True) if close.any())


Cell = tuple[int, int, int]
"""Which width, which place that can be judged, which group."""


@dataclass(frozen=True, eq=False)
class _Judged:
    """The given panel beside those in which nothing happens: by width [judged, group]."""

    scores: list[np.ndarray]
    ratios: list[np.ndarray]
    reduced: list[np.ndarray]
    maxima: Float64[np.ndarray, " panels"]

    def p_value(self, score: float) -> float:
        """Counted; where at most ten of the maxima are as large, from a Gumbel law with their mean and spread."""
        maxima = self.maxima
        counted = (1 + int((maxima >= score).sum())) / (1 + len(maxima))
        if counted > 10 / (1 + len(maxima)):
            return counted
        scale = float(maxima.std(ddof=1)) * np.sqrt(6) / np.pi
        return float(-np.expm1(-np.exp(-(score - maxima.mean()) / scale - np.euler_gamma)))


def _groups(layers: Int64[np.ndarray, " series"]) -> dict[int, np.ndarray]:
    """The series of each group: all under -1, and of each layer where there are several."""
    each = np.unique(layers)
    groups = {-1: np.ones(len(layers), dtype=np.float32) / len(layers)}
    if len(each) > 1:
        groups |= {int(layer): ((layers == layer) / (layers == layer).sum()).astype(np.float32) for layer in each}
    return groups


def _speeds(panels: np.ndarray, windows: Windows) -> np.ndarray:
    """[panel, place, series], each series over its own mean, each place over what it is in all panels."""
    speeds = np.abs(windows.speed.astype(np.float32) @ panels)
    speeds /= speeds.mean(1, keepdims=True) + _TINY
    return speeds / (speeds.mean((0, 2), keepdims=True) + _TINY)


def _shifted(speeds: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The speeds [place, series] as they are, and with every series shifted by its own amount, `count` times."""
    places, series = speeds.shape
    furthest = max(4, int(np.ceil(FURTHEST_SHIFT * places)))
    at = np.arange(places)[:, None] + rng.integers(-furthest, furthest + 1, (count, 1, series))
    moved = np.take_along_axis(speeds[None], np.clip(at, 0, places - 1), axis=1)
    others = (np.arange(series) + rng.integers(1, series, (count, 1))) % series
    empty = (at < 0) | (at >= places)
    filled = np.where(empty, np.moveaxis(speeds[:, others], 0, 1), moved)
    return np.concatenate([speeds[None], filled])


def _reduced(speeds: np.ndarray, groups: dict[int, np.ndarray]) -> np.ndarray:
    """[panel, place, group]: the mean of all, by layer, and, last, of the fastest tenth where there are enough."""
    means = speeds @ np.stack(list(groups.values()), axis=1)
    series = speeds.shape[2]
    if series < FEWEST_FOR_FASTEST:
        return means
    first = series - _tenth(series)
    fastest = np.partition(speeds, first, axis=2)[..., first:].mean(2)
    return np.concatenate([means, fastest[..., None]], axis=2)


def _bursting(
    panel: np.ndarray, windows: Windows, speeds: np.ndarray, groups: dict[int, np.ndarray]
) -> Float64[np.ndarray, "judged group"]:
    """Share of the series, each counted by its speed [judged, series], that are in a burst; groups as in `_reduced`."""
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


def _judge(reduced: list[np.ndarray], windows: Sequence[Windows], least_spread: float) -> _Judged:
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
    return _Judged(scores, ratios, [speed[0] for speed in reduced], np.max(maxima, axis=0).astype(np.float64))


def _surest(
    judged: _Judged,
    bursting: list[np.ndarray],
    windows: Sequence[Windows],
    groups: dict[int, np.ndarray],
    alpha: float,
) -> list[tuple[Cell, Burst]]:
    """Bursts by falling score, without those that a surer one explains."""
    numbers, none = [*groups, -2], np.empty(0)
    cells = [
        (float(scores[place, group]), (width, int(place), int(group)))
        for width, (scores, ratios, shares) in enumerate(zip(judged.scores, judged.ratios, bursting, strict=True))
        for place, group in np.argwhere((ratios >= FASTER_TOGETHER) & (shares >= 0.5))
    ]
    found: list[tuple[Cell, Burst]] = []
    for score, cell in sorted(cells, reverse=True):
        p = judged.p_value(score)
        if p > alpha:
            break
        width, place, group = cell
        one = windows[width]
        at = float(one.judged_at[place])
        if any(abs(at - burst.at) < APART * max(one.width, burst.width) for _, burst in found):
            continue
        low, high = _stretch(judged.reduced[width][:, group], one, place)
        ratio = float(judged.ratios[width][place, group])
        found.append((cell, Burst(at, low, high, one.width, numbers[group], ratio, score, p, none, none, none)))
    return found


def _with_series(burst: Burst, panel: np.ndarray, windows: Windows, speeds: np.ndarray, place: int) -> Burst:
    """The burst with what each series does there, beside all series of all panels in which nothing happens."""
    at = int(np.flatnonzero(windows.judged)[place])
    here, nothing = speeds[0, at], np.sort(speeds[1:, at], axis=None)
    as_fast = len(nothing) - np.searchsorted(nothing, here, side="left")
    return replace(
        burst,
        speeds=here.astype(np.float64),
        series_p_values=(1 + as_fast) / (1 + len(nothing)),
        changes=_change(panel, windows, at),
    )


def _change(panel: np.ndarray, windows: Windows, at: int) -> np.ndarray:
    """Mean over the window after minus mean over the window before, of each series."""
    weights = windows.speed[at]
    return weights @ panel / weights[weights > 0].sum()


def _stretch(speed: np.ndarray, windows: Windows, place: int) -> tuple[float, float]:
    """From where to where more than half of the excess over the faster side is left, and half a window at least."""
    peak = int(np.flatnonzero(windows.judged)[place])
    side = max(float(windows.left[place] @ speed), float(windows.right[place] @ speed))
    slow = speed < (speed[peak] + side) / 2
    first = next((i + 1 for i in range(peak, -1, -1) if slow[i]), 0)
    last = next((i - 1 for i in range(peak, len(speed)) if slow[i]), len(speed) - 1)
    half = windows.width / 2
    return min(float(windows.at[first]), windows.at[peak] - half), max(float(windows.at[last]), windows.at[peak] + half)
