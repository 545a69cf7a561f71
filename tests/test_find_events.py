"""What `find_events` claims: planted bursts are found, with their heads; what only looks like one is not."""

import numpy as np
import pandas as pd
import pytest

import probes
from probes.events.findings import adjusted
from probes.events.planted import KINDS, SCHEDULES, planted_panel


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


def test_many_panels_cost_power_and_are_counted():
    planted = burst()
    noise = [planted_panel(layers=4, heads=6, seed=[9, k]).table.assign(probe=f"noise {k}") for k in range(9)]
    alone, among = probes.find_events(planted.table), probes.find_events(pd.concat([planted.table, *noise]))
    np.testing.assert_allclose(among["q_value"].iloc[0], 10 * alone["q_value"].iloc[0], rtol=1e-6)
    assert among.attrs["tests"] == {"planted": 10}


def test_benjamini_and_hochberg_by_hand():
    np.testing.assert_allclose(adjusted([0.01, 0.5, 0.02, 0.03]), [0.04, 0.5, 0.04, 0.04])


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


def test_refuses_what_is_no_table_and_no_rate():
    with pytest.raises(ValueError, match="it lacks layer"):
        probes.find_events(planted_panel(layers=1, heads=2).table.drop(columns="layer"))
    with pytest.raises(ValueError, match="alpha is 2"):
        probes.find_events(planted_panel(layers=1, heads=2).table, alpha=2)
