"""How the size of the noise changes along a short record: what a fit leaves is asked.

Noise of one size is assumed first. Where it is not - the noise of a loss is often in proportion to the loss - the loud
part of the record decides everything, and what the noise does there looks like a change. So what is left of the best
fit with a change is compared with sizes that follow the fit itself, up or down, or time, or ln t:

    size = 1 + c z,   z from 0 to 1 along one of them,   c up to a thousand

If one of them explains the rest much better than one size does, and its loud end is many times as loud as its quiet
one, it is the size of the noise. Where it is a few times as loud, one size keeps the level and finds more.
"""

import numpy as np
from jaxtyping import Bool, Float64

from probes.series.transitions import short_constants
from probes.series.transitions.fitted import beyond_basis
from probes.series.transitions.laws import AR1, coloured
from probes.series.transitions.likelihood import ChangeTest

Series = Float64[np.ndarray, " n"]


def noise_size(test: ChangeTest, record: Series, at: Series) -> Series | None:
    """The size of the noise at every value, its geometric mean 1; None where one size does, or it is a walk in time."""
    law = test.model.law
    if not isinstance(law, AR1):
        return None
    size = np.ones(len(record)) if law.size is None else law.size
    used = np.column_stack([test.basis, beyond_basis(test.basis, law.whiten(test.shape(len(record))))])
    white = law.whiten(record)
    rest = white - used @ (used.T @ white)
    free = 1 - (used**2).sum(1)  # the share of a value that the fit does not take
    known = free > short_constants.FREE_VALUE
    left = size[known] * rest[known] / np.sqrt(free[known])
    best = size_of_rest(left, known, record - size * coloured(law.rho, rest), at)
    return best if best is not None and best.max() >= short_constants.LOUDER * best.min() else None


def size_of_rest(
    left: Float64[np.ndarray, " known"], known: Bool[np.ndarray, " n"], fitted: Series, at: Series
) -> Series | None:
    """The size of noise of which this is left at the values that are known, beside a fit; None where one size does."""
    tried = [np.ones(len(at)), *(1 + c * z for z in _along(fitted, at) for c in short_constants.SIZES)]
    logs = np.array([2 * _log_likelihood(left, one[known]) for one in tried])
    best = tried[int(logs.argmax())]
    return best / np.exp(np.log(best).mean()) if logs.max() >= logs[0] + short_constants.SIZE_LR else None


def _along(fitted: Series, at: Series) -> list[Series]:
    """From 0 to 1 with the fit, time and ln t, each in both directions."""
    courses = [fitted, at, np.log(at - at[0] + (at[1] - at[0]))]
    rising = [(one - one.min()) / max(float(np.ptp(one)), 1e-300) for one in courses]
    return [*rising, *(1 - one for one in rising)]


def _log_likelihood(left: np.ndarray, size: np.ndarray) -> float:
    return -float(np.log(size).sum()) - len(left) / 2 * float(np.log(((left / size) ** 2).sum() + 1e-300))
