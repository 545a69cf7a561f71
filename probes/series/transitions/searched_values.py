"""Where a usual drop would be seen in a short record: the likelihood ratio of one, at the noise and rho that are there.

How much a usual drop at each place gains over every baseline depends on the steps alone and is worked out once for a
schedule; the noise left when what was found is taken off, and its rho, say whether that is enough.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.laws import Law
from probes.series.transitions.likelihood import ChangeTest
from probes.series.transitions.models import Fits, fits_for_values
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
    """Drops at many places: what the baselines leave of each without a step and with one [laws, models, places]."""

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

    def are_seen(self, noise: Any, law: int, alpha: float) -> np.ndarray:
        """Whether each has p < alpha in nine of ten draws of noise of this size, at each or everywhere, and law."""
        fits, n = self.fits, self.fits.n
        logs, best, posterior = [], [], []
        for j, unit in enumerate(self.spreads(law)):
            spread = unit * noise**2
            charge = np.array([model.charge for model in fits.models[j]])[:, None]
            logs.append(charge - n / 2 * np.log(self.without[j] + spread))
            best.append(charge - n / 2 * np.log(self.with_step[j] + spread))
            volume = np.array([model.log_volume for model in fits.models[j]])[:, None]
            columns = np.array([model.basis.shape[1] for model in fits.models[j]])[:, None]
            posterior.append(fits.laws[j].level - (n - columns) / 2 * np.log(self.without[j] + spread) - volume)
        without, with_step, chance = (np.array(one) for one in (logs, best, posterior))
        worst = _in_most_draws(2 * (with_step.max((0, 1)) - without.max((0, 1))))
        gains = _in_most_draws(2 * (with_step.max(1) - without.max(1))) / 2
        model = without.max(0).argmax(0)
        return np.array([
            fits.p_value(worst[k], chance[:, model[k], k], gains[:, k]) < alpha for k in range(len(self.centres))
        ])  # fmt: skip


def _in_most_draws(statistic: np.ndarray) -> np.ndarray:
    """What it exceeds in nine of ten draws of the noise."""
    return np.maximum(0.0, np.sqrt(np.maximum(0.0, statistic)) - constants.SURE_OF_VALUES) ** 2


@lru_cache(maxsize=4)
def _usual_drops(steps: bytes, rho: float | None) -> _UsualDrops:
    fits = fits_for_values(steps, rho)
    at, n = fits.at, fits.n
    edge = short_constants.SEARCHED_EDGE
    count = min(short_constants.MOST_PLACES, 2 * n)
    centres = np.interp(np.linspace(edge, n - 1 - edge, count), np.arange(n), at)
    centres = centres[centres > 0]
    away = np.clip((at[:, None] - centres) / (constants.USUAL_WIDTH * centres), -700, 700)
    drops = 1 / (1 + np.exp(away))
    without, with_step = [], []
    steps_only = [k for k, shape in enumerate(fits.shapes) if shape.kind == "step"]
    for j, law in enumerate(fits.laws):
        white, courses = law.whiten(drops), fits.white[j][:, steps_only]
        nothing, something = [], []
        simple = np.min([_left_with_best(basis, white, courses) for basis in fits.simple[j]], axis=0)
        for model in fits.models[j]:
            rest = white - model.basis @ (model.basis.T @ white)
            if model.cone is None:
                nothing.append((rest**2).sum(0))
                something.append(_left_with_best(model.basis, white, courses))
            else:
                nothing.append(np.array([model.cone.fit(one, model.sign)[0] for one in rest.T]))
                something.append(np.minimum(simple, nothing[-1]))
        without.append(nothing)
        with_step.append(something)
    return _UsualDrops(fits, centres, np.array(without), np.array(with_step))


def _left_with_best(basis: np.ndarray, white: np.ndarray, courses: np.ndarray) -> np.ndarray:
    rest, beyond = white - basis @ (basis.T @ white), courses - basis @ (basis.T @ courses)
    length = (beyond**2).sum(0)
    enough = length > short_constants.BEYOND_BASELINE**2 * (courses**2).sum(0)
    gain = (beyond.T @ rest) ** 2 / np.where(enough, length, np.inf)[:, None]
    return np.maximum((rest**2).sum(0) - gain.max(0), 0.0)


def _runs(centres: Series, seen: np.ndarray) -> Stretches:
    """Runs of places that are seen; single ones, and single gaps, are smoothed away."""
    from scipy.ndimage import median_filter

    seen = median_filter(seen.astype(int), 3, mode="nearest") > 0
    padded = np.concatenate(([False], seen, [False])).astype(int)
    first, last = np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1) - 1
    return [(float(centres[i]), float(centres[j])) for i, j in zip(first, last, strict=True) if j > i]
