"""Everything a record is compared with: baselines and shapes, whitened under every law of noise that may be its."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants
from probes.series.transitions.baselines import Columns, smooth_baselines
from probes.series.transitions.cones import Cone, cone_of, decay_columns, hinges, straight_lines, warm_up_columns
from probes.series.transitions.laws import AR1, Law, is_uneven, walk_in_time
from probes.series.transitions.null_tails import tail
from probes.series.transitions.shapes import ShapeGrid, steps_and_bumps

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Model:
    """One baseline under one law: a cone (convex, sign 1, or concave, -1) or the span of some columns (sign 0)."""

    law: Law
    sign: int
    basis: Columns  # orthonormal: of the span; of the straight lines of a cone
    cone: Cone | None
    log_volume: float
    charge: float  # taken off the log likelihood: level of the law, and BIC for the columns

    def log_likelihood(self, left: Any, n: int) -> Any:
        """Of what is left of the whitened record."""
        return self.charge - n / 2 * np.log(left)


class Fits:
    """All baselines and shapes for one schedule of steps, ready for any number of records.

    chance is how often the likelihood ratio exceeds a number where nothing happens and the noise has some law;
    chance_if_told the same where it is known to have that law, None if nobody drew it. warm_up are decays under a
    learning rate that still grows, which count beside the others at a cost in log likelihood.
    """

    def __init__(
        self,
        at: Series,
        laws: Sequence[Law],
        grid: ShapeGrid,
        chance: Callable[[float, Law], float],
        chance_if_told: Callable[[float, Law], float] | None = None,
        warm_up: Columns | None = None,
        warm_up_cost: float = 0.0,
    ) -> None:
        self.at, self.n, self.laws, self.grid = at, len(at), tuple(laws), grid
        self._chance, self._chance_if_told = chance, chance_if_told
        self.shapes, self.courses = grid.shapes, grid.courses
        self.columns = decay_columns(at)
        self.decays = [(self.columns, 0.0)]
        if warm_up is not None and warm_up.shape[1]:
            self.decays.append((np.hstack([self.columns, warm_up]), warm_up_cost))
        self.cones = 2 * len(self.decays)
        self.hinges = hinges(at, np.arange(1, self.n - 1))
        self.white = [law.whiten(self.courses) for law in self.laws]
        self.lengths = [(white**2).sum(0) for white in self.white]
        self.white_hinges = [law.whiten(self.hinges) for law in self.laws]
        self._set_baselines([])

    def beside(self, known: Columns) -> "Fits":
        """The same with more columns in every baseline: the courses of changes found before, say."""
        other = copy(self)
        other._set_baselines([*self._known, known])
        return other

    def _set_baselines(self, more: list[Columns]) -> None:
        self._known = more
        self.lines = np.column_stack([straight_lines(self.at), *more])
        self.splines = [np.column_stack([columns, *more]) for columns in smooth_baselines(self.at)]
        self.models = [self.models_under(law) for law in self.laws]
        decays = [self.columns[:, [k]] for k in range(1, self.columns.shape[1], 3)]
        self.simple = [[self._simple(law, [])] + [self._simple(law, [one]) for one in decays] for law in self.laws]

    def models_under(self, law: Law, hinge: Columns | None = None) -> list[Model]:
        """Convex and concave, with a hinge if there is one, and the smooth ones."""
        level, bic = law.level, 0.5 * np.log(self.n)
        lines = law.whiten(self.lines)
        volume = float(np.log(np.abs(np.diag(np.linalg.qr(lines)[1]))).sum())
        found = []
        for columns, cost in self.decays:
            cone = cone_of(lines, law.whiten(columns if hinge is None else np.hstack([columns, hinge])))
            found += [Model(law, sign, cone.lines, cone, volume, level - cost) for sign in (1, -1)]
        for spline in self.splines if hinge is None else []:
            q, r = np.linalg.qr(law.whiten(spline))
            extra = spline.shape[1] - self.lines.shape[1]
            volume = float(np.log(np.abs(np.diag(r))).sum())
            found.append(Model(law, 0, q, None, volume, level - bic * extra))
        return found

    def _simple(self, law: Law, more: list) -> Columns:
        return np.linalg.qr(law.whiten(np.column_stack([self.lines, *more])))[0]

    def p_value(self, statistic: float, without: np.ndarray, gains: np.ndarray) -> float:
        """The chance of T where nothing happens, over the laws; see `likelihood.py`.

        without is the log posterior of the laws without a shape, gains how much likelier the record is with one under
        each of them.
        """
        chances = np.array([self._chance(statistic, law) for law in self.laws])
        p_value = float(_weights(without) @ chances)
        if self._chance_if_told is not None:
            told = np.array([self._chance_if_told(2 * gain, law) for gain, law in zip(gains, self.laws, strict=True)])
            p_value = 2 * min(p_value, float(_weights(without + short_constants.LIKELY_WITH_SHAPE * gains) @ told))
        return min(1.0, p_value)


def _weights(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def fits_for(steps: Series, rho: float | None = None, *, size: Series | None = None, is_quick: bool = False) -> Fits:
    """The fits for the values of a short record at these steps, made once for all records of a run.

    Unless the noise of this one has a size of its own at every value. If it is to be quick, no walk in time is among
    its laws.
    """
    if size is not None:
        return _fits_for_values(np.asarray(steps, dtype=np.float64), rho, is_quick, size)
    return fits_for_values(np.ascontiguousarray(steps, dtype=np.float64).tobytes(), rho, is_quick)


@lru_cache(maxsize=4)
def fits_for_values(steps: bytes, rho: float | None, is_quick: bool = False) -> Fits:
    """The fits for the steps in these bytes (float64): made once for all records of a run."""
    return _fits_for_values(np.frombuffer(steps), rho, is_quick)


def _fits_for_values(at: Series, rho: float | None, is_quick: bool, size: Series | None = None) -> Fits:
    n, rhos = len(at), short_constants.RHOS if rho is None else (rho,)
    gaps = np.diff(at)
    is_even = bool(gaps.max() < short_constants.EVEN_GAPS * np.median(gaps))

    few = 1.0 if is_even else max(1.0, (short_constants.FEW_UNEVEN / n) ** short_constants.FEW_POWER)

    def chance(statistic: float, law: Law, *, is_told: bool = rho is not None) -> float:
        return few * tail(statistic, n, law.memory, is_told=is_told, is_even=is_even)

    if_told = partial(chance, is_told=True) if rho is None else None
    warm_up = warm_up_columns(at, short_constants.WARM_UP), short_constants.WARM_UP_COST
    laws: list[Law] = [AR1(one, size) for one in rhos]
    if rho is None and not is_quick and is_uneven(at):
        laws += [walk_in_time(at, white) for white in short_constants.WALK_UNDER_NOISE]
    return Fits(at, laws, steps_and_bumps(n), chance, if_told, *warm_up)
