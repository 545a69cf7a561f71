"""What goes into a page: numbers that survive packing, the same bytes every time, a job that goes on."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from typer.testing import CliRunner

import checkpoints
import probes
from probes.__main__ import app
from probes.measuring import kept_tables
from probes.opening import function_named
from probes.reporting.event_data import who_moved_first
from probes.reporting.packing import pack, unpack
from probes.reporting.page_data import FindingData
from probes.reporting.series_data import MOST_NUMBERS, shown_columns
from tests.report_pages import ROOT, prepared, write_run


@given(arrays.arrays(np.float64, (3, 20), elements=st.floats(-1e6, 1e6, allow_subnormal=False) | st.just(float("nan"))))
def test_packed_numbers_are_off_by_half_a_65534th_of_the_range_or_of_the_ratio_of_their_row(values):
    packed = pack(values)
    found = unpack(packed, values.shape[1])
    assert (np.isnan(found) == np.isnan(values)).all()
    for before, after, is_log in zip(values, found, packed.logs, strict=True):
        known = before[np.isfinite(before)]
        if not len(known):
            continue
        if is_log == "1":
            half = 0.5 * np.log(known.max() / known.min()) / 65534
            np.testing.assert_allclose(after, before, rtol=1.01 * half + 1e-9)
        else:
            np.testing.assert_allclose(after, before, atol=0.5001 * np.ptp(known) / 65534, rtol=1e-9)


def test_small_numbers_keep_their_digits_beside_large_ones():
    values = np.geomspace(1e-6, 1, 50)[None]
    np.testing.assert_allclose(unpack(pack(values), 50), values, rtol=2e-4)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("small") / "small")


AGAIN = """
import pickle, sys, pathlib, probes
table, events = pickle.loads(pathlib.Path(sys.argv[3]).read_bytes())
probes.report(sys.argv[1], table, events, sys.argv[2], tables=sys.argv[4])
"""


def test_the_same_report_is_the_same_bytes_in_one_process_and_in_two(small, tmp_path):
    def written(name: str) -> Path:
        return probes.report(small.run, small.table, small.events, tmp_path / name, tables=tmp_path / "tables")

    first, second, given = written("1.html"), written("2.html"), tmp_path / "given.pickle"
    assert first.read_bytes() == second.read_bytes()
    given.write_bytes(pickle.dumps((small.table, small.events)))
    places = [small.run.source, str(tmp_path / "3.html"), str(given), str(tmp_path / "tables")]
    subprocess.run([sys.executable, "-c", AGAIN, *places], check=True, cwd=ROOT)
    assert (tmp_path / "3.html").read_bytes() == first.read_bytes()


def test_a_report_that_was_stopped_goes_on_where_it_stopped(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", [1, 2, 4, 8, 16, 32], metrics=False)
    tables, measured = tmp_path / "tables", []
    from probes.measuring import measure as module

    original = module.measure_checkpoint

    def counted(plan, task):
        if len(measured) == 4:
            measured.append(None)
            raise KeyboardInterrupt
        measured.append(task.current.step)
        return original(plan, task)

    monkeypatch.setattr(module, "measure_checkpoint", counted)
    with pytest.raises(KeyboardInterrupt):
        probes.report(run, path=tmp_path / "report.html", tables=tables)
    assert not (tmp_path / "report.html").exists()
    audits = []
    monkeypatch.setattr(kept_tables, "audited", lambda *given, **named: audits.append(1))
    probes.report(run, path=tmp_path / "report.html", tables=tables)
    assert measured[5:7] == [16, 32]  # the table goes on; the spectra follow
    assert len(measured) == 5 + 2 + 6
    assert audits == []
    probes.report(run, path=tmp_path / "again.html", tables=tables)
    assert len(measured) == 5 + 2 + 6
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "report.html").read_bytes()


def test_a_page_without_its_libraries_says_what_to_install_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs bokeh and jinja2 and matplotlib.*pip install"):
        probes.report(Path(tmp_path / "nothing"), path=tmp_path / "report.html")


def test_the_command_writes_a_page_and_names_its_own_line(tmp_path, monkeypatch):
    write_run(tmp_path / "run", [1, 2, 4, 8])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["probes", "report", "run", "-o", "page.html", "--detect-in", "loss"])
    result = CliRunner().invoke(app, sys.argv[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("page.html: 1.")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "probes report run -o page.html --detect-in loss" in text
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        "run.audit.json",
        "run.parquet",
        "run.spectra.parquet",
    }


def test_the_command_says_what_it_cannot_open_and_which_metric_there_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["report", "nowhere"])
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
    write_run(tmp_path / "run", [1, 2, 4])
    result = CliRunner().invoke(app, ["report", "run", "--detect-in", "perplexity"])
    assert result.exit_code == 2
    assert "no metric is called perplexity; there are loss, learning_rate" in result.stderr


def test_long_records_are_thinned_around_their_events():
    steps = list(range(1, 1001))
    columns = shown_columns(steps, 8 * 288, [500.2, 731])
    assert {0, 499, 730, 999} <= {*columns}
    assert len(columns) * 8 * 288 <= MOST_NUMBERS + 4 * 8 * 288
    assert np.diff(columns).max() <= 4
    assert shown_columns(steps[:150], 8 * 288, []) == list(range(150))


def finding(name: str, low: float, high: float) -> FindingData:
    return FindingData(name, False, (low + high) / 2, low, high, "stage, rise", 0.5, 0.001, "row", [])


def test_who_moved_first_is_told_only_where_stretches_do_not_overlap():
    early, late, wide = finding("ov.norm", 100, 200), finding("loss", 300, 400), finding("qk.norm", 150, 350)
    assert who_moved_first([early]) == "Nothing else was found at this time."
    assert who_moved_first([late, early]) == "ov.norm (until 200) before loss (from 300)."
    assert who_moved_first([early, wide]) == "Cannot be told from one run: the stretches overlap."
    assert who_moved_first([wide, late, early]).endswith("1 other overlaps with it.")


def test_a_theory_is_laid_over_the_run_that_brings_one_and_elsewhere_it_is_said_why_not(tmp_path):
    run = checkpoints.open_run(ROOT / "checkpoints" / "reference" / "linear-icl")
    table = probes.measure(run, probes="norm", audit=False)
    events = probes.find_events(table)
    theory = function_named("models.theories:theory_of")
    text = probes.report(run, table, events, tmp_path / "with.html", theory=theory).read_text(encoding="utf-8")
    assert "Beside theory: exact flow" in text
    assert "mode 3: half-time 1.00 of the predicted" in text
    text = probes.report(run, table, events, tmp_path / "without.html").read_text(encoding="utf-8")
    assert "Theory: not shown, the run says how a theory reads its weights, but none was given" in text
    other = write_run(tmp_path / "run", [1, 2, 4, 8])
    text = probes.report(other, path=tmp_path / "none.html", theory=theory).read_text(encoding="utf-8")
    assert "there is a theory of linear-icl, multi-head" in text


@pytest.mark.parametrize("named", ["models.theories", "models.theories:nothing", "no.such.module:theory"])
def test_a_theory_that_cannot_be_found_is_named(named):
    with pytest.raises(ValueError, match=f"--theory {named}: "):
        function_named(named)
