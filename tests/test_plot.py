"""Plots touch nothing global, are the same bytes for the same input, and draw what is hard to draw."""

import sys
import warnings
import xml.etree.ElementTree as ET
from io import BytesIO

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from checkpoints import open_run
from probes import plot
from probes.plot.canvas import plain
from tests.import_graph import ROOT
from tests.plotted import events_of, table_of, words_of

EVENT = {"step": 100.0, "low": 50.0, "high": 200.0, "name": "ov.effective_rank", "members": ["1.0"]}
METRICS = pd.DataFrame({"loss": [4.0, 3.0, 2.0, 1.0]}, index=pd.Index([0, 1, 10, 100], name="step"))


@pytest.fixture(scope="module")
def reference():
    return open_run(ROOT / "checkpoints" / "reference" / "linear-icl")


def drawn(ax) -> None:
    """Rendered, so that what only fails when it is drawn fails; a layout that collapses is a failure too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax.figure.savefig(BytesIO(), format="png", dpi=50)


# --- manners


def test_what_is_drawn_into_given_axes_is_returned_and_nothing_global_changes():
    before, figures = dict(matplotlib.rcParams), plt.get_fignums()
    ax = Figure(layout="constrained").subplots()
    table, events = table_of(), events_of(EVENT)
    assert plot.heads(table, ax=ax) is ax
    for one in (
        plot.heads(table, events=events),
        plot.curves(table, events=events),
        plot.loss(METRICS, events),
        plot.events(events),
        plot.compare(table),
    ):
        drawn(one)
    plot.as_svg(lambda: plot.loss(METRICS), "a loss")
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == figures


def test_a_notebook_shows_axes_as_their_picture():
    assert plot.heads(table_of())._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"checkpoint-probes\[report\]"):
        plot.loss(METRICS)
    with pytest.raises(ImportError, match=r"checkpoint-probes\[report\]"):
        plot.as_svg(lambda: plot.loss(METRICS), "a loss")


# --- svg


def test_the_same_input_gives_the_same_bytes_whatever_the_readers_settings():
    def picture() -> str:
        return plot.as_svg(lambda: plot.loss(METRICS, events_of(EVENT)), "falls <b>")

    first = picture()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        assert picture() == first
    assert "20" not in ET.fromstring(first).get("viewBox", "").split()
    assert "<title>falls &lt;b&gt;</title>" in first
    assert "currentColor" in first
    assert "date" not in first.lower()


def test_names_are_text_in_the_svg_whatever_is_in_them():
    evil = '$x_1^2$ <script>alert(1)</script> "q" \u202e \U0001f600 \x00\x1b ' + "y" * 10_000
    table = table_of(run=evil)
    text = plot.as_svg(lambda: plot.heads(table), "map")
    root = ET.fromstring(text)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert "&lt;script&gt;" in text
    assert r"$x_1^2$" in text
    assert len(text) < 200_000
    assert plain("a\ud800\u2028b") == "a b"
    assert "_hidden" in words_of(plot.compare({"_hidden": table, "b": table_of(run="b")}))


# --- what is hard to draw


@pytest.mark.parametrize(
    "given",
    [
        {"heads": [(0, 0)], "steps": [7], "circuits": ("ov",)},
        {"heads": [(0, 0)], "steps": [0]},
        {"steps": [0, 1]},
        {"value": lambda *_: np.nan},
        {"value": lambda *_: 0.0},
        {"value": lambda layer, head, step: 1e300 if step else -1e-300},
        {"value": lambda layer, head, step: np.nan if layer else 1.0 + step},
        {"heads": [(layer, head) for layer in range(12) for head in range(12)], "steps": range(0, 60)},
        {"steps": np.unique(np.geomspace(1, 10**12, 1000).astype(int)).tolist(), "step_unit": "token"},
    ],
    ids=["one", "step 0 alone", "0 and 1", "no numbers", "all zero", "vast", "half", "288 rows", "1,000 steps"],
)
def test_is_drawn_whatever_the_table(given):
    table = table_of(**given)
    events = events_of({**EVENT, "low": 0.0})
    drawn(plot.heads(table, events=events, z_scored=True))
    drawn(plot.heads(table, order="change"))
    drawn(plot.curves(table, events=events))
    drawn(plot.compare([table]))


def test_a_tower_is_part_of_a_heads_name():
    table = table_of(circuits=("ov",), heads=[(0, 0)]).assign(tower="encoder")
    both = pd.concat([table, table_of(circuits=("ov",), heads=[(0, 0)]).assign(tower="decoder")])
    names = [label.get_text() for label in plot.heads(both).get_yticklabels()]
    assert names == ["encoder:0.0", "decoder:0.0"]
    assert "head decoder:0.0" in words_of(plot.curves(both, [("decoder", 0, 0)]))


def test_what_is_no_table_or_several_runs_is_refused():
    with pytest.raises(ValueError, match="not a table of probes: it lacks run"):
        plot.heads(METRICS)
    with pytest.raises(ValueError, match="has the runs a, b"):
        plot.heads(pd.concat([table_of(run="a"), table_of(run="b")]))
    with pytest.raises(ValueError, match="no probe 'norm'; it has effective_rank"):
        plot.heads(table_of(), "norm")


def test_a_run_is_measured_for_its_picture(reference):
    ax = plot.heads(reference, "marginalized_effective_rank.1")
    assert "marginalized effective rank.1" in words_of(ax)
    assert np.isfinite(ax.images[0].get_array()).all()
