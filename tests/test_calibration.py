"""The referee is right itself: its truth, its noise, its visibility, its counting, its peers and its seeds."""

import itertools

import numpy as np
import pandas as pd
import pytest

from analyses.calibration import campaign, hidden_markov, peers
from analyses.calibration.cells import SEEDS, Case, cells
from analyses.calibration.compare import threshold
from analyses.calibration.evidence import evidence
from analyses.calibration.judge import (
    Rate,
    coverage,
    false_alarms,
    inside_searched,
    judge,
    precision,
    recall,
    recall_by_evidence,
    timing_errors,
)
from analyses.calibration.nulls import BENIGN, QUIET, drift
from analyses.calibration.sampling import NOISES, Noise, log_spaced, noise_of, pythia, uniform
from analyses.calibration.shapes import PLANTED, Record, logistic
from analyses.calibration.solvable import Flow, trained
from analyses.calibration.truth import Shape, Truth, is_visible, transitions_of
from probes.series.datasets import LinearHead

STEPS = uniform(2000, 2000.0)


def one_drop(at: float = 500.0, width: float = 20.0) -> Shape:
    truth = Truth(at, at - 2.2 * width, at + 2.2 * width, 1.0)
    return Shape("one drop", lambda t: logistic((at - t) / width), (truth,))


def case_of(shape: Shape, steps: np.ndarray = STEPS, size: float = 0.02) -> Case:
    noise = Noise("white", size)
    clean = shape.curve(steps)
    return Case("truth/test/test", 0, steps, clean + noise.draw(clean, np.random.default_rng(5)), shape, noise)


def detector_of(*rows: tuple, searched: object = None):
    """A detector that says this: step, low, high, kind, direction."""
    table = pd.DataFrame(list(rows), columns=["step", "low", "high", "kind", "direction"]).assign(p_value=0.001)
    table.attrs["searched"] = searched
    return lambda case: table


# Truth and noise


def test_the_rule_for_transitions_agrees_with_the_closed_form():
    head = LinearHead.with_half_times([100, 1000, 10_000])
    times = np.geomspace(5, 1e5, 3000)
    found = transitions_of(times, head.loss(times))
    # a neighbour that still falls moves the half-way line by a few per cent of its own drop
    np.testing.assert_allclose([t.time for t in found], np.sort(head.loss_half_times), rtol=0.03)
    assert {t.kind for t in found} == {"cliff"}


def test_a_drop_ends_where_its_record_ends():
    times = np.geomspace(1e-3, 1e4, 2000)
    loss = np.where(times < 1, 1.0, times**-0.5) + 1 / (1 + times**8)  # a cliff at 1, and a tail that goes on
    flow = Flow(times, loss, transitions_of(times, loss))
    long, short = (flow.at(1000.0, "made", last).truths[-1] for last in (1e7, 4000.0))
    assert short.time < long.time
    grid = np.geomspace(1, 4000, 5000)
    falls = flow.at(1000.0, "made", 4000.0).curve(grid)
    half = grid[np.argmax(falls <= (falls[0] + falls[-1]) / 2)]
    assert short.time == pytest.approx(half, rel=0.01)


def test_the_truth_of_sgd_is_what_its_own_weights_lead_one_to_expect():
    for one in trained([3], 1200):  # 001 leaves its second saddle at another step than the flow of the same start
        for off in np.array_split(one.loss - one.expected, 5):
            size = 4 * off.std() / np.sqrt(len(off)) + 0.01 * np.ptp(one.expected)
            assert abs(off.mean()) < size, one.family


def test_decays_have_no_transition_and_a_second_hump_in_log_time_is_a_stage():
    times = np.geomspace(1, 1e5, 3000)
    assert transitions_of(times, np.exp(-times / 3000)) == ()
    assert transitions_of(times, (1 + times / 10) ** -0.4) == ()
    for seed in range(20):
        shape = PLANTED["induction"](Record(log_spaced(300)), np.random.default_rng(seed))
        around = np.geomspace(shape.truths[0].time / 60, shape.truths[0].time * 10, 3000)
        last = transitions_of(around, shape.curve(around))[-1]
        assert last.kind == "stage"
        # its own half-way line has the slope after the bump in it, and lies later than what was planted
        assert 0.95 < last.time / shape.truths[0].time < 1.45


@pytest.mark.parametrize("name", [name for name in NOISES if name != "spiky"])
def test_the_noise_of_a_mean_is_what_it_says(name):
    noise, rng = noise_of(name, 0.3), np.random.default_rng(0)
    clean = np.linspace(2, 0, 60)
    weights = np.where(np.arange(60) < 20, -1 / 20, np.where(np.arange(60) >= 45, 1 / 15, 0.0))
    sums = [weights @ noise.draw(clean, rng) for _ in range(4000)]
    assert np.std(sums) == pytest.approx(noise.sd_of_sum(clean, weights), rel=0.05)  # 1.1 % is one sd of this


def test_what_the_eye_sees():
    shape = one_drop()
    truth = shape.truths[0]
    assert is_visible(truth, shape, STEPS, Noise("white", 0.1))
    assert not is_visible(truth, shape, STEPS, Noise("white", 4.0))  # drowned
    assert not is_visible(
        truth, shape, STEPS, Noise("ar", 0.9, 0.98)
    )  # a mean of this noise is no quieter than one value
    assert not is_visible(truth, shape, STEPS[STEPS > 480], Noise("white", 0.01))  # begins before the record does
    assert is_visible(truth, shape, uniform(30, 2000.0), Noise("white", 0.02))  # steep, between two checkpoints
    slope = Shape("slope", lambda t: shape.curve(t) - t / 50, shape.truths)
    assert not is_visible(truth, slope, STEPS[:1000], Noise("white", 1e-6))  # hardly faster than its surroundings


@pytest.mark.parametrize("noise", [Noise("white", 0.1), Noise("ar", 0.1, 0.8)], ids=["white", "ar"])
def test_evidence_is_how_far_the_height_of_the_best_fit_is_from_0(noise):
    shape, rng = one_drop(at=1000, width=20), np.random.default_rng(0)
    clean, near = shape.curve(STEPS), np.abs(STEPS - 1000) < 600
    columns = np.column_stack([np.ones(near.sum()), *((STEPS[near] / 1000) ** k for k in (1, 2)), clean[near]])
    apart = np.abs(np.subtract.outer(np.arange(near.sum()), np.arange(near.sum())))
    white = np.linalg.solve(noise.memory**apart, columns)  # columns times the inverse of the correlation
    best = np.linalg.solve(columns.T @ white, white.T)
    heights = [(best @ (clean + noise.draw(clean, rng))[near])[3] for _ in range(400)]
    assert np.mean(heights) == pytest.approx(1, abs=0.03)
    assert evidence(shape.truths[0], shape, STEPS, noise) == pytest.approx(1 / np.std(heights), rel=0.15)


def test_recall_is_counted_by_evidence():
    shape = one_drop()
    weak = judge(case_of(shape, size=0.5), detector_of((900.0, 890.0, 910.0, "cliff", "fall")))
    strong = judge(case_of(shape, size=0.02), detector_of((500.0, 490.0, 510.0, "cliff", "fall")))
    assert weak.visible == strong.visible == (True,)
    assert weak.evidence[0] * 25 == pytest.approx(strong.evidence[0])
    split = 2 * weak.evidence[0]
    assert str(recall_by_evidence([weak, strong], 0, split)) == str(Rate(0, 1))
    assert str(recall_by_evidence([weak, strong], split, np.inf)) == str(Rate(1, 1))


@pytest.mark.parametrize("family", PLANTED)
@pytest.mark.parametrize("steps", [uniform(50), log_spaced(300), pythia()], ids=["uniform", "log", "pythia"])
def test_planted_transitions_are_where_the_curve_moves(family, steps):
    for seed in range(3):
        shape = PLANTED[family](Record(steps), np.random.default_rng([seed, 1]))
        for truth in shape.truths:
            # within the drop the curve moves in its direction, by most of its height
            first, last = shape.curve(np.array([truth.early, truth.late]))
            moved = (first - last) * (1 if truth.direction == "fall" else -1)
            assert moved > 0.7 * truth.height
        assert shape.truths
        assert shape.truths[-1].time < steps[-1]


def test_nothing_happens_in_nulls():
    for make in (*QUIET.values(), *BENIGN.values(), drift):
        for steps in (uniform(2000), log_spaced(300)):
            shape = make(Record(steps), np.random.default_rng(3))
            assert shape.truths == ()
            assert np.isfinite(shape.curve(steps)).all()


# Counting


def test_right_wrong_twice_and_missed_by_hand():
    two = Shape(
        "two",
        lambda t: logistic((500 - t) / 20) + logistic((1200 - t) / 30),
        (Truth(500, 456, 544, 1.0), Truth(1200, 1134, 1266, 1.0)),
    )
    outcome = judge(
        case_of(two),
        detector_of(
            (510, 490, 515, "cliff", "fall"),  # right, and its interval holds 500
            (540, 530, 550, "stage", "fall"),  # the same again
            (1210, 1205, 1215, "cliff", "rise"),  # right place, wrong direction
            (1700, 1690, 1710, "dip", "fall"),  # nothing there
            (1900, 1890, 1910, "settled", "fall"),  # says nothing
        ),
    )
    assert outcome.visible == (True, True)
    assert (recall([outcome]).hits, recall([outcome]).of) == (1, 2)
    assert (precision([outcome]).hits, precision([outcome]).of) == (1, 4)
    assert (coverage([outcome]).hits, coverage([outcome]).of) == (1, 1)
    np.testing.assert_allclose(timing_errors([outcome]), [np.log(510 / 500)])


def test_one_row_names_one_transition_of_two_close_ones():
    close = Shape("close", lambda t: -t / 1000, (Truth(500, 480, 520, 1.0), Truth(560, 540, 580, 1.0)))
    outcome = judge(case_of(close), detector_of((530, 500, 560, "cliff", "fall")))
    assert [row is not None for _, row, _ in outcome.paired()] == [True, False]


def test_a_refusal_is_no_false_alarm_and_misses_everything():
    def refuses(case: Case) -> pd.DataFrame:
        raise ValueError("too few values")

    refused = judge(case_of(one_drop()), refuses)
    assert refused.refused == "too few values"
    assert recall([refused]).value == 0
    assert false_alarms([refused]).of == 0
    assert not inside_searched(refused, refused.truths[0])


def test_what_a_null_allows_is_no_false_alarm():
    spikes = Shape("spikes", lambda t: np.exp(-t / 500), allowed=("spike",))
    said = judge(case_of(spikes), detector_of((500, 490, 510, "spike", "rise")))
    assert false_alarms([said]).hits == 0
    said = judge(case_of(spikes), detector_of((500, 490, 510, "cliff", "rise")))
    assert false_alarms([said]).hits == 1
    jump = Shape("jump", lambda t: 1.0 * (t > 700), allowed=("rise",))
    assert false_alarms([judge(case_of(jump), detector_of((700, 690, 710, "cliff", "rise")))]).hits == 0
    assert false_alarms([judge(case_of(jump), detector_of((700, 690, 710, "cliff", "fall")))]).hits == 1


def test_a_detector_without_directions_and_searched_is_judged_as_well():
    table = pd.DataFrame([(505.0, 480.0, 530.0, "cliff", 0.001)], columns=["step", "low", "high", "kind", "p_value"])
    outcome = judge(case_of(one_drop()), lambda case: table)
    assert recall([outcome]).hits == 1
    assert outcome.searched is None
    assert inside_searched(outcome, outcome.truths[0])
    told = judge(case_of(one_drop()), detector_of(searched=[(600, 2000)]))
    assert not inside_searched(told, told.truths[0])


def test_outcomes_survive_being_kept(tmp_path):
    outcome = judge(case_of(one_drop()), detector_of((510, 490, 515, "cliff", "fall"), searched=[(3, 9)]))
    assert type(outcome).from_dict(campaign.json.loads(campaign.json.dumps(outcome.as_dict()))) == outcome


def test_rates_have_the_interval_of_clopper_and_pearson():
    rate = Rate(4, 200)
    assert (round(rate.low, 4), round(rate.high, 4)) == (0.0055, 0.0504)  # as R's binom.test(4, 200)
    assert (Rate(0, 10).low, round(Rate(0, 10).high, 4)) == (0.0, 0.3085)
    assert np.isnan(Rate(0, 0).value)


# Peers


def test_a_threshold_leaves_as_many_alarms_as_are_granted():
    highest = [3.0, 9.0, 1.0, 7.0]
    for alarms in range(4):
        assert sum(h > threshold(highest, alarms) for h in highest) == alarms


@pytest.mark.parametrize("peer", [p for p in peers.PEERS if "autocorrelation" not in p])
def test_every_peer_finds_a_clear_drop(peer):
    case = case_of(one_drop())
    levels = peers.PEERS[peer](case)
    (step, way), *others = levels.above(0.5 * levels.highest)
    assert not others
    assert step == pytest.approx(500, rel=0.1)
    assert way == "fall"


def test_the_hidden_markov_model_finds_a_clear_drop_and_nothing_in_noise():
    level = Shape("nothing", lambda t: np.zeros(len(t)))
    drop, nothing = hidden_markov.hidden_markov([case_of(one_drop()), case_of(level)])
    assert drop.highest > 3 * nothing.highest
    step, way = drop.above(nothing.highest)[0]
    assert step == pytest.approx(500, rel=0.2)  # bins of 9 %, smoothed over three
    assert way == "fall"


# Seeds and resuming


def test_tuning_and_judging_series_differ_and_each_is_drawn_the_same_again():
    cell = next(cell for cell in cells("toy") if cell.part == "level")
    drawn = {seeds: next(iter(cell.cases(seeds))).values for seeds in SEEDS}
    assert not np.array_equal(drawn["tuning"], drawn["judging"])
    np.testing.assert_array_equal(drawn["judging"], next(iter(cell.cases("judging"))).values)


def test_cell_names_are_unique_and_series_within_a_cell_differ():
    names = [cell.name for cell in cells("quick")]
    assert len(names) == len(set(names))
    cell = next(cell for cell in cells("quick") if cell.name == "level/uniform/50/0.5")
    one, other = itertools.islice(cell.cases("judging"), 2)
    assert not np.array_equal(one.values, other.values)


def test_what_was_run_is_not_run_again(tmp_path, monkeypatch):
    asked = []

    def counting(case: Case) -> pd.DataFrame:
        asked.append(case.cell)
        return detector_of()(case)

    monkeypatch.setattr(campaign, "detect", counting)
    first = campaign.run_campaign(tmp_path, "toy", parts=["power"])
    count = len(asked)
    again = campaign.run_campaign(tmp_path, "toy", parts=["power"])
    assert count == len(first) > 0
    assert len(asked) == count
    assert again == first or [o.cell for o in again] == [o.cell for o in first]
