"""Every plot shows the numbers it was given, and says what is missing."""

import numpy as np
import pandas as pd
import pytest
import torch

from checkpoints import RunWriter, open_run
from probes import plot
from probes.measuring.head_spectrum import head_spectrum
from tests.import_graph import ROOT
from tests.plotted import events_of, table_of, words_of

EVENT = {"step": 100.0, "low": 50.0, "high": 200.0, "name": "ov.effective_rank", "members": ["1.0"]}
METRICS = pd.DataFrame({"loss": [4.0, 3.0, 2.0, 1.0]}, index=pd.Index([0, 1, 10, 100], name="step"))


@pytest.fixture(scope="module")
def reference():
    return open_run(ROOT / "checkpoints" / "reference" / "linear-icl")


# --- loss


def test_a_loss_is_drawn_as_it_is_with_a_band_per_event():
    ax = plot.loss(METRICS, events_of(EVENT, {**EVENT, "step": 5.0, "low": 4.0, "high": 6.0, "headline": False}))
    assert ax.lines[0].get_xydata().tolist() == [[0, 4], [1, 3], [10, 2], [100, 1]]
    edges = sorted((patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches)
    assert edges[0] == (4.0, 6.0)
    assert edges[1][0] == 50.0
    assert "2 events (orange: 1 headline)" in words_of(ax)


def test_a_long_loss_is_drawn_as_median_and_range_and_no_spike_is_lost():
    values = np.ones(5000)
    values[3000] = 7.0
    ax = plot.loss(pd.DataFrame({"loss": values}))
    assert len(ax.lines[0].get_xdata()) <= 400
    assert ax.collections[0].get_paths()[0].vertices[:, 1].max() == 7.0
    assert "Median and range of 5,000 values" in words_of(ax)


def test_what_is_not_finite_in_a_loss_is_marked_and_said():
    ax = plot.loss(pd.DataFrame({"loss": [4.0, np.nan, np.inf, 1.0]}))
    assert "2 values are not finite, the first at 1" in words_of(ax)
    assert "no finite value" in words_of(plot.loss(pd.DataFrame({"loss": [np.nan, np.nan]})))
    stopped = pd.DataFrame({"loss": [3.0, 2.0, *[np.nan] * 20], "accuracy": 0.5})
    assert "There is no loss after 1, though others are logged until 21" in words_of(plot.loss(stopped))
    assert "No loss: 1 metric logged" in words_of(plot.loss(pd.DataFrame({"accuracy": [1.0]})))


def test_the_learning_rate_stands_below_with_its_jumps_and_a_warm_up_is_none():
    rate = np.full(200, 1e-3)
    rate[:20] = np.linspace(0, 1e-3, 20)
    rate[120:] = 1e-4
    metrics = pd.DataFrame({"loss": np.linspace(2, 1, 200), "train/learning_rate": rate})
    ax = plot.loss(metrics, interventions=[40])
    below = ax.figure.axes[1]
    marks = next(line for line in below.lines if line.get_label() == "intervention")
    assert list(marks.get_xdata()) == [40, 120]
    assert "learning rate" in words_of(below)
    assert len(plot.loss(METRICS).figure.axes) == 1


# --- heads


def cells(ax) -> np.ma.MaskedArray:
    return ax.images[0].get_array()


def test_a_cell_of_the_map_is_the_number_of_that_head_and_step():
    table = table_of()
    ax = plot.heads(table)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    row = table.query("circuit == 'qk' and layer == 1 and head == 0 and step == 100")
    assert cells(ax)[labels.index("1.0 qk"), 3] == row["value"].iloc[0]
    assert "effective rank [directions] of mine" in words_of(ax)
    assert "6 rows, by layer; 5 checkpoints" in words_of(ax)


def test_rows_are_ordered_by_layer_by_event_or_by_change():
    table = table_of(circuits=("ov",), value=lambda layer, head, step: (1 + layer + 3 * head) * np.log1p(step))
    later = {**EVENT, "step": 300.0, "low": 250.0, "high": 400.0, "members": ["0.0", "1.0"]}

    def names(order: str) -> list[str]:
        return [
            label.get_text()
            for label in plot.heads(table, events=events_of(EVENT, later), order=order).get_yticklabels()
        ]

    assert names("layer") == ["0.0", "0.1", "1.0"]
    assert names("event") == ["1.0", "0.0", "0.1"]
    assert names("change") == ["0.1", "1.0", "0.0"]
    with pytest.raises(ValueError, match="no events are given"):
        plot.heads(table, order="event")


def test_z_scores_are_per_row_and_a_row_that_never_changes_has_none():
    table = table_of(circuits=("ov",), value=lambda layer, head, step: 5.0 if head else layer + np.log1p(step))
    ax = plot.heads(table, z_scored=True)
    np.testing.assert_allclose(cells(ax)[0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(cells(ax)[0].std(), 1)
    assert cells(ax)[1].mask.all()
    assert "1 row that never changes has no z-score" in words_of(ax)


def test_what_is_condemned_missing_or_unsearched_is_hatched_and_said():
    table = table_of(
        value=lambda layer, head, step: np.nan if step == 10 or layer == 1 else 1.0 + step, condemned={"10": "copy"}
    )
    ax = plot.heads(table, events=events_of(EVENT, searched={"ov.effective_rank": [(5.0, 500.0)]}))
    hatched = [(patch.get_hatch(), patch.get_x(), patch.get_width()) for patch in ax.patches]
    assert hatched == [("xxx", 1.5, 1.0), ("//", -0.5, 2.0), ("//", 3.5, 1.0)]
    said = words_of(ax)
    assert "Condemned by the audit, and without numbers: step 10." in said
    assert "8 of 30 numbers are missing: the head is zero." in said
    nowhere = events_of(searched={}, not_searched={"ov.effective_rank": "5 checkpoints, 20 are needed"})
    assert "No event could have been found in this probe: 5 checkpoints, 20 are needed" in words_of(
        plot.heads(table, events=nowhere)
    )


# --- curves


def test_curves_are_those_of_the_chosen_heads_over_the_quantiles_of_all():
    table = table_of(circuits=("ov",))
    ax = plot.curves(table, [(1, 0), "0.1"])
    by_label = {line.get_label(): line for line in ax.lines}
    head = table.query("layer == 1")["value"].to_numpy()
    assert by_label["head 1.0"].get_ydata().tolist() == head.tolist()
    everything = table["value"].to_numpy().reshape(5, 3)
    np.testing.assert_allclose(by_label["all 3 heads"].get_ydata(), np.median(everything, axis=1))
    with pytest.raises(ValueError, match=r"no head '7\.7'"):
        plot.curves(table, ["7.7"])
    with pytest.raises(ValueError, match="at most 8"):
        plot.curves(table, ["0.0"] * 9)


def test_curves_of_an_event_are_those_of_its_members():
    said = words_of(plot.curves(table_of(), events=events_of(EVENT)))
    assert "heads that take part in event 0" in said
    assert "head 1.0" in said
    assert "head 0.0" not in said


def test_controls_are_a_band_at_the_steps_of_the_run_and_one_without_the_probe_is_named():
    control = table_of(steps=(1, 1000), circuits=("ov",), value=lambda layer, head, step: np.log1p(step), run="c")
    other = table_of(run="d", probe="norm")
    ax = plot.curves(table_of(circuits=("ov",)), ["0.0"], controls=[control, other])
    band = next(line for line in ax.lines if line.get_label() == "1 control, 3 heads")
    np.testing.assert_allclose(band.get_ydata(), np.log1p([1, 10, 100, 1000]))  # none at step 0: the control has none
    assert "not in the band: d" in words_of(ax)


# --- spectrum


def test_the_spectrum_of_a_head_follows_its_modes_and_ends_at_its_singular_values(reference):
    found = head_spectrum(reference, 0, 0, "ov", modes=3)
    end = found.loc[found["step"] == reference.steps[-1]]
    np.testing.assert_allclose(end["followed"], end["singular_value"])
    last = reference.checkpoint(reference.steps[-1])
    dense = torch.linalg.svdvals(last["p2"].double())
    np.testing.assert_allclose(end["singular_value"], dense[:3].numpy(), rtol=1e-6)
    middle = found.loc[found["step"] == reference.steps[30]]
    assert not np.allclose(middle["followed"], middle["singular_value"], rtol=0.05)  # modes of this model cross
    ax = plot.spectrum(found)
    shown = next(line for line in ax.lines if line.get_label() == "mode 0")
    np.testing.assert_allclose(shown.get_ydata(), found.query("mode == 0")["followed"].abs())


def test_a_checkpoint_that_cannot_be_read_leaves_a_gap_and_says_so(tmp_path):
    matrix = {"tensors": ["w"], "pattern": "row column -> 1 1 row column"}
    with RunWriter(tmp_path / "run", circuits={"ov": matrix}) as writer:
        for step in (1, 2, 3):
            writer.save(step, {"w": torch.eye(3) * (float("nan") if step == 2 else step)})
    run = open_run(tmp_path / "run")
    found = head_spectrum(run, 0, 0, "ov")
    assert found.groupby("step")["followed"].max().tolist()[::2] == [1, 3]
    assert found.query("step == 2")["followed"].isna().all()
    said = words_of(plot.spectrum(run, "0.0"))
    assert "1 checkpoint without numbers: it has values that are not finite" in said
    assert "were not audited" in said
    with pytest.raises(ValueError, match="no layer 5"):
        head_spectrum(run, 5, 0)


# --- events


def test_every_finding_is_a_line_from_low_to_high_with_its_heads():
    ax = plot.events(
        events_of(EVENT, {"step": 300.0, "low": 250.0, "high": 400.0, "name": "loss", "direction": "fall"})
    )
    spans = [line.get_xdata().tolist() for line in ax.lines if line.get_linewidth() == 5]
    assert spans == [[50.0, 200.0], [250.0, 400.0]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ov.effective_rank", "loss"]
    assert "1.0" in [text.get_text() for text in ax.texts]
    assert "2 events in mine, at most 1 % expected to be false" in words_of(ax)


def test_nothing_found_and_could_not_look_are_different_sentences():
    assert "Nothing found in 1 panel or metric" in words_of(plot.events(events_of()))
    assert "Could not look" in words_of(plot.events(events_of(searched={})))
    two = events_of(EVENT, {**EVENT, "run": "other"})
    with pytest.raises(ValueError, match="say which with run="):
        plot.events(two)
    assert "1 event in other" in words_of(plot.events(two, run="other"))


# --- compare


def test_runs_are_compared_by_their_mean_over_heads_at_their_steps_or_over_their_own_events():
    tables = {name: table_of(run=name, circuits=("ov",)) for name in ("a", "b")}
    events = events_of({**EVENT, "run": "a"}, {**EVENT, "run": "b", "step": 10.0})
    by_step = plot.compare(tables)
    mean = tables["a"].groupby("step")["value"].mean()
    np.testing.assert_allclose(by_step.lines[0].get_ydata(), mean)
    aligned = plot.compare(tables, align=events)
    assert [line.get_xdata()[-1] for line in aligned.lines if line.get_label() in "ab"] == [10.0, 100.0]
    assert "step / step of each run's own event" in words_of(aligned)


def test_a_mean_is_over_the_same_heads_at_every_step():
    def value(layer: int, head: int, step: int) -> float:
        return np.nan if (layer, step) == (1, 10) or (head == 1) or step == 1 else 10.0 * layer + 1

    ax = plot.compare({"a": table_of(heads=((0, 0), (0, 1), (1, 0)), circuits=("ov",), value=value)})
    assert ax.lines[0].get_xdata().tolist() == [0, 100, 1000]
    assert ax.lines[0].get_ydata().tolist() == [6, 6, 6]
    assert "left out: 1 head and 2 checkpoints of mine" in words_of(ax)


def test_groups_are_bands_and_a_run_without_an_event_says_so():
    tables = {name: table_of(run=name) for name in ("a", "b", "c")}
    control = table_of(run="control", value=lambda *_: 1.0)
    ax = plot.compare(tables, controls=control, align=events_of(*({**EVENT, "run": name} for name in "abc")))
    said = words_of(ax)
    assert "runs (3)" in said
    assert "controls" in said
    assert "No event of theirs is given; over the median of the others: control" in said
    with pytest.raises(ValueError, match="none of a, b, c has an event"):
        plot.compare(tables, align=events_of())
    lacking = plot.compare({**tables, "d": table_of(run="d", probe="norm")}, probe="effective_rank")
    assert "1 run is not drawn, d: the table has no probe 'effective_rank'" in words_of(lacking)


def test_an_event_with_the_loss_is_a_runs_own_before_a_surer_one_without():
    events = events_of(EVENT, {**EVENT, "step": 500.0, "name": "loss"})
    events["q_value"] = [1e-9, 1e-3]
    assert plot.own_event(events, "mine") == 500.0
    assert plot.own_event(events, "other") is None
