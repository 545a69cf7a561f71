"""The page in a browser: it opens from disk with the network off; its controls work by mouse and by keyboard."""

import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.measuring.tables import by_head
from tests.browser import CHROMIUM, Opened
from tests.report_pages import HAPPENS, Prepared, prepared

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("small") / "small")


@pytest.fixture(scope="module")
def page_file(small, tmp_path_factory) -> Path:
    return probes.report(small.run, small.table, small.events, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def opened(chromium, page_file) -> Iterator[Opened]:
    found = Opened(chromium, page_file, viewport={"width": 1400, "height": 900})
    yield found
    found.context.close()
    assert found.complaints == []


def test_opens_from_disk_with_the_network_off_and_asks_for_nothing(opened, page_file):
    assert opened.requests == [f"file://{page_file}"]
    assert opened.text("h1") == "small"
    assert opened.page.locator("#map canvas").count() > 0


def test_says_first_what_happened_and_opens_at_that_event(opened, small):
    assert opened.text(".tile strong >> nth=0") == f"{len(small.events)} events"
    opened.page.keyboard.press("Tab")  # any change writes the view into the address
    step = float(opened.text("#at").replace(",", ""))
    assert abs(np.log(step / HAPPENS)) < 0.5


def test_the_slider_moves_by_arrow_keys_and_by_mouse(opened):
    page = opened.page
    page.focus("#step")
    before = opened.text("#grid-name")
    page.keyboard.press("ArrowRight")
    assert opened.text("#grid-name") != before
    steps = [int(opened.view["step"])]
    page.keyboard.press("Home")
    assert opened.view["step"] == "0"
    box = page.locator("#step").bounding_box()
    page.locator("#step").click(position={"x": 0.9 * box["width"], "y": box["height"] / 2})
    assert int(opened.view["step"]) > steps[0]
    assert opened.text("#at").replace(",", "") == opened.view["step"]


def first_row(opened: Opened) -> list[str]:
    rows = opened.downloaded(lambda: opened.page.click("[data-csv=map]"))
    return rows[1][:5]


def test_rows_are_sorted_by_keyboard_and_by_mouse(opened, small):
    page = opened.page
    page.select_option("#probe", label="norm")
    page.select_option("#circuit", "ov")
    assert first_row(opened)[2:4] == ["0", "0"]
    page.focus("#order")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert opened.view["order"] == "change"
    norms = by_head(small.table, "norm", "ov")
    layer, head = (norms.max() - norms.min()).idxmax()
    assert first_row(opened)[2:4] == [str(layer), str(head)]
    page.select_option("#order", "event")
    assert opened.view["order"] == "event"


def test_a_head_is_pinned_by_a_click_and_by_enter(opened):
    page = opened.page
    page.select_option("#circuit", "all")
    before = opened.view["pins"]
    page.locator("#map").click(position={"x": 600, "y": 60})
    assert opened.view["pins"] != before
    by_mouse = opened.view["pins"]
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    assert opened.view["pins"] == by_mouse
    was = opened.view["head"] in opened.view["pins"]
    page.keyboard.press("Enter")
    assert (opened.view["head"] in opened.view["pins"]) is not was
    page.keyboard.press("Enter")
    assert (opened.view["head"] in opened.view["pins"]) is was


def test_whoever_opens_the_link_sees_the_same(opened, chromium, page_file):
    page = opened.page
    page.select_option("#probe", label="effective rank")
    page.select_option("#circuit", "qk")
    page.select_option("#order", "change")
    page.select_option("#scale", "z")
    page.focus("#step")
    page.keyboard.press("End")
    page.check("#difference")
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    fragment = urllib.parse.urlsplit(page.url).fragment
    again = Opened(chromium, page_file, f"#{fragment}", viewport={"width": 1400, "height": 900})
    for selector in ("#curves-name", "#grid-name", "#pins", "#map-said", "#at", "#map-legend", "#modes-name"):
        assert again.text(selector) == opened.text(selector)
    assert again.page.eval_on_selector("#scale", "one => one.value") == "z"
    again.page.focus("#step")
    again.page.keyboard.press("Home")
    again.page.keyboard.press("End")
    assert urllib.parse.urlsplit(again.page.url).fragment == fragment
    assert again.complaints == []
    again.context.close()


def test_the_csv_holds_the_numbers_of_the_table(opened, small):
    page = opened.page
    page.select_option("#probe", label="subspace distance")
    page.select_option("#circuit", "qk")
    page.focus("[data-csv=map]")
    rows = opened.downloaded(lambda: page.keyboard.press("Enter"))
    expected = by_head(small.table, "subspace_distance", "qk")
    assert rows[0][5:] == [str(step) for step in expected.index]
    for row in rows[1:]:
        found = np.array([float(one) if one else np.nan for one in row[5:]])
        np.testing.assert_allclose(
            found, expected[int(row[2]), int(row[3])], atol=2e-5 * np.nanmax(expected), rtol=1e-4
        )
    everything = opened.downloaded(lambda: page.click("[data-csv=all]"))
    assert len(everything) == 1 + 3 * 8
    events = opened.downloaded(lambda: page.click("[data-csv=events]"))
    assert len(events) == 1 + len(small.events.attrs["findings"])


def test_an_event_leads_to_its_evidence_and_to_its_calibration(opened):
    page = opened.page
    page.select_option("#probe", label="norm")
    page.click("#events .show >> nth=0")
    assert opened.text("#readout").startswith("Event 1")
    page.click("#events a[data-scroll] >> nth=0")
    assert page.locator("tr.lit").count() == 1
    assert opened.text("tr.lit td >> nth=0") == opened.text("#events a[data-scroll] >> nth=0")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "dark")])
def test_fits_a_phone_and_the_dark(chromium, page_file, width, scheme):
    found = Opened(chromium, page_file, viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert found.page.evaluate("document.documentElement.scrollWidth") == width
    paper = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 23, 28)") is (scheme == "dark")
    assert found.complaints == []
    found.context.close()


def test_an_event_in_embeddings_or_mlps_opens_among_all_circuits_and_every_button_works(chromium, small, tmp_path):
    table = small.table.loc[small.table["head"] == 0]
    table = table.assign(circuit=table["circuit"].map({"ov": "mlp_in", "qk": "mlp_out"}))
    events = probes.find_events(table)
    assert set(events["circuit"]) == {"matrices"}
    found = Opened(chromium, probes.report(small.run, table, events, tmp_path / "page.html"))
    page = found.page
    assert page.locator("#circuit").input_value() == "all"
    assert "Nothing here could be searched" not in page.locator("#map-section").inner_text()
    for button in page.get_by_role("button").all():
        if button.is_visible() and "CSV" not in button.inner_text():
            button.click()
    for circuit in ("mlp_in", "mlp_out", "all"):
        page.locator("#circuit").select_option(circuit)
    assert "mlp_out" in page.locator("#curves-name").inner_text() + page.locator("#verdict").inner_text()
    found.context.close()
    assert found.complaints == []
