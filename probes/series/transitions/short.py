"""Short records, 20 to 250 values: changes found one after the other by the likelihood ratio on the values themselves.

The best step or bump is tested (`likelihood.py`); if it is sure, it joins the baseline, and the next one is looked for.
Two changes may hide each other: where the best is not sure, the next is looked for beside it, and if that is sure, at a
price, it is kept and the first tested again. In the end each is tested once more beside all
others; none is taken for surer than those that it was found beside, or p would be too small where the first is none. A
step is a cliff, a bump down a dip, a bump up a spike. Single wild values are taken for what their surroundings say.
Noise may be AR(1), or a walk in time under independent noise (`laws.py`); where what all changes leave is louder in one
part of the record than in another, everything is searched again with noise of that size (`sizes.py`).

The middle of a step is located with ten shapes, because nobody knows the true one: a logistic to the powers of
`cliffs.py`, each in the number of the value and in t. The interval is every place that the profile likelihood of one of
them does not exclude at 95 %, and a share of the width for what no shape fits.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.baselines import Columns
from probes.series.transitions.likelihood import ChangeTest, change_test
from probes.series.transitions.models import Fits, fits_for
from probes.series.transitions.sizes import noise_size
from probes.series.transitions.transition import Transition

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class ShortSearch:
    """What a search found, and what it rests on.

    rest is the test that ended it, the first that is not sure; record are the values without wild ones, their range 1;
    known the courses of what was found.
    """

    rows: list[Transition]
    rest: ChangeTest
    fits: Fits
    record: Series
    known: Columns

    @property
    def log_likelihood(self) -> float:
        """Of the record, less what the changes cost: place, width and height each (BIC)."""
        return self.rest.log_likelihood - 1.5 * self.known.shape[1] * float(np.log(len(self.record)))


def search_values(
    values: Series, at: Series, alpha: float, rho: float | None = None, *, is_quick: bool = False
) -> ShortSearch:
    """What has p < alpha.

    Who looks again and again is quick, in a fifth of the time: changes that hide each other are not looked for, and the
    noise is AR(1) of one size.
    """
    whole = (values - values.mean()) / (values.max() - values.min())
    hidden = 0 if is_quick else short_constants.HIDDEN_SHAPES
    best = found = _search(fits_for(at, rho, is_quick=is_quick), whole, alpha, hidden)
    for _ in range(0 if is_quick else short_constants.SIZE_FITS):
        # what the wrong size leaves says little about the right one, so it is taken from the next search again
        size = noise_size(found.rest, found.record, at)
        if size is None:
            break
        found = _search(fits_for(at, rho, size=size), whole, alpha, hidden)
        best = max(best, found, key=lambda one: one.log_likelihood)
    return best


def _search(fits: Fits, whole: Series, alpha: float, hidden: int) -> ShortSearch:
    """The search under the laws of these fits."""
    found: list[ChangeTest] = []
    cost = short_constants.HIDDEN_COST
    record, last = _tamed(fits, whole)
    while len(found) < short_constants.MOST_SHAPES:
        aside: list[ChangeTest] = []
        while (p_value := cost ** len(aside) * last.p_value) >= alpha and len(aside) < hidden:
            aside.append(last)
            last = change_test(_beside(fits, [*found, *aside]), record)
        if p_value >= alpha:
            last = aside[0] if aside else last
            break
        no_surer = max([p_value, *(test.p_value for test in found)])  # than what it was found beside
        found.append(replace(last, p_value=no_surer))
        record, last = _tamed(_beside(fits, found), whole)
    if len(found) > 1:
        found = _again(fits, found, record, alpha)
    rows = []
    for test in found:
        here = np.where(_is_within(test, np.arange(len(whole))), whole, record)  # half-way down is not wild
        rows.append(located(_beside(fits, [other for other in found if other is not test]), here, test))
    known = np.column_stack([np.zeros((fits.n, 0)), *(test.shape(fits.n) for test in found)])
    return ShortSearch(_distinct(rows), last, fits, record, known)


def _is_within(test: ChangeTest, value: Any) -> Any:
    """Whether values of these numbers are part of a change."""
    return abs(value - test.shape.place) <= _extent(test)


def _extent(test: ChangeTest) -> float:
    """How many values to either side of its place are part of a change."""
    return short_constants.EXTENT[0] + short_constants.EXTENT[1] * test.shape.width


def _distinct(rows: list[Transition]) -> list[Transition]:
    """Of two that overlap, the surer."""
    kept: list[Transition] = []
    for row in sorted(rows, key=lambda row: row.p_value):
        if all(abs(row.step - other.step) > 2 * (row.width + other.width) or row.kind != other.kind for other in kept):
            kept.append(row)
    return kept


def _beside(fits: Fits, found: list[ChangeTest]) -> Fits:
    return fits.beside(np.column_stack([test.shape(fits.n) for test in found])) if found else fits


def _tamed(fits: Fits, record: Series) -> tuple[Series, ChangeTest]:
    """The record without its wild values, one after the other, and its test."""
    test = change_test(fits, record)
    for _ in range(int(np.ceil(short_constants.WILD_SHARE * fits.n))):
        if not test.wild.any():
            break
        record = record - test.wild
        test = change_test(fits, record)
    return record, test


def _again(fits: Fits, found: list[ChangeTest], record: Series, alpha: float) -> list[ChangeTest]:
    """Each tested beside all others; what is not sure then is left out, the least sure first."""
    while len(found) > 1:
        tests = [change_test(_beside(fits, [other for other in found if other is not one]), record) for one in found]
        worst = max(range(len(tests)), key=lambda k: tests[k].p_value)
        if tests[worst].p_value < alpha:
            return [one for one in _settled(fits, found, tests, record) if one.p_value < alpha]
        found = [one for k, one in enumerate(found) if k != worst]
    test = change_test(fits, record)
    if test.p_value >= alpha:
        return []
    # two wild values look like a bump, and are not needed beside a step elsewhere; a step on its flank is part of one
    apart = abs(test.shape.place - found[0].shape.place) > _extent(test) + _extent(found[0])
    is_wild = apart and test.shape.kind == "bump" and found[0].shape.kind == "step"
    return found if is_wild else [test]


def _settled(fits: Fits, found: list[ChangeTest], tests: list[ChangeTest], record: Series) -> list[ChangeTest]:
    """Each where it is best beside the others, one after the other, the surest of the tests first."""
    now = [replace(one, p_value=max(one.p_value, test.p_value)) for one, test in zip(found, tests, strict=True)]
    for turn, k in enumerate(sorted(range(len(found)), key=lambda k: tests[k].p_value)):
        others = [one for i, one in enumerate(now) if i != k]
        best = tests[k] if turn == 0 else change_test(_beside(fits, others), record)
        if _is_same(best, found[k]):
            now[k] = replace(best, p_value=max(best.p_value, now[k].p_value))
    return now


def _is_same(one: ChangeTest, other: ChangeTest) -> bool:
    """Whether two tests found one change."""
    near = abs(one.shape.place - other.shape.place) < max(_extent(one), _extent(other))
    return near and one.shape.kind == other.shape.kind


def located(fits: Fits, record: Series, test: ChangeTest) -> Transition:
    """Where the change of a test is, with its interval."""
    n, shape, at = fits.n, test.shape, fits.at
    reach = max(short_constants.LOCATE_VALUES, constants.LOCATE_WIDTHS * shape.width)
    places = np.arange(
        max(0.5, shape.place - reach), min(n - 1.5, shape.place + reach) + 1e-9, short_constants.LOCATE_SPACING
    )
    stretched = [max(short_constants.SHARP, shape.width * stretch) for stretch in short_constants.SHAPE_STRETCHES]
    widths = np.array(sorted({*stretched, *(short_constants.SHARP_WIDTHS if shape.width < 1 else ())}))
    courses = _courses(shape.kind, places, widths, at)  # [values, places, widths, axes, powers]
    log = _profile(fits, record, test, courses)
    log[..., len(constants.USUAL_POWERS) :] -= short_constants.UNUSUAL_COST
    i = int(log.max((1, 2, 3)).argmax())
    j = int(log[i, ..., : len(constants.USUAL_POWERS)].max((1, 2)).argmax())
    inside = places[log.max((1, 2, 3)) > log.max() - constants.PROFILE / 2]
    half = short_constants.LOCATE_SPACING / 2
    error = float(np.hypot(short_constants.PLACE_ERROR, short_constants.SHAPE_ERROR * widths[j]))
    below = np.hypot(max(places[i] - inside.min(), 0.0) + half, error)
    above = np.hypot(max(inside.max() - places[i], 0.0) + half, error)
    low, step, high = (float(np.interp(x, np.arange(n), at)) for x in (places[i] - below, places[i], places[i] + above))
    gap = float(np.interp(places[i] + 0.5, np.arange(n), at) - np.interp(places[i] - 0.5, np.arange(n), at))
    down = test.height > 0
    kind = "cliff" if shape.kind == "step" else "spike" if down else "dip"
    direction = {"cliff": "fall" if down else "rise", "spike": "rise", "dip": "fall"}[kind]
    return Transition(
        step, low, high, kind, direction, min(1.0, abs(test.height)), test.p_value, float(widths[j]) * gap
    )


def _profile(fits: Fits, record: Series, test: ChangeTest, courses: np.ndarray) -> np.ndarray:
    """Log likelihood with every course, beside what of the baselines is in use at the best, and the simple ones."""
    shape = courses.shape[1:]
    law, n = test.model.law, fits.n
    white, flat = law.whiten(record), law.whiten(courses.reshape(n, -1))
    best = np.full(flat.shape[1], np.inf)
    models = next(models for models in fits.models if models[0].law is law)
    tried = [(test.basis, test.model.charge), *((model.basis, model.charge) for model in models if not model.sign)]
    if test.left_out is not None and _is_within(test, test.left_out):
        tried = test.whole  # what was done without to find the change is part of it
    for basis, charge in tried:
        rest, beyond = white - basis @ (basis.T @ white), flat - basis @ (basis.T @ flat)
        length = np.maximum((beyond**2).sum(0), 1e-12)
        height = np.sign(test.height) * (beyond.T @ rest) / length
        is_meant = (height > 0) & (height < short_constants.SHAPE_HEIGHTS[1])  # and is held up by no baseline
        left = np.maximum(float(rest @ rest) - np.where(is_meant, height, 0.0) ** 2 * length, 1e-18)
        best = np.minimum(best, np.log(left) - 2 / n * charge)
    return (-n / 2 * best).reshape(shape)


def _courses(kind: str, places: np.ndarray, widths: np.ndarray, at: Series) -> np.ndarray:
    """Courses [values, places, widths, axes, powers] whose middle is at these places, among the values.

    The axes of a bump are its skews: how much wider one flank is than the other.
    """
    number = np.arange(len(at), dtype=np.float64)
    away = (number[:, None, None] - places[:, None]) / widths
    if kind == "bump":
        away, skew = away[..., None], np.array(short_constants.BUMP_SKEWS)
        return np.exp(-0.5 * np.where(away > 0, away / skew, away * skew) ** 2)[..., None]
    middle = np.interp(places, number, at)
    spacing = np.interp(places, number, np.gradient(at))
    in_time = (at[:, None, None] - middle[:, None]) / (widths * spacing[:, None])
    x, power = np.stack([away, in_time], axis=-1)[..., None], np.array(constants.STEP_POWERS)
    return ((1 - np.tanh((x + np.log(2 ** (1 / power) - 1)) / 2)) / 2) ** power  # half done at x = 0
