"""Rules that judge claims: closeness to a prediction, smallness, shares of runs, runs against controls.

Each knows the rate at which nothing earns its words. What nothing is depends on the question: a prediction that is off
by an unknown factor, a number anywhere between 0 and 1, a coin for each run, or runs that differ from the controls in
name alone (then it is counted exactly, over all ways to deal the names out).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, log

import numpy as np
from scipy import stats

from analyses.tools.claims import Measured, Rule
from analyses.tools.intervals import mean_interval, rate, share_interval, shift_interval
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART

_WIDE = 10.0  # an unknown factor lies evenly in ln within this factor, from 1 / sqrt of it to sqrt of it


@dataclass(frozen=True)
class Close:
    """The mean over runs is a prediction, as a ratio: within `holds` of 1, or within `in_part`."""

    holds: float
    in_part: float

    def word(self, measured: Measured) -> str:
        """By how far the mean is off."""
        off = abs(float(np.nanmean(measured.runs)) - 1)
        return HOLDS if off <= self.holds else IN_PART if off <= self.in_part else FAILS

    def effect(self, measured: Measured) -> str:
        """How far the mean is off, in percent."""
        return "off by " + _mean(measured, 100 * (measured.runs - 1), 1) + " %"

    def by_chance(self, word: str, measured: Measured) -> str:
        """Of predictions that are off by an unknown factor."""
        if word == FAILS:
            return ""
        far = min(self.holds if word == HOLDS else self.in_part, 0.9)
        lucky = min(1.0, log((1 + far) / (1 - far)) / log(_WIDE))
        return f"a prediction off by an unknown factor (within {_WIDE**0.5:.1f} either way) earns it in {lucky:.0%}"

    def __str__(self) -> str:
        return f"the mean within {self.holds:.0%} of it (in part {self.in_part:.0%})"


@dataclass(frozen=True)
class Small:
    """The mean over runs of a share that should be nothing: at most `holds`, or at most `in_part`."""

    holds: float
    in_part: float

    def word(self, measured: Measured) -> str:
        """By the mean."""
        mean = abs(float(np.nanmean(measured.runs)))
        return HOLDS if mean <= self.holds else IN_PART if mean <= self.in_part else FAILS

    def effect(self, measured: Measured) -> str:
        """The mean."""
        return "mean " + _mean(measured, measured.runs, 2 + max(0, int(np.ceil(-np.log10(self.holds)))))

    def by_chance(self, word: str, measured: Measured) -> str:
        """Of shares that may be anything."""
        if word == FAILS:
            return ""
        return (
            f"a share anywhere between 0 and 1 earns it in {min(1, self.holds if word == HOLDS else self.in_part):.0%}"
        )

    def __str__(self) -> str:
        return f"the mean at most {self.holds:g} (in part {self.in_part:g})"


@dataclass(frozen=True)
class AtMost:
    """Every number is at most `bound`; in part if some are. What is bounded is said in the measured text."""

    bound: float = 1.0

    def word(self, measured: Measured) -> str:
        """By the share of numbers that keep the bound."""
        kept = measured.runs <= self.bound
        return HOLDS if kept.all() else IN_PART if kept.any() else FAILS

    def effect(self, measured: Measured) -> str:
        """The largest, which is the one that counts."""
        return f"largest {np.max(measured.runs):.3g}"

    def by_chance(self, word: str, measured: Measured) -> str:
        """A bound is kept or it is not: there is no chance in it."""
        return ""

    def __str__(self) -> str:
        return f"all at most {self.bound:g} (in part: some)"


@dataclass(frozen=True)
class Every:
    """True (1) in every run, or in `in_part` of them. chance is that of one run in which nothing is true but luck."""

    in_part: float = 0.5
    chance: float = 0.5

    def word(self, measured: Measured) -> str:
        """By the share of runs."""
        share = float(np.mean(measured.runs > 0.5))
        return HOLDS if share == 1 else IN_PART if share >= self.in_part else FAILS

    def effect(self, measured: Measured) -> str:
        """The share of runs."""
        return share_interval(int((measured.runs > 0.5).sum()), len(measured.runs))

    def by_chance(self, word: str, measured: Measured) -> str:
        """Of runs that are right by luck alone."""
        if word == FAILS:
            return ""
        n = len(measured.runs)
        least = n if word == HOLDS else int(np.ceil(self.in_part * n))
        lucky = float(stats.binom.sf(least - 1, n, self.chance))
        return f"luck ({self.chance:.2g} a run) earns it or better in {rate(lucky)}"

    def __str__(self) -> str:
        return f"in every run (in part: in {self.in_part:.0%} of them)"


@dataclass(frozen=True)
class AboveControls:
    """Every run above every control; in part if half of the runs are."""

    in_part: float = 0.5

    def word(self, measured: Measured) -> str:
        """By the share of runs above the highest control."""
        _need_controls(measured)
        share = float(np.mean(measured.runs > np.nanmax(measured.controls)))
        return HOLDS if share == 1 else IN_PART if share >= self.in_part else FAILS

    def effect(self, measured: Measured) -> str:
        """The shift between the two, from the order of all differences (Hodges and Lehmann)."""
        return "shift " + shift_interval(measured.runs, measured.controls)

    def by_chance(self, word: str, measured: Measured) -> str:
        """Counted over all ways to deal out which are runs: at least so many of them above all controls."""
        if word == FAILS:
            return ""
        n, m = len(measured.runs), len(measured.controls)
        least = n if word == HOLDS else int(np.ceil(self.in_part * n))
        # the `least` highest of all are runs: each deal is as likely as any other
        return f"names dealt out at random earn it or better in {rate(comb(n + m - least, m) / comb(n + m, m))}"

    def __str__(self) -> str:
        return f"every run above every control (in part: {self.in_part:.0%} of them)"


@dataclass(frozen=True)
class Apart:
    """Every run at `threshold` or above and every control below it, fixed before looking.

    In part if half of the runs are there, and more often than the controls (Fisher's exact test, one-sided, 5 %). What
    could not be measured in a run (NaN) counts as not there. unit and scale say how the threshold is told; sightings
    are 1 where something is seen and 0 where it is not.
    """

    threshold: float = 0.5
    unit: str = ""
    scale: float = 1.0
    sightings: bool = False

    def word(self, measured: Measured) -> str:
        """By how many are there."""
        _need_controls(measured)
        return self._word(*self._there(measured))

    def effect(self, measured: Measured) -> str:
        """In how many of each, and the shift between the two."""
        here, n, there, m = self._there(measured)
        text = f"{share_interval(here, n)} against {share_interval(there, m)}"
        if self.sightings or not all(np.isfinite(x).any() for x in (measured.runs, measured.controls)):
            return text
        return f"{text}, shift {shift_interval(self.scale * measured.runs, self.scale * measured.controls)}"

    def by_chance(self, word: str, measured: Measured) -> str:
        """At the rate, the same in runs and controls, at which the word is earned most often."""
        if word == FAILS:
            return ""
        _, n, _, m = self._there(measured)
        enough = (HOLDS,) if word == HOLDS else (HOLDS, IN_PART)
        earned = [(i, j) for i in range(n + 1) for j in range(m + 1) if self._word(i, n, j, m) in enough]
        often = np.linspace(0, 1, 201)
        most = np.max(sum(stats.binom.pmf(i, n, often) * stats.binom.pmf(j, m, often) for i, j in earned))
        return (
            f"runs and controls that are there equally often earn it or better in at most {max(float(most), 0.001):.1%}"
        )

    def __str__(self) -> str:
        if self.sightings:
            return "seen in every run and in no control (in part: in half of the runs, and more often than in controls)"
        level = f"{self.scale * self.threshold:g}{self.unit}"
        return f"every run at {level} or above, every control below (in part: half of the runs, and more often than controls)"

    def _there(self, measured: Measured) -> tuple[int, int, int, int]:
        runs, controls = measured.runs, measured.controls
        return int((runs >= self.threshold).sum()), len(runs), int((controls >= self.threshold).sum()), len(controls)

    def _word(self, here: int, n: int, there: int, m: int) -> str:
        if here == n and there == 0:
            return HOLDS
        more = stats.hypergeom.sf(here - 1, n + m, here + there, n) <= 0.05  # Fisher's exact test
        return IN_PART if 2 * here >= n and more else FAILS


@dataclass(frozen=True)
class SeenOnlyInRuns:
    """Seen (finite) in every run and in no control; in part if in half of the runs and in no control."""

    def word(self, measured: Measured) -> str:
        """By what was seen where."""
        _need_controls(measured)
        here, there = np.isfinite(measured.runs), np.isfinite(measured.controls)
        if there.any():
            return FAILS
        return HOLDS if here.all() else IN_PART if here.mean() >= 0.5 else FAILS

    def effect(self, measured: Measured) -> str:
        """In how many of each."""
        shares = (share_interval(int(np.isfinite(x).sum()), len(x)) for x in (measured.runs, measured.controls))
        return " against ".join(shares)

    def by_chance(self, word: str, measured: Measured) -> str:
        """At the rate of sightings, the same in runs and controls, at which the word is earned most often."""
        if word == FAILS:
            return ""
        n, m, often = len(measured.runs), len(measured.controls), np.linspace(0, 1, 1001)
        least = n if word == HOLDS else int(np.ceil(n / 2))
        most = float(np.max(stats.binom.sf(least - 1, n, often) * (1 - often) ** m))
        return f"sightings that are as frequent in both earn it or better in at most {max(most, 0.001):.1%}"

    def __str__(self) -> str:
        return "seen in every run and in no control (in part: in half of the runs and in no control)"


@dataclass(frozen=True)
class Marks:
    """A sign falls on a known time, as a ratio to it (NaN: none near it).

    Holds if all are within `tolerance`; in part if half are near, and more than signs strewn at random would be in 5 %
    of cases: a curve that has peaks everywhere marks nothing. Controls are the ratios of as many signs so strewn.
    """

    tolerance: float

    def word(self, measured: Measured) -> str:
        """By how many are seen, and how far off they are."""
        near = np.isfinite(measured.runs)
        if near.all() and (np.abs(measured.runs - 1) <= self.tolerance).all():
            return HOLDS
        return IN_PART if near.mean() >= 0.5 and self._strewn(IN_PART, measured) < 0.05 else FAILS

    def effect(self, measured: Measured) -> str:
        """Where they fall."""
        near = measured.runs[np.isfinite(measured.runs)]
        return f"{share_interval(len(near), len(measured.runs))} near, at {mean_interval(near, 2)} of the time"

    def by_chance(self, word: str, measured: Measured) -> str:
        """Of signs strewn at random."""
        strewn = rate(self._strewn(IN_PART if word == FAILS else word, measured))
        what = "as many are within it" if word == HOLDS else "as many are near"
        return f"of as many signs strewn at random, {what} in {strewn} of cases (runs taken as independent)"

    def __str__(self) -> str:
        return f"within {self.tolerance:.0%} of every time in every run (in part: near half of them, and not by chance)"

    def _strewn(self, word: str, measured: Measured) -> float:
        """How often strewn signs do as well: all within the tolerance, or as many near."""
        if not len(measured.controls):
            raise ValueError("this rule needs signs strewn at random as controls, and there are none")
        near = np.isfinite(measured.controls)
        hit = near & (np.abs(measured.controls - 1) <= self.tolerance) if word == HOLDS else near
        count = len(measured.runs) if word == HOLDS else int(np.isfinite(measured.runs).sum())
        return float(stats.binom.sf(count - 1, len(measured.runs), hit.mean()))


@dataclass(frozen=True)
class Together:
    """Several rules over the same numbers, in stretches of equal length: holds if all do, not at all if none does."""

    rules: Sequence[Rule]
    parts: Sequence[str]

    def word(self, measured: Measured) -> str:
        """The word of the whole: holding in one part only is holding in part."""
        words = [rule.word(part) for rule, part in self._parts(measured)]
        if all(word == HOLDS for word in words):
            return HOLDS
        return FAILS if all(word == FAILS for word in words) else IN_PART

    def effect(self, measured: Measured) -> str:
        """Of each part."""
        effects = (rule.effect(part) for rule, part in self._parts(measured))
        return "; ".join(f"{name}: {effect}" for name, effect in zip(self.parts, effects, strict=True))

    def by_chance(self, word: str, measured: Measured) -> str:
        """Of each part, for its own word."""
        rates = (rule.by_chance(rule.word(part), part) for rule, part in self._parts(measured))
        return "" if word == FAILS else "; ".join(filter(None, dict.fromkeys(rates)))

    def __str__(self) -> str:
        return "; ".join(dict.fromkeys(map(str, self.rules)))

    def _parts(self, measured: Measured) -> list[tuple[Rule, Measured]]:
        n = len(self.rules)
        runs = np.split(measured.runs, n)
        controls = np.split(measured.controls, n) if len(measured.controls) else [measured.controls] * n
        return [(r, Measured("", a, b, measured.n)) for r, a, b in zip(self.rules, runs, controls, strict=True)]


def _mean(measured: Measured, values: np.ndarray, digits: int) -> str:
    """The mean, with an interval where the numbers are those of runs: settings are not drawn from anything."""
    if measured.n:
        return ", ".join(f"{value:.{digits}f}" for value in values)
    return mean_interval(values, digits)


def _need_controls(measured: Measured) -> None:
    if not np.isfinite(measured.controls).any() and not len(measured.controls):
        raise ValueError("this rule compares runs with controls, and there are none")
