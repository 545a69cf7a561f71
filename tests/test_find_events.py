"""What `find_events` claims: planted bursts are found, with their heads; what only looks like one is not."""

import numpy as np
import pandas as pd
import pytest

import probes
from probes.events.answer import answer
from probes.events.findings import NO_CALIBRATION, Finding, _with_q_values, adjusted
from probes.events.noise import measure_noise
from probes.events.panels import read_panels
from probes.events.planted import KINDS, SCHEDULES, autoregressive, planted_panel, smooth_panel
from probes.events.speeds import shifted
from probes.events.taken_out import Stretch, outside, take_out
from tests.report_pages import HAPPENS, write_run


def burst(seed=0, **kwargs):
    return planted_panel(**{"layers": 4, "heads": 6, "share": 0.4, "height": 8.0, "seed": seed, **kwargs})


def test_finds_the_step_and_the_heads_of_a_planted_burst():
    planted = burst()
    events = probes.find_events(planted.table)
    assert len(events) == 1
    row = events.iloc[0]
    assert row["low"] <= planted.step <= row["high"]
    assert row["q_value"] <= 0.01
    assert (row["circuit"], row["probe"], row["kind"], row["direction"]) == ("qk", "effective_rank", "stage", "mixed")
    found = {tuple(int(part) for part in name.split(".")) for name in row["members"]}
    assert len(found & planted.movers) >= 0.9 * len(planted.movers)
    assert len(found - planted.movers) <= 0.2 * len(found)


def test_the_companion_table_has_every_head_with_its_evidence():
    planted = burst()
    members = probes.find_events(planted.table).attrs["members"]
    assert len(members) == 24
    fastest = members.nlargest(len(planted.movers), "statistic")
    named = set(zip(fastest["layer"], fastest["head"], strict=True))
    assert len(named & planted.movers) >= 0.9 * len(planted.movers)
    assert members.loc[members["takes_part"], "q_value"].max() <= 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rho", [0.6, 0.9])
def test_says_nothing_where_nothing_happens(kind, rho, seeds):
    count = max(seeds, 3)
    alarms = sum(len(probes.find_events(planted_panel(kind, rho=rho, seed=[515, s]).table)) > 0 for s in range(count))
    assert alarms <= max(1, 0.04 * count)  # nominal .01; measured by `python -m benchmarks.events`


def test_says_nothing_of_single_steps_on_few_uniform_checkpoints(seeds):
    drawn = (planted_panel("private steps", SCHEDULES["uniform 30"], seed=[516, s]) for s in range(max(seeds, 10)))
    assert sum(len(probes.find_events(one.table)) > 0 for one in drawn) <= max(1, 0.04 * seeds)


def test_a_shifted_series_holds_its_own_step_once_at_most():
    speeds = np.zeros((20, 12), dtype=np.float32)
    speeds[2, 0] = 1.0  # near the end, where a mirror would show it twice
    panels = shifted(speeds, 200, np.random.default_rng(0))
    assert panels[1:, :, 0].sum(1).max() == 1
    np.testing.assert_array_equal(panels[0], speeds)


def test_a_third_of_the_heads_on_few_uniform_checkpoints_is_found():
    drawn = [planted_panel(steps=SCHEDULES["uniform 30"], share=0.3, height=3.0, seed=[7, s]) for s in range(5)]
    found = [any(abs(np.log(step / one.step)) < 0.2 for step in probes.find_events(one.table)["step"]) for one in drawn]
    assert sum(found) >= 4


def test_tells_noise_that_is_shared_from_noise_that_is_not():
    rng, x = np.random.default_rng(0), np.log(np.arange(1, 31))
    own, common = autoregressive(30, 100, 0.6, rng), autoregressive(30, 1, 0.6, rng)
    assert measure_noise(x, own).alone > 0.8
    assert measure_noise(x, 0.6 * own + 0.8 * common).alone < 0.3
    assert measure_noise(x, own[:, :4]).alone < 0.5  # of few series it cannot be told, and little is claimed


@pytest.mark.parametrize("steps", SCHEDULES.values(), ids=SCHEDULES)
def test_smooth_curves_without_noise_are_no_events(steps):
    for seed in range(3):
        table = smooth_panel(steps, seed=seed)
        panel = read_panels(table)[0][0]
        assert measure_noise(panel.x, panel.values).is_resolved
        assert probes.find_events(table).empty


def test_a_stage_in_curves_without_noise_is_found_and_has_no_calibration():
    steps = SCHEDULES["log-spaced 50"]
    events = probes.find_events(smooth_panel(steps, seed=0, stage=3000.0))
    (row,) = events.to_dict("records")
    assert row["low"] <= 3000 <= row["high"]
    assert row["rests_on"] == NO_CALIBRATION
    assert events.attrs["findings"]["is_resolved"].tolist() == [True]


@pytest.mark.parametrize("steps", SCHEDULES.values(), ids=SCHEDULES)
def test_says_nothing_of_the_schedule(steps):
    assert probes.find_events(planted_panel("shared drift", steps, layers=3, heads=4, seed=3).table).empty


def test_does_not_depend_on_units_or_on_the_order_of_rows():
    planted = burst(3)
    other = planted.table.assign(value=planted.table["value"] * 1e3).sample(frac=1, random_state=0)
    one, two = probes.find_events(planted.table), probes.find_events(other)
    assert len(one) == 1
    for column in ("step", "low", "high", "q_value", "strength"):
        np.testing.assert_allclose(one[column], two[column], rtol=1e-5)
    assert one["members"].tolist() == two["members"].tolist()


def test_the_same_numbers_count_once():
    table = burst().table
    again = table.assign(probe="marginalized_effective_rank", component=0).astype({"component": "Int64"})
    events = probes.find_events(pd.concat([table, again], ignore_index=True))
    pd.testing.assert_frame_equal(events.drop(columns="members"), probes.find_events(table).drop(columns="members"))
    assert events.attrs["not_searched"] == {
        "qk.marginalized_effective_rank.0": "the same numbers as qk.effective_rank, which are counted once"
    }


def test_two_heads_with_the_same_numbers_are_one_series():
    table = burst().table
    twin = table.loc[(table["layer"] == 0) & (table["head"] == 0)].assign(head=17)
    events = probes.find_events(pd.concat([table, twin], ignore_index=True))
    assert any(note.startswith("head 0.17 has the numbers of 0.0") for note in events.attrs["notes"])
    assert len(events.attrs["members"]) == 24


def test_matrices_that_are_no_heads_are_one_panel_by_their_names():
    table = planted_panel(layers=3, heads=1, share=1.0, height=12.0, seed=4).table
    table = table.assign(circuit=table["layer"].map({0: "embed", 1: "mlp_in", 2: "mlp_in"}))
    gone = table.loc[table["layer"] == 0].assign(circuit="position_embed", value=np.nan, why_missing="rank 3")
    events = probes.find_events(pd.concat([table, gone], ignore_index=True))
    (row,) = events.to_dict("records")
    assert (row["circuit"], sorted(row["members"])) == ("matrices", ["embed", "mlp_in.1", "mlp_in.2"])
    assert set(events.attrs["members"]["circuit"]) == {"embed", "mlp_in"}
    assert any("matrix position_embed is left out (rank 3)" in note for note in events.attrs["notes"])
    ranked = probes.rank_heads(table, (row["low"], row["high"]))
    assert set(ranked["matrix"]) == {"embed", "mlp_in.1", "mlp_in.2"}


def test_the_heads_whose_qk_stable_rank_goes_furthest_are_told_with_the_event():
    planted = burst()
    events = probes.find_events(planted.table)
    assert events.attrs["furthest"].empty  # it was not measured
    assert "stable rank" not in answer(events)
    steps = planted.table["step"].to_numpy(dtype=float)
    head = planted.table["layer"].astype(str) + "." + planted.table["head"].astype(str)
    far = (
        0.9 * (head == "1.2") + 0.6 * (head == "3.0") + 1e-3 * (1 + planted.table["layer"] * 6 + planted.table["head"])
    )
    value = np.exp(far / (1 + np.exp(-np.clip(np.log(steps / planted.step) / 0.02, -50, 50))))
    telling = planted.table.assign(circuit="qk", probe="stable_rank", value=value)
    events = probes.find_events(pd.concat([planted.table, telling], ignore_index=True))
    number = int(np.abs(np.log(events["step"] / planted.step)).argmin())
    furthest = events.attrs["furthest"].loc[events.attrs["furthest"]["event"] == number]
    assert furthest["name"].tolist()[:2] == ["1.2", "3.0"]
    assert len(furthest) == 24
    assert "The QK stable rank goes furthest in 1.2 (x 2" in answer(events)


def test_many_panels_cost_power_and_are_counted():
    planted = burst()
    noise = [planted_panel(layers=4, heads=6, seed=[9, k]).table.assign(probe=f"noise {k}") for k in range(9)]
    alone, among = probes.find_events(planted.table), probes.find_events(pd.concat([planted.table, *noise]))
    np.testing.assert_allclose(among["q_value"].iloc[0], 10 * alone["q_value"].iloc[0], rtol=1e-6)
    assert among.attrs["tests"] == {"planted": 10}


def test_benjamini_and_hochberg_by_hand():
    np.testing.assert_allclose(adjusted([0.01, 0.5, 0.02, 0.03]), [0.04, 0.5, 0.04, 0.04])


def test_says_nothing_of_heads_and_steps_beside_a_real_event(tmp_path):
    run = write_run(tmp_path / "run", metrics=False)  # only layer 1 gains something, around one step
    found = probes.find_events(probes.measure(run, probes=["norm", "effective_rank"])).attrs["findings"]
    assert sorted(found["name"]) == ["ov.effective_rank", "ov.norm", "qk.effective_rank", "qk.norm"]
    assert (np.abs(np.log(found["step"] / HAPPENS)) < 0.2).all()
    assert {name for names in found["members"] for name in names} == {"1.0", "1.1"}


def test_what_is_left_without_an_event_is_the_curve_and_the_noise_that_it_was_planted_into():
    x, rng = np.linspace(0, 8, 60), np.random.default_rng(0)
    nothing = np.sin(x / 3)[:, None] + 0.01 * rng.standard_normal((60, 5))
    planted = nothing + np.outer(1 / (1 + np.exp(-(x - 4) / 0.1)), [0, 1, -1, 30, 300])
    stretch = Stretch(3.0, 5.0)
    left, smooth = take_out(x, planted, [stretch])
    free = outside(x, [stretch])
    both = free[1:] & free[:-1]  # where it is, after the event, is anybody's guess; how fast it goes is not
    np.testing.assert_allclose(np.diff(left, axis=0)[both], np.diff(nothing, axis=0)[both], atol=0.01)  # tails of 300
    slope = np.diff(np.sin(x / 3))[both, None]
    np.testing.assert_allclose(np.diff(smooth, axis=0)[both] - slope, 0, atol=0.01)  # the size of the noise
    assert np.abs(left - smooth).max() < 0.05
    assert np.abs(np.diff(take_out(x, planted)[1], axis=0)[both] - slope)[:, 4].max() > 1  # of the curve of all of it


def test_a_second_finding_of_one_panel_is_one_among_all_panels():
    def found(name, step, p):
        return Finding("run", name, step, step, step, "stage", "rise", 1.0, p, np.nan, "", circuit="ov")

    by_panel = [[found("a", 1000, 1e-9), found("a", 100, 0.005)], [found("b", 1000, 1e-6)], [found("c", 1010, 0.01)]]
    q_values = {(one.name, one.step): one.q_value for one in _with_q_values(by_panel)}
    assert q_values == pytest.approx({("a", 1000): 3e-9, ("a", 100): 0.015, ("b", 1000): 1.5e-6, ("c", 1010): 0.01})


def test_what_is_missing_is_left_out_and_said():
    planted = burst()
    table = planted.table.copy()
    gone = (table["layer"] == 1) & (table["head"] == 2) & (table["step"] == table["step"].max())
    table.loc[gone, ["value", "why_missing"]] = [np.nan, "a matrix of zeros"]
    condemned = table["step"] == table["step"].unique()[20]
    table.loc[condemned, ["value", "why_missing"]] = [np.nan, "condemned by the audit, twin"]
    events = probes.find_events(table)
    assert len(events) == 1
    notes = " ".join(events.attrs["notes"])
    assert "head 1.2 is left out (no number at step 100000: a matrix of zeros)" in notes
    assert "checkpoints are left out (condemned by the audit, twin" in notes


def test_a_record_too_short_is_not_searched_and_says_so():
    events = probes.find_events(planted_panel(steps=np.arange(1, 16) * 100, layers=2, heads=2).table)
    assert events.empty
    assert events.attrs["not_searched"] == {"qk.effective_rank": "15 checkpoints with numbers, 20 are needed"}
    assert events.attrs["searched"] == {}


def test_says_where_it_could_look():
    early_doubling = SCHEDULES["0, 1, 2, 4 ... 512, 1000, 2000 ..."]
    stretches = probes.find_events(planted_panel(steps=early_doubling, layers=2, heads=4).table).attrs["searched"]
    ((low, high),) = stretches["qk.effective_rank"]
    assert 1000 < low < 10_000  # doubling steps are further apart than any window
    assert 100_000 < high <= 143_000


def falling(at, seed=0):
    steps = np.arange(1, 4001)
    noise = 0.02 * np.random.default_rng(seed).standard_normal(len(steps))
    return pd.DataFrame({"loss": 1 - 0.5 / (1 + np.exp(-(steps - at) / (0.03 * at))) + noise}, index=steps)


def test_is_together_with_the_loss_that_falls_there():
    planted = burst(steps=np.arange(1, 81) * 50)
    events = probes.find_events(planted.table, falling(planted.step))
    (row,) = [row for _, row in events.iterrows() if row["circuit"] == "qk"]
    assert any(one.startswith("loss at ") for one in row["together_with"])
    assert row["headline"]


def test_an_event_of_a_metric_alone_is_a_row_without_heads():
    table = planted_panel(steps=np.arange(1, 81) * 50, layers=2, heads=4).table
    (row,) = [row for _, row in probes.find_events(table, falling(1000)).iterrows()]
    assert (row["circuit"], row["probe"], row["direction"], row["members"]) == ("metric", "loss", "fall", [])
    assert row["low"] <= 1000 <= row["high"]


def test_a_learning_rate_is_not_searched_and_that_is_said():
    logged = falling(1000).rename(columns={"loss": "train/learning_rate"})
    events = probes.find_events(planted_panel(steps=np.arange(1, 81) * 50, layers=1, heads=2).table, logged)
    assert events.empty
    assert "a clock or a setting" in events.attrs["not_searched"]["train/learning_rate"]


def test_refuses_what_is_no_table_and_no_rate():
    with pytest.raises(ValueError, match="it lacks layer"):
        probes.find_events(planted_panel(layers=1, heads=2).table.drop(columns="layer"))
    with pytest.raises(ValueError, match="alpha is 2"):
        probes.find_events(planted_panel(layers=1, heads=2).table, alpha=2)


def test_what_the_loss_does_where_the_learning_rate_jumps_is_said_and_is_no_event():
    logged = falling(1000)
    calm = burst(height=0.0).table
    assert len(probes.find_events(calm, logged)) == 1
    jumps = logged.assign(**{"lr-AdamW": np.where(logged.index < 1000, 1e-3, 1e-4)})
    events = probes.find_events(calm, jumps)
    assert len(events) == 0
    assert any("loss falls at step " in note and "learning rate jumps" in note for note in events.attrs["notes"])
