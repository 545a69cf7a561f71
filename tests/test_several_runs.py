"""Several runs: what controls share, what is the schedule, what sets runs apart, who moved first, which heads moved."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import probes
from probes.__main__ import app
from probes.events import searched_circuits
from probes.events.answer import answer
from probes.events.controls import meetings_by_chance, schedule_steps
from probes.events.event_table import Event
from probes.events.findings import Finding
from probes.events.planted import autoregressive, planted_panel
from probes.measuring.tables import as_table

STEPS = np.arange(1, 81) * 50
HEADS = 8


def run_with(name, bursts, seed, probe="effective_rank"):
    """Eight heads over 80 checkpoints; at each of the given steps four of them move by 12 sd of their noise."""
    rng = np.random.default_rng([77, seed])
    values = autoregressive(len(STEPS), HEADS, 0.5, rng)
    for step in bursts:
        values[step <= STEPS, :4] += 12
    rows = len(STEPS) * HEADS
    return as_table(
        {
            "run": [name] * rows,
            "step": np.repeat(STEPS, HEADS),
            "layer": np.tile(np.arange(HEADS) // 4, len(STEPS)),
            "head": np.tile(np.arange(HEADS) % 4, len(STEPS)),
            "circuit": ["ov"] * rows,
            "probe": [probe] * rows,
            "component": [pd.NA] * rows,
            "value": np.exp(values / 20).reshape(-1),
            "why_missing": [None] * rows,
        }
    )


def loss_at(step):
    at = np.arange(1, 4001)
    noise = 0.02 * np.random.default_rng(step).standard_normal(len(at))
    return pd.DataFrame({"loss": 1 - 0.5 / (1 + np.exp(-(at - step) / (0.03 * step))) + noise}, index=at)


def near(step, found):
    return any(abs(np.log(one / step)) < 0.1 for one in found)


def test_what_controls_do_too_is_shared_and_the_rest_is_the_headline():
    run = pd.concat([run_with("run", [600], 0), run_with("run", [2000], 1, probe="norm")])
    events = probes.find_events(run, controls=[run_with("control", [700], 2)])
    shared = events.set_index("probe")["shared_with_controls"].to_dict()
    assert shared == {"effective_rank": True, "norm": False}
    assert events.set_index("probe")["headline"].to_dict() == {"effective_rank": False, "norm": True}


def test_the_same_step_in_runs_that_learn_at_different_ones_is_the_schedule():
    learned = {"a": 1500, "b": 2000, "c": 2800}
    tables = [run_with(name, [600, step], seed) for seed, (name, step) in enumerate(learned.items())]
    events = probes.find_events(tables, {name: loss_at(step) for name, step in learned.items()})
    weights = events.loc[events["circuit"] == "ov"]
    assert not near(600, weights["step"])
    for name, step in learned.items():
        assert near(step, weights.loc[weights["run"] == name, "step"])
    assert any(
        "the schedule of the checkpoints or of the optimizer, not reported" in note for note in events.attrs["notes"]
    )


def test_how_often_runs_meet_by_chance():
    assert meetings_by_chance([1, 1, 1], 3, 0.1) == pytest.approx(3 * 0.1**2)
    assert meetings_by_chance([2, 1, 0], 2, 0.1) == pytest.approx(2 * 0.1 + 1 * (1 - 0.9**2))


def test_runs_with_many_findings_meet_by_chance_and_keep_them():
    def of(run, often):
        at = np.geomspace(100, 3000, often) * {"a": 1.0, "b": 1.01, "c": 1.02}[run]
        metric = Finding(run, "loss", {"a": 5000, "b": 7000, "c": 9000}[run], 1, 1, "cliff", "fall", 1, 0, 0, "")
        return [[Finding(run, "x", step, 1, 1, "stage", "rise", 1, 0, 0, "", circuit="ov") for step in at], [metric]]

    searched = {"x": [(50.0, 5000.0)]}
    assert {len(steps) for steps in schedule_steps({run: of(run, 1) for run in "abc"}, searched)[0].values()} == {1}
    assert schedule_steps({run: of(run, 12) for run in "abc"}, searched) == ({}, [])


def test_runs_that_learn_at_the_same_step_keep_their_events():
    tables = [run_with(name, [1500], seed) for seed, name in enumerate("abc")]
    events = probes.find_events(tables, {name: loss_at(1500) for name in "abc"})
    assert (events["circuit"] == "ov").sum() == 3


def test_what_happens_with_a_metric_at_the_same_step_in_all_runs_is_not_the_schedule():
    learned = {"a": 1500, "b": 2000, "c": 2800}
    tables = [run_with(name, [600, step], seed) for seed, (name, step) in enumerate(learned.items())]
    early = loss_at(600)["loss"]
    logged = {name: loss_at(step).assign(train_loss=early) for name, step in learned.items()}
    weights = probes.find_events(tables, logged).query("circuit == 'ov'")
    assert all(near(600, weights.loc[weights["run"] == name, "step"]) for name in learned)


def test_a_behaviour_that_no_control_has_is_the_headline_though_the_weights_there_are_shared():
    run, control = run_with("run", [1500], 0), run_with("control", [1600], 2)
    events = probes.find_events(run, {"run": loss_at(1500)}, controls=control)
    (row,) = events.to_dict("records")
    assert (row["circuit"], row["probe"], row["headline"]) == ("metric", "loss", True)
    shared = events.attrs["findings"].set_index("name")["shared_with_controls"].to_dict()
    assert shared == {"loss": False, "ov.effective_rank": True}
    said = answer(events)
    assert "What the weights do there, the controls do too: ov.effective_rank." in said


def test_a_control_that_goes_the_other_way_does_not_share_it():
    control = run_with("control", [1500], 2)
    control = control.assign(value=1 / control["value"])
    (row,) = probes.find_events(run_with("run", [1500], 0), controls=control).to_dict("records")
    assert row["headline"]


def test_says_which_came_first_only_where_stretches_do_not_overlap():
    found = probes.find_events(run_with("run", [1500], 0), loss_at(1500)).attrs["findings"].set_index("name")["order"]
    assert found["ov.effective_rank"] == "cannot be told"
    assert pd.isna(found["loss"])
    finding = Finding("run", "x", 1500, 1400, 1600, "stage", "rise", 0.5, 0.0, 0.0, "", circuit="ov")
    metric = Finding("run", "loss", 1800, 1700, 1900, "cliff", "fall", 0.9, 0.0, 0.0, "")
    assert Event((finding, metric)).order(finding) == "before"
    later = replace(finding, low=1950, high=2000)
    assert Event((later, metric)).order(later) == "after"


def test_a_name_that_is_run_and_control_is_refused():
    with pytest.raises(ValueError, match="a run and a control have one name"):
        probes.find_events(run_with("a", [], 0), controls=run_with("a", [], 1))


def test_sets_runs_with_a_burst_apart_from_controls_without():
    runs = [run_with(f"run{k}", [1000 + 300 * k], k) for k in range(4)]
    controls = [run_with(f"control{k}", [], 10 + k) for k in range(4)]
    (row,) = probes.set_apart(runs, controls).to_dict("records")
    assert row["low"] > 1
    assert row["p_value"] == row["p_any"] == 2 / 70  # of all 70 ways to divide eight runs, and its mirror image
    (none,) = probes.set_apart(controls[:2], controls[2:]).to_dict("records")
    assert none["p_value"] >= 2 / 6
    with pytest.raises(ValueError, match="1 runs and 4 controls"):
        probes.set_apart(runs[0], controls)


def test_ranks_the_heads_that_moved_first():
    ranked = probes.rank_heads(run_with("a", [1500], 0), (1300, 1700))
    assert set(zip(ranked["layer"][:4], ranked["head"][:4], strict=True)) == {(0, 0), (0, 1), (0, 2), (0, 3)}
    assert ranked["share"][3] > 1.3 * ranked["share"][4]
    with pytest.raises(ValueError, match="the first below the second"):
        probes.rank_heads(run_with("a", [], 0), (10, 5))
    with pytest.raises(ValueError, match="no circuit 'qk'; it has ov"):
        probes.rank_heads(run_with("a", [], 0), (100, 500), circuit="qk")


def test_the_way_down_and_up_again_counts_as_change():
    table = run_with("a", [], 0)
    step = table["step"].to_numpy(dtype=float)
    dips = (table["layer"] == 0) & (table["head"] == 1)
    gone = np.exp(-(((step - 1500) / 60) ** 2))
    table = table.assign(value=np.where(dips, 1 - 0.8 * gone, 1 + step / step.max()))  # the others drift
    ranked = probes.rank_heads(table, (1300, 1700))
    assert (ranked["layer"][0], ranked["head"][0]) == (0, 1)
    assert ranked["share"][0] > 0.95  # of its way down and up, although it is back where it was
    np.testing.assert_allclose(ranked["share"][1:], 400 / (step.max() - step.min()), rtol=0.15)


def test_ranks_by_the_way_itself_where_heads_differ_in_how_far_they_go():
    table = run_with("a", [], 0, probe="stable_rank")
    step, head = table["step"].to_numpy(dtype=float), table["layer"] * 4 + table["head"]
    far = np.where(head == 2, 1.0, np.where(head == 5, 0.2, 0.0))  # of 5 all its way lies in the window, of 2 half
    earlier = np.where(head == 2, 1.0, 0.0) / (1 + np.exp(-(step - 600) / 20))
    table = table.assign(value=np.exp(far / (1 + np.exp(-(step - 1500) / 20)) + earlier + 1e-9 * step))
    by_share, by_way = (probes.rank_heads(table, (1300, 1700), by=by) for by in ("share", "way"))
    assert [tuple(one) for one in by_share[["layer", "head"]].to_numpy()[:2]] == [(1, 1), (0, 2)]
    assert [tuple(one) for one in by_way[["layer", "head"]].to_numpy()[:2]] == [(0, 2), (1, 1)]
    np.testing.assert_allclose(by_way["way"][:2], [1.0, 0.2], rtol=1e-3)
    np.testing.assert_allclose(by_way["share"][:2], [0.5, 1.0], rtol=1e-3)
    with pytest.raises(ValueError, match="by is 'rank': 'share' or 'way'"):
        probes.rank_heads(table, (1300, 1700), by="rank")


def test_lead_by_hand():
    found = probes.lead_lag([100, 200, 400], [110, 220, 440])
    assert found.lead == pytest.approx(np.log(1.1))
    assert found.p_signs == 1 / 8  # of all eight flips only the given one is as large
    assert found.p_pairing == 1 / 6
    assert "3 seeds cannot reach .05" in str(found)


def test_lead_needs_the_right_pairs_and_signs_alone_are_not_enough():
    a = np.array([700, 900, 1200, 1500, 2000, 2600])
    paired, shuffled = probes.lead_lag(a, 1.15 * a), probes.lead_lag(a, 4.0 * a[[3, 1, 5, 0, 4, 2]])
    assert paired.p_value < 0.05
    assert shuffled.p_signs < 0.05 < shuffled.p_value
    assert probes.lead_lag(1.15 * a, a).p_value > 0.9  # the question has a direction


def test_a_lead_is_rarely_seen_between_things_that_have_nothing_to_do_with_each_other(seeds):
    rng, count = np.random.default_rng(5), max(100, seeds)
    draws = [np.exp(rng.normal([[7.0], [7.3]], 0.3, (2, 6))) for _ in range(count)]
    found = [probes.lead_lag(a, b) for a, b in draws]
    assert np.mean([one.p_signs <= 0.05 for one in found]) > 0.3
    assert np.mean([one.p_value <= 0.05 for one in found]) < 0.1


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0], [2.0], "two or more runs"),
        ([1.0, -2.0], [2.0, 3.0], "steps above 0"),
        ([1.0, 2.0], [3.0, 3.0], "the same step in every run"),
        ({"x": 1.0, "y": 2.0}, {"x": 1.0, "z": 2.0}, "the same are expected"),
    ],
)
def test_refuses_steps_that_cannot_be_compared(a, b, message):
    with pytest.raises(ValueError, match=message):
        probes.lead_lag(a, b)


@pytest.fixture
def tables(tmp_path):
    for name, bursts in (("run", [1500]), ("control", [])):
        probes.write_table(run_with(name, bursts, len(bursts)), tmp_path / f"{name}.parquet")
    return tmp_path


def test_the_command_answers_in_sentences(tables):
    done = CliRunner().invoke(
        app, ["events", str(tables / "run.parquet"), "--controls", str(tables / "control.parquet")]
    )
    assert done.exit_code == 0, done.output
    assert "run: 1 event in 1 panel of weights and 0 metrics, at most 1 % expected to be false." in done.output
    assert "What sets it apart:\n  At step 1,4" in done.output
    assert "the ov effective_rank rises in " in done.output
    assert "Searched at steps" in done.output
    assert "No metrics of run, control" in done.output


def test_the_command_says_when_nothing_was_found(tables):
    done = CliRunner().invoke(app, ["events", str(tables / "control.parquet")])
    assert "control: nothing found in 1 panel of weights and 0 metrics that could be searched." in done.output


def test_the_command_gives_json_and_writes_files(tables):
    done = CliRunner().invoke(app, ["events", str(tables / "run.parquet"), "--json"])
    content = json.loads(done.output)
    assert [row["probe"] for row in content["events"]] == ["effective_rank"]
    assert len(content["members"]) == HEADS
    assert content["searched"]["ov.effective_rank"]
    done = CliRunner().invoke(app, ["events", str(tables / "run.parquet"), "-o", str(tables / "answer.txt")])
    assert "1 events" in done.output
    assert (tables / "answer.txt").read_text().startswith("run: 1 event")


def test_the_command_measures_a_run_once(tmp_path):
    from tests.walking_run import write_run

    path = write_run(tmp_path / "walk", (np.arange(1, 31) * 100).tolist())
    arguments = ["events", str(path), "--tables", str(tmp_path / "tables")]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    written = (tmp_path / "tables" / "walk.parquet").stat().st_mtime_ns
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (tmp_path / "tables" / "walk.parquet").stat().st_mtime_ns == written
    assert CliRunner().invoke(app, ["events", str(tmp_path / "nothing")]).exit_code == 2


def test_the_command_takes_what_no_config_says_and_measures_anew_when_it_changes(tmp_path):
    from tests.walking_run import write_run

    path = write_run(tmp_path / "walk", (np.arange(1, 23) * 100).tolist(), config={"model_type": "gpt2", "n_embd": 24})
    arguments = ["events", str(path), "--tables", str(tmp_path / "tables")]
    for heads in (3, 6):
        done = CliRunner().invoke(app, [*arguments, "--heads", str(heads)])
        assert done.exit_code == 0, done.output
        table = probes.read_table(tmp_path / "tables" / "walk.parquet")
        assert table["head"].max() == heads - 1
    done = CliRunner().invoke(app, [*arguments, "--heads", "3", "--family", "no such family"])
    assert (done.exit_code, "no such family" in done.output) == (2, True)
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "other"), "--metrics", "log.csv"])
    assert (done.exit_code, "one log cannot be that of several runs" in done.output) == (2, True)


def test_small_matrices_beside_the_heads_are_searched_and_large_ones_named(tmp_path, monkeypatch):
    import checkpoints

    steps, generator = (np.arange(1, 4) * 100).tolist(), torch.Generator().manual_seed(0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 3, "n_embd": 24}))
    shapes = {"h.0.attn.c_attn": (24, 72), "h.0.attn.c_proj": (24, 24), "h.0.mlp.c_fc": (24, 96), "wte": (30, 24)}
    for step in steps:
        tensors = {f"{name}.weight": torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        save_file(tensors, tmp_path / "run" / f"step{step}.safetensors")
    run = checkpoints.open_run(tmp_path / "run")
    assert searched_circuits.circuits_to_search(run) == (["ov", "qk", "embed", "mlp_in"], [])
    monkeypatch.setattr(searched_circuits, "MOST_WORK", 1e4)
    names, (note,) = searched_circuits.circuits_to_search(run)
    assert names == ["ov", "qk"]
    assert "embed, mlp_in of run are large and were not measured: --circuits ov,qk,embed,mlp_in" in note


def test_the_command_measures_a_run_anew_whose_weights_were_replaced(tmp_path):
    from tests.walking_run import write_run

    arguments = ["events", str(tmp_path / "walk"), "--tables", str(tmp_path / "tables")]
    found = []
    for seed in (0, 1):
        write_run(tmp_path / "walk", [100, 200, 300], seed)
        CliRunner().invoke(app, arguments)
        found.append(probes.read_table(tmp_path / "tables" / "walk.parquet")["value"].dropna().tolist())
        shutil.rmtree(tmp_path / "walk")
    assert found[0] != found[1]


def test_what_could_not_be_searched_is_not_called_quiet(tmp_path):
    from tests.walking_run import write_run

    path = write_run(tmp_path / "short", [100, 200, 300])
    done = CliRunner().invoke(app, ["events", str(path), "--tables", str(tmp_path / "tables")])
    assert done.exit_code == 2
    assert "short: could not look" in done.output
    assert "nothing found" not in done.output


def test_a_planted_panel_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="one of own noise"):
        planted_panel("noise")
