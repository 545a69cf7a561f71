"""Where a usual drop would be seen in a short record: the likelihood ratio of one, at the noise and rho that are there.

How much of a usual drop at each place every baseline leaves, with and without a step, depends on the steps alone and is
worked out once for a schedule, hinges and wild values included: between powers of two a drop may be no more than that.
The noise left when what was found is taken off, and its rho, say whether the rest is enough.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.fitted import basis_with, beyond_basis, finest, left_with, left_without
from probes.series.transitions.laws import Law
from probes.series.transitions.likelihood import ChangeTest
from probes.series.transitions.models import Fits, Model, fits_for_values
from probes.series.transitions.searched import Stretches

Series = Float64[np.ndarray, " n"]


def searched_by_values(at: Series, last: ChangeTest, alpha: float, rho: float | None) -> Stretches:
    """Where a usual drop has p < alpha in nine of ten draws."""
    usual = _usual_drops(np.ascontiguousarray(at).tobytes(), rho)
    law = last.model.law
    size = 1.0 if law.size is None else np.interp(usual.centres, at, law.size)
    seen = usual.are_seen(np.maximum(last.noise * size, constants.ROUNDING), usual.number_of(law), alpha)
    return _runs(usual.centres, seen)


@dataclass(frozen=True)
class _UsualDrops:
    """Drops at many places, and what baselines leave of each [laws, models, left out, places], with a step or without.

    Beside a step they may do without none or one wild value, else without none, one or two.
    """

    fits: Fits
    centres: Series
    without: np.ndarray
    with_step: np.ndarray
    kept: dict[int, np.ndarray] = field(default_factory=dict)

    def number_of(self, law: Law) -> int:
        """Of the laws of this schedule the one that a record has, but for the size."""
        alike = [one for one in self.fits.laws if type(one) is type(law)]
        return self.fits.laws.index(min(alike, key=lambda one: abs(one.memory - law.memory)))

    def spreads(self, law: int) -> np.ndarray:
        """Sum of squares of noise of one law and of unit variance, whitened as if it had each of the others."""
        if law not in self.kept:
            whiten = [one.whiten(np.eye(self.fits.n)) for one in self.fits.laws]
            noise = np.linalg.inv(whiten[law]) / self.fits.laws[law].sd
            self.kept[law] = np.array([((one @ noise) ** 2).sum() for one in whiten])
        return self.kept[law]

    def statistics(self, noise: Any, law: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What drops show, on average, under noise of this law and of this size, at each place or everywhere.

        T [places]; by law [laws, places] twice the gain in log likelihood, and the log posterior without a step.
        """
        fits, n = self.fits, self.fits.n
        without, with_step, posterior = [], [], []
        cost = short_constants.WILD_COST * np.arange(self.without.shape[2])[:, None]
        for j, unit in enumerate(self.spreads(law)):
            spread = unit * noise**2
            charge, volume, columns = (
                np.array(one)[:, None, None]
                for one in zip(*((m.charge, m.log_volume, m.basis.shape[1]) for m in fits.models[j]), strict=True)
            )
            lefts = [np.log(one[j] + spread) for one in (self.without, self.with_step)]
            logs = [(charge - n / 2 * left - cost[: left.shape[1]]).max(1) for left in lefts]
            without.append(logs[0])
            with_step.append(logs[1])
            posterior.append((fits.laws[j].level - (n - columns) / 2 * lefts[0][:, :1] - volume)[:, 0])
        nothing, something, chance = (np.array(one) for one in (without, with_step, posterior))
        likeliest = nothing.max(0).argmax(0)
        chance = np.take_along_axis(chance, likeliest[None, None], 1)[:, 0]
        return 2 * (something.max((0, 1)) - nothing.max((0, 1))), 2 * (something.max(1) - nothing.max(1)), chance

    def are_seen(self, noise: Any, law: int, alpha: float) -> np.ndarray:
        """Whether each has p < alpha in nine of ten draws of such noise."""
        statistic, by_law, posterior = self.statistics(noise, law)
        least, gains = _in_most_draws(statistic), _in_most_draws(by_law) / 2
        places = range(len(self.centres))
        return np.array([self.fits.p_value(least[k], posterior[:, k], gains[:, k]) < alpha for k in places])


def _in_most_draws(statistic: np.ndarray) -> np.ndarray:
    """What it exceeds in nine of ten draws of the noise."""
    return np.maximum(0.0, np.sqrt(np.maximum(0.0, statistic)) - constants.SURE_OF_VALUES) ** 2


@lru_cache(maxsize=4)
def _usual_drops(steps: bytes, rho: float | None) -> _UsualDrops:
    fits = fits_for_values(steps, rho)
    at, n = fits.at, fits.n
    centres = _places(at)
    away = np.clip((at[:, None] - centres) / (constants.USUAL_WIDTH * centres), -700, 700)
    drops = 1 / (1 + np.exp(away))
    without, with_step = [], []
    steps_only = [k for k, shape in enumerate(fits.shapes) if shape.kind == "step"]
    for j, law in enumerate(fits.laws):
        white, unit = law.whiten(drops), law.whiten(np.eye(n))
        likely = _likely_steps(fits, j, white, steps_only)
        nothing, something = [], []
        for model in fits.models[j]:
            bent = fits.white_hinges[j] if model.sign else None
            nothing.append(np.array([_left_of_drop(model, one, unit, bent) for one in white.T]).T)
            pairs = zip(white.T, likely, strict=True)
            something.append(np.array([_left_beside_step(model, one, step, unit) for one, step in pairs]).T)
        without.append(nothing)
        with_step.append(something)
    return _UsualDrops(fits, centres, np.array(without), np.array(with_step))


def _places(at: Series) -> Float64[np.ndarray, " places"]:
    """Places to ask about, as close together among the values as in ln t."""
    edge, values = short_constants.SEARCHED_EDGE, np.arange(len(at))
    count = min(short_constants.MOST_PLACES, 2 * len(at))
    inside = np.linspace(edge, len(at) - 1 - edge, 8 * len(at))
    fine = np.interp(inside, values, at)
    along = (inside - inside[0]) / (inside[-1] - inside[0])
    along += np.log(fine / fine[0]) / np.log(fine[-1] / fine[0])
    return np.interp(np.linspace(0, along[-1], count), along, fine)


def _left_of_drop(model: Model, white: Series, unit: np.ndarray, hinges: np.ndarray | None) -> list[float]:
    """What a baseline, with the hinge that suits, leaves of a drop: of all values, without a wild one, without two."""
    left, _, basis = left_without(model, white)
    rest = white - basis @ (basis.T @ white)
    if hinges is not None:
        beyond = np.maximum((hinges**2).sum(0) - ((basis.T @ hinges) ** 2).sum(0), 1e-9)
        along = model.sign * (hinges.T @ rest)
        hinge = hinges[:, int(np.where(along > 0, along**2 / beyond, 0.0).argmax())]
        bent, height = left_with(model, white, hinge)
        if model.sign * height > 0:
            left, bending = bent, basis_with(model, white, hinge)
            basis, rest = _with_column(bending, white - bending @ (bending.T @ white), hinge)
    found, near = [left], np.zeros(len(white), dtype=bool)
    along, spare = unit.T @ rest, (unit**2).sum(0) - ((basis.T @ unit) ** 2).sum(0)
    for _ in range(2):
        gains = np.where(near, 0.0, along**2 / np.maximum(spare, 1e-3))
        k = int(gains.argmax())
        near[max(0, k - 1) : k + 2] = True
        found.append(max(found[-1] - float(gains[k]), 0.0))
        beyond = beyond_basis(basis, unit[:, k])
        inside = unit.T @ beyond
        along, spare = along - inside * float(beyond @ rest), spare - inside**2
        basis, rest = np.column_stack([basis, beyond]), rest - beyond * float(beyond @ rest)
    return found


def _with_column(basis: np.ndarray, rest: Series, column: Series) -> tuple[np.ndarray, Series]:
    """A basis with one column more, and what it leaves."""
    beyond = beyond_basis(basis, column)
    return np.column_stack([basis, beyond]), rest - beyond * float(beyond @ rest)


def _left_beside_step(model: Model, white: Series, course: Series, unit: np.ndarray) -> list[float]:
    """What a baseline and a step leave of a drop: of all values, and without a wild one."""
    basis = basis_with(model, white, course)
    basis, rest = _with_column(basis, white - basis @ (basis.T @ white), course)
    left = float(rest @ rest)
    beyond = np.maximum((unit**2).sum(0) - ((basis.T @ unit) ** 2).sum(0), 1e-3)
    return [left, max(left - float(((unit.T @ rest) ** 2 / beyond).max()), 0.0)]


def _likely_steps(fits: Fits, j: int, white: np.ndarray, steps_only: list[int]) -> np.ndarray:
    """For each drop the whitened step that is found beside the simplest baselines [places, values]."""
    law, courses, lefts = fits.laws[j], fits.white[j][:, steps_only], []
    for basis in fits.simple[j]:
        rest, beyond = white - basis @ (basis.T @ white), courses - basis @ (basis.T @ courses)
        length = (beyond**2).sum(0)
        enough = length > short_constants.BEYOND_BASELINE**2 * (courses**2).sum(0)
        lefts.append((rest**2).sum(0) - (beyond.T @ rest) ** 2 / np.where(enough, length, np.inf)[:, None])
    left, likely = np.array(lefts), []
    for k, one in enumerate(white.T):
        basis, which = np.unravel_index(int(left[:, :, k].argmin()), left.shape[:2])
        shape = finest(fits.shapes[steps_only[which]], 1.0, law, one, fits.simple[j][basis])
        likely.append(law.whiten(shape(fits.n)))
    return np.array(likely)


def _runs(centres: Series, seen: np.ndarray) -> Stretches:
    """Runs of places that are seen; single ones, and single gaps, are smoothed away."""
    from scipy.ndimage import median_filter

    seen = median_filter(seen.astype(int), 3, mode="nearest") > 0
    padded = np.concatenate(([False], seen, [False])).astype(int)
    first, last = np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1) - 1
    return [(float(centres[i]), float(centres[j])) for i, j in zip(first, last, strict=True) if j > i]
