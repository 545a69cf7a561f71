"""A toy size of every analysis runs, judges every claim, and leaves a page that stands on its own."""

import base64
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import analyses
from analyses import drawing
from analyses.__main__ import app
from analyses.gallery.entries import committed_entries
from analyses.registry import GROUP_OF, GROUPS, PAPERS, SIZES, chosen_pages, description, module_of, whole_groups
from analyses.tools.page import Page
from analyses.tools.source import Source
from analyses.tools.verdicts import CANNOT, FAILS, HOLDS, IN_PART, Verdict, judge, percent, spread, together

ROOT = Path(analyses.__file__).parent

pytestmark = pytest.mark.xdist_group("analyses")  # one worker trains the runs once


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analyses")
    arguments = ["--size", "toy", "--out", folder / "results", "--runs", folder / "runs"]
    arguments += ["--verdicts", folder / "verdicts.md", "--fresh"]
    # in a process without the run-time type checks of the tests, which make training half as slow again
    command = [sys.executable, "-m", "analyses", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.slow
def test_every_analysis_leaves_a_picture_a_table_and_a_page(result):
    folder, _ = result
    for name in GROUP_OF:
        page = (folder / "results" / name / "index.html").read_text()
        pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
        assert len(pictures) == 1
        assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")
        assert len((folder / "results" / name / "verdicts.csv").read_text().splitlines()) > 3
        assert (folder / "results" / name / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_gallery_holds_all_pages_and_asks_nothing_of_the_network(result):
    folder, output = result
    report = (folder / "results" / "index.html").read_text()
    assert report.count("<img") == len(GROUP_OF)
    without_pictures = re.sub(r"base64,[^\"]+", "", report)  # their letters spell anything sooner or later
    assert "http:" not in without_pictures
    assert "https:" not in without_pictures
    assert len(without_pictures) < 15_000 * len(GROUP_OF)
    assert "The gallery:" in output


@pytest.mark.slow
def test_every_claim_gets_a_verdict_and_a_reason(result):
    folder, _ = result
    rows = [line for line in (folder / "verdicts.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| claim")]
    assert len(rows) >= 15
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 6
        assert cells[3].strip("*") in (HOLDS, IN_PART, FAILS, CANNOT)
        assert cells[4]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_committed_verdicts_carry_the_sentences_that_the_code_prints(result, group):
    folder, _ = result
    for entry in committed_entries(group):
        page = json.loads((folder / "results" / entry.name / "page.json").read_text())
        assert (entry.title, counted(entry.summary)) == (page["title"], counted(page["summary"]))
        rows = [Verdict(**row) for row in page["verdicts"]]
        assert [(row.claim, row.printed) for row in entry.verdicts] == [(row.claim, row.printed) for row in rows]
        for theirs, ours in zip(entry.verdicts, rows, strict=True):
            if "rule: " in theirs.worth and "rule: " in ours.worth:
                assert rule_in(theirs.worth) == rule_in(ours.worth)
                if theirs.verdict == ours.verdict:
                    assert told_before(theirs.why) == told_before(ours.why)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["icl_emergence", "grokking"])
def test_a_page_on_transformers_is_judged_on_the_first_seeds_where_fresh_ones_are_not_asked_for(
    result, monkeypatch, name
):
    module = importlib.import_module(module_of(name))
    (loader,) = (key for key in vars(module) if key.endswith("_runs"))
    trained = getattr(module, loader)

    def first_only(size, runs, *, fresh=False):
        assert not fresh
        return trained(size, runs)

    monkeypatch.setattr(module, loader, first_only)
    page = drawing._run(module.run, "toy", result[0] / "runs", source=None, fresh=False)
    assert page.facts.endswith("; judged on the first seeds alone")
    assert "fresh seeds" not in page.facts + "".join(row.measured + row.worth for row in page.verdicts)
    again = json.loads((result[0] / "results" / name / "page.json").read_text())
    assert "fresh seeds: " in again["facts"]
    assert any("fresh seeds: " in row["measured"] for row in again["verdicts"])


def counted(summary: str) -> str:
    """Whatever the numbers of series are, which differ between sizes, and whichever release was the last one judged."""
    without_release = re.sub(r"^Release [\w.+]+", "Some release", summary)
    return re.sub(r"\b\d+ (series|panels)", r"some \1", without_release)


def rule_in(worth: str) -> str:
    """The rule, without what follows it: chance, or the other seeds."""
    return re.split(r"; |\. (?=[a-z])", worth.split("rule: ")[1])[0]


def told_before(why: str) -> str:
    """Without what fresh seeds add to it."""
    return re.split(r"\. (?:The words differ: |On .* the word was )", why)[0]


def test_verdicts_by_hand():
    assert [judge(x, 0.1, 0.5) for x in (-0.05, 0.3, 0.8)] == [HOLDS, IN_PART, FAILS]
    assert judge(float("nan"), 0.1, 0.5) == CANNOT  # what could not be measured neither holds nor fails
    assert [together(HOLDS, HOLDS), together(HOLDS, FAILS), together(FAILS, FAILS)] == [HOLDS, IN_PART, FAILS]
    assert [together(CANNOT, v) for v in (HOLDS, FAILS, IN_PART)] == [CANNOT, CANNOT, IN_PART]
    assert together(CANNOT, HOLDS, FAILS) == IN_PART
    assert spread([1.0, 3.0]) == "2.000 ± 1.414"
    assert spread([1.0]) == "1.000"
    assert percent([1.1, 1.1]) == "+10.0 ± 0.0 %"
    assert percent([1.1, float("inf")]) == "not reached in 1 of 2 seeds"


def test_an_unknown_name_or_size_is_refused_with_what_there_is():
    for bad, expected in (
        (["grokkin"], "did you mean grokking"),
        (["liner"], "did you mean linear"),
        (["no_such", "grokking"], "fixed_point"),
        (["--paper", "1"], "did you mean 001"),
        (["--size", "huge"], "toy, quick, paper"),
    ):
        outcome = CliRunner().invoke(app, bad)
        assert outcome.exit_code == 2
        assert expected in " ".join(outcome.output.split())


def test_pages_are_chosen_by_name_by_group_and_by_paper_each_once():
    assert chosen_pages() == list(GROUP_OF)
    assert chosen_pages(["grokking", "live", "grokking"]) == ["grokking", "live_monitor"]
    assert chosen_pages(["transformers"]) == ["icl_emergence", "grokking", "published_models"]
    assert chosen_pages(papers=["004"]) == list(GROUPS["sparse"].pages)
    assert len(chosen_pages(papers=["000"])) == sum(len(g.pages) for g in GROUPS.values() if g.paper == "000") >= 7
    assert chosen_pages(["sparse_scaling"], ["004"])[:2] == ["sparse_scaling", "sparse_solution"]


def test_committed_verdicts_are_rewritten_by_whole_groups_only():
    assert whole_groups(chosen_pages(["live", "transformers"])) == ["live", "transformers"]
    with pytest.raises(ValueError, match="icl_emergence, published_models must be run too"):
        whole_groups(["grokking"])
    for bad in (["grokking", "--committed"], ["live", "--committed", "--size", "toy"]):
        assert CliRunner().invoke(app, bad).exit_code == 2


def test_every_page_that_judges_again_can_leave_it_out_and_figures_do_where_committed_verdicts_do_not(
    monkeypatch, tmp_path
):
    for name in GROUP_OF:
        module = importlib.import_module(module_of(name))
        judges_again = {"judged_again", "judged_by_both"} & set(vars(module))
        assert bool(judges_again) == ("fresh" in inspect.signature(module.run).parameters)
    assert Source("quick", tmp_path).fresh is None
    fresh = Source("quick", tmp_path, has_fresh=True).fresh
    assert fresh
    assert fresh.seeds(6) == range(20, 26)

    drawn = []

    def noted(names, size, out, runs, verdicts=None, **how):
        drawn.extend((name, size, how["fresh"]) for name in names)

    monkeypatch.setattr(drawing, "draw", noted)
    monkeypatch.setattr(drawing, "write_coverage", lambda paper: None)
    monkeypatch.setattr(drawing, "two_at_a_time", lambda work, groups: [work(group) for group in groups])
    assert CliRunner().invoke(app, ["--out", str(tmp_path)]).exit_code == 0
    assert sorted(drawn) == sorted((name, "quick", False) for name in GROUP_OF)
    assert [GROUP_OF[name] for name, _, _ in drawn[:4]] == ["transformers"] * 3 + ["calibration"]
    drawn.clear()
    assert CliRunner().invoke(app, ["sparse", "linear", "--committed", "--out", str(tmp_path)]).exit_code == 0
    assert {(GROUP_OF[name], size, fresh) for name, size, fresh in drawn} == {
        ("linear", "paper", True),
        ("sparse", "quick", True),
    }


def test_a_page_is_handed_what_it_takes_and_says_that_it_left_fresh_seeds_out():
    def page(size, runs):
        return Page("grokking", "", "", "six runs", Figure(), "", [])

    def again(size, runs, *, fresh=False):
        return page(size, runs)

    assert drawing._run(page, "quick", Path(), source="hub", fresh=False).facts == "six runs"
    assert drawing._run(again, "quick", Path(), source=None, fresh=True).facts == "six runs"
    assert drawing._run(again, "quick", Path(), source=None, fresh=False).facts == (
        "six runs; judged on the first seeds alone"
    )


def test_the_help_names_every_group_page_and_paper():
    shown = CliRunner().invoke(app, ["--help"]).output
    for name in (*GROUPS, *GROUP_OF, *PAPERS):
        assert name in shown
    for name in GROUP_OF:
        assert description(name) in shown


def test_the_registry_has_every_page_and_every_file_of_verdicts_there_is():
    files = {path for paper in PAPERS.values() for path in (ROOT / paper.folder).glob("*.py")}
    with_run = {path for path in files if re.search(r"^def run\(size", path.read_text(), re.MULTILINE)}
    assert with_run == {ROOT.parent / f"{module_of(page).replace('.', '/')}.py" for page in GROUP_OF}
    assert set(ROOT.rglob("VERDICTS*.md")) == {group.verdicts_file for group in GROUPS.values()}
    for group in GROUPS.values():
        headings = [line for line in group.verdicts_file.read_text().splitlines() if line.startswith("## ")]
        assert len(headings) == len(group.pages)
        assert all(heading.startswith(f"## Paper {group.paper}") for heading in headings if "Paper" in heading)
        assert group.size in SIZES
        assert all((ROOT.parent / path).stat().st_size > 1000 for path in group.ships.values())


def test_a_page_writes_its_own_files_beside_the_picture(tmp_path):
    page = Page("calibration", "A title", "", "", Figure(), "", [], {"numbers.csv": "a,b\n1,2\n"})
    folder = page.write(tmp_path)
    assert (folder / "numbers.csv").read_text() == "a,b\n1,2\n"
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
