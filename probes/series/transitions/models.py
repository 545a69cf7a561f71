"""Everything a record is compared with: baselines and shapes, whitened under every law of noise that may be its."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants
from probes.series.transitions.baselines import Columns, smooth_baselines
from probes.series.transitions.cones import Cone, cone_of, decay_columns, hinges, straight_lines
from probes.series.transitions.laws import AR1, Law
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

    chance is how often the likelihood ratio exceeds a number where nothing happens and the noise has some law. In the
    first warm_up of the record decays may set out as t^2.
    """

    def __init__(
        self,
        at: Series,
        laws: Sequence[Law],
        grid: ShapeGrid,
        chance: Callable[[float, Law], float],
        warm_up: float = 0.0,
    ) -> None:
        self.at, self.n, self.laws, self.grid, self._chance = at, len(at), tuple(laws), grid, chance
        self.shapes, self.courses = grid.shapes, grid.courses
        self.columns = decay_columns(at, warm_up)
        self.hinges = hinges(at, np.arange(1, self.n - 1))
        self.white = [law.whiten(self.courses) for law in self.laws]
        self.white_hinges = [law.whiten(self.hinges) for law in self.laws]
        self._set_baselines([])

    def beside(self, known: Columns) -> "Fits":
        """The same with more columns in every baseline: the courses of changes found before."""
        other = copy(self)
        other._set_baselines([known])
        return other

    def _set_baselines(self, more: list[Columns]) -> None:
        self.lines = np.column_stack([straight_lines(self.at), *more])
        self.splines = [np.column_stack([columns, *more]) for columns in smooth_baselines(self.at)]
        self.models = [self.models_under(law, self.columns) for law in self.laws]
        decays = [self.columns[:, [k]] for k in range(1, self.columns.shape[1], 3)]
        self.simple = [[self._simple(law, [])] + [self._simple(law, [one]) for one in decays] for law in self.laws]

    def models_under(self, law: Law, columns: Columns, *, splines: bool = True) -> list[Model]:
        """Convex, concave, and the smooth ones."""
        level, bic = law.level, 0.5 * np.log(self.n)
        lines = law.whiten(self.lines)
        cone = cone_of(lines, law.whiten(columns))
        volume = float(np.log(np.abs(np.diag(np.linalg.qr(lines)[1]))).sum())
        found = [Model(law, sign, cone.lines, cone, volume, level) for sign in (1, -1)]
        for spline in self.splines if splines else []:
            q, r = np.linalg.qr(law.whiten(spline))
            extra = spline.shape[1] - self.lines.shape[1]
            volume = float(np.log(np.abs(np.diag(r))).sum())
            found.append(Model(law, 0, q, None, volume, level - bic * extra))
        return found

    def _simple(self, law: Law, more: list) -> Columns:
        return np.linalg.qr(law.whiten(np.column_stack([self.lines, *more])))[0]

    def p_value_at(self, statistic: float, log_posterior: np.ndarray) -> float:
        """The chance of T where nothing happens, over a posterior of the laws."""
        weights = np.exp(log_posterior - log_posterior.max())
        chances = np.array([self._chance(statistic, law) for law in self.laws])
        return min(1.0, float(weights @ chances / weights.sum()))


def fits_for(steps: Series, rho: float | None = None) -> Fits:
    """The fits for the values of a short record at these steps, made once for all records of a run."""
    return fits_for_values(np.ascontiguousarray(steps, dtype=np.float64).tobytes(), rho)


@lru_cache(maxsize=4)
def fits_for_values(steps: bytes, rho: float | None) -> Fits:
    """The fits for the steps in these bytes (float64): made once for all records of a run."""
    at = np.frombuffer(steps)
    n, rhos = len(at), short_constants.RHOS if rho is None else (rho,)
    safety = max(short_constants.SAFETY, (short_constants.SAFETY_VALUES / n) ** 2)

    def chance(statistic: float, law: Law) -> float:
        return safety * tail(statistic, n, law.rho, is_told=rho is not None)

    return Fits(at, [AR1(one) for one in rhos], steps_and_bumps(n), chance)
