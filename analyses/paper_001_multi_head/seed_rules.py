"""Rules about seeds: whether they differ more and more, and whether something happens in some of them and not in others."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from analyses.tools.claims import Measured
from analyses.tools.intervals import share_interval
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART

_DRAWS = 4000


@dataclass(frozen=True)
class SpreadRises:
    """The numbers of `groups` groups, one after the other, each of the same runs in the same order.

    Holds if the spread rises at every step and the 95 % interval of each rise (runs drawn again, whole) is above zero;
    in part if that is so from the first group to the last alone. relative: the standard deviation by the mean.
    """

    groups: int
    relative: bool

    def word(self, measured: Measured) -> str:
        """By the intervals of the rises."""
        drawn = self._drawn(measured)
        if (np.percentile(np.diff(drawn, axis=1), 2.5, axis=0) > 0).all():
            return HOLDS
        return IN_PART if np.percentile(drawn[:, -1] - drawn[:, 0], 2.5) > 0 else FAILS

    def effect(self, measured: Measured) -> str:
        """The spread of each group."""
        low, high = np.percentile(self._drawn(measured), [2.5, 97.5], axis=0)
        spreads = self._spreads(self._table(measured)[None])[0]
        return "spread " + ", ".join(f"{x:.3g} [{a:.3g}, {b:.3g}]" for x, a, b in zip(spreads, low, high, strict=True))

    def by_chance(self, word: str, measured: Measured) -> str:
        """One step alone would have to look like a rise."""
        return "" if word == FAILS else "spreads that are alike earn it in at most 2.5% (one step would have to)"

    def __str__(self) -> str:
        kind = "standard deviation / mean" if self.relative else "standard deviation"
        return f"{kind} rises at each step beyond its 95 % interval (in part: from the first to the last)"

    def _table(self, measured: Measured) -> np.ndarray:
        """[groups, runs], without runs in which something is missing."""
        table = measured.runs.reshape(self.groups, -1)
        return table[:, np.isfinite(table).all(0)]

    def _drawn(self, measured: Measured) -> np.ndarray:
        """Spreads of runs drawn again: [draws, groups]."""
        table = self._table(measured)
        chosen = np.random.default_rng(0).integers(0, table.shape[1], (_DRAWS, table.shape[1]))
        return self._spreads(table[:, chosen].swapaxes(0, 1))

    def _spreads(self, tables: np.ndarray) -> np.ndarray:
        """Of [draws, groups, runs]."""
        spread = tables.std(-1)
        return spread / tables.mean(-1) if self.relative else spread


@dataclass(frozen=True)
class BySeed:
    """True (1) in some runs and not in others: the 95 % interval of the share lies within `rare` of neither end.

    In part if it happens in some and not in others, but too rarely to say so.
    """

    rare: float = 0.05

    def word(self, measured: Measured) -> str:
        """By the interval of the share."""
        count, of = int((measured.runs > 0.5).sum()), len(measured.runs)
        low, high = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
        if low > self.rare and high < 1 - self.rare:
            return HOLDS
        return IN_PART if 0 < count < of else FAILS

    def effect(self, measured: Measured) -> str:
        """The share of runs."""
        return share_interval(int((measured.runs > 0.5).sum()), len(measured.runs))

    def by_chance(self, word: str, measured: Measured) -> str:
        """By the level of the interval."""
        return (
            f"what happens in less than {self.rare:.0%} of seeds, or in all but that, earns it in at most 2.5%"
            if word == HOLDS
            else ""
        )

    def __str__(self) -> str:
        return f"in more than {self.rare:.0%} and in less than {1 - self.rare:.0%} of seeds, by its 95 % interval (in part: in some)"
