"""Whether a step down fits well enough at any of some places: the second test of `cliffs`, only as far as yes or no.

The fits are those of `cliffs._improvement`, many steps at a time, with two things left out. The means are whitened by
solving for them instead of by an inverse, which is the same to rounding. And the fit with the step is not made where
the residual r of the fit without it has r . s <= 0, s the whitened step: neither a step of positive height nor another
mixture of decays then gains anything (the conditions of Karush, Kuhn and Tucker).
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import cliffs, constants
from probes.series.transitions.blocks import Sums

Places = Float64[np.ndarray, " place"]
Steps = Float64[np.ndarray, " step"]

_AT_ONCE = 32
_ROUNDING = 1e-6


def has_step(sums: Sums, centres: Places, alpha: float) -> bool:
    """Whether the best step at these places has p < alpha, or another one has."""
    from scipy.special import stdtrit

    tail = min(0.5, alpha / cliffs._places_looked_at(sums))
    centre, width = _steps(np.log(centres))
    for begin in range(0, len(centre), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        for z, inflation in _improvements(sums, centre[some], width[some]):
            if z > 0 and z * (1 + _ROUNDING) > -stdtrit(cliffs._freedom(inflation), tail):
                return True
    return False


def _steps(log_centres: Places) -> tuple[Steps, Steps]:
    """Centres and widths of the steps that `cliffs._best_step` tries at these places."""
    centres = []
    for share in constants.STEP_WIDTHS:
        spacing = share / constants.CENTRES_PER_WIDTH
        centres.append(np.exp(np.unique(np.round(log_centres / spacing)) * spacing))
    centre = np.concatenate(centres)
    return centre, np.repeat(constants.STEP_WIDTHS, [len(some) for some in centres]) * centre


def _improvements(sums: Sums, centre: Steps, width: Steps) -> Iterator[tuple[float, float]]:
    """By how much each step improves the fit, in standard deviations; and the inflation of the noise at its scale."""
    reach = constants.WINDOW_WIDTHS * width
    low = np.maximum(np.maximum(constants.WINDOW_BEFORE * centre, centre - reach), sums.at[0])
    high = np.minimum(np.minimum(constants.WINDOW_AFTER * centre, centre + reach), sums.at[-1])
    edges = np.linspace(low, np.nextafter(high, np.inf), constants.BINS + 1, axis=1)
    scale = sums.over(centre - 2 * width, centre + 2 * width)
    means = sums.over(edges[:, :-1].ravel(), edges[:, 1:].ravel())
    count, at, mean, one_value = (
        one.reshape(len(centre), -1) for one in (means.count, means.at, means.mean, means.one_value)
    )
    at = np.where(count > 0, at, low[:, None])  # an empty bin has no place, and is left out below
    u = (at - low[:, None]) / (high - low)[:, None]
    one = np.ones_like(u)[..., None]
    step = 0.5 * (1 - np.tanh((at - centre[:, None]) / (2 * width[:, None])))[..., None]
    linear = u[..., None]
    columns = np.concatenate(
        (one, -one, linear, -linear, np.exp(-constants.RATES * linear), step, mean[..., None]), axis=2
    )
    walk = 7.5 * np.maximum(0.0, scale.inflation - 1) / np.maximum(scale.count, 1) ** 2
    for place in np.flatnonzero(scale.count >= constants.FEWEST_AT_SCALE):
        some = count[place] > 0
        if some.sum() >= constants.FEWEST_BINS:
            covariance = _covariance(count[place, some], one_value[place, some], float(walk[place]))
            yield _improvement(columns[place, some], covariance), float(scale.inflation[place])


def _covariance(count: np.ndarray, one_value: np.ndarray, walk: float) -> np.ndarray:
    """Of the means, as in `cliffs`: independent noise plus a random walk."""
    start = np.cumsum(count) - count
    middle = start + count / 2
    shared = walk * np.minimum(middle[:, None], middle)
    shared.flat[:: len(count) + 1] = 1 / count + walk * (start + count / 3)
    return one_value[:, None] * shared * one_value


def _improvement(columns: np.ndarray, covariance: np.ndarray) -> float:
    """Of the fit by the decays among the columns, by the step beside them; the last column are the means."""
    from scipy.linalg.lapack import dtrtrs  # pyright: ignore[reportAttributeAccessIssue]
    from scipy.optimize import nnls

    whitened = dtrtrs(np.linalg.cholesky(covariance), columns, lower=1)[0]
    size = np.maximum(np.sqrt(np.einsum("ij,ij->j", whitened, whitened)), 1e-300)
    fitted, target = whitened[:, :-1] / size[:-1], whitened[:, -1]
    decays, most = fitted[:, :-1], 30 * fitted.shape[1]
    coefficients, without = nnls(decays, target, maxiter=most)
    if (target - decays @ coefficients) @ fitted[:, -1] <= -1e-9 * size[-1]:
        return 0.0
    with_step = nnls(fitted, target, maxiter=most)[1] ** 2
    misfit = max(1.0, with_step / (len(target) - constants.FITTED_NUMBERS))
    return float(np.sqrt(max(0.0, without**2 - with_step) / misfit))
