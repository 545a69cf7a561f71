"""The likelihood ratio for one change in a short record, on its values themselves.

On 20 to 250 values there are no blocks to take means of, and the correlation of the noise cannot be measured apart from
the curve. So everything is fitted together:

    value = baseline + one shape + noise

The baseline is any convex curve, any concave curve (`cones.py`) or a smooth one (`baselines.py`), whichever does best.
The shape is a step (a logistic in the number of the value) or a bump, at every place and many widths; the best few are
tried in finer steps of both, or a step with a value part of the way down would be missed where noise is low. The noise
is AR(1) with one of several rhos, or a walk in time under independent noise, whose neighbours have a mean correlation
that counts as rho. The statistic is twice the gain in log likelihood, T = 2 (max with a shape - max without), each
maximum over all baselines, all shapes and all laws of the noise; one wild value may be left out, two without a shape,
unless they are neighbours.

Where nothing happens, T hardly depends on the baseline, but on rho, on the number of values and on whether they are
evenly spaced. Its tail was drawn once for each (`null_tails.py`) and is carried on as an exponential. There are two
ways to a p-value, and the smaller one counts, doubled. The first is the mean of these tails over the posterior of rho
without a shape. It is careful to a fault: a step that is left unexplained looks like noise with rho = .96. The second
takes the gain under each rho by itself, with its tail where rho is known, and averages over rhos that are likely
without a shape; that a rho is likelier with one counts in part.

A rho known from elsewhere - pooled over the heads of a run, say - takes the place of the grid, and buys much power: a
step cannot be told from noise that may have rho = .96.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.baselines import Columns
from probes.series.transitions.fitted import (
    agree,
    basis_with,
    beyond_basis,
    finest,
    gains_of,
    is_beyond,
    left_with,
    left_without,
)
from probes.series.transitions.laws import Law
from probes.series.transitions.models import Fits, Model, fits_for
from probes.series.transitions.shapes import Shape

Series = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class ChangeTest:
    """The likelihood ratio of one record: its best shape, the height of it as a share of the range, and p.

    height > 0 is a step down or a bump up. noise is the sd of a value, as a share of the range, in the best fit with
    the shape, log_likelihood that of the record in it, model its baseline and law, basis what of it is in use; wild is
    how far every value is off if it is left out, zero where that is nothing unusual. left_out is the number of the
    value that this fit does without, if it does; whole are the baselines that are in use without doing so, under the
    same law, and their charges.
    """

    shape: Shape
    height: float
    statistic: float
    p_value: float
    noise: float
    wild: Series
    model: Model
    basis: Columns
    log_likelihood: float
    left_out: int | None = None
    whole: tuple[tuple[Columns, float], ...] = ()


def likelihood_ratio_test(
    values: Series, steps: Series, *, rho: float | None = None, known: Columns | None = None
) -> ChangeTest:
    """Whether one step or bump explains a record of 20 to 250 values better than drift and AR(1) noise do.

    values need no scaling. The columns of known are courses of changes found before, and part of the baseline. p_value
    is 1 where the best shape is too low or implausibly high (short_constants.SHAPE_HEIGHTS).
    """
    fits = fits_for(steps, rho)
    fits = fits if known is None else fits.beside(known)
    return change_test(fits, (values - values.mean()) / (values.max() - values.min()))


def change_test(fits: Fits, record: Series) -> ChangeTest:
    """The likelihood ratio of one record whose range is 1."""
    return _Search(fits, record).result()


def change_statistic(fits: Fits, record: Series) -> float:
    """T alone."""
    return _Search(fits, record).statistic


@dataclass(frozen=True)
class _Candidate:
    log: float
    shape: Shape
    model: Model


class _Search:
    """One record among all baselines, shapes and rhos of its fits.

    Where it is explained better without one of its values, a shape is looked for beside that as well. The null may do
    without a second one, at the same price: what one value at a bend or at the very beginning says is no shape.
    """

    def __init__(self, fits: Fits, record: Series, left_out: int | None = None) -> None:
        self.fits, self.record, self.n, self.left_out = fits, record, fits.n, left_out
        self.floor = constants.ROUNDING**2 * float(record @ record) + 1e-300
        models, nulls = fits.models, {}
        for j, law in enumerate(fits.laws):
            white = law.whiten(record)
            for i, model in enumerate(models[j]):
                nulls[j, i] = (white, *left_without(model, white))
        hinge, cones = self._hinge(models, nulls)[:, None], fits.cones  # the bend that this record wants
        models = [[*fits.models_under(law, hinge), *models[j][cones:]] for j, law in enumerate(fits.laws)]
        for j in range(len(fits.laws)):
            for i in range(cones):
                nulls[j, i] = (nulls[j, i][0], *left_without(models[j][i], nulls[j, i][0]))
        self.models = models
        wild = self._null(nulls)
        self.incomplete: _Search | None = None
        if left_out is None and wild is not None:
            self.incomplete = _Search(fits.beside(np.eye(self.n)[:, [wild]]), record, wild)
            self.without = max(self.without, self.incomplete.without - short_constants.WILD_COST)
            others = self.incomplete.without_by_law - short_constants.WILD_COST
            self.without_by_law = np.maximum(self.without_by_law, others)
        self._with_shape(nulls)

    def _hinge(self, models: list, nulls: dict) -> np.ndarray:
        """The hinge that adds most to a mixture of decays, or of what saturates."""
        fits, best, chosen = self.fits, -np.inf, 0
        for (j, i), (white, left, _, basis) in nulls.items():
            model = models[j][i]
            if not model.sign:
                continue
            bent = fits.white_hinges[j]
            rest = white - basis @ (basis.T @ white)
            beyond = np.maximum((bent**2).sum(0) - ((basis.T @ bent) ** 2).sum(0), 1e-9)
            along = model.sign * (bent.T @ rest)
            gain = np.where(along > 0, along**2 / beyond, 0.0)
            k = int(gain.argmax())
            log = float(model.log_likelihood(max(left - float(gain[k]), 1e-9 * left) + self.floor, self.n))
            if log > best:
                best, chosen = log, k
        return fits.hinges[:, chosen]

    def _null(self, nulls: dict) -> int | None:
        """The best fit without a shape; the number of the value that it would do without, if there is one."""
        n, best, wildest, wild = self.n, -np.inf, -np.inf, 0
        self.without_by_law = np.full(len(self.fits.laws), -np.inf)
        units = [law.whiten(np.eye(n)) for law in self.fits.laws]
        for (j, i), (white, left, _, basis) in nulls.items():
            model, unit = self.models[j][i], units[j]
            log = float(model.log_likelihood(left + self.floor, n))
            if log > best:
                best, self.null = log, (j, i)
            rest = white - basis @ (basis.T @ white)
            # leaving value k out: the whitened unit vector beyond the basis in use
            beyond = np.maximum((unit**2).sum(0) - ((basis.T @ unit) ** 2).sum(0), 1e-3)
            gains = (unit.T @ rest) ** 2 / beyond
            if self.left_out is not None:  # two next to each other are not wild
                gains[max(0, self.left_out - 1) : self.left_out + 2] = 0.0
            without = float(model.log_likelihood(max(left - float(gains.max()), 1e-3 * left) + self.floor, n))
            self.without_by_law[j] = max(self.without_by_law[j], log, without - short_constants.WILD_COST)
            if without > wildest:
                wildest, wild = without, int(gains.argmax())
        self.without = max(best, wildest - short_constants.WILD_COST)
        self.posterior = np.array([self._log_posterior(nulls[j, self.null[1]], j) for j in range(len(self.fits.laws))])
        return wild if wildest - short_constants.WILD_COST > best else None

    def _log_posterior(self, null: tuple, j: int) -> float:
        model, left, columns = self.models[j][self.null[1]], null[1] + self.floor, null[3].shape[1]
        return model.law.level - (self.n - columns) / 2 * float(np.log(left)) - model.log_volume

    def _with_shape(self, nulls: dict) -> None:
        """Every shape beside the columns in use without it; then the best few, in finer steps, beside all baselines."""
        n, shapes = self.n, self.fits.shapes
        scores, beside = np.full(len(shapes), -np.inf), np.zeros(len(shapes), dtype=int)
        nothing = next(iter(nulls))
        exact = [_Candidate(-np.inf, shapes[0], self.models[nothing[0]][nothing[1]])]
        net = self._net_changes()
        tried = [(j, i, white, basis) for (j, i), (white, _, _, basis) in nulls.items()]
        tried += [(j, 0, nulls[j, 0][0], basis) for j in range(len(self.fits.laws)) for basis in self.fits.simple[j]]
        for number, (j, i, white, basis) in enumerate(tried):
            model = self.models[j][i]
            left, gain, enough = gains_of(basis, white, self.fits.white[j], self.fits.lengths[j], net)
            log = model.log_likelihood(np.maximum(left - gain, 1e-9 * left) + self.floor, n)
            log = np.where(enough, log, -np.inf)
            beside[log > scores] = number
            scores = np.maximum(scores, log)
            which = int(log.argmax())
            if not model.sign and enough[which]:
                exact.append(_Candidate(float(log[which]), shapes[which], model))
        for which in self._distinct(scores):
            j, _, white, basis = tried[beside[which]]
            shape = shapes[which]
            if not self.fits.grid.is_fine:
                shape = finest(shape, net[which], self.fits.laws[j], white, basis)
            course = shape(n)
            for j, law in enumerate(self.fits.laws):
                white, whitened = nulls[j, 0][0], law.whiten(course)
                for model in self.models[j]:
                    if not model.sign and not is_beyond(model.basis, whitened):
                        continue
                    left, height = left_with(model, white, whitened)
                    if agree(height, net[which]):
                        exact.append(_Candidate(float(model.log_likelihood(left + self.floor, n)), shape, model))
        self.best = max(exact, key=lambda one: one.log)
        self.with_by_law = np.full(len(self.fits.laws), -np.inf)
        for one in exact:
            j = self._law(one.model)
            self.with_by_law[j] = max(self.with_by_law[j], one.log)

    def _net_changes(self) -> np.ndarray:
        """What the record itself does over the extent of every shape."""
        before, middle, after = self.record[self.fits.grid.extents].mean(2)
        into, out_of = middle - before, middle - after
        bump = np.where(into * out_of > 0, np.sign(into) * np.minimum(np.abs(into), np.abs(out_of)), 0.0)
        return np.where(self.fits.grid.are_steps, before - after, bump)

    def _distinct(self, scores: np.ndarray) -> list[int]:
        """The best shapes, of those of the same kind near each other one."""
        kept: list[int] = []
        for which in np.argsort(-scores):
            shape = self.fits.shapes[which]
            near = [self.fits.shapes[k] for k in kept]
            if all(
                shape.kind != other.kind
                or abs(shape.place - other.place) > 0.7 * max(shape.width, other.width, 1.0)
                or not 0.5 < shape.width / other.width < 2
                for other in near
            ):
                kept.append(int(which))
            if len(kept) == short_constants.EXACT_SHAPES:
                break
        return kept

    @property
    def statistic(self) -> float:
        """T."""
        own = max(0.0, 2 * (self.best.log - self.without))
        return max(own, self.incomplete.statistic) if self.incomplete else own

    def result(self) -> ChangeTest:
        """The test, with p, height and noise."""
        if self.incomplete and self.incomplete.statistic == self.statistic:
            return self._beside_all_values(self.incomplete.result())
        model, shape = self.best.model, self.best.shape
        white, course = model.law.whiten(self.record), model.law.whiten(shape(self.n))
        left, height = left_with(model, white, course)
        basis = basis_with(model, white, course)
        lowest, highest = short_constants.SHAPE_HEIGHTS
        statistic = self.statistic
        gains = self.with_by_law - self.without_by_law
        p_value = self.fits.p_value(statistic, self.posterior, gains) if lowest < abs(height) < highest else 1.0
        innovation = np.sqrt(left / max(1, self.n - model.basis.shape[1] - 3))
        noise = float(innovation) * model.law.sd
        wild = self._wild(model.law, white, np.column_stack([basis, beyond_basis(basis, course)]))
        log = self.best.log - short_constants.WILD_COST * (self.left_out is not None)
        return ChangeTest(shape, height, statistic, p_value, noise, wild, model, basis, log, self.left_out)

    def _beside_all_values(self, test: ChangeTest) -> ChangeTest:
        law = test.model.law
        white, course = law.whiten(self.record), law.whiten(test.shape(self.n))
        whole = tuple((basis_with(model, white, course), model.charge) for model in self.models[self._law(test.model)])
        return replace(test, whole=whole)

    def _law(self, model: Model) -> int:
        return next(j for j, law in enumerate(self.fits.laws) if law is model.law)

    def _wild(self, law: Law, white: np.ndarray, basis: np.ndarray) -> np.ndarray:
        """How far every value is off, each left out in turn; zero for all but the most outlying one, if it is that."""
        rest = white - basis @ (basis.T @ white)
        unit = law.whiten(np.eye(self.n))
        beyond = np.maximum((unit**2).sum(0) - ((basis.T @ unit) ** 2).sum(0), 1e-3)
        off = (unit.T @ rest) / beyond
        score = np.abs(off) * np.sqrt(beyond)
        scale = max(float(np.median(np.abs(rest))) / constants.NORMAL_MEDIAN, np.sqrt(self.floor))
        return np.where((score == score.max()) & (score > short_constants.WILD_SDS * scale), off, 0.0)
