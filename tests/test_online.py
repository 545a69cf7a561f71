"""Series that are still growing: what is kept of them."""

import numpy as np
import pytest

import probes
from probes.series.datasets import LINEAR_HEADS, linear_head_loss
from probes.series.online import OnlineAutocorrelation, Record
from probes.series.online.alarms import Alarms


def recorded(values, steps=None, resolution=512) -> Record:
    record = Record(resolution)
    at = np.arange(len(values)) if steps is None else np.asarray(steps)
    for step, value in zip(at.tolist(), np.asarray(values).tolist(), strict=True):
        record.add(step, value)
    return record


def correlated(values) -> OnlineAutocorrelation:
    online = OnlineAutocorrelation()
    for value in values.tolist():
        online.add(value)
    return online


def test_a_record_done_by_hand():
    record = recorded([1, 2, 3, 4, 5, 7, 9, 11, 8], range(1, 10), resolution=2)
    # up to step 4 a block of two would be more than half of the step it follows; from 4 on it is not
    np.testing.assert_array_equal(record.steps, [1, 2, 3, 4, 5.5, 7.5])
    np.testing.assert_array_equal(record.values, [1, 2, 3, 4, 6, 10])
    np.testing.assert_array_equal(record.counts, [1, 1, 1, 1, 2, 2])
    assert (len(record), record.last) == (6, 9)


@pytest.mark.parametrize("spacing", [1, 10])
@pytest.mark.parametrize("start", [0, 700])
def test_a_block_is_a_power_of_two_long_and_covers_at_most_its_share_of_the_step(spacing, start):
    record = recorded(np.ones(40000), start + spacing * np.arange(40000))
    counts = record.counts
    assert ((counts & (counts - 1)) == 0).all()
    assert counts.max() > 8
    assert (counts * spacing <= np.maximum(spacing, record.steps / 512)).all()
    # nor is it shorter than it need be, but for the first of a length
    assert (4 * counts[1:] * spacing > record.steps[1:] / 512).all()


def test_the_blocks_hold_every_value_but_the_last_few_once(rng):
    values = rng.standard_normal(30000)
    record = recorded(values)
    kept = int(record.counts.sum())
    assert 30000 - 30000 / 512 <= kept <= 30000
    assert record.counts @ record.values == pytest.approx(values[:kept].sum(), abs=1e-8)
    assert record.counts @ record.steps == pytest.approx(np.arange(kept).sum())


def test_every_doubling_adds_512_entries():
    lengths = [len(recorded(range(2**k))) for k in (10, 11, 12, 13, 14)]
    np.testing.assert_allclose(np.diff(lengths), 512, atol=2)  # 6100 entries after a million steps


def test_entries_never_change_once_they_are_there(rng):
    values = rng.standard_normal(5000)
    early, late = recorded(values[:3000]), recorded(values)
    np.testing.assert_array_equal(late.values[: len(early)], early.values)


@pytest.mark.parametrize("spacing", [1, 7])
def test_several_values_at_once_are_the_same_as_one_after_the_other(rng, spacing):
    values = rng.standard_normal(3000)
    values[[5, 700, 2001]] = np.nan, 1e200, -np.inf
    one_by_one, at_once = recorded(values, 3 + spacing * np.arange(3000)), Record()
    for begin in range(0, 3000, 64):
        steps = (3 + spacing * np.arange(begin, min(begin + 64, 3000))).tolist()
        at_once.extend(steps, values[begin : begin + 64].tolist())
    assert vars(at_once) == vars(one_by_one)
    assert len(at_once) < 3000  # some are blocks of several
    with pytest.raises(ValueError, match="steps must increase"):
        at_once.extend([3], [1.0])


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_a_loss_by_the_batch_is_correlated_as_value_by_value(rng, batch):
    values = rng.standard_normal(1500)
    values[700] = np.nan
    one_by_one, at_once = correlated(values), OnlineAutocorrelation()
    for begin in range(0, 1500, batch):
        at_once.extend(values[begin : begin + batch].tolist())
    for name, expected in vars(one_by_one).items():
        np.testing.assert_array_equal(getattr(at_once, name), expected)


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("climb", [0.0, 0.2, 30.0])
def test_alarms_by_the_batch_are_those_of_value_by_value(rng, batch, climb):
    steps = np.arange(2000)
    values = 2 + np.exp(-steps / 300) + 0.1 * rng.standard_normal(2000) + climb * np.clip((steps - 900) / 50, 0, 1)
    values[[40, 1500]] = np.nan, np.inf
    one_by_one, at_once = Alarms(diverges=True), Alarms(diverges=True)
    expected = [(one_by_one.add(step, value), step) for step, value in enumerate(values.tolist())]
    raised = []
    for begin in range(0, 2000, batch):
        some = slice(begin, begin + batch)
        raised += at_once.extend(steps[some].tolist(), values[some].tolist())
    assert raised == [pair for pair in expected if pair[0] is not None]
    assert {alarm.kind for alarm, _ in raised} == {"not finite", *(["divergence"] if climb == 30.0 else [])}
    for name in ("_finite", "_low", "_high", "_known_low", "_known_high", "_next", "_quiet_until"):
        assert getattr(at_once, name) == getattr(one_by_one, name)


def test_values_that_are_not_finite_are_counted_and_left_out():
    record = recorded([1, np.nan, 3, np.inf, -np.inf, 1e200, 5])
    np.testing.assert_array_equal(record.steps, [0, 2, 6])
    assert record.missing == 4


def test_a_step_that_is_not_after_the_last_is_refused_with_both_named():
    record = recorded([1, 2, 3])
    for step in (2, 1):
        with pytest.raises(ValueError, match=f"step {step} came after step 2"):
            record.add(step, 1.0)
    assert Record().last is None


def test_the_recent_part_is_even_and_has_the_same_mean(rng):
    values = rng.standard_normal(20000)
    record = recorded(values)
    steps, means = record.recent(0.1)
    assert (np.diff(steps)[1:] == record.counts.max()).all()
    newest = int(record.counts.sum())
    whole = means[1:]  # the oldest may hold fewer values
    first = newest - record.counts.max() * len(whole)
    assert whole.mean() == pytest.approx(values[first:newest].mean(), abs=1e-12)
    assert 0.1 * steps[-1] <= steps[0] < 0.11 * steps[-1]


# The autocorrelation


def test_online_autocorrelation_done_by_hand():
    lags, correlation = correlated(np.array([3.0, 2.0, 1.0])).curve()
    np.testing.assert_array_equal(lags, [0, 1, 2])
    np.testing.assert_allclose(correlation, [5 / 3, 2 / 3, 0], atol=1e-15)


@pytest.mark.parametrize("n", [3, 50, 64])
def test_a_short_series_has_exactly_its_autocorrelation(n, rng):
    values = 100 + rng.standard_normal(n)
    np.testing.assert_allclose(correlated(values).curve()[1], probes.loss_autocorrelation(values), atol=1e-12)


def test_a_level_is_the_autocorrelation_of_block_means(rng):
    values = np.cumsum(rng.standard_normal(1200))
    lags, correlation = correlated(values).curve()
    end = values[-12:].mean()
    eights = values.reshape(-1, 8).mean(1) - end
    for k in (32, 45, 63):
        by_hand = 8 * (eights[:-k] * eights[k:]).sum() / 1200
        assert correlation[lags == 8 * k] == pytest.approx(by_hand, rel=1e-9)


def test_asking_in_between_changes_nothing(rng):
    values = rng.standard_normal(3001)
    asked = OnlineAutocorrelation()
    for i, value in enumerate(values.tolist()):
        asked.add(value)
        if i % 333 == 7:
            asked.curve()
    np.testing.assert_allclose(asked.curve()[1], correlated(values).curve()[1], atol=1e-12)


@pytest.mark.parametrize(
    ("setting", "noise"),
    [
        ("four modes", 0.0),
        ("three, short context", 0.15),
        pytest.param("three, wide apart", 0.05, marks=pytest.mark.slow),
    ],
)
def test_curve_and_peaks_agree_with_those_of_the_whole_series(setting, noise):
    half_times = LINEAR_HEADS[setting].half_times
    loss = linear_head_loss(setting, noise=noise, seed=5, spacing=5 * half_times[-1] / 1e5).series.to_numpy()
    online = correlated(loss)
    lags, correlation = online.curve()
    whole = probes.loss_autocorrelation(loss)
    # measured: .0004 of A(0) without noise and .0013 with 15 %, from the end that begins at a block
    assert np.abs(correlation - whole[lags.astype(int)]).max() < 0.003 * whole[0]
    here, there = online.curvature(), probes.loss_autocorrelation_curvature(loss)
    found, expected = (probes.peaks(c["curvature"], c["lag"], prominence=0.2)["step"] for c in (here, there))
    np.testing.assert_allclose(found, expected, rtol=0.01)
    assert len(found) >= len(half_times) - 1  # noise may hide the first, which lasts a few hundred steps


def test_its_memory_does_not_grow(rng):
    def kept(online):
        arrays = [part for part in vars(online).values() if isinstance(part, np.ndarray)]
        others = [part for part in vars(online).values() if isinstance(part, list)]
        return len(arrays), sum(part.nbytes for part in arrays), len(others), max(map(len, others)) <= 512

    values = rng.standard_normal(40_000)
    assert kept(correlated(values[:1000])) == kept(correlated(values))


def test_a_value_that_is_not_finite_keeps_its_place():
    values = np.array([np.nan, 4.0, 3.0, np.nan, 2.0, 1.0])
    online = correlated(values)
    np.testing.assert_allclose(online.curve()[1], probes.loss_autocorrelation([4, 3, 3, 2, 1]), atol=1e-12)
    assert (online.missing, len(online)) == (2, 5)


def test_spacing_stretches_the_lags_and_too_few_values_are_refused(rng):
    online = correlated(np.exp(-np.arange(3000) / 200))
    np.testing.assert_allclose(online.curvature(spacing=10)["lag"], 10 * online.curvature()["lag"])
    with pytest.raises(ValueError, match="has 4 entries: at least 5"):
        correlated(np.arange(4.0)).curvature()
    with pytest.raises(ValueError, match="no entries yet"):
        OnlineAutocorrelation().curve()
