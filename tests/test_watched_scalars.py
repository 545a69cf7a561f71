"""Which scalars are watched for transitions, what is said about it, and what cannot wait for a look."""

import math

import numpy as np
import pytest

import probes
from probes.monitor.roles import role, varies_like_a_loss
from probes.series.online import Detector
from probes.series.online.alarms import Alarms
from tests import small_gpt2


def told(caplog, scalars_of, steps=1100, **settings) -> tuple[probes.Monitor, list[str]]:
    """A monitor that has been told these scalars at every step, and what it said of them (not of its own cost)."""
    with probes.Monitor(small_gpt2.model(), probes=["norm"], schedule=5000, budget=1.0, **settings) as monitor:
        for step in range(steps):
            monitor.step(**scalars_of(step))
    assert monitor.failure is None
    said = [record.getMessage() for record in caplog.records if record.name == "probes.monitor"]
    return monitor, [line for line in said if not line.startswith("an update takes")]


NOISE = np.random.default_rng(7).normal(0, 0.02, 2000).tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("loss", "loss"),
        ("train/ce", "loss"),
        ("nll", "loss"),
        ("valLoss", "loss"),
        ("eval_error_rate", "loss"),
        ("accuracy", "score"),
        ("rewards/chosen", "score"),
        ("loss_scale", "bookkeeping"),
        ("learning_rate", "bookkeeping"),
        ("grad_norm", "bookkeeping"),
        ("L", "unknown"),
    ],
)
def test_a_name_says_what_a_scalar_is(name, expected):
    assert role(name) == expected


def test_a_schedule_a_counter_and_a_constant_do_not_vary_like_a_loss():
    t = np.arange(60.0)
    for values in (t, np.ones(60), np.exp(-t / 9), np.repeat([1.0, 0.5], 30)):
        assert not varies_like_a_loss(values)
    assert varies_like_a_loss(np.exp(-t / 9) + np.array(NOISE[:60]))


@pytest.mark.parametrize(
    ("name", "why"), [("ce", "a loss by its name"), ("L", "it varies like one, and none is called so")]
)
def test_a_cliff_of_a_scalar_with_an_unusual_name_is_announced(caplog, name, why):
    monitor, said = told(caplog, lambda step: {name: 3 - (step >= 700) + NOISE[step], "lr": 1e-3})
    assert [(event.metric, round(event.step, -1)) for event in monitor.detected] == [(name, 700)]
    assert said[0] == (
        f"watching {name} ({why}) for transitions, alpha = 0.01 each; not watched: lr (not called like a loss or a "
        "score; detect_in=[...] names others)"
    )


def test_a_rise_of_accuracy_is_announced(caplog):
    monitor, _ = told(caplog, lambda step: {"accuracy": 0.1 + 0.8 * (step >= 700) + NOISE[step]})
    assert [(event.kind, event.direction) for event in monitor.detected] == [("cliff", "rise")]


def test_a_loss_that_is_not_a_number_is_announced_at_once_and_once(caplog):
    monitor, said = told(caplog, lambda step: {"loss": math.nan if step > 300 else 3 + NOISE[step]}, steps=500)
    (event,) = monitor.detected
    assert (event.kind, event.step, event.p_value) == ("not finite", 301, 0.0)
    assert event.detected_at == 302
    assert "loss is not finite from step 301 on, detected at 302" in said
    assert monitor.events["kind"].tolist() == ["not finite"]


def test_where_nothing_can_be_watched_this_is_said(caplog):
    _, said = told(caplog, lambda step: {"lr": 1e-3}, steps=60)
    assert said[0].startswith("no scalar is watched for transitions; not watched: lr")
    caplog.clear()
    _, said = told(caplog, lambda step: {}, steps=60)
    assert said == [
        "no scalar came in 60 updates, so that no transition could be seen: monitor.step(loss=loss) hands one over"
    ]
    caplog.clear()
    _, said = told(caplog, lambda step: {"loss": NOISE[step]}, steps=20)
    assert said[1].startswith("never looked at: loss has 20; a first look takes 40 values")


def test_patterns_choose_what_is_watched(caplog):
    monitor, said = told(caplog, lambda step: {"loss": NOISE[step], "mine": NOISE[step]}, steps=5, detect_in="mine")
    assert [*monitor.tracked.detectors] == ["mine"]
    assert "not watched: loss (not named by detect_in" in said[0]


# alarms


def raised(values, *, diverges=True):
    alarms = Alarms(diverges=diverges)
    found = [alarms.add(step, value) for step, value in enumerate(values)]
    return [(alarm.kind, alarm.step, step) for step, alarm in enumerate(found) if alarm]


def test_an_explosion_is_a_divergence_after_five_values():
    calm = [3 + x for x in NOISE[:400]]
    assert raised([*calm, *[10.0] * 20]) == [("divergence", 400, 404)]
    assert raised([*calm, *[10.0] * 4, 3.0, *[10.0] * 4, 3.0]) == []
    assert raised([*calm, *[10.0] * 20], diverges=False) == []
    assert raised([*calm, *[5.0] * 300]) == []  # a rise to another level is a cliff, for the looks


def test_what_comes_back_and_goes_again_much_later_is_said_again():
    values = [math.nan if step in (300, 301, 310, 600) else 1.0 for step in range(700)]
    assert [(kind, step) for kind, step, _ in raised(values)] == [("not finite", 300), ("not finite", 600)]
    assert raised([1.0] * 10 + [math.inf])[0][0] == "not finite"


def test_a_divergence_is_not_announced_again_as_a_cliff():
    detector = Detector("loss")
    for step in range(1500):
        detector.add(step, 3 + NOISE[step] + 30 * (step >= 700))
        if detector.is_due(step):
            detector.look(step)
    assert [event.kind for event in detector.events] == ["divergence"]
    assert math.isnan(detector.events[0].p_value)


def test_a_short_log_is_looked_at_and_its_cliff_is_announced():
    """One value in ten steps, as a trainer logs: 100 values."""
    detector = Detector("loss")
    for step in range(9, 1000, 10):
        detector.add(step, 3 - (step >= 400) + NOISE[step])
        if detector.is_due(step):
            detector.look(step)
    (event,) = detector.events
    assert event.low < 409  # the values before and after it are those of steps 399 and 409
    assert event.high > 399
    assert event.detected_at < 700
