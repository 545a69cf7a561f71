"""When many series move at once: the test that every event of weights rests on.

A burst is a place where a panel, all of it or one layer or its fastest tenth, is faster than on either side (`speeds`),
and where the series that make it up are at least 1.5 times faster than on either side of it, or turn round (half of
them, each counted by its speed). How often noise makes one is counted on panels in which nothing happens (`noise`),
which get exactly the same treatment, the given panel being one more among them. Of a panel whose checkpoints resolve it
without noise, differences below a tenth are none: there a burst is what no smooth curve shows.

Bursts are found one by one. The surest is taken out of the panel (`taken_out`), and what is left is looked at anew,
beside panels made from what is left; until nothing is sure. Then each is judged again without all of the others,
because the first of them were found beside panels that still had the others in them. Of a panel without noise there is
none to be mistaken about: all of its bursts are found at once.

Where there are a dozen series or more, a second null is put beside the first: each series shifted by an amount of its
own, up to a quarter of all places. It keeps every step that a series makes, and no two at one time; so that steps of
single series, however large, are not a burst of all. What a shift leaves empty at the ends is filled with the speeds of
some other series at those places. (Mirrored at the ends, a step would stand twice among them, and the first and last
places that can be judged would raise false alarms; around the whole circle, steps that crowd late in ln(step), as on a
uniform schedule, would.) The larger p-value counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from probes.events.noise import measure_noise, panels_like
from probes.events.speeds import Judged, groups_of, judge, reduced_to, share_bursting, shifted, speeds_of
from probes.events.taken_out import Stretch, outside, take_out
from probes.events.windows import Windows

FASTER_TOGETHER = 1.2
"""How many times faster the reduced number is: those that do not take part are among them."""

PANELS = 99
"""In which nothing happens, for each null."""

FEWEST_TO_SHIFT = 12
"""Series for the second null."""

APART = 1.5
"""Bursts nearer to a surer one than so many widths, of either, are the same."""

FEWEST_LEFT = 12
"""Checkpoints at which nothing was taken out, below which nothing more is looked for."""

MOST_ROUNDS = 24
"""In which a panel is looked at anew."""

LEAST_SPREAD, RESOLVED_SPREAD = 0.01, 0.1
"""Of ln(speed over side speed) among panels in which nothing happens, at least; the second where there is no noise."""

Times = Float64[np.ndarray, " times"]


@dataclass(frozen=True)
class Burst:
    """A place at which a panel is fast.

    at, low, high   ln(step) of its peak, and the stretch in which more than half of the excess speed is left
    whole           the stretch from where to where speed rises towards its peak and falls again
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
    whole: Stretch
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
    x: Times,
    panel: Float64[np.ndarray, "times series"],
    layers: Int64[np.ndarray, " series"],
    windows: Sequence[Windows],
    *,
    alpha: float,
    rng: np.random.Generator,
    panels: int = PANELS,
) -> list[Burst]:
    """Bursts with p <= alpha, the surest first."""
    panel = panel - panel.mean(0)  # in float32, of a large offset little would be kept
    look = _Look(x, panel, groups_of(layers), windows, alpha, panels, rng)
    found: list[Burst] = []
    for _ in range(MOST_ROUNDS):
        taken = [one.whole for one in found]
        sure = look.sure(taken, lambda at, taken=taken: not any(one.low <= at <= one.high for one in taken))
        if not sure:
            break
        burst = sure[0]
        if burst.is_resolved and not found:
            return sure
        near = next((k for k, one in enumerate(found) if _is_the_same(burst, one)), None)
        if near is None:
            found.append(burst)
        else:  # something was left of one that was found: more of it is to be taken out
            found[near] = replace(found[near], whole=found[near].whole.joined(burst.whole))
    return _judged_again(found, look)


def _is_the_same(burst: Burst, other: Burst) -> bool:
    whole, half = other.whole, burst.width / 2
    within = whole.low - half <= burst.at <= whole.high + half
    return within or abs(burst.at - other.at) < APART * max(burst.width, other.width)


def _judged_again(found: list[Burst], look: "_Look") -> list[Burst]:
    """Those that stay when all others are taken out."""
    if len(found) < 2:
        return found
    kept, before = found[-1:], found[:-1]  # the last was judged so
    while before:
        burst = before.pop()
        within = burst.whole
        kept += look.sure([one.whole for one in [*kept, *before]], lambda at, w=within: w.low <= at <= w.high)[:1]
    return sorted(kept, key=lambda one: one.p_value)


@dataclass(frozen=True, eq=False)
class _Look:
    """A panel, and how it is looked at."""

    x: Times
    panel: Float64[np.ndarray, "times series"]
    groups: dict[int, np.ndarray]
    windows: Sequence[Windows]
    alpha: float
    panels: int
    rng: np.random.Generator

    def sure(self, without: Sequence[Stretch], where: Callable[[float], bool]) -> list[Burst]:
        """Bursts with p <= alpha at these places when these stretches are taken out, the surest first."""
        counts = outside(self.x, without)
        if counts.sum() < FEWEST_LEFT:
            return []
        panel, smooth = take_out(self.x, self.panel, without)
        noise = measure_noise(self.x, panel, counts)
        nothing = panels_like(smooth, noise, self.panels, self.rng)
        everything = np.concatenate([panel[None], nothing]).astype(np.float32)
        speeds = [speeds_of(everything, one) for one in self.windows]
        least = RESOLVED_SPREAD if noise.is_resolved else LEAST_SPREAD
        judged = judge([reduced_to(s, self.groups) for s in speeds], self.windows, least)
        bursting = [
            share_bursting(panel, one, s[0, one.judged], self.groups)
            for one, s in zip(self.windows, speeds, strict=True)
        ]
        found = self._candidates(judged, bursting, where)
        if found and panel.shape[1] >= FEWEST_TO_SHIFT:
            apart = [reduced_to(shifted(s[0], self.panels, self.rng), self.groups) for s in speeds]
            beside = judge(apart, self.windows, least)
            found = [replace(one, p_value=max(one.p_value, beside.p_value(self._nearby(beside, one)))) for one in found]
        sure = [one for one in found if one.p_value <= self.alpha]
        return [self._with_series(one, panel, speeds, is_resolved=noise.is_resolved) for one in sure]

    def _candidates(self, judged: Judged, bursting: list[np.ndarray], where: Callable[[float], bool]) -> list[Burst]:
        """Bursts by falling score, without those that a surer one explains."""
        numbers, none = [*self.groups, -2], np.empty(0)
        cells = [
            (float(scores[place, group]), width, int(place), int(group))
            for width, (scores, ratios, shares) in enumerate(zip(judged.scores, judged.ratios, bursting, strict=True))
            for place, group in np.argwhere((ratios >= FASTER_TOGETHER) & (shares >= 0.5))
        ]
        found: list[Burst] = []
        for score, width, place, group in sorted(cells, reverse=True):
            p = judged.p_value(score)
            if p > self.alpha:
                break
            one = self.windows[width]
            at = float(one.judged_at[place])
            if not where(at) or any(abs(at - burst.at) < APART * max(one.width, burst.width) for burst in found):
                continue
            speed, ratio = judged.reduced[width][:, group], float(judged.ratios[width][place, group])
            low, high = _stretch(speed, one, place)
            whole = _whole(speed, one, place)
            found.append(Burst(at, low, high, whole, one.width, numbers[group], ratio, score, p, none, none, none))
        return found

    def _nearby(self, judged: Judged, burst: Burst) -> float:
        """The largest score, of any group and width, within a width of a burst."""
        near = [np.abs(one.judged_at - burst.at) <= burst.width for one in self.windows]
        return max(float(scores[close].max()) for scores, close in zip(judged.scores, near, strict=True) if close.any())

    def _with_series(self, burst: Burst, panel: np.ndarray, speeds: list[np.ndarray], *, is_resolved: bool) -> Burst:
        """The burst with what each series does there, beside all series of all panels in which nothing happens."""
        number = next(k for k, one in enumerate(self.windows) if one.width == burst.width)
        windows = self.windows[number]
        at = int(np.argmin(np.abs(windows.at - burst.at)))
        return replace(
            burst,
            speeds=speeds[number][0, at].astype(np.float64),
            series_p_values=_as_fast(speeds[number][:, at]),
            changes=_change(panel, windows, at),
            is_resolved=is_resolved,
        )


def _as_fast(speeds: np.ndarray) -> np.ndarray:
    """How often a series of a panel in which nothing happens is as fast as each of the first panel [panel, series].

    The larger of two: by its speed as it is, and by how far that lies beyond what the same series does in those panels.
    Beside the first alone, heads that are noisier than others would seem to take part; beside the second, any of four.
    """
    beyond = (speeds - speeds.mean(0)) / (speeds.std(0) + 1e-12)
    return np.maximum(_share_above(speeds), _share_above(beyond))


def _share_above(numbers: np.ndarray) -> np.ndarray:
    nothing = np.sort(numbers[1:], axis=None)
    return (1 + len(nothing) - np.searchsorted(nothing, numbers[0], side="left")) / (1 + len(nothing))


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


def _whole(speed: np.ndarray, windows: Windows, place: int) -> Stretch:
    """From where to where speed rises towards its peak and falls again, and a window at least."""
    peak = int(np.flatnonzero(windows.judged)[place])
    first = next((i for i in range(peak, 0, -1) if speed[i - 1] >= speed[i]), 0)
    last = next((i for i in range(peak, len(speed) - 1) if speed[i + 1] >= speed[i]), len(speed) - 1)
    at, width = windows.at, windows.width
    return Stretch(min(float(at[first]), at[peak] - width), max(float(at[last]), at[peak] + width))
