"""The likelihood ratio for one change in a short record, on its values themselves.

On 20 to 250 values there are no blocks to take means of, and the correlation of the noise cannot be measured apart from
the curve. So everything is fitted together:

    value = smooth baseline (`baselines.py`) + one shape + AR(1) noise

The shape is a step (a logistic in the number of the value) or a bump, at every place and many widths. The statistic is
twice the gain in log likelihood, T = 2 (max with a shape - max without), each maximum over all baselines (less the
penalty of BIC for their columns), all shapes and a grid of rho; without a shape, one wild value may be left out.

Where nothing happens, T hardly depends on the baseline and on the schedule, but on rho and on the number of values. Its
tail was drawn once for each (`null_tails.py`), on the schedule on which it is heaviest, and is carried on as an
exponential. The p-value is the mean of these tails over the posterior of rho without a shape, times two: the baselines
miss a little of any drift, and few values know little about rho.

A rho known from elsewhere - pooled over the heads of a run, say - takes the place of the grid, and buys much power: a
step cannot be told from noise that may have rho = .96.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.baselines import Columns, smooth_baselines
from probes.series.transitions.null_tails import tail

Series = Float64[np.ndarray, " n"]
Draws = Float64[np.ndarray, "n draws"]


@dataclass(frozen=True)
class Shape:
    """A change: a step down (kind "step") or a bump up (kind "bump"), its place and width in numbers of values."""

    kind: str
    place: float
    width: float

    def __call__(self, n: int) -> Series:
        """Its course over n values: from 1 to 0 for a step, up to 1 and back for a bump."""
        away = (np.arange(n) - self.place) / self.width
        return 0.5 * (1 - np.tanh(away / 2)) if self.kind == "step" else np.exp(-0.5 * away**2)


@dataclass(frozen=True)
class ChangeTest:
    """The likelihood ratio of one record: its best shape, the height of it as a share of the range, and p.

    height > 0 is a step down or a bump up. rho and noise (sd, as a share of the range) are those of the best fit with
    the shape.
    """

    shape: Shape
    height: float
    statistic: float
    p_value: float
    rho: float
    noise: float


def likelihood_ratio_test(
    values: Series, steps: Series, *, rho: float | None = None, known: Columns | None = None
) -> ChangeTest:
    """Whether one step or bump explains a record of 20 to 250 values better than smooth drift and AR(1) noise do.

    values need no scaling. The columns of known are courses of changes found before, and part of the baseline. p_value
    is 1 where the best shape is too low or implausibly high (short_constants.SHAPE_HEIGHTS).
    """
    at = np.ascontiguousarray(steps, dtype=np.float64)
    fits = searching_fits(at.tobytes(), rho) if known is None else Fits(at, rho, known)
    return fits.test((values - values.mean()) / (values.max() - values.min()))


def shapes_for(n: int) -> list[Shape]:
    """Every place and width tried among n values."""
    edge, widths, width = short_constants.SHAPE_EDGE, [], 1.0
    while width <= n / short_constants.VALUES_PER_WIDTH:
        widths.append(width)
        width *= short_constants.WIDTH_RATIO
    shapes = [Shape("step", place, short_constants.SHARP) for place in np.arange(edge, n - 1 - edge + 1e-9)]
    for kind, spacing, least in (("step", 1.0, edge), ("bump", 0.5, short_constants.BUMP_EDGE)):
        for width in widths:
            low = max(least, 2 * width)
            shapes += [Shape(kind, place, width) for place in np.arange(low, n - 1 - low + 1e-9, spacing * width)]
    return shapes


def whitened(rho: float, series: np.ndarray) -> np.ndarray:
    """Columns of AR(1) noise made independent, of the variance of the innovations."""
    out = series.copy()
    out[1:] -= rho * series[:-1]
    out[0] *= np.sqrt(1 - rho**2)
    return out


def coloured(rho: float, white: np.ndarray) -> np.ndarray:
    """The inverse of `whitened`."""
    from scipy.signal import lfilter

    start = white.copy()
    start[0] /= np.sqrt(1 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], start, axis=0))


@dataclass(frozen=True)
class _Projection:
    """One baseline at one rho: an orthonormal basis of it, whitened, and what of every shape lies in it and beyond."""

    basis: Columns
    within: Float64[np.ndarray, "shapes columns"]
    length: Float64[np.ndarray, " shapes"]  # of each shape beyond the baseline; infinite where it hardly is
    log_volume: float


@dataclass(frozen=True)
class Likelihoods:
    """Log likelihoods [baselines, rhos, records], penalised: without a shape, with the best, with a wild value left
    out; which shape; and the log posterior of rho without a shape, unnormalised.
    """

    without: np.ndarray
    with_shape: np.ndarray
    wild: np.ndarray
    best: np.ndarray
    posterior: np.ndarray

    @property
    def statistic(self) -> np.ndarray:
        """T of every record."""
        best, without, wild = (part.max((0, 1)) for part in (self.with_shape, self.without, self.wild))
        return 2 * (best - np.maximum(without, wild - short_constants.WILD_COST))


class Fits:
    """All baselines and shapes for one schedule of steps, ready for any number of records."""

    def __init__(
        self, steps: Series, rho: float | None = None, known: Columns | None = None, courses: Columns | None = None
    ) -> None:
        self.n, self.is_told = len(steps), rho is not None
        self.rhos = short_constants.RHOS if rho is None else (rho,)
        more = [] if known is None else [known]
        self.baselines = [np.column_stack([columns, *more]) for columns in smooth_baselines(steps)]
        self.shapes = shapes_for(self.n) if courses is None else []
        searched = np.column_stack([shape(self.n) for shape in self.shapes]) if courses is None else courses
        self.count = searched.shape[1]
        self.courses = np.column_stack([searched, np.eye(self.n)])
        self.projections = [self._projections(rho) for rho in self.rhos]  # [rho][baseline]

    def _projections(self, rho: float) -> list[_Projection]:
        courses = whitened(rho, self.courses)
        whole = (courses**2).sum(0)
        found = []
        for baseline in self.baselines:
            q, r = np.linalg.qr(whitened(rho, baseline))
            within = courses.T @ q
            beyond = np.maximum(whole - (within**2).sum(1), 0)
            length = np.where(beyond > short_constants.BEYOND_BASELINE**2 * whole, np.sqrt(beyond), np.inf)
            found.append(_Projection(q, within, length, float(np.log(np.abs(np.diag(r))).sum())))
        return found

    def likelihoods(self, records: Draws) -> Likelihoods:
        """Of each record (a column), for every baseline and rho."""
        parts = np.empty((4, len(self.baselines), len(self.rhos), records.shape[1]))
        best = np.empty(parts.shape[1:], dtype=np.int64)
        for j, rho in enumerate(self.rhos):
            white = whitened(rho, records)
            products = whitened(rho, self.courses).T @ white  # once for all baselines, which take their part off
            level, whole = 0.5 * np.log(1 - rho**2), (white**2).sum(0)
            for i, one in enumerate(self.projections[j]):
                columns, inside = one.basis.shape[1], one.basis.T @ white
                left = ((white - one.basis @ inside) ** 2).sum(0) + constants.ROUNDING**2 * whole + 1e-300
                gain = ((products - one.within @ inside) / one.length[:, None]) ** 2
                best[i, j] = gain[: self.count].argmax(0)
                most, wild = np.take_along_axis(gain, best[i, j][None], 0)[0], gain[self.count :].max(0)
                base = level - 0.5 * columns * np.log(self.n)
                for k, taken in enumerate((0.0, most, wild)):
                    parts[k, i, j] = base - self.n / 2 * np.log(np.maximum(left - taken, 1e-9 * left))
                parts[3, i, j] = level - (self.n - columns) / 2 * np.log(left) - one.log_volume
        return Likelihoods(parts[0], parts[1], parts[2], best, parts[3])

    def test(self, record: Series) -> ChangeTest:
        """The likelihood ratio of one record whose range is 1."""
        found = self.likelihoods(record[:, None])
        statistic = float(found.statistic[0])
        i, j = np.unravel_index(int(found.with_shape[:, :, 0].argmax()), found.with_shape.shape[:2])
        rho, one, which = self.rhos[j], self.projections[j][i], int(found.best[i, j, 0])
        white = whitened(rho, record)
        rest = white - one.basis @ (one.basis.T @ white)
        length = float(one.length[which])
        along = float(whitened(rho, self.courses[:, which]) @ rest) / length
        height = along / length
        left = max(float((rest**2).sum()) - along**2, 0.0)
        innovation = np.sqrt(left / max(1, self.n - one.basis.shape[1] - 3))
        lowest, highest = short_constants.SHAPE_HEIGHTS
        p_value = self.p_value(statistic, found) if lowest < abs(height) < highest else 1.0
        noise = float(innovation / np.sqrt(1 - rho**2))
        return ChangeTest(self.shapes[which], height, statistic, p_value, rho, noise)

    def p_value(self, statistic: float, found: Likelihoods) -> float:
        """The chance of T where nothing happens, over the posterior of rho at the best baseline without a shape."""
        best = int(found.without[:, :, 0].max(1).argmax())
        return self.p_value_at(statistic, found.posterior[best, :, 0])

    def p_value_at(self, statistic: float, log_posterior: np.ndarray) -> float:
        """The same for a posterior of rho that is given."""
        chance = np.exp(log_posterior - log_posterior.max())
        tails = [tail(statistic, self.n, rho, is_told=self.is_told) for rho in self.rhos]
        safety = max(short_constants.SAFETY, short_constants.SAFETY_VALUES / self.n)
        return min(1.0, safety * float(chance @ np.array(tails) / chance.sum()))

    def likelihood_of_each(self, record: Series) -> np.ndarray:
        """Log likelihood of one record with each of the courses in turn, at the best baseline and rho."""
        best = np.full(self.count, -np.inf)
        for j, rho in enumerate(self.rhos):
            white = whitened(rho, record)
            products = whitened(rho, self.courses[:, : self.count]).T @ white
            for one in self.projections[j]:
                inside = one.basis.T @ white
                left = ((white - one.basis @ inside) ** 2).sum() + constants.ROUNDING**2 * (white**2).sum() + 1e-300
                gain = ((products - one.within[: self.count] @ inside) / one.length[: self.count]) ** 2
                log = -self.n / 2 * np.log(np.maximum(left - gain, 1e-9 * left))
                best = np.maximum(best, log + 0.5 * np.log(1 - rho**2) - 0.5 * one.basis.shape[1] * np.log(self.n))
        return best


@lru_cache(maxsize=4)
def searching_fits(steps: bytes, rho: float | None) -> Fits:
    """The fits for the steps in these bytes (float64): made once for all records of a run."""
    return Fits(np.frombuffer(steps), rho)
