"""Everything a short record is compared with, for one schedule of steps: baselines at every rho, shapes, whitened."""

from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants
from probes.series.transitions.baselines import Columns, smooth_baselines
from probes.series.transitions.cones import Cone, cone_of, decay_columns, hinges, straight_lines
from probes.series.transitions.null_tails import tail
from probes.series.transitions.shapes import extents_of, shapes_for, whitened

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Model:
    """One baseline at one rho: a cone (convex, sign 1, or concave, -1) or the span of some columns (sign 0)."""

    rho: float
    sign: int
    basis: Columns  # orthonormal: of the span; of the straight lines of a cone
    cone: Cone | None
    log_volume: float
    charge: float  # taken off the log likelihood: level of rho, and BIC for the columns

    def log_likelihood(self, left: Any, n: int) -> Any:
        """Of what is left of the whitened record."""
        return self.charge - n / 2 * np.log(left)


class Fits:
    """All baselines and shapes for one schedule of steps, ready for any number of records."""

    def __init__(self, steps: Series, rho: float | None = None, weights: Series | None = None) -> None:
        self.at, self.n, self.is_told = steps, len(steps), rho is not None
        self.weights = np.ones(self.n) if weights is None else weights
        self.rhos = short_constants.RHOS if rho is None else (rho,)
        self.columns = decay_columns(steps)
        self.hinges = hinges(steps, np.arange(1, self.n - 1))
        self.shapes = shapes_for(self.n)
        self.courses = np.column_stack([shape(self.n) for shape in self.shapes])
        self.white = [self.whiten(rho, self.courses) for rho in self.rhos]
        self.white_hinges = [self.whiten(rho, self.hinges) for rho in self.rhos]
        self.extents = extents_of(self.shapes, self.n)
        self.are_steps = np.array([shape.kind == "step" for shape in self.shapes])
        self._set_baselines([])

    def beside(self, known: Columns) -> "Fits":
        """The same with more columns in every baseline: the courses of changes found before."""
        other = copy(self)
        other._set_baselines([known])
        return other

    def _set_baselines(self, more: list[Columns]) -> None:
        self.lines = np.column_stack([straight_lines(self.at), *more])
        self.splines = [np.column_stack([columns, *more]) for columns in smooth_baselines(self.at)]
        self.models = [self.models_at(rho, self.columns) for rho in self.rhos]
        decays = [self.columns[:, [k]] for k in range(1, self.columns.shape[1], 3)]
        self.simple = [[self._simple(rho, [])] + [self._simple(rho, [one]) for one in decays] for rho in self.rhos]

    def whiten(self, rho: float, series: np.ndarray) -> np.ndarray:
        """A record or columns, of unit weight and as if their noise had this rho."""
        return whitened(rho, series * (self.weights if series.ndim == 1 else self.weights[:, None]))

    def models_at(self, rho: float, columns: Columns, *, splines: bool = True) -> list[Model]:
        """Convex, concave, and the smooth ones."""
        level, bic = 0.5 * np.log(1 - rho**2), 0.5 * np.log(self.n)
        lines = self.whiten(rho, self.lines)
        cone = cone_of(lines, self.whiten(rho, columns))
        volume = float(np.log(np.abs(np.diag(np.linalg.qr(lines)[1]))).sum())
        found = [Model(rho, sign, cone.lines, cone, volume, level) for sign in (1, -1)]
        for spline in self.splines if splines else []:
            q, r = np.linalg.qr(self.whiten(rho, spline))
            extra = spline.shape[1] - self.lines.shape[1]
            volume = float(np.log(np.abs(np.diag(r))).sum())
            found.append(Model(rho, 0, q, None, volume, level - bic * extra))
        return found

    def _simple(self, rho: float, more: list) -> Columns:
        return np.linalg.qr(self.whiten(rho, np.column_stack([self.lines, *more])))[0]

    def p_value_at(self, statistic: float, log_posterior: np.ndarray) -> float:
        """The chance of T where nothing happens, over a posterior of rho."""
        chance = np.exp(log_posterior - log_posterior.max())
        tails = [tail(statistic, self.n, rho, is_told=self.is_told) for rho in self.rhos]
        safety = max(short_constants.SAFETY, (short_constants.SAFETY_VALUES / self.n) ** 2)
        return min(1.0, safety * float(chance @ np.array(tails) / chance.sum()))


def fits_for(steps: Series, rho: float | None = None) -> Fits:
    """The fits for these steps, made once for all records of a run."""
    return searching_fits(np.ascontiguousarray(steps, dtype=np.float64).tobytes(), rho)


@lru_cache(maxsize=4)
def searching_fits(steps: bytes, rho: float | None) -> Fits:
    """The fits for the steps in these bytes (float64): made once for all records of a run."""
    return Fits(np.frombuffer(steps), rho)
