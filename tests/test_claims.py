"""Words and what they are worth: rules against counting by hand, and reasons that follow from the outcome."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from analyses.tools.claims import Claim, Measured, Unjudged, judged, judged_again, judged_by_both
from analyses.tools.intervals import shift_interval
from analyses.tools.rules import AboveControls, Apart, Close, Every, Marks, SeenOnlyInRuns, Small, Together
from analyses.tools.verdicts import CANNOT, FAILS, HOLDS, IN_PART


def rate_in(text: str) -> float:
    return float(text.split()[-1].rstrip("%")) / 100


@pytest.mark.parametrize(("n", "m"), [(3, 1), (3, 2), (9, 3), (6, 6)])
@pytest.mark.parametrize("word", [HOLDS, IN_PART])
def test_the_rate_at_which_names_dealt_at_random_earn_a_word_is_counted(n, m, word):
    values, rule = np.arange(n + m, dtype=float), AboveControls()
    earned = 0
    for chosen in combinations(range(n + m), n):
        others = [i for i in range(n + m) if i not in chosen]
        got = rule.word(Measured("", values[list(chosen)], values[others]))
        earned += got == HOLDS or (word == IN_PART and got == IN_PART)
    deals = sum(1 for _ in combinations(range(n + m), n))
    told = rule.by_chance(word, Measured("", np.ones(n), np.zeros(m)))
    assert rate_in(told) == pytest.approx(earned / deals, abs=6e-4)


def test_the_shift_has_the_interval_of_the_rank_sum_test(rng):
    runs, controls = rng.normal(2, 1, 8), rng.normal(0, 1, 7)
    text = shift_interval(runs, controls)
    low, high = (float(x) for x in text[text.index("[") + 1 : -1].split(","))

    def p_value(shift):
        return stats.mannwhitneyu(runs - shift, controls, method="exact").pvalue

    differences = np.sort((runs[:, None] - controls).ravel())
    middles = (differences[1:] + differences[:-1]) / 2
    kept = [x for x in middles if p_value(x) > 0.05]  # every shift that the test does not reject
    assert low == pytest.approx(differences[differences < kept[0]][-1], rel=5e-3)
    assert high == pytest.approx(differences[differences > kept[-1]][0], rel=5e-3)
    assert "too few" in shift_interval(runs[:3], controls[:3])


def test_sightings_in_a_control_take_the_word_away():
    rule, seen, none = SeenOnlyInRuns(), np.ones(6), np.full(6, np.nan)
    assert rule.word(Measured("", seen, none)) == HOLDS
    assert rule.word(Measured("", np.where(np.arange(6) < 3, 1, np.nan), none)) == IN_PART
    assert rule.word(Measured("", seen, np.where(np.arange(6) < 1, 1, np.nan))) == FAILS
    assert rate_in(rule.by_chance(HOLDS, Measured("", np.ones(3), none[:1]))) == pytest.approx(27 / 256, abs=1e-3)


def test_a_threshold_that_was_fixed_parts_runs_from_controls_and_chance_is_counted(rng):
    rule = Apart(0.05, " %", 100)
    runs, controls = np.full(6, 0.11), np.full(6, 0.02)
    assert rule.word(Measured("", runs, controls)) == HOLDS
    some = np.where(np.arange(6) < 5, runs, 0.04)
    assert rule.word(Measured("", some, controls)) == IN_PART
    assert rule.word(Measured("", some, np.where(np.arange(6) < 2, 0.06, 0.02))) == FAILS  # p = .12
    assert rule.word(Measured("", np.full(6, np.nan), controls)) == FAILS  # not measured is not there
    assert "every run at 5 % or above" in str(rule)
    assert "6 of 6" in rule.effect(Measured("", runs, controls))
    assert "shift 9 [" in rule.effect(Measured("", runs, controls))
    assert "shift" not in rule.effect(Measured("", runs, np.full(6, np.nan)))  # never seen in a control: no size of it
    assert "seen in every run" in str(Apart(sightings=True))
    for word in (HOLDS, IN_PART):
        rates = []
        for often in (0.4, 0.5, 0.6):
            here, there = rng.binomial(6, often, (2, 4000))
            pairs, count = np.unique(np.stack([here, there]), axis=1, return_counts=True)
            words = [rule.word(Measured("", 0.1 * (np.arange(6) < i), 0.1 * (np.arange(6) < j))) for i, j in pairs.T]
            rates.append(count[[w in (HOLDS, word) for w in words]].sum() / 4000)
        assert rate_in(rule.by_chance(word, Measured("", runs, controls))) == pytest.approx(max(rates), abs=0.008)


def test_fresh_runs_decide_and_another_word_of_the_first_is_said():
    claim = Claim("it is so", "Fig 1", lambda x: Measured(f"{x.sum():g}", x), Every(), "because")
    (same,) = judged_again([claim], np.ones(4), np.ones(6))
    assert (same.verdict, same.why) == (HOLDS, "because")
    assert same.measured == "seeds 0-5: 4. seeds 20-25: 6"
    assert "seeds 20-25: n = 6; " in same.worth
    assert "seeds 0-5: n = 4; " in same.worth
    (other,) = judged_again([claim], np.ones(4), np.eye(4)[0])
    assert other.verdict == FAILS
    assert "On seeds 0-5 the word was 'holds': it differs" in other.why
    (once,) = judged_again([claim], np.ones(4), np.full(2, np.nan))
    assert once.verdict == HOLDS
    assert "no fresh runs" in once.worth
    assert judged_again([Unjudged("s", "p", "no network")], None, None)[0].why == "no network"
    (constant,) = judged_again([claim], np.ones(4), np.ones(4))  # the same to the last word: said once
    assert constant.measured == "4"
    assert constant.worth == claim.judge(np.ones(4)).worth + "; seeds 20-25: the same"


def test_of_first_runs_and_runs_kept_apart_the_weaker_word_counts_and_a_difference_is_said():
    claim = Claim("it is so", "Fig 1", lambda x: Measured(f"{x.sum():g}", x), Every(), "because")
    names = ("seeds 0-5", "seeds 10-12")
    (same,) = judged_by_both([claim], np.ones(4), np.ones(6), names)
    assert (same.verdict, same.why) == (HOLDS, "because")
    assert same.measured == "seeds 0-5: 4. seeds 10-12: 6"
    assert same.worth.count("rule: ") == 1
    assert same.worth.startswith("seeds 0-5: n = 4; ")
    assert ". seeds 10-12: n = 6; " in same.worth
    for first, apart in ((np.ones(4), np.eye(4)[0]), (np.eye(4)[0], np.ones(4))):
        (other,) = judged_by_both([claim], first, apart, names)
        assert other.verdict == FAILS
        assert "The words differ: " in other.why
    assert "'does not hold' on seeds 0-5, 'holds' on seeds 10-12" in other.why
    (once,) = judged_by_both([claim], np.ones(4), np.full(2, np.nan), names)
    assert once.verdict == HOLDS
    assert "no fresh runs" in once.worth
    assert judged_by_both([Unjudged("s", "p", "no network")], None, None, names)[0].why == "no network"


def test_closeness_and_smallness_and_shares():
    near, far = Measured("", np.array([1.02, 0.98, 1.01])), Measured("", np.array([1.3, 1.28]))
    assert [Close(0.03, 0.2).word(m) for m in (near, far)] == [HOLDS, FAILS]
    assert Close(0.03, 0.4).word(far) == IN_PART
    assert "off by 29.0 [" in Close(0.03, 0.4).effect(far)
    assert Small(0.1, 0.5).word(Measured("", np.array([0.2, 0.4]))) == IN_PART
    right = Measured("", np.array([1.0, 1, 1, 0]))
    assert Every().word(right) == IN_PART
    assert rate_in(Every().by_chance(IN_PART, right)) == pytest.approx(11 / 16, abs=1e-3)
    both = Together([Every(), Every()], ["a", "b"])
    assert both.word(Measured("", np.array([1.0, 1, 0, 0]))) == IN_PART
    assert both.word(Measured("", np.array([0.0, 0, 0, 0]))) == FAILS


def test_signs_strewn_at_random_are_what_marks_are_held_against():
    none, rule = np.nan, Marks(0.15)
    strewn = np.array([1.0, 1.5, none, none])  # near in half of cases, within 15 % in a quarter
    assert rule.word(Measured("", np.full(6, 1.05), strewn)) == HOLDS
    assert "less than 0.1%" in rule.by_chance(HOLDS, Measured("", np.full(6, 1.05), strewn))
    assert rule.word(Measured("", np.full(6, 1.4), strewn)) == IN_PART
    assert rule.word(Measured("", np.array([1.4] * 3 + [none] * 3), strewn)) == FAILS  # as many by chance
    assert rule.word(Measured("", np.full(6, 1.4), np.ones(10))) == FAILS  # peaks everywhere mark nothing
    assert "100.0%" in rule.by_chance(FAILS, Measured("", np.full(6, 1.4), np.ones(10)))
    with pytest.raises(ValueError, match="strewn"):
        rule.word(Measured("", np.full(6, 1.4)))


def test_a_verdict_has_the_reason_of_its_outcome_and_says_what_it_is_worth():
    claim = Claim(
        "it is so", "Fig 1", lambda x: Measured("x", x), Every(), {HOLDS: "yes", IN_PART: "some", FAILS: "no"}
    )
    for values, word, why in ((np.ones(4), HOLDS, "yes"), (np.eye(4)[0], FAILS, "no")):
        (row,) = judged([claim], values)
        assert (row.verdict, row.why) == (word, why)
        assert row.worth.startswith("n = 4; ")
        assert "rule: in every run" in row.worth
    assert "6.2%" in judged([claim], np.ones(4))[0].worth  # 2 ** -4
    assert judged([claim], np.full(3, np.nan))[0].verdict == CANNOT
    assert judged([Unjudged("s", "p", "no network")], None)[0].why == "no network"
    late = Claim("s", "p", lambda x: Measured("x", x), Every(), "w", set_before=False)
    assert "after a first look" in judged([late], np.ones(4))[0].worth


def test_runs_are_not_judged_against_controls_that_are_not_there():
    with pytest.raises(ValueError, match="there are none"):
        AboveControls().word(Measured("", np.ones(3)))
