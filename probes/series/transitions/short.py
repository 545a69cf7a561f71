"""Short records, 20 to 250 values: changes found one after the other by the likelihood ratio on the values themselves.

The best step or bump is tested (`likelihood.py`); if it is sure, it is located, joins the baseline, and the next one is
looked for. A step is a cliff, a bump down a dip, a bump up a spike.

The middle of a step is located with four shapes, because nobody knows the true one: a logistic and its square, each in
the number of the value and in t. The interval is every place that the profile likelihood of none of them excludes at
95 %. A place is known no better than the values around it: a change between two of them may be anywhere between them,
and so the interval ends at a value.
"""

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.likelihood import ChangeTest, Fits, likelihood_ratio_test, searching_fits, whitened
from probes.series.transitions.searched import Stretches, stretches
from probes.series.transitions.transition import Transition

Series = Float64[np.ndarray, " n"]


def search_values(
    values: Series, at: Series, alpha: float, rho: float | None = None
) -> tuple[list[Transition], ChangeTest]:
    """What has p < alpha, and the test that ended the search: the first that is not sure."""
    rows: list[Transition] = []
    courses: list[Series] = []
    while True:
        known = np.column_stack(courses) if courses else None
        test = likelihood_ratio_test(values, at, rho=rho, known=known)
        if test.p_value >= alpha or len(rows) == short_constants.MOST_SHAPES:
            return rows, test
        row, course = _located(values, at, test, known, rho)
        rows.append(row)
        courses.append(course)


def _located(
    values: Series, at: Series, test: ChangeTest, known: np.ndarray | None, rho: float | None
) -> tuple[Transition, Series]:
    """Where the change of a test is, with its interval; and its course."""
    n, shape = len(at), test.shape
    reach = max(short_constants.LOCATE_VALUES, constants.LOCATE_WIDTHS * shape.width)
    places = np.arange(
        max(0.5, shape.place - reach), min(n - 1.5, shape.place + reach) + 1e-9, short_constants.LOCATE_SPACING
    )
    stretched = [max(short_constants.SHARP, shape.width * stretch) for stretch in short_constants.SHAPE_STRETCHES]
    widths = np.array(short_constants.SHARP_WIDTHS if shape.width == short_constants.SHARP else sorted(set(stretched)))
    courses = _courses(shape.kind, places, widths, at)  # [values, places, widths, forms]
    fits = Fits(at, rho, known, courses.reshape(n, -1))
    log = fits.likelihood_of_each(values / (values.max() - values.min())).reshape(courses.shape[1:])
    i, j, k = np.unravel_index(int(log.argmax()), log.shape)
    inside = places[log.max((1, 2)) > log.max() - constants.PROFILE / 2]
    first, last = int(np.floor(inside.min() - 1e-9)), int(np.ceil(inside.max() + 1e-9))
    first, last = max(first, 0), min(last, n - 1)
    step = float(np.interp(places[i], np.arange(n), at))
    width = float(widths[j] * (at[last] - at[first]) / max(1, last - first))  # by the spacing around it
    down = test.height > 0
    kind = "cliff" if shape.kind == "step" else "spike" if down else "dip"
    direction = {"cliff": "fall" if down else "rise", "spike": "rise", "dip": "fall"}[kind]
    low, high = float(at[first]), float(at[last])
    row = Transition(step, low, high, kind, direction, min(1.0, abs(test.height)), test.p_value, width)
    return row, courses[:, i, j, k]


def _courses(kind: str, places: np.ndarray, widths: np.ndarray, at: Series) -> np.ndarray:
    """Courses [values, places, widths, forms] whose middle is at these places, among the values."""
    number = np.arange(len(at), dtype=np.float64)
    away = (number[:, None, None] - places[:, None]) / widths
    if kind == "bump":
        return np.exp(-0.5 * away**2)[..., None]
    middle = np.interp(places, number, at)
    spacing = np.interp(places, number, np.gradient(at))
    in_time = (at[:, None, None] - middle[:, None]) / (widths * spacing[:, None])
    half = constants.HALF_OF_SQUARE
    forms = [(1 - np.tanh(x / 2)) / 2 for x in (away, in_time)]
    forms += [((1 - np.tanh((x - half) / 2)) / 2) ** 2 for x in (away, in_time)]
    return np.stack(forms, axis=-1)


def searched_by_values(at: Series, last: ChangeTest, alpha: float, rho: float | None) -> Stretches:
    """Where a usual drop would be seen, at the noise and rho that are left when what was found is taken off."""
    first = float(at[at > 0][0])
    centres = np.exp(np.arange(np.log(first), np.log(at[-1]), constants.SEARCH_SPACING))
    away = np.clip((at[:, None] - centres) / (constants.USUAL_WIDTH * centres), -700, 700)
    usual = 1 / (1 + np.exp(away))
    fits = searching_fits(np.ascontiguousarray(at).tobytes(), rho)
    seen = _are_seen(fits, usual, max(last.noise, constants.ROUNDING), last.rho, alpha)
    return stretches(centres, seen, np.exp(constants.SEARCH_SPACING / 2))


def _are_seen(fits: Fits, courses: np.ndarray, noise: float, rho: float, alpha: float) -> np.ndarray:
    """Whether a change of each course has p < alpha in nine of ten draws of noise of this size and rho."""
    n, steps = fits.n, [i for i, shape in enumerate(fits.shapes) if shape.kind == "step"]
    wild = list(range(fits.count, fits.courses.shape[1]))
    without, with_step, posterior = np.empty((3, len(fits.baselines), len(fits.rhos), courses.shape[1]))
    nothing = np.empty_like(without)
    for j, tried in enumerate(fits.rhos):
        white = whitened(tried, courses)
        products = whitened(tried, fits.courses).T @ white
        # the variance of AR(1) noise of rho, whitened as if it had another
        spread = n * noise**2 * (1 - 2 * tried * rho + tried**2)
        level = 0.5 * np.log(1 - tried**2)
        for i, one in enumerate(fits.projections[j]):
            columns, inside = one.basis.shape[1], one.basis.T @ white
            left = ((white - one.basis @ inside) ** 2).sum(0)
            gain = ((products - one.within @ inside) / one.length[:, None]) ** 2
            base = level - 0.5 * columns * np.log(n)
            nothing[i, j] = base - n / 2 * np.log(left + spread)
            best_step, best_wild = (np.maximum(left - gain[of].max(0), 0.0) for of in (steps, wild))
            with_step[i, j] = base - n / 2 * np.log(best_step + spread)
            wild_left = base - n / 2 * np.log(best_wild + spread) - short_constants.WILD_COST
            without[i, j] = np.maximum(nothing[i, j], wild_left)
            posterior[i, j] = level - (n - columns) / 2 * np.log(left + spread) - one.log_volume
    statistic = np.maximum(0.0, 2 * (with_step.max((0, 1)) - without.max((0, 1))))
    worst = np.maximum(0.0, np.sqrt(statistic) - constants.SURE_OF_VALUES) ** 2
    best = nothing.max(1).argmax(0)
    places = range(courses.shape[1])
    return np.array([fits.p_value_at(worst[k], posterior[best[k], :, k]) < alpha for k in places])
