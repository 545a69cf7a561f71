"""A drop that ends in a slow tail is half done later than its steep part: its interval holds both readings."""

import numpy as np
import pytest

import probes
from probes.series.transitions.find import scaled_sums
from probes.series.transitions.tails import with_tails
from probes.series.transitions.transition import Transition

CLIFF = Transition(1000.0, 980.0, 1020.0, "cliff", "fall", 1.0, 1e-9, 30.0)


def drop_with_a_tail(steps, share=0.45, width=60.0, tail=900.0):
    """From 1 to 0: a share of it in a logistic drop at 1000, the rest in a decay that sets out with it."""
    sharp = 1 / (1 + np.exp(np.clip((steps - 1000) / width, -50, 50)))
    slow = np.where(steps > 1000, np.exp(-(steps - 1000) / tail), 1.0)
    return share * sharp + (1 - share) * slow


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("steps", "least"), [(np.arange(1, 8001.0), 4), (np.unique(np.geomspace(1, 8000, 120).round()), 3)]
)
def test_the_interval_reaches_to_where_half_of_the_drop_with_its_tail_is_done(steps, least, sign):
    dense = np.arange(1, 20001.0)
    covered = []
    for share, width, tail in ((0.45, 60, 900), (0.5, 100, 1500)):
        true = float(dense[np.argmax(drop_with_a_tail(dense, share, width, tail) <= 0.5)])
        for seed in range(2):
            noise = 0.01 * np.random.default_rng(seed).standard_normal(len(steps))
            found = probes.find_transitions(sign * drop_with_a_tail(steps, share, width, tail) + noise, steps)
            first = found[found["kind"] == "cliff"].iloc[0]
            covered.append(first["low"] < true < first["high"] < 2 * true)
    assert sum(covered) >= least  # of four; if tails are left to the baseline, none


def test_a_cliff_that_ends_on_a_plateau_keeps_its_interval(rng):
    steps = np.arange(1, 8001.0)
    clean = 1 / (1 + np.exp(np.clip((steps - 1000) / 60, -50, 50)))
    later = 0.5 / (1 + np.exp(np.clip((steps - 3000) / 100, -50, 50)))  # a plateau, then another cliff
    for curve in (clean, clean + later):
        sums = scaled_sums(curve + 0.01 * rng.standard_normal(len(steps)), steps)
        assert with_tails([CLIFF], sums) == [CLIFF]


def test_what_is_no_cliff_and_what_has_few_values_after_it_stay_as_they_are(rng):
    steps = np.arange(1, 8001.0)
    sums = scaled_sums(drop_with_a_tail(steps) + 0.01 * rng.standard_normal(len(steps)), steps)
    stage = Transition(1000.0, 980.0, 1020.0, "stage", "fall", 1.0, 1e-9, 30.0)
    assert with_tails([stage], sums) == [stage]
    assert with_tails([CLIFF], sums) != [CLIFF]
    early = np.arange(1, 1101.0)
    sums = scaled_sums(drop_with_a_tail(early) + 0.01 * rng.standard_normal(len(early)), early)
    assert with_tails([CLIFF], sums) == [CLIFF]
