"""Dips and spikes: what goes down and up again, where it turns, and what only looks like one."""

import numpy as np
import pytest

import probes


def logistic(t, centre, width):
    return 1 / (1 + np.exp((t - centre) / width))


@pytest.mark.parametrize("sampling", ["dense", "log-spaced"])
def test_a_dip_is_found_at_its_bottom_and_not_counted_as_a_cliff_as_well(rng, sampling):
    steps = np.arange(1, 6000.0) if sampling == "dense" else np.geomspace(1, 1e4, 300)
    noise = 0.5 if sampling == "dense" else 0.15
    values = 10 - 3 * np.exp(-0.5 * (np.log(steps / 700) / 0.3) ** 2) + noise * rng.standard_normal(len(steps))
    found = probes.find_transitions(values, steps)
    dips = found[found["kind"] == "dip"]
    assert len(dips) == 1
    assert dips["step"].iloc[0] == pytest.approx(700, rel=0.1)
    assert set(found["kind"]) <= {"dip", "settled"}


def test_a_bump_that_comes_back_is_no_cliff(rng):
    steps = np.arange(0, 3000.0)
    bump = np.exp(-0.5 * ((steps - 1200) / 60) ** 2) + 0.03 * rng.standard_normal(3000)
    assert "cliff" not in set(probes.find_transitions(bump, steps)["kind"])


def test_two_dips_are_two_and_as_deep_as_planted(rng):
    steps = np.arange(1, 8000.0)
    values = 5 + 0.2 * rng.standard_normal(len(steps))
    for at in (600, 3500):
        values -= 2 * np.exp(-0.5 * (np.log(steps / at) / 0.15) ** 2)
    dips = probes.find_transitions(values, steps).query("kind == 'dip'")
    np.testing.assert_allclose(dips["step"], [600, 3500], rtol=0.05)
    assert ((dips["low"] < dips["step"]) & (dips["step"] < dips["high"])).all()
    # the depth is that of a block mean against its neighbours, so somewhat less than that of the very bottom
    assert dips["strength"].between(0.35, 0.8).all()


def test_intervals_of_dips_cover_the_bottom(seeds):
    covered = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        steps = np.arange(1, 5000.0)
        values = 5 - 2 * np.exp(-0.5 * ((steps - 1500) / 200) ** 2) + 0.5 * rng.standard_normal(len(steps))
        dip = probes.find_transitions(values, steps).query("kind == 'dip'").iloc[0]
        covered.append(dip["low"] <= 1500 <= dip["high"])
        assert dip["high"] - dip["low"] < 200
    assert np.mean(covered) >= 0.8


def test_intervals_cover_the_bottom_of_dips_whose_flanks_differ(seeds):
    covered = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        steps = np.arange(1, 101.0) * 50 if seed % 2 else np.arange(1, 5000.0)
        in_log_time = np.exp(-0.5 * (np.log(steps / 1500) / 0.25) ** 2)
        back = 1 / (1 + np.exp((steps - 1500) / 60)) - 1 / (1 + np.exp((steps - 2000) / 150))
        for shape, bottom in ((in_log_time, 1500.0), (-back, steps[np.argmin(back)])):
            values = -2 * shape + 0.1 * rng.standard_normal(len(steps))
            dip = probes.find_transitions(values, steps).query("kind == 'dip'").iloc[0]
            covered.append(dip["low"] <= bottom <= dip["high"])
            assert dip["high"] - dip["low"] < 500
    assert np.mean(covered) >= 0.8


@pytest.mark.parametrize("half", [200, 400, 800])
def test_a_dip_whose_bottom_was_not_recorded_is_put_into_the_gap(half, rng):
    steps = np.arange(1, 601.0) * 10
    steps = steps[np.abs(steps - 3000) > half]
    values = -np.exp(-0.5 * (np.log(steps / 3000) / 0.3) ** 2) + 1e-3 * rng.standard_normal(len(steps))
    (dip,) = probes.find_transitions(values, steps).query("kind == 'dip'").to_dict("records")
    assert dip["low"] <= 3000 <= dip["high"]


def test_a_spike_is_told_at_its_top_though_it_sets_out_at_once(rng):
    steps = np.arange(1, 4001.0)
    since = steps - 2000
    spike = np.where(since >= 0, np.exp(-np.maximum(since, 0) / 60), 0.0)
    found = probes.find_transitions(np.exp(-steps / 1500) + spike + 0.02 * rng.standard_normal(4000), steps)
    assert list(found["kind"]) == ["spike"]
    assert found["step"][0] == pytest.approx(2000, rel=0.01)


@pytest.mark.parametrize("rise", [5.3, 8.0])
@pytest.mark.parametrize("noise", [0.001, 0.01])
def test_a_test_loss_that_rises_and_is_learned_then_falls_and_is_no_spike(rise, noise, rng):
    steps = np.arange(1, 3601.0)
    up, down = ((1 + (at / steps) ** power) ** -1 for at, power in ((140, 4), (2000, 5)))  # logistics in ln t
    values = 4.8 + rise * up - (4.8 + rise) * down
    found = probes.find_transitions(values + noise * np.ptp(values) * rng.standard_normal(3600), steps)
    falls = found[found["kind"].isin(["cliff", "stage"]) & (found["direction"] == "fall")]
    assert len(falls) == 1
    assert falls["step"].iloc[0] == pytest.approx(2000, rel=0.05)
    assert "spike" not in set(found["kind"])


def test_a_spike_of_the_warm_up_is_no_cliff_though_the_loss_is_learned_under_it(rng):
    steps = np.arange(1, 20_001.0)
    spike = steps / 200 * np.exp(1 - steps / 200)
    values = (steps / 100 + 1) ** -0.3 + 1.5 * spike + 0.02 * rng.standard_normal(len(steps))
    found = probes.find_transitions(values, steps)
    assert "spike" in set(found["kind"])
    assert not set(found["kind"]) & {"cliff", "stage", "dip"}


def test_a_big_cliff_followed_by_a_small_dip_stays_a_cliff(rng):
    steps = np.arange(1, 6000.0)
    values = (
        logistic(steps, 1000, 30) - 0.08 * np.exp(-0.5 * ((steps - 1300) / 60) ** 2) + 0.005 * rng.standard_normal(5999)
    )
    kinds = probes.find_transitions(values, steps)["kind"]
    assert "cliff" in set(kinds)
