"""Autocorrelation, curvature and times of one series, against sums done the long way and theory with known times."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import probes
from models.linear_icl.theory import PrintedTheory

FOUR_MODES = PrintedTheory([1, 0.5, 0.25, 0.125], 128, 1e-3)  # t* = 3.44, 15.1, 65.8, 284

series = st.lists(st.floats(-100, 100), min_size=5, max_size=40)


def long_way(values: np.ndarray) -> np.ndarray:
    return np.array([(values[: len(values) - lag] * values[lag:]).sum() for lag in range(len(values))])


def test_autocorrelation_done_by_hand():
    np.testing.assert_allclose(probes.loss_autocorrelation([3, 2, 1], end=0), [14 / 3, 8 / 3, 1], rtol=1e-12)
    np.testing.assert_allclose(probes.unbiased_loss_autocorrelation([3, 2, 1], end=0), [14 / 3, 4, 3], rtol=1e-12)
    np.testing.assert_allclose(probes.printed_loss_autocorrelation([3, 2, 1]), [14 / 3, 4, 3], rtol=1e-12)


@given(series)
def test_autocorrelation_agrees_with_the_sum_written_out(values):
    values = np.array(values)
    pairs = np.arange(len(values), 0, -1)
    tight = {"atol": 1e-9 * (1 + (values**2).sum())}
    np.testing.assert_allclose(
        probes.loss_autocorrelation(values), long_way(values - values[-1]) / len(values), **tight
    )
    np.testing.assert_allclose(
        probes.unbiased_loss_autocorrelation(values), long_way(values - values[-1]) / pairs, **tight
    )
    np.testing.assert_allclose(probes.printed_loss_autocorrelation(values), long_way(values) / pairs, **tight)


def test_the_end_is_the_mean_of_the_last_hundredth(rng):
    loss = np.concatenate((np.linspace(3, 1, 900), 1 + 0.3 * rng.standard_normal(100)))
    np.testing.assert_allclose(
        probes.loss_autocorrelation(loss), probes.loss_autocorrelation(loss, end=float(loss[-10:].mean()))
    )


@pytest.mark.parametrize("spacing", [0.02, 0.1])
def test_autocorrelation_curvature_peaks_at_the_times_the_modes_are_learned(spacing):
    loss = FOUR_MODES.loss(np.arange(0, 2000, spacing))
    curve = probes.loss_autocorrelation_curvature(loss, spacing=spacing, smoothing=0.05)
    found = probes.peaks(curve["curvature"], curve["lag"])
    np.testing.assert_allclose(found["step"], FOUR_MODES.half_times, rtol=0.05)


def test_autocorrelation_curvature_survives_noise_with_its_default_smoothing(rng):
    loss = FOUR_MODES.loss(np.arange(0, 2000, 0.05))
    noisy = loss * (1 + 0.1 * rng.standard_normal(len(loss)))
    curve = probes.loss_autocorrelation_curvature(noisy, spacing=0.05)
    found = probes.peaks(curve["curvature"], curve["lag"], prominence=0.3)
    np.testing.assert_allclose(found["step"].to_numpy()[-3:], FOUR_MODES.half_times[1:], rtol=0.1)


def test_norm_growth_hits_and_norm_curvature_leads():
    times = np.geomspace(0.1, 3000, 500)
    norms = np.sqrt(FOUR_MODES.modes(times).sum(-1))  # ||p2||_F with p = q = sqrt(a)
    growth = probes.peaks(probes.norm_growth(norms, times, smoothing=0.05), times)["step"] / FOUR_MODES.half_times
    lead = probes.peaks(probes.norm_curvature(norms, times, smoothing=0.05), times)["step"] / FOUR_MODES.half_times
    assert growth.between(0.95, 1.01).all()
    assert lead.between(0.76, 0.88).all()


@given(st.integers(0, 10**6), st.floats(0.05, 0.5))
def test_slope_and_curvature_of_a_parabola_are_exact_on_any_steps_and_with_any_smoothing(seed, smoothing):
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.uniform(1, 1e4, 60))
    x = np.log(steps)
    np.testing.assert_allclose(probes.slope(3 * x**2 - x, steps, smoothing=smoothing), 6 * x - 1, atol=1e-5)
    np.testing.assert_allclose(probes.curvature(3 * x**2 - x, steps, smoothing=smoothing), 6, atol=1e-4)


def test_linear_curvature_is_in_steps():
    steps = np.array([0.0, 1, 2, 4, 5, 7, 8, 10, 11, 12])
    np.testing.assert_allclose(probes.linear_curvature(steps**2 / 2, steps, smoothing=1.0), 1, atol=1e-9)


def test_inside_the_series_it_is_the_derivative_of_the_gaussian_smoothed_series():
    # smoothing sin(5 x) with a Gaussian of width h multiplies it by exp(-25 h^2 / 2)
    x = np.linspace(0, 12, 4000)
    found = probes.curvature(np.sin(5 * x), np.exp(x), smoothing=0.2)
    inside = (x > 1.5) & (x < 10.5)
    np.testing.assert_allclose(found[inside], -25 * np.exp(-25 * 0.04 / 2) * np.sin(5 * x[inside]), atol=0.15)


def test_the_ends_invent_no_bend(rng):
    steps = np.arange(1, 3001)
    bend = probes.curvature(2 - 0.3 * np.log(steps) + 0.001 * rng.standard_normal(3000), steps)
    assert np.abs(bend[steps > 20]).max() < 0.05


def test_peaks_are_refined_between_the_steps_and_ends_are_none():
    x = np.arange(0, 6, 0.3)
    found = probes.peaks(-((x - 2.4567) ** 2), np.exp(x))
    assert len(found) == 1
    assert np.log(found["step"][0]) == pytest.approx(2.4567, abs=1e-9)
    assert probes.peaks(np.arange(1.0, 9.0), np.arange(1.0, 9.0)).empty
    assert probes.peaks(np.ones(5), np.arange(1.0, 6.0)).empty


def test_half_time_is_the_logistic_midpoint():
    times = np.linspace(0, 40, 4001)
    mode = FOUR_MODES.modes(times)[:, 1]
    end = FOUR_MODES.fixed_point[1]
    assert probes.half_time(mode, times, start=0, end=end) == pytest.approx(FOUR_MODES.half_times[1], rel=1e-4)
    assert probes.half_time([4.0, 2.0, 0.0], [0, 10, 20]) == 10  # falling as well as rising
    assert probes.half_time([0.0, 4.0], [0, 8]) == 4


def test_settling_time_is_the_last_time_it_comes_within_reach():
    assert probes.settling_time([0, 1, 0, 1, 1], [0, 1, 2, 3, 4], tolerance=0.5) == 2.5
    times = np.linspace(0, 10, 10001)
    assert probes.settling_time(np.exp(-times), times, tolerance=0.05, end=0.0) == pytest.approx(
        -np.log(0.05), rel=1e-3
    )
    assert probes.settling_time([1.0, 1.01, 2.0, 1.0, 1.0], tolerance=0.9) < 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: probes.loss_autocorrelation([1.0, 2.0]), "loss has 2 entries: at least 3"),
        (lambda: probes.loss_autocorrelation([1.0, np.nan, 2.0]), "loss holds nan at index 1"),
        (lambda: probes.loss_autocorrelation(np.ones((3, 3))), r"loss has shape \(3, 3\): one number per step"),
        (lambda: probes.loss_autocorrelation(["a", "b", "c"]), "loss is not a series of numbers"),
        (lambda: probes.loss_autocorrelation_curvature(np.ones(50), spacing=0), "spacing is 0"),
        (lambda: probes.curvature([1, 2, 3, 4], [1, 2, 2, 3]), "entry 1 is 2 and entry 2 is 2"),
        (lambda: probes.curvature([1, 2, 3, 4], [1, 2, 3]), "values has 4 entries and steps has 3"),
        (lambda: probes.curvature([1, 2, 3, 4], [0, 1, 2, 3]), "steps begin at 0, which has no logarithm"),
        (lambda: probes.curvature([1, 2, 3], [1, 2, 3]), "values has 3 entries: at least 4"),
        (lambda: probes.curvature([1, 2, 3, 4], [1, 2, 3, 4], smoothing=0), "smoothing is 0"),
        (lambda: probes.curvature([1, 2, 3, 4], [1, 2, 3, np.inf]), "steps holds inf at index 3"),
        (lambda: probes.linear_curvature(np.ones(9), np.arange(9), smoothing=500), "nothing left to differentiate"),
        (lambda: probes.peaks([1, 2, 1], [1, 2, 3], prominence=0), "prominence is 0"),
        (lambda: probes.half_time([1.0, 1.0]), "start and end are both 1"),
        (lambda: probes.half_time([1.0, 2.0], end=9.0), "never comes halfway from 1 to 9"),
        (lambda: probes.settling_time([1.0, 1.0]), "constant at 1"),
        (lambda: probes.settling_time([1.0, 2.0], tolerance=2), "tolerance is 2"),
        (lambda: probes.settling_time([1.0, 2.0], end=0.0), "ends at 2, further than"),
    ],
)
def test_what_is_not_a_usable_series_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_dense_and_sparse_stretches_count_alike():
    # the left half is sampled twenty times as densely; the smoothed derivative must not notice
    x = np.concatenate((np.linspace(0, 6, 601)[:-1], np.linspace(6, 12, 61)))
    found = probes.curvature(np.sin(2 * x), np.exp(x), smoothing=0.3)
    near = (x > 5) & (x < 7)
    np.testing.assert_allclose(found[near], -4 * np.exp(-4 * 0.09 / 2) * np.sin(2 * x[near]), atol=0.1)


def test_a_large_offset_does_not_matter():
    x = np.linspace(0, 5, 200)
    np.testing.assert_allclose(probes.curvature(x**2 + 1e10, np.exp(x)), 2, atol=1e-2)


def test_the_curvature_of_the_autocorrelation_is_that_of_its_lags():
    loss = FOUR_MODES.loss(np.arange(0, 90, 0.1))
    found = probes.loss_autocorrelation_curvature(loss, spacing=0.1)
    lags = np.arange(1, len(loss))
    np.testing.assert_allclose(found["lag"], 0.1 * lags)
    expected = probes.curvature(probes.loss_autocorrelation(loss)[1:], lags)
    np.testing.assert_allclose(found["curvature"], expected, rtol=1e-6, atol=1e-12)


def test_smoothing_defaults_to_a_fifth_of_an_e_fold():
    x = np.geomspace(1, 100, 60)
    y = np.sin(np.log(x) * 3)
    for function in (probes.slope, probes.curvature, probes.norm_growth, probes.norm_curvature):
        np.testing.assert_array_equal(function(y, x), function(y, x, smoothing=0.2))


def test_prominence_is_in_the_units_of_the_series():
    found = probes.peaks([0.0, 10.0, 4.0, 7.0, 0.0], [1, 2, 3, 4, 5], prominence=0.01)
    assert found["prominence"].tolist() == [10, 3]
    assert probes.peaks(np.ones(5), np.arange(1.0, 6.0)).dtypes.tolist() == found.dtypes.tolist()


def test_times_at_the_edges():
    assert probes.half_time([0.0, 1.0, 1.0, 2.0]) == 1
    assert probes.half_time([5.0, 6.0, 7.0], start=0) == 0
    assert probes.settling_time([1.0, 1.5, 2.0, 1.5], [3, 4, 5, 6], tolerance=0.9) == 3
    assert probes.settling_time([0, 0.9, 0.951, 1.0]) == probes.settling_time([0, 0.9, 0.951, 1.0], tolerance=0.05)


def test_a_pandas_series_brings_its_steps_and_a_tensor_its_values():
    assert probes.half_time(pd.Series([0.0, 1.0, 2.0], index=[0, 100, 200])) == 100
    assert probes.half_time(torch.tensor([0.0, 1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)) == 1


UNEVEN = np.sort(np.random.default_rng(5).uniform(1, 5000, 80))
SERIES = pd.Series(np.sin(3 * np.log(UNEVEN)), index=pd.Index(UNEVEN, name="step"), name="norm")
CURVES = [
    probes.slope,
    probes.curvature,
    partial(probes.linear_curvature, smoothing=300.0),
    probes.norm_growth,
    probes.norm_curvature,
]


@pytest.mark.parametrize("function", CURVES)
def test_a_series_gives_a_series_with_its_index_and_an_array_an_array(function):
    expected = function(SERIES.to_numpy(), UNEVEN)
    assert isinstance(expected, np.ndarray)
    pd.testing.assert_series_equal(function(SERIES), pd.Series(expected, index=SERIES.index, name="norm"))
    # steps that are handed in beside a Series are the ones that count; the index is still that of the Series
    unindexed = function(SERIES.reset_index(drop=True), UNEVEN)
    pd.testing.assert_series_equal(unindexed.set_axis(SERIES.index), function(SERIES))


@pytest.mark.parametrize(
    "function",
    [probes.peaks, probes.half_time, probes.settling_time, probes.fit_growth, probes.find_transitions],
)
def test_a_series_alone_says_the_same_as_its_values_and_steps(function):
    growing = SERIES.abs().cumsum()
    alone, apart = function(growing), function(growing.to_numpy(), UNEVEN)
    if isinstance(alone, pd.DataFrame):
        pd.testing.assert_frame_equal(alone, apart)
    elif isinstance(alone, dict):
        assert {law: fit.numbers for law, fit in alone.items()} == {law: fit.numbers for law, fit in apart.items()}
    else:
        assert alone == apart
        assert alone != function(growing.to_numpy())


def test_peaks_of_a_curve_need_no_steps_either():
    found = probes.peaks(probes.norm_growth(SERIES))
    assert len(found) == 1
    pd.testing.assert_frame_equal(found, probes.peaks(probes.norm_growth(SERIES.to_numpy(), UNEVEN), UNEVEN))


def test_a_table_of_modes_brings_its_steps():
    curves = np.array([[0.0, 0.0], [0.6, 0.2], [1.0, 1.0]])
    table = pd.DataFrame(curves, index=[10, 20, 4000], columns=["late", "later"])
    assert probes.convergence_order(table) == probes.convergence_order(curves, [10, 20, 4000]) == [0, 1]
    with pytest.raises(ValueError, match="entry 0 is 20 and entry 1 is 10"):
        probes.convergence_order(table.iloc[[1, 0, 2]])


@pytest.mark.parametrize("function", [*CURVES[:2], *CURVES[3:], probes.peaks])
def test_step_0_of_a_series_is_refused_and_not_dropped(function):
    for series in (SERIES.reset_index(drop=True), SERIES.to_numpy()):
        with pytest.raises(ValueError, match=r"steps begin at 0, which has no logarithm: drop it, or pass steps \+ 1"):
            function(series)
    assert len(function(SERIES, np.arange(1, 81)))


def test_the_spacing_of_the_loss_is_that_of_its_index():
    loss = FOUR_MODES.loss(np.arange(0, 90, 0.1))
    expected = probes.loss_autocorrelation_curvature(loss, spacing=0.1)
    for index in (0.1 * np.arange(len(loss)), 7 + np.linspace(0, 0.1 * (len(loss) - 1), len(loss))):
        pd.testing.assert_frame_equal(probes.loss_autocorrelation_curvature(pd.Series(loss, index=index)), expected)
    plain = probes.loss_autocorrelation_curvature(loss)
    pd.testing.assert_frame_equal(probes.loss_autocorrelation_curvature(pd.Series(loss)), plain)
    # what is said explicitly counts
    in_tens = pd.Series(loss, index=10 * np.arange(len(loss)))
    pd.testing.assert_frame_equal(probes.loss_autocorrelation_curvature(in_tens, spacing=0.1), expected)


@pytest.mark.parametrize(
    "function",
    [
        probes.loss_autocorrelation,
        probes.unbiased_loss_autocorrelation,
        probes.printed_loss_autocorrelation,
        probes.loss_autocorrelation_curvature,
        partial(probes.loss_autocorrelation_curvature, spacing=1.0),
    ],
)
def test_an_unevenly_spaced_loss_has_no_autocorrelation(function):
    loss = pd.Series(np.linspace(3, 1, 50)).drop(20)
    with pytest.raises(ValueError, match="index goes from 0 to 1 and from 19 to 21, and an autocorrelation needs one"):
        function(loss)
    assert len(function(loss.to_numpy()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: probes.settling_time([1, 2, 3], end=np.nan), "end is nan: a finite number"),
        (lambda: probes.half_time([1, 2, 3], start=np.nan), "start is nan"),
        (lambda: probes.loss_autocorrelation([3, 2, 1], end=np.nan), "end is nan"),
        (lambda: probes.loss_autocorrelation_curvature(np.ones(50), spacing=np.inf), "spacing is inf"),
        (lambda: probes.loss_autocorrelation_curvature(np.arange(5000.0), smoothing=0.0), "smoothing is 0"),
        (
            lambda: probes.loss_autocorrelation_curvature(np.arange(5000.0), smoothing=1e3),
            "nothing left to differentiate",
        ),
        (lambda: probes.loss_autocorrelation(np.array([1j, 2, 3])), "its dtype is complex128"),
        (lambda: probes.loss_autocorrelation([True, False, True]), "its dtype is bool"),
        (lambda: probes.loss_autocorrelation([3e200, 2e200, 0]), r"loss holds 3e\+200: its square overflows"),
    ],
)
def test_more_that_is_not_a_usable_series_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
