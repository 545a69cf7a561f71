"""Cliffs: rapid drops between two slower stretches. A place is a cliff when two tests say so.

1. *The curve is not convex there* (`convexity.py`), at the 5 % level, counting the widths and centres tried around it.
   It asks nothing about the curve beyond convexity, and so is robust, but weak.
2. *A decay does not explain it.* Around the place, the best mixture of decaying exponentials (plus a straight line,
   plus the cliffs found already) is compared with the same plus one logistic step. The statistic is the root of the
   drop in chi^2, the p-value its tail times the number of places looked at. It is about twice as powerful. Unless
   the first test is significant on its own, the step must also beat a single change of slope, up or down.

The noise of both is measured from the series, at the scale of the cliff, so that a random walk does not pass for one.

A cliff is located by the best-fitting step: the place where half of the drop is done. Its interval is the range of
places that the profile likelihood does not exclude at 95 %, whatever the shape: a logistic to the power of 1/2, 1, 2, 4
or 8. (A loss is quadratic in an amplitude that grows logistically, 2; the saddles of deeper networks are left in a long
foot and a short tail, 4 and 8; what is logistic in ln t has a long tail, 1/2.) How much of a foot or a tail belongs to
the drop and how much to the decay around it no fit can tell; a fifth of the width is allowed for that. The width is
that of the better of 1 and 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.transitions import constants
from probes.series.transitions.blocks import Blocks, Sums
from probes.series.transitions.convexity import scan
from probes.series.transitions.transition import Transition


@dataclass(frozen=True)
class Step:
    """One logistic step down: (1 - logistic((t - centre) / width)) to some power."""

    centre: float
    width: float
    power: float = 1

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """The step at times t, from 1 to 0."""
        return 0.5**self.power * (1 - np.tanh((t - self.centre) / (2 * self.width))) ** self.power

    @property
    def half(self) -> float:
        """Where half of the drop is done."""
        return self.centre + float(np.log(2 ** (1 / self.power) - 1)) * self.width

    def moved(self, half: float) -> "Step":
        """The same step with half of its drop done elsewhere."""
        return replace(self, centre=self.centre + half - self.half)


@dataclass(frozen=True)
class Window:
    """A stretch of the series in a few dozen means, whitened: multiplied by the inverse root of their covariance."""

    at: Float64[np.ndarray, " bins"]
    mean: Float64[np.ndarray, " bins"]
    whiten: Float64[np.ndarray, "bins bins"]
    decays: Float64[np.ndarray, "bins columns"]

    def chi2(self, steps: list) -> tuple[float, np.ndarray]:
        """Of the best mixture of decays and the given steps, none of negative height; and the heights of the steps."""
        from scipy.optimize import nnls  # slow to import, and importing probes must be quick

        columns = self.whiten @ np.column_stack([self.decays, *(step(self.at) for step in steps)])
        size = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        coefficients, residual = nnls(columns / size, self.whiten @ self.mean, maxiter=30 * columns.shape[1])
        return residual**2, (coefficients / size)[self.decays.shape[1] :]


def find_cliffs(sums: Sums, alpha: float, known: Sequence[Transition] = ()) -> list[Transition]:
    """Cliffs with p < alpha. Where all that passes the first test is explained by those known, no more is fitted."""
    from scipy.special import stdtr

    cells = scan(sums)
    everywhere = max(1.0, constants.INDEPENDENT_CELLS * len(cells))
    cells = cells.loc[cells["plausible"].astype(bool) & (cells["drop"] > constants.SMALLEST_DROP)]
    is_correlated = cells["inflation"] > constants.CORRELATED
    tried = np.where(is_correlated, everywhere * constants.GATE / alpha, constants.CELLS_PER_PLACE)
    gate = tried * stdtr(_freedom(cells["inflation"]), -cells["z"].to_numpy(dtype=float)) < constants.GATE
    places = cells.loc[gate]
    if known and not len(_unexplained(places, known)):
        return []
    looked_at = _places_looked_at(sums)
    found: list[tuple[Step, float]] = []
    while len(places):
        best, z = _best_step(sums, places, [step for step, _ in found])
        if best is None:
            break
        p_value = min(1.0, looked_at * float(stdtr(_freedom(_at_scale(sums, best).inflation[0]), -z)))
        if p_value >= alpha:
            break
        here = np.abs(np.log(places["centre"].to_numpy() / best.half)) < constants.NEIGHBOURHOOD
        convex = everywhere * float(stdtr(constants.DEGREES_OF_FREEDOM, -places.loc[here, "z"].max())) >= alpha
        if convex and _explained_by_a_kink(sums, best, [step for step, _ in found]):
            places = places.loc[~here]
            continue
        found.append((best, p_value))
        places = _beyond(places, best.half, best.width)
    rows = [_located(sums, step, [s for s, _ in found if s is not step], p) for step, p in found]
    inside = [row for row in rows if sums.at[0] < row.step < sums.at[-1]]  # else half of it lies beyond the record
    return _distinct([row for row in inside if row.strength > constants.SMALLEST_DROP and _stays_down(sums, row)])


def _beyond(places: pd.DataFrame, half: float, width: float) -> pd.DataFrame:
    """Places not explained by a step: it lies neither among their inner blocks nor within a few of its widths."""
    around = max(constants.EXPLAINED_WIDTHS * width, constants.CLOSEST * half)
    reach = np.maximum(constants.EXPLAINED_BLOCKS * places["width"], around)
    return places.loc[(places["centre"] - half).abs() > reach]


def _unexplained(places: pd.DataFrame, known: Sequence[Transition]) -> pd.DataFrame:
    for row in known:
        places = _beyond(places, row.step, row.width)
    return places


def _stays_down(sums: Sums, row: Transition) -> bool:
    """Whether the series ends up lower than it was, and does not only come back from a bump or go into a dip."""
    near, far = constants.BEFORE_AND_AFTER
    edges = np.linspace(row.step - constants.LOOK_BACK * row.width, row.step - near * row.width, 6)
    before = sums.over(edges[:-1], edges[1:])
    after = sums.over(np.array([row.step + near * row.width]), np.array([row.step + far * row.width]))
    if after.count[0] == 0 or not (before.count > 0).any():
        return True
    lowest = before.mean[before.count > 0].min()
    return bool(lowest - after.mean[0] > constants.STAYS_DOWN * row.strength)


def _distinct(rows: list[Transition]) -> list[Transition]:
    """Steps found apart may have been located at the same place, or not be told apart: keep the surest of each."""
    kept: list[Transition] = []
    for row in sorted(rows, key=lambda row: row.p_value):
        apart = [abs(row.step - other.step) > constants.CLOSEST * other.step for other in kept]
        excluded = [not row.low <= other.step <= row.high for other in kept]
        if all(apart) and all(excluded):
            kept.append(row)
    return kept


def _freedom(inflation: Any) -> np.ndarray:
    """Degrees of freedom of the noise: few where it is correlated, which a handful of large blocks must tell."""
    is_correlated = np.asarray(inflation) > constants.CORRELATED
    return np.where(is_correlated, constants.FREEDOM_IF_CORRELATED, constants.DEGREES_OF_FREEDOM)


def _at_scale(sums: Sums, step: Step) -> Blocks:
    return sums.over(np.array([step.centre - 2 * step.width]), np.array([step.centre + 2 * step.width]))


def _places_looked_at(sums: Sums) -> float:
    decades = np.log(sums.at[-1] / max(sums.at[0], sums.at[1] - sums.at[0]))
    return max(1.0, constants.INDEPENDENT_STEPS * sum(decades / width for width in constants.STEP_WIDTHS))


def _best_step(sums: Sums, places: pd.DataFrame, known: list[Step]) -> tuple[Step | None, float]:
    """The step that improves the fit most, among those centred where the curve is not convex."""
    best, best_z = None, 0.0
    log_centres = np.log(places["centre"].to_numpy())
    for share in constants.STEP_WIDTHS:
        spacing = share / constants.CENTRES_PER_WIDTH
        grid = np.unique(np.round(log_centres / spacing)) * spacing
        for centre in np.exp(grid):
            step = Step(centre, share * centre)
            z = _improvement(sums, step, known)
            if z > best_z:
                best, best_z = step, z
    return best, best_z


def _improvement(sums: Sums, step: Step, known: list[Step]) -> float:
    window = _window(sums, step)
    if window is None:
        return 0.0
    nearby = [other for other in known if window.at[0] < other.half < window.at[-1]]
    without, _ = window.chi2(nearby)
    with_step, _ = window.chi2([*nearby, step])
    # where even the better model fits badly, its misfit and not the noise is what an improvement has to beat
    misfit = max(1.0, with_step / (len(window.at) - constants.FITTED_NUMBERS))
    return float(np.sqrt(max(0.0, without - with_step) / misfit))


def _explained_by_a_kink(sums: Sums, step: Step, known: list[Step]) -> bool:
    """Whether one change of slope, up or down, anywhere in the window does about as well as the step."""
    window = _window(sums, step)
    assert window is not None  # the step was fitted there
    nearby = [other for other in known if window.at[0] < other.half < window.at[-1]]
    steps = [
        replace(step, width=stretch * step.width, power=power).moved(step.half)
        for stretch in constants.KINK_STRETCHES
        for power in (1, 2)
    ]
    with_step = min(window.chi2([*nearby, one])[0] for one in steps)

    def with_kink(at: float) -> float:
        kinks = [(lambda t, sign=sign: sign * np.maximum(t - at, 0)) for sign in (1, -1)]
        return min(window.chi2([*nearby, kink])[0] for kink in kinks)

    places = np.linspace(window.at[0], window.at[-1], constants.KINKS + 2)[1:-1]
    best = min(places, key=with_kink)
    # a sharp bend between two of the places would otherwise look worse than a step, which is free to fit it
    closer = best + (places[1] - places[0]) * np.linspace(-0.8, 0.8, 9)
    return min(map(with_kink, closer)) < with_step


def _window(sums: Sums, step: Step) -> Window | None:
    """Means over the surroundings of a step, their noise taken at the scale of the step."""
    reach = constants.WINDOW_WIDTHS * step.width
    low = max(constants.WINDOW_BEFORE * step.centre, step.centre - reach, float(sums.at[0]))
    high = min(constants.WINDOW_AFTER * step.centre, step.centre + reach, float(sums.at[-1]))
    edges = np.linspace(low, np.nextafter(high, np.inf), constants.BINS + 1)
    means = sums.over(edges[:-1], edges[1:])
    some = means.count > 0
    if some.sum() < constants.FEWEST_BINS:
        return None
    scale = _at_scale(sums, step)
    if scale.count[0] < constants.FEWEST_AT_SCALE:
        return None
    at, mean = means.at[some], means.mean[some]
    whiten = np.linalg.inv(np.linalg.cholesky(_covariance(means, some, int(scale.count[0]), float(scale.inflation[0]))))
    u = (at - low) / (high - low)
    exponentials = np.exp(-constants.RATES * u[:, None])
    decays = np.column_stack((np.ones_like(u), -np.ones_like(u), u, -u, exponentials))
    return Window(at, mean, whiten, decays)


def _covariance(means: Blocks, some: np.ndarray, count: int, inflation: float) -> np.ndarray:
    """Covariance of the means: independent noise plus a random walk, which takes the blame for the inflation.

    Third differences of means of n values of a walk with step variance r s^2 inflate by f = (8/60) r n^2, so f
    at the scale of the step gives r. Any slower-growing correlation is thereby overstated at larger distances, which
    errs on the side of silence.
    """
    n, s = means.count[some].astype(float), means.one_value[some]
    walk = 7.5 * max(0.0, inflation - 1) / count**2
    start = np.cumsum(n) - n
    middle = start + n / 2
    shared = np.minimum.outer(middle, middle)
    np.fill_diagonal(shared, start + n / 3)
    return np.outer(s, s) * (np.diag(1 / n) + walk * shared)


def _located(sums: Sums, step: Step, others: list[Step], p_value: float) -> Transition:
    from scipy.optimize import minimize

    window = _window(sums, step)
    assert window is not None  # it was measured there
    nearby = [other for other in others if window.at[0] < other.half < window.at[-1]]

    def misfit(shape: np.ndarray, power: float) -> float:
        away, stretched = abs(shape[0] - step.half), abs(shape[1] - np.log(step.width))
        if away > constants.LOCATE_WIDTHS * step.width or stretched > constants.LOCATE_STRETCH:
            return np.inf  # some other step
        return window.chi2([*nearby, _shaped(shape, power)])[0]

    start = np.array([step.half, np.log(step.width)])
    simplex = start + np.array([[0, 0], [step.width, 0], [0, 0.5]])
    fits = {}
    for power in constants.STEP_POWERS:
        options = {"initial_simplex": simplex, "maxfev": 150 if power in constants.USUAL_POWERS else 60}
        fits[power] = minimize(misfit, start, (power,), "Nelder-Mead", options=options)
    power = min(fits, key=lambda power: fits[power].fun)
    usual = min(constants.USUAL_POWERS, key=lambda power: fits[power].fun)
    fit, best = fits[power], _shaped(fits[power].x, power)
    width = _shaped(fits[usual].x, usual).width
    drop = min(1.0, float(window.chi2([*nearby, best])[1][-1]))  # a fraction of the range
    low, high = _profile(window, best, nearby, float(fit.fun))
    i = int(np.clip(np.searchsorted(sums.at, best.half), 1, len(sums.at) - 1))
    spacing = float(sums.at[i] - sums.at[i - 1])  # no place is known better than to one value of the series
    below, above = max(best.half - low, spacing), max(high - best.half, spacing)
    misfit_sd = np.sqrt(max(1.0, float(fit.fun) / max(1, len(window.at) - constants.FITTED_NUMBERS)))
    error = min(constants.SHAPE_ERROR * misfit_sd, constants.LARGEST_SHAPE_ERROR) * width
    low, high = (best.half + sign * np.hypot(one, error) for sign, one in ((-1, below), (1, above)))
    return Transition(best.half, low, high, "cliff", "fall", drop, p_value, width)


def _shaped(shape: np.ndarray, power: float) -> Step:
    return Step(0.0, float(np.exp(shape[1])), power).moved(float(shape[0]))


def _profile(window: Window, best: Step, nearby: list[Step], chi2: float) -> tuple[float, float]:
    """The places, on either side, at which the best fit over the width is worse by more than noise allows."""
    allowed = constants.PROFILE * max(1.0, chi2 / max(1, len(window.at) - constants.FITTED_NUMBERS))

    def worse(half: float) -> float:
        steps = [
            replace(best, width=best.width * stretch, power=power).moved(half)
            for stretch in constants.PROFILE_STRETCHES
            for power in constants.STEP_POWERS
        ]
        return min(window.chi2([*nearby, step])[0] for step in steps) - chi2 - allowed

    def edge(sign: int) -> float:
        inside, outside = 0.0, 0.05
        while worse(best.half + sign * outside * best.width) < 0 and outside < 20:
            inside, outside = outside, 2 * outside
        for _ in range(8):
            middle = (inside + outside) / 2
            inside, outside = (
                (middle, outside) if worse(best.half + sign * middle * best.width) < 0 else (inside, middle)
            )
        return best.half + sign * outside * best.width

    return max(edge(-1), float(window.at[0])), min(edge(1), float(window.at[-1]))
