"""What tells a look that there is nothing to be found: the numbers of the search itself, to rounding, and shared."""

import numpy as np
import pytest

from probes.series.online import best_step
from probes.series.online.cells import cells_of
from probes.series.online.screen import search_if_promising
from probes.series.online.step_noise import StepNoise
from probes.series.transitions import cliffs
from probes.series.transitions.find import scaled_sums
from probes.series.transitions.noise import measure_noise
from probes.series.transitions.search import search_blocks

STEPS = {"every step": np.arange(90.0, 900.0), "unevenly": np.cumsum(1.0 + np.arange(500) % 3)}


def noisy(steps, rng, memory):
    """A decay under noise: independent, or partly a random walk."""
    noise = rng.standard_normal(len(steps))
    return np.exp(-steps / 300) + 0.05 * noise + 0.05 * memory * np.cumsum(noise)


@pytest.mark.parametrize("schedule", STEPS)
@pytest.mark.parametrize("memory", [0.0, 1.0])
def test_the_noise_is_that_of_the_search(schedule, memory, rng):
    steps = STEPS[schedule]
    scaled = noisy(steps, rng, memory)
    scaled = (scaled - scaled.min()) / (scaled.max() - scaled.min())
    expected, quick = measure_noise(scaled, steps, benefit=0.0), StepNoise(steps)
    one_value = quick.one_value(scaled, 1e-9)
    np.testing.assert_allclose(one_value, expected.one_value, rtol=1e-9)
    inflation, of_mean = quick.of_means(scaled, one_value)
    counts = np.array([1, 2, 7, 100, 400])
    np.testing.assert_allclose(inflation[counts], expected.inflation(counts), rtol=1e-8)
    np.testing.assert_allclose(of_mean[counts], np.sqrt(expected.inflation(counts) / counts), rtol=1e-8)
    assert (inflation[8] > 2) == (memory > 0)


@pytest.mark.parametrize("schedule", STEPS)
@pytest.mark.parametrize("memory", [0.0, 1.0])
def test_a_step_improves_the_fit_by_what_the_search_says(schedule, memory, rng):
    steps = STEPS[schedule]
    values = noisy(steps, rng, memory) - 0.3 / (1 + np.exp(-(steps - 400) / 20))
    sums = scaled_sums(values, steps, benefit=0.0)
    centre = np.linspace(200, 700, 21)
    for share in (0.3, 0.08, 0.02):
        expected = np.array([cliffs._improvement(sums, cliffs.Step(one, share * one), []) for one in centre])
        found = np.array([z for z, _ in best_step._improvements(sums, centre, share * centre)])
        np.testing.assert_allclose(
            found, expected[-len(found) :] if len(found) < 21 else expected, rtol=1e-6, atol=2e-3
        )
    best, z = cliffs._best_step(sums, _places(centre), [])
    assert best is not None
    tail = 2 * cliffs._places_looked_at(sums) * _tail(sums, best, z)
    assert best_step.has_step(sums, centre, tail)
    assert not best_step.has_step(sums, centre, tail * 1e-6)


def _places(centre):
    import pandas as pd

    return pd.DataFrame({"centre": centre})


def _tail(sums, step, z):
    from scipy.special import stdtr

    return float(stdtr(cliffs._freedom(cliffs._at_scale(sums, step).inflation[0]), -z))


def test_series_of_the_same_steps_share_what_depends_on_these():
    steps = STEPS["every step"]
    assert cells_of(steps) is cells_of(steps.copy())
    assert cells_of(steps[1:]) is not cells_of(steps)


@pytest.mark.parametrize("alpha", [1e-3, 0.3])
def test_what_is_not_searched_has_nothing_to_be_found_at_uneven_steps_either(alpha, rng):
    steps, found = STEPS["unevenly"], []
    for memory in (0.0, 0.3, 1.0):
        for height in (0.0, 0.1, 0.8):
            values = noisy(steps, rng, memory) - height / (1 + np.exp(-(steps - 500) / 15))
            found.append(search_blocks(scaled_sums(values, steps, benefit=0.0), alpha))
            assert search_if_promising(values, steps, alpha) == found[-1]
    assert any(found)
    assert not all(found)
