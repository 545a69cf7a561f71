"""A change in few values, judged by the noise around it."""

import numpy as np
import pytest
from scipy.stats import norm

from probes.series.online.local_noise import judged_where_it_is, noise_ratio
from probes.series.transitions.transition import Transition

STEPS = np.arange(100.0)


def zigzag(height) -> np.ndarray:
    """Every value is off the chord of its neighbours by its own height and the mean of theirs."""
    return height * (-1.0) ** np.arange(100)


def test_a_ratio_done_by_hand():
    height = np.where(STEPS < 30, 3.0, 1.0)
    # the residuals are 6 up to value 28, 5 and 3 at the seam, then 2; outside 10 to 20 are 1 to 8 and 22 to 98
    around = (8 * 6 + 7 * 6 + 5) / 16
    everywhere = np.sqrt((15 * 36 + 25 + 9 + 68 * 4) / 85)
    assert noise_ratio(zigzag(height), STEPS, (10, 20)) == pytest.approx(np.sqrt(np.pi / 2) * around / everywhere)


def test_where_the_noise_is_weaker_nothing_is_made_of_it():
    assert noise_ratio(zigzag(np.where(STEPS < 30, 3.0, 1.0)), STEPS, (60, 70)) == 1.0
    assert noise_ratio(np.zeros(100), STEPS, (60, 70)) == 1.0


def test_what_the_change_itself_does_is_not_noise():
    values = zigzag(np.ones(100)) + 50.0 * (STEPS > 50)
    assert noise_ratio(values, STEPS, (45, 55)) == pytest.approx(np.sqrt(np.pi / 2))


def test_z_is_divided_by_the_ratio():
    values, row = zigzag(np.where(STEPS < 30, 3.0, 1.0)), Transition(15, 14, 16, "cliff", "fall", 0.5, 1e-6, 1.0)
    ratio = noise_ratio(values, STEPS, (10, 20))
    judged = judged_where_it_is(row, (10, 20), values, STEPS)
    assert judged.p_value == pytest.approx(norm.sf(norm.isf(1e-6) / ratio))
    assert judged_where_it_is(row, (60, 70), values, STEPS) == row
