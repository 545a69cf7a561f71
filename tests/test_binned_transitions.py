"""Long records in means over bins: laws of their noise, and what is found that blocks alone do not show."""

import numpy as np
import pytest

import probes
from probes.series.transitions.bins import BinnedRecord, search_bins
from probes.series.transitions.find import scaled_sums
from probes.series.transitions.laws import coloured, covariance_of_means, inverse_root
from probes.series.transitions.recoveries import spike_if_it_recovers
from probes.series.transitions.search import _elsewhere, search_blocks
from probes.series.transitions.transition import Transition

pytestmark = pytest.mark.filterwarnings("ignore:.*could be:UserWarning")
STEPS = np.arange(1.0, 20_001)


def noise(rho: float, seed: int, n: int = len(STEPS)) -> np.ndarray:
    """AR(1) noise of unit variance."""
    return np.sqrt(1 - rho**2) * coloured(rho, np.random.default_rng(seed).standard_normal((n, 1)))[:, 0]


@pytest.mark.parametrize(("rho", "white"), [(0.0, 1.0), (0.5, 0.0), (0.9, 0.3), (0.999, 0.03)])
def test_the_law_of_means_is_that_of_the_values_averaged(rho, white):
    count = np.array([1, 1, 2, 3, 5, 9, 40])
    end, n = np.cumsum(count), count.sum()
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    values = (1 - white) * rho**apart + white * np.eye(n)
    average = np.zeros((len(count), n))
    for i, (first, last) in enumerate(zip(end - count, end, strict=True)):
        average[i, first:last] = 1 / (last - first)
    expected = average @ values @ average.T
    found = covariance_of_means(count, rho, white)
    np.testing.assert_allclose(found, expected, rtol=1e-7)  # 1 - rho cancels at .999
    root = inverse_root(found)
    np.testing.assert_allclose(root @ found @ root.T, np.eye(len(count)), atol=1e-9)


def test_means_are_over_all_values_and_bins_are_even_in_log_time():
    record = BinnedRecord(STEPS.copy(), STEPS)
    grid = record.grid
    assert grid.count.sum() == len(STEPS)
    np.testing.assert_allclose(grid.means(STEPS)[-1], STEPS[grid.first[-1] :].mean())
    width = np.log(STEPS[grid.first[-1]] / STEPS[grid.first[-2]])
    assert np.log(STEPS[grid.first[-20]] / STEPS[grid.first[-21]]) == pytest.approx(width, rel=0.05)


def test_a_fall_under_correlated_noise_is_found_in_bins_where_blocks_see_nothing():
    at, found, by_blocks = 6000.0, 0, 0
    for seed in range(4):
        values = np.exp(-np.exp(np.clip((STEPS - at) / 400, -50, 6))) + 0.12 * noise(0.9, seed)
        steps = [row for row in search_bins(values, STEPS, 0.005) if abs(np.log(row.step / at)) < 0.1]
        found += any(row.low <= at + 400 * np.log(np.log(2)) <= row.high and row.direction == "fall" for row in steps)
        by_blocks += any(row.kind == "cliff" for row in search_blocks(scaled_sums(values, STEPS), 0.01))
    assert found == 4
    assert by_blocks < 4


def test_a_random_walk_is_noise_of_long_memory():
    alarms = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        walk = np.cumsum(rng.standard_normal(3000)) / np.sqrt(3000) + 0.05 * rng.standard_normal(3000)
        alarms += len(search_bins(walk, STEPS[:3000] * 10, 0.005)) > 0
    assert alarms <= 1


def test_a_loss_that_sets_out_slowly_under_a_warm_up_is_no_step():
    rate = np.minimum(STEPS / 300, 1)
    values = (np.cumsum(rate) / 50 + 1) ** -0.35 + 0.01 * noise(0.0, 3)
    assert search_bins(values, STEPS, 0.005) == []


def test_a_loss_under_a_cosine_after_a_warm_up_has_no_step():
    share = STEPS / STEPS[-1]
    rate = np.minimum(share / 0.01, 1) * (0.55 + 0.45 * np.cos(np.pi * share))
    clean = (np.cumsum(rate) / STEPS[-1] * 300 + 1) ** -0.35 + 0.03 * rate
    for seed in range(2):
        assert search_bins(clean + 0.01 * noise(0.0, seed), STEPS, 0.005) == []


def test_a_drop_of_a_loss_that_falls_in_log_time_is_no_random_walk():
    steps = np.unique(np.round(np.geomspace(1, 1e5, 380)))
    x, found = np.log(steps), 0
    for seed in range(4):
        clean = -0.12 * x - 1 / (1 + np.exp(-(x - np.log(3500)) / 0.17))
        rows = search_bins(clean + 0.04 * noise(0.5, seed, len(steps)), steps, 0.005)
        found += any(row.low <= 3500 <= row.high for row in rows)
    assert found >= 3


@pytest.mark.parametrize(("n", "decades"), [(150, 6), (150, 7), (400, 6), (400, 9)])
def test_a_loss_that_falls_smoothly_over_many_decades_has_no_transition(n, decades):
    alarms = 0
    for seed in range(3):
        values = 1 / (1 + 8 * np.arange(n) / n) + 0.01 * noise(0.0, seed, n)
        found = probes.find_transitions(values, np.geomspace(1, 10.0**decades, n))
        alarms += found["kind"].isin(["cliff", "stage", "dip"]).any()
    assert alarms == 0


def test_a_jump_upwards_is_a_rise_and_no_dip():
    values = np.exp(-STEPS / 6000) + 0.4 * (STEPS > 9000) + 0.05 * noise(0.0, 4)
    found = probes.find_transitions(values, STEPS)
    assert set(found["kind"]) - {"settled"} == {"cliff"}
    row = found[found["kind"] == "cliff"].iloc[0]
    assert row["direction"] == "rise"
    assert row["low"] <= 9000 <= row["high"]


@pytest.mark.parametrize("size", [0.01, 0.04])
def test_few_values_on_the_way_up_are_enough_to_call_it_a_warm_up_spike(size):
    steps = np.arange(1, 2001) * 50.0  # 24 of them before the top
    u = steps / 1200
    found = probes.find_transitions((3 * u + 1) ** -0.3 + u * np.exp(1 - u) + size * noise(0.0, 7, 2000), steps)
    assert found["kind"].tolist() == ["spike"]
    assert 600 < found["step"].iloc[0] < 1800


def test_a_fall_of_which_the_end_was_not_recorded_is_no_spike_for_a_small_rise_before_it():
    steps = np.arange(1.0, 401)
    values = 0.1 / (1 + np.exp(-(steps - 300) / 5)) + 1e-3 * noise(0.0, 6, 400)
    values[0] = 1.1  # the range of the record is that of the fall
    row = Transition(400.0, 380.0, 400.0, "cliff", "fall", 1.0, 1e-9, 30.0)
    assert spike_if_it_recovers(scaled_sums(values, steps), row) == row


def test_the_way_back_from_a_warm_up_spike_is_called_a_spike():
    u = STEPS / 300
    values = (3 * u + 1) ** -0.3 + 1.5 * u * np.exp(1 - u) + 0.1 * noise(0.0, 5)
    found = probes.find_transitions(values, STEPS)
    assert "cliff" not in set(found["kind"])
    assert "spike" in set(found["kind"])
    assert 200 < found[found["kind"] == "spike"]["step"].iloc[0] < 450


def test_of_two_findings_at_one_place_the_surer_is_kept():
    sure, other = (Transition(1000.0 * x, 0, 0, "stage", way, 0.3, p, 50.0)
                   for x, way, p in ((1.0, "fall", 1e-9), (1.2, "rise", 1e-4)))  # fmt: skip
    far = Transition(9000.0, 0, 0, "stage", "fall", 0.3, 1e-3, 50.0)
    assert _elsewhere([other, far, sure], []) == [sure, far]
    assert _elsewhere([other, far], [sure]) == [far]
