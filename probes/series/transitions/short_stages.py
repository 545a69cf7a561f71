"""Stages in a short record: a second hump of the descent in log time, judged on the values themselves.

The question is that of `stages.py`: over places a < b < c < d of x = ln t, is the descent f = -dy / dx

        f(a) above f(b) below f(c) above f(d) ?

On 20 to 250 values f is the slope of a parabola through the values within a width of x, which is right at any spacing
of the steps. Its noise is that of the laws that the record may have (`laws.py`), each as likely as what a free spline
in x leaves of the record makes it. Under one law the four differ by z, the least of the three differences in its own
standard error, and a record has

    bound = pairs (b, c) x widths x the mean over the laws of P(t > z)

which is far too careful as a p-value, because all three must hold at once. How small it gets where nothing happens was
drawn, on noise about a constant slope (`python -m benchmarks.null_tails stages`).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.laws import AR1, Law
from probes.series.transitions.models import Fits
from probes.series.transitions.sizes import size_of_rest
from probes.series.transitions.stages import Hump

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Slopes:
    """The descent at places x = ln t a fraction of a width apart: what it takes of every value, and its noise.

    rows [places, values] are NaN where too few values are around. sd [laws, lags, places] is that of f(x + lag) - f(x)
    under noise of unit innovations; pairs is how many pairs of places are as good as independent.
    """

    x: Float64[np.ndarray, " places"]
    rows: Float64[np.ndarray, "places n"]
    sd: Float64[np.ndarray, "laws lags places"]
    width: float
    pairs: float


def _under(slopes: Sequence[Slopes], laws: Sequence[Law]) -> list[Slopes]:
    """The same under more laws."""
    innovations = [np.linalg.inv(law.whiten(np.eye(slopes[0].rows.shape[1]))) for law in laws] if slopes else []
    return [replace(one, sd=np.concatenate([one.sd, [_sd(one.rows @ each) for each in innovations]])) for one in slopes]


def _sd(noise: Float64[np.ndarray, "places n"]) -> Float64[np.ndarray, "lags places"]:
    """Of the difference of two places, from what of each innovation is in them."""
    sd = np.full((len(short_constants.STAGE_LAGS), len(noise)), np.nan)
    for k, lag in enumerate(short_constants.STAGE_LAGS):
        sd[k, : max(0, len(noise) - lag)] = np.linalg.norm(noise[lag:] - noise[:-lag], axis=1)
    return sd


class HumpTest:
    """Second humps of records at these steps, under these laws."""

    def __init__(self, at: Series, laws: Sequence[Law]) -> None:
        self.at, self.laws = at, list(laws)
        self.spline = _free_spline(at)
        slopes = [_slopes(at, width) for width in short_constants.STAGE_WIDTHS]
        self.slopes = _under([one for one in slopes if one], laws)

    def humps(self, record: Series, alpha: float, known: np.ndarray, masked: list[tuple[float, float]]) -> list[Hump]:
        """Those of a record with p < alpha, the surest first.

        known are courses [values, courses] that are no noise; stretches of ln t that are masked are not looked at.
        """
        test = self._where_noise_is_louder(record, known)
        weights, sizes = test._laws_of(record, known)
        found: list[Hump] = []
        while True:
            humps = [test._best(slopes, record, weights, sizes, masked, found)[1] for slopes in test.slopes]
            best = min(humps, key=lambda hump: hump.p_value, default=None)
            if best is None or best.p_value >= alpha:
                return found
            found.append(best)

    def bound(self, record: Series) -> float:
        """The least one: what the null tails are drawn of."""
        nothing = np.zeros((len(record), 0))
        test = self._where_noise_is_louder(record, nothing)
        weights, sizes = test._laws_of(record, nothing)
        best = [test._best(slopes, record, weights, sizes, [], []) for slopes in test.slopes]
        return min((bound for bound, _ in best), default=np.inf)

    def _where_noise_is_louder(self, record: Series, known: np.ndarray) -> "HumpTest":
        """The same, where the noise has more than one size along this record, with AR(1) noise of that size as well."""
        rhos = [law.rho for law in self.laws if isinstance(law, AR1) and law.size is None]
        columns, _ = np.linalg.qr(np.column_stack([self.spline, known]))
        fitted = columns @ (columns.T @ record)
        free = 1 - (columns**2).sum(1)
        clear = free > short_constants.FREE_VALUE
        size = size_of_rest((record - fitted)[clear] / np.sqrt(free[clear]), clear, fitted, self.at)
        if size is None or not rhos:
            return self
        more, other = [AR1(rho, size) for rho in rhos], copy(self)
        other.laws, other.slopes = [*self.laws, *more], _under(self.slopes, more)
        return other

    def _laws_of(self, record: Series, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How likely each law is, and the size of its innovations: what the free spline leaves of the record."""
        columns = np.column_stack([self.spline, known])
        free, logs, sizes = max(1, len(record) - columns.shape[1]), [], []
        floor = constants.ROUNDING**2 * float(record @ record) + 1e-300
        for law in self.laws:
            q, r = np.linalg.qr(law.whiten(columns))
            white = law.whiten(record)
            rest = white - q @ (q.T @ white)
            left = float(rest @ rest) + floor
            logs.append(law.level - free / 2 * np.log(left) - np.log(np.abs(np.diag(r)) + 1e-300).sum())
            sizes.append(np.sqrt(left / free))
        weights = np.exp(np.array(logs) - max(logs))
        return weights / weights.sum(), np.array(sizes)

    def _best(
        self,
        slopes: Slopes,
        record: Series,
        weights: np.ndarray,
        sizes: np.ndarray,
        masked: list[tuple[float, float]],
        found: list[Hump],
    ) -> tuple[float, Hump]:
        """The least bound at one width, and what has it; inf and p = 1 where there are no four places."""
        from scipy.special import stdtr

        likely = weights > short_constants.UNLIKELY_LAW
        f = slopes.rows @ record
        for low, high in masked:
            f[(slopes.x + slopes.width > low) & (slopes.x - slopes.width < high)] = np.nan
        ahead = _ahead(f)  # [lags, places]: f behind each place
        with np.errstate(invalid="ignore"):
            up = (ahead - f) / (slopes.sd[likely] * sizes[likely, None, None])
            taller = np.maximum(ahead, f) > constants.HUMP_RATIO * np.maximum(np.minimum(ahead, f), 0.0)
        counts = taller & _clear(slopes, found) & ~np.isnan(up)
        fall = np.where(counts, -up, -np.inf)
        before, after = _behind(fall).max(1), fall.max(1)  # [laws, places]: from the best a down to b; from c to d
        z = np.minimum(np.minimum(np.where(counts, up, -np.inf), before[:, None]), _ahead(after))
        z = np.where(np.isnan(z), -np.inf, z)
        free = len(record) - self.spline.shape[1]
        chance = np.einsum("l,lkp->kp", weights[likely], stdtr(free, -np.maximum(z, -1e6)))
        lag, b = (int(i) for i in np.unravel_index(int(chance.argmin()), chance.shape))
        least = z[int(np.argmax(weights[likely])), lag, b]
        bound = len(self.slopes) * slopes.pairs * float(chance[lag, b]) if np.isfinite(least) else np.inf
        p_value = float(weights @ [_chance(bound, law.memory) for law in self.laws])
        c = min(b + short_constants.STAGE_LAGS[lag], len(f) - 1)
        return bound, Hump(float(slopes.x[c]), float(slopes.x[b]), float(f[b]), slopes.width, float(least), p_value)


@lru_cache(maxsize=4)
def hump_test_for(fits: Fits) -> HumpTest:
    """The test for records at the steps of these fits, under their laws; made once for all records of a run."""
    return HumpTest(fits.at, fits.laws)


def _chance(bound: float, rho: float) -> float:
    """How often a record in which nothing happens has a bound so small."""
    start, scale = (
        np.interp(rho, short_constants.STAGE_RHOS, one)
        for one in (short_constants.STAGE_STARTS, short_constants.STAGE_SCALES)
    )
    return min(1.0, 0.1 * float(np.exp((np.log(max(bound, 1e-300)) + start) / scale)))


def _slopes(at: Series, width: float) -> Slopes | None:
    """None where the record is too short for four places at this width."""
    some = at > 0
    x = np.log(at[some])
    spacing = width / constants.SLOPES_PER_WIDTH
    places = np.arange(x[0] + width / 2, x[-1] - width / 2 + 1e-9, spacing)
    lags = short_constants.STAGE_LAGS
    rows = np.full((len(places), len(at)), np.nan)
    for i, place in enumerate(places):
        u = (x - place) / width
        near = np.abs(u) <= 1
        before, after = near & (u < 0), near & (u > 0)
        if min(before.sum(), after.sum()) < 2 or near.sum() < short_constants.STAGE_FEWEST:
            continue
        if u[before].min() > -0.5 or u[after].max() < 0.5:
            continue
        columns = np.vander(u[near], 3)
        row = np.zeros(len(x))
        row[near] = -np.linalg.pinv(columns)[1] / width
        rows[i] = 0.0
        rows[i, some] = row
    if np.isfinite(rows[:, 0]).sum() < 4 or len(places) < 3 * lags[0] + 1:
        return None
    independent = np.isfinite(rows[:, 0]).sum() / constants.SLOPES_PER_WIDTH
    reach = (lags[-1] - lags[0]) / constants.SLOPES_PER_WIDTH
    pairs = max(1.0, min(independent * (independent - 1) / 2, independent * reach))
    return Slopes(places, rows, np.zeros((0, len(lags), len(places))), width, float(pairs))


def _free_spline(at: Series) -> Float64[np.ndarray, "n _"]:
    """A cubic spline in ln t with as many knots as the values allow; a value at step 0 has a column of its own."""
    some = at > 0
    x = np.log(at[some])
    knots, last = [], 0
    for i in range(1, len(x) - short_constants.VALUES_PER_KNOT + 1):
        if x[i] - x[last] >= short_constants.KNOTS_APART and i - last >= short_constants.VALUES_PER_KNOT:
            knots.append((x[i - 1] + x[i]) / 2)
            last = i
    u, at_knots = (x - x[0]) / (x[-1] - x[0]), (np.array(knots) - x[0]) / (x[-1] - x[0])
    columns = np.column_stack([*(u**k for k in range(4)), np.maximum(u[:, None] - at_knots, 0) ** 3])
    left, s, _ = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), full_matrices=False)
    smooth = left[:, s > 1e-9 * s[0]]
    spline = np.zeros((len(at), smooth.shape[1] + int((~some).sum())))
    spline[some, : smooth.shape[1]] = smooth
    spline[~some, smooth.shape[1] :] = 1.0
    return spline


def _clear(slopes: Slopes, found: list[Hump]) -> Bool[np.ndarray, "lags places"]:
    """Whether no hump found before lies between a place and the one a lag behind it, nor near either."""
    later = _ahead(slopes.x)
    clear = np.ones(later.shape, dtype=bool)
    for hump in found:
        near = max(constants.STAGES_APART, 2 * constants.HUMP_WIDTHS * max(slopes.width, hump.width))
        with np.errstate(invalid="ignore"):
            clear &= (later < hump.x) | (slopes.x > hump.x)
            clear &= (np.abs(later - hump.x) > near) | (later < hump.x)
    return clear


def _ahead(values: np.ndarray) -> np.ndarray:
    """[..., lags, places]: the value a lag behind each place, NaN beyond the end."""
    out = np.full((*values.shape[:-1], len(short_constants.STAGE_LAGS), values.shape[-1]), np.nan)
    for k, lag in enumerate(short_constants.STAGE_LAGS):
        out[..., k, : max(0, values.shape[-1] - lag)] = values[..., lag:]
    return out


def _behind(pairs: np.ndarray) -> np.ndarray:
    """[..., lags, places]: what pairs say of the place and the one a lag before it; -inf before the beginning."""
    out = np.full(pairs.shape, -np.inf)
    for k, lag in enumerate(short_constants.STAGE_LAGS):
        out[..., k, lag:] = pairs[..., k, : max(0, pairs.shape[-1] - lag)]
    return out
