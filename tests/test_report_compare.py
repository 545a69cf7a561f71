"""Several runs in one page: each run's own event, what recurs, what sets runs apart, and no silence about the rest."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import probes
from probes.events.compare import set_apart
from probes.reporting.collect import page_of
from probes.reporting.compare_svg import compare_svgs
from probes.reporting.comparison_data import comparison_of
from probes.reporting.job import Looked
from probes.reporting.page import render
from tests.browser import CHROMIUM, Opened
from tests.plotted import events_of, table_of

EVENT = {"step": 100.0, "low": 50.0, "high": 200.0, "name": "ov.effective_rank", "members": ["1.0"]}
STEPS = np.unique(np.geomspace(1, 5000, 60).astype(int)).tolist()


def looked(name: str, *, at: float = 200.0, speed: float = 4.0, loss: bool = True, seed: int = 0) -> Looked:
    """A run without weights: four heads that rise at a step, and a loss that falls there."""
    noise = np.random.default_rng(seed)

    def value(layer: int, head: int, step: int) -> float:
        rise = 1 / (1 + np.exp(-speed * (np.log(step) - np.log(at))))
        return 5 + layer + 3 * rise + 0.02 * noise.standard_normal() + 0.1 * np.log(step)

    heads = [(layer, head) for layer in range(2) for head in range(2)]
    metrics = (
        pd.DataFrame({"loss": 4 - 2 / (1 + (at / np.arange(1, 5001)) ** 3)}, index=range(1, 5001)) if loss else None
    )
    return Looked(name, None, None, table_of(heads, STEPS, circuits=("ov",), value=value, run=name), None, metrics)


def found(*runs: dict, **options) -> pd.DataFrame:
    searched = {f"{one['run']}: {name}": [(2.0, 4000.0)] for one in runs for name in ("ov.effective_rank", "loss")}
    return events_of(*({**EVENT, **one} for one in runs), searched=options.pop("searched", searched), **options)


def rendered(runs: list[Looked], controls: list[Looked], events: pd.DataFrame, apart: pd.DataFrame | str = "") -> str:
    page = page_of(runs, controls, events, alignment=None, command="test", alpha=0.01, apart=apart)
    logged = [(one.metrics, data) for one, data in zip(runs, page.runs, strict=True)]
    return render(page, logged, compare_svgs(page.comparison, runs, controls))


def test_a_run_alone_has_nothing_to_compare():
    one = looked("a")
    assert comparison_of([one], [], found({"run": "a"}), "") is None
    assert 'id="compare-section"' not in rendered([one], [], events_of({**EVENT, "run": "a"}))


def test_every_run_has_its_own_event_and_a_run_without_one_borrows_the_middle_and_says_so():
    events = found({"run": "a", "step": 100.0}, {"run": "b", "step": 400.0})
    events.attrs["tests"]["c"] = 5
    runs = [looked("a"), looked("b"), looked("c")]
    comparison = comparison_of(runs, [looked("control")], events, "")
    assert comparison is not None
    assert [one.own for one in comparison.runs] == [100.0, 400.0, None, None]
    np.testing.assert_allclose([one.at for one in comparison.runs], [100, 400, 200, 200])
    assert [one.own_why for one in comparison.runs] == [
        "",
        "",
        "no event was found",
        "not listed; placed by the middle of the runs'",
    ]
    assert (
        "3 runs and 1 control. 2 runs have an event of their own, from 100 to 400: a factor of 4.00"
        in comparison.sentence
    )
    none = comparison_of(runs, [], events_of(), "")
    assert none is not None
    assert "No run has an event of its own, so they are aligned by step alone" in none.sentence


def test_what_recurs_comes_first_and_not_searched_is_not_nothing_found():
    events = found(
        {"run": "a"},
        {"run": "a", "name": "loss", "step": 110.0},
        {"run": "b", "step": 120.0},
        {"run": "c", "step": 130.0},
    )
    del events.attrs["searched"]["c: loss"]
    comparison = comparison_of([looked(name) for name in "abc"], [], events, "")
    assert comparison is not None
    first, second = comparison.recurring
    assert (first.name, first.steps, first.runs) == ("ov.effective_rank", [[100.0], [120.0], [130.0]], 3)
    assert (second.name, second.steps) == ("loss", [[110.0], [], None])
    text = " ".join(re.sub("<[^>]*>", " ", rendered([looked(n) for n in "abc"], [], events)).split())
    assert "loss 1 110 – not searched" in text


def test_what_sets_runs_apart_is_a_table_or_the_reason_why_there_is_none():
    runs = [looked("a", seed=1, speed=12), looked("b", seed=2, speed=12), looked("c", seed=3, speed=12)]
    controls = [looked(name, seed=seed, speed=1, at=1500) for seed, name in enumerate("def", 4)]
    apart = set_apart([one.table for one in runs], [one.table for one in controls])
    comparison = comparison_of(runs, controls, found({"run": "a"}), apart)
    assert comparison is not None
    assert comparison.apart[0].panel == "ov.effective_rank"
    assert comparison.apart[0].times > 2
    ends = [int(step.replace(",", "")) for step in comparison.apart[0].at.split(" to ")]
    assert all(150 < step < 270 for step in ends)  # of the runs, which rise at 200, not of the controls
    assert "no share of divisions can be below 10 %" in comparison.apart_said
    page = rendered(runs, controls, found({"run": "a"}), "To tell that takes two or more of each.")
    assert "To tell that takes two or more of each." in page


def test_the_losses_stand_side_by_side_by_step_and_by_event_and_who_has_none_is_named():
    runs, events = [looked("a"), looked("b", loss=False), looked("c", at=900.0)], found({"run": "a"}, {"run": "c"})
    comparison = comparison_of(runs, [], events, "")
    pictures = compare_svgs(comparison, runs, [])
    assert [said for _, said in pictures] == [
        "Loss of 2 runs over the step; without a loss: b.",
        "Loss of 2 runs over step / step of each run's own event; without a loss: b.",
    ]
    assert compare_svgs(comparison, runs, []) == pictures
    assert compare_svgs(comparison, runs[1:2], []) == []


def test_hostile_names_of_several_runs_are_text():
    evil = "</script><script>alert(1)</script>\u202e" + "y" * 10_000
    runs, events = [looked(evil), looked("b")], found({"run": evil}, {"run": "b"})
    page = rendered(runs, [looked("<img src=x onerror=alert(2)>")], events)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("y" * 10_000) <= 12  # in facts, data and texts to copy; not again in every row of every table


def test_runs_of_which_some_have_little_to_show_are_still_one_page():
    bare = Looked("bare", None, None, None, None, None, ("Could not measure the probes: no attention here",))
    nan = looked("nan")
    assert nan.table is not None
    nan = replace(nan, table=nan.table.assign(value=np.nan, why_missing="the head is zero"))
    other = looked("other")
    assert other.table is not None
    other = replace(other, table=other.table.assign(probe="norm", circuit="qk"))
    infinite = replace(looked("inf"), metrics=pd.DataFrame({"loss": [np.inf, np.nan]}, index=[1, 2]))
    runs = [looked("a"), bare, nan, other, infinite]
    events = found({"run": "a"}, {"run": "inf"})
    page = rendered(runs, [replace(bare, name="empty control")], events, "What sets them apart cannot be told.")
    text = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert "bare run 0 could not look it was not measured" in text
    assert f"nan run {len(STEPS)} could not look it could not be searched" in text
    assert "empty control control 0 not listed it was not measured" in text
    assert "Could not measure the probes: no attention here" in text
    assert "without a loss: bare, inf, empty control" in text
    first = rendered([bare, looked("a")], [], events)  # the one whose map would be shown has none
    assert "No weights were measured, so there is no map" in first


def test_two_runs_of_one_name_are_refused(tmp_path):
    table = table_of(run="a")
    with pytest.raises(ValueError, match="they belong to one run"):
        probes.report([tmp_path / "a", tmp_path / "b"], table, path=tmp_path / "page.html")


# --- in the browser


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: apt-get install chromium")
@pytest.mark.xdist_group("browser")
def test_curves_of_all_runs_are_aligned_by_step_or_by_event_and_the_link_keeps_it(chromium, tmp_path):
    runs, events = [looked("a"), looked("b", at=800.0)], found({"run": "a"}, {"run": "b", "step": 800.0})
    file = Path(tmp_path / "page.html")
    file.write_text(rendered(runs, [looked("control")], events), encoding="utf-8")
    opened = Opened(chromium, file, viewport={"width": 1400, "height": 900})
    assert "3 of 3 are drawn" in opened.text("#compare-said")
    opened.page.select_option("#align", "event")
    assert opened.view["align"] == "event"
    assert "Placed by the middle of the other runs' events, having none of their own here: control" in opened.text(
        "#compare-said"
    )
    header, *rows = opened.downloaded(lambda: opened.page.click("[data-csv=compare]"))
    own = {(row[0], row[1], row[2]) for row in rows}
    assert own == {("a", "run", "100"), ("b", "run", "800"), ("control", "control", "")}
    of_b = [float(row[header.index("median")]) for row in rows if row[0] == "b"]
    table = runs[1].table
    assert table is not None
    np.testing.assert_allclose(of_b, table.groupby("step")["value"].median(), rtol=1e-4)
    fragment = f"#{opened.page.url.split('#')[1]}"
    again = Opened(chromium, file, fragment, viewport={"width": 390, "height": 800})
    assert again.page.input_value("#align") == "event"
    assert again.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.complaints + again.complaints == []
