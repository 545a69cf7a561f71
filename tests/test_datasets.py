"""Data sets with truth: what they say happens is what happens in them, and the same seed gives the same numbers."""

import numpy as np
import pandas as pd
import pytest

import probes
from models.linear_icl.theory import PrintedTheory
from probes import datasets


@pytest.mark.parametrize("name", datasets.LINEAR_HEADS)
def test_the_closed_form_is_that_of_the_theory_beside_the_model(name):
    head = datasets.LINEAR_HEADS[name]
    theory = PrintedTheory(head.eigenvalues, head.context, head.init)
    times = np.linspace(0, 500, 301)
    np.testing.assert_array_equal(head.loss(times), theory.loss(times))
    np.testing.assert_array_equal(head.amplitudes(times), theory.modes(times))
    np.testing.assert_array_equal(head.half_times, theory.half_times)
    np.testing.assert_array_equal(head.loss_half_times, theory.loss_half_times)


def test_a_staged_loss_has_the_half_times_that_were_asked_for():
    data = datasets.staged_loss((40, 500, 20000), noise=0.0)
    np.testing.assert_allclose(data.half_times, [40, 500, 20000], rtol=1e-9)
    head = datasets.LinearHead.with_half_times((40, 500, 20000))
    for time, amplitudes in zip(data.half_times, head.amplitudes(data.half_times).T, strict=True):
        mode = list(data.half_times).index(time)
        assert amplitudes[mode] == pytest.approx(head.fixed_point[mode] / 2)


def test_half_of_each_drop_is_done_at_its_time_which_is_before_the_half_time():
    data = datasets.staged_loss((40, 4000), noise=0.0)
    plateau = float(data.series.loc[300:1000].mean())  # between the two stages
    assert probes.half_time(data.series.loc[:700], end=plateau) == pytest.approx(data.times[0], rel=0.02)
    assert probes.half_time(data.series.loc[700:], start=plateau) == pytest.approx(data.times[1], rel=0.02)
    assert pd.Series(data.times / data.half_times).between(0.85, 0.95).all()


def test_the_stages_are_found_where_they_are_said_to_be():
    data = datasets.staged_loss(noise=0.05, seed=3)
    cliffs = probes.find_transitions(data.series).query("kind == 'cliff'")
    np.testing.assert_allclose(cliffs["step"], data.times, rtol=0.05)
    np.testing.assert_allclose(cliffs["step"] + 1.1 * cliffs["width"], data.half_times, rtol=0.05)


def test_noise_is_in_proportion_to_the_loss():
    clean, noisy = (datasets.linear_head_loss(noise=noise).series for noise in (0.0, 0.1))
    relative = noisy / clean - 1
    assert relative.std() == pytest.approx(0.1, rel=0.02)
    assert relative.iloc[:1000].std() == pytest.approx(relative.iloc[-1000:].std(), rel=0.15)


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: datasets.staged_loss((50, 200), seed=seed).series,
        lambda seed: datasets.linear_head_loss("three, short context", spacing=0.1, seed=seed).series,
        lambda seed: datasets.null("random walk", 50, seed=seed).series,
        lambda seed: pd.Series(np.ravel(datasets.planted_weights(seed=seed).matrices)),
        lambda seed: pd.Series(np.ravel([m.left for m in datasets.planted_heads(seed=seed).matrices])),
    ],
)
def test_the_same_seed_gives_the_same_numbers_and_another_others(draw):
    pd.testing.assert_series_equal(draw(1), draw(1))
    assert (draw(1) != draw(2)).mean() > 0.9
    assert (draw([1, 0]) != draw([1, 1])).mean() > 0.9


def test_the_nulls_are_the_ones_that_published_false_alarm_rates_were_measured_on():
    eleventh = {kind: float(datasets.null(kind, 50, seed=[7, 0]).series.loc[11]) for kind in datasets.NULLS}
    assert eleventh == pytest.approx(
        {
            "white noise": 0.03091533,
            "exponential": 0.03091539,
            "exponential, noise in proportion": 0.20618312,
            "power law": 0.64796545,
            "power law without noise": 0.64487392,
            "random walk": 1.04946667,
            "slow random walk": -0.08645154,
            "autocorrelated": 0.92691080,
            "kink": 0.23091533,
        },
        rel=1e-6,
    )


@pytest.mark.parametrize("kind", datasets.NULLS)
def test_a_null_has_no_times(kind):
    data = datasets.null(kind, 40)
    assert len(data.times) == len(data.half_times) == 0
    assert (len(data.series), data.series.index[0], data.series.index.name) == (40, 1, "step")
    assert np.isfinite(data.series).all()
    assert "nothing happens" in repr(data)


def test_planted_modes_are_recovered_with_their_half_times_and_sizes():
    data = datasets.planted_weights((300, 1500, 4000))
    modes = probes.mode_trajectories(data.matrices, modes=3)
    np.testing.assert_allclose(modes, data.amplitudes, atol=0.02)
    reached = [probes.half_time(mode, data.steps, start=0) for mode in modes.T]
    np.testing.assert_allclose(reached, data.half_times, rtol=0.02)
    np.testing.assert_allclose(modes[-1], [3, 2, 1], rtol=0.01)
    assert probes.convergence_order(pd.DataFrame(modes, index=data.steps)) == [0, 1, 2]


def test_planted_heads_keep_their_own_times():
    data = datasets.planted_heads(((300, 1500), (3000, 600)), d_model=20, d_head=5)
    assert data.matrices[0].shape == (2, 20, 20)
    assert data.matrices[0].inner == 5
    modes = probes.mode_trajectories(data.matrices, modes=2)
    np.testing.assert_allclose(modes, data.amplitudes, atol=0.02)
    reached = [[probes.half_time(mode, data.steps, start=0) for mode in head.T] for head in np.moveaxis(modes, 1, 0)]
    np.testing.assert_allclose(reached, data.half_times, rtol=0.02)


def test_before_its_modes_have_grown_a_head_points_anywhere_and_afterwards_where_it_ends():
    data = datasets.planted_heads(((2000, 3000),), noise=0.2)
    distance = [
        float(probes.subspace_distance(matrix, data.matrices[-1], normalised=True, rank=2)[0])
        for matrix in data.matrices
    ]
    # a random two of the 32 dimensions score sqrt(1 - 2 / 32) = .97
    assert np.mean(np.array(distance)[data.steps < 100]) == pytest.approx(probes.random_subspace_level(2, 32), abs=0.05)
    assert max(np.array(distance)[data.steps > 6000]) < 0.1


def test_steps_and_noise_can_be_chosen():
    data = datasets.planted_weights((10,), steps=range(0, 50, 5), shape=(4, 3), noise=0.0)
    assert data.steps.tolist() == list(range(0, 50, 5))
    np.testing.assert_allclose([np.linalg.norm(m) for m in data.matrices], data.amplitudes[:, 0])
    assert data.amplitudes[2, 0] == 0.5
    noisy = datasets.planted_weights((10,), steps=range(1000, 1400), shape=(4, 3), noise=0.3).matrices  # all grown
    rest = np.array(noisy) - np.mean(noisy, axis=0)
    assert np.sqrt((rest**2).sum((1, 2)).mean()) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: datasets.null("walk"), "kind is 'walk': one of white noise, exponential"),
        (lambda: datasets.linear_head_loss("five"), "setting is 'five': one of four modes, three, wide apart"),
        (lambda: datasets.staged_loss((500, 30)), "half_times is .*: positive times in ascending order"),
        (lambda: datasets.staged_loss(()), "half_times is .*: positive times in ascending order"),
        (lambda: datasets.LinearHead.with_half_times((1,), init=2.0), "init is 2: from half of a fixed point or more"),
        (lambda: datasets.LinearHead((1, -1)), "positive eigenvalues, context and init are expected"),
        (lambda: datasets.planted_weights((0, 5)), "positive steps are expected"),
        (lambda: datasets.planted_weights(steps=[0, 5, 5]), r"steps is \[0, 5, 5\]: steps that increase"),
        (lambda: datasets.planted_weights(range(1, 6), shape=(4, 9)), "5 modes do not fit into 4 dimensions"),
        (lambda: datasets.planted_heads(((1, 2, 3),), d_head=2), "at most d_head = 2 modes"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reprs_are_one_line():
    for data in (datasets.staged_loss((50, 200)), datasets.planted_weights(), datasets.planted_heads()):
        assert "\n" not in repr(data)
        assert len(data.description) > 20
