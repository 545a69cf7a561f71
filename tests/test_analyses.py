"""A toy size of every analysis runs, judges every claim, and leaves a page that stands on its own."""

import base64
import re

import pytest
from typer.testing import CliRunner

from analyses.__main__ import ANALYSES, app
from analyses.verdicts import FAILS, HOLDS, IN_PART, judge, percent, spread

pytestmark = pytest.mark.xdist_group("analyses")  # one worker trains the runs once


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analyses")
    arguments = ["--size", "toy", "--out", folder / "results", "--runs", folder / "runs"]
    arguments += ["--verdicts", folder / "verdicts.md"]
    outcome = CliRunner().invoke(app, [str(a) for a in arguments])
    assert outcome.exit_code == 0, outcome.output
    return folder, outcome.output


@pytest.mark.slow
def test_every_analysis_leaves_a_picture_a_table_and_a_page(result):
    folder, _ = result
    for name in ANALYSES:
        page = (folder / "results" / name / "index.html").read_text()
        pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
        assert len(pictures) == 1
        assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")
        assert len((folder / "results" / name / "verdicts.csv").read_text().splitlines()) > 3
        assert (folder / "results" / name / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_report_holds_all_pages_and_asks_nothing_of_the_network(result):
    folder, output = result
    report = (folder / "results" / "index.html").read_text()
    assert report.count("<img") == len(ANALYSES)
    without_pictures = re.sub(r"base64,[^\"]+", "", report)  # their letters spell anything sooner or later
    assert "http" not in without_pictures
    assert len(without_pictures) < 10_000 * len(ANALYSES)
    assert "The report:" in output


@pytest.mark.slow
def test_every_claim_gets_one_of_three_verdicts_and_a_reason(result):
    folder, _ = result
    rows = [line for line in (folder / "verdicts.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| claim")]
    assert len(rows) >= 15
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 5
        assert cells[3].strip("*") in (HOLDS, IN_PART, FAILS)
        assert cells[4]


def test_verdicts_by_hand():
    assert [judge(x, 0.1, 0.5) for x in (-0.05, 0.3, 0.8)] == [HOLDS, IN_PART, FAILS]
    assert spread([1.0, 3.0]) == "2.000 ± 1.414"
    assert spread([1.0]) == "1.000"
    assert percent([1.1, 1.1]) == "+10.0 ± 0.0 %"
    assert percent([1.1, float("inf")]) == "not reached in 1 of 2 seeds"


def test_an_unknown_name_or_size_is_refused_with_what_there_is():
    for bad in (["no_such"], ["--size", "huge"]):
        outcome = CliRunner().invoke(app, bad)
        assert outcome.exit_code == 2
