"""Tables that are kept: `probes events` and `probes report` use each other's, and none that does not fit."""

import pandas as pd
import pytest
from typer.testing import CliRunner

import checkpoints
from probes.__main__ import app
from probes.measuring import kept_tables
from probes.measuring.kept_tables import KeptTables
from tests.walking_run import STEPS, write_run


@pytest.fixture
def measured(monkeypatch):
    """What was measured, as (circuits, probes), call by call."""
    calls, measure = [], kept_tables.measure

    def counted(run, circuits, *, probes=None, **settings):
        calls.append((tuple(circuits), probes))
        return measure(run, circuits, probes=probes, **settings)

    monkeypatch.setattr(kept_tables, "measure", counted)
    return calls


def test_events_and_report_measure_a_run_once_between_them(tmp_path, monkeypatch, measured):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "walk", STEPS)
    for command, code in (("events", 2), ("report", 0), ("events", 2)):  # 2: too few checkpoints to search
        done = CliRunner().invoke(app, [command, "walk"])
        assert done.exit_code == code, done.output
    assert [circuits for circuits, _ in measured] == [("ov", "qk"), ("ov", "qk")]
    assert [probes is None for _, probes in measured] == [True, False]  # the second are the report's spectra


@pytest.mark.parametrize("lacking", ["circuits", "probes", "damaged", "failed", "version"])
def test_what_does_not_hold_what_is_asked_for_is_measured_anew(tmp_path, monkeypatch, measured, lacking):
    run = checkpoints.open_run(write_run(tmp_path / "walk", STEPS))
    kept = KeptTables(run, tmp_path)
    first = kept.table(["ov"], None, probes=["norm"])
    assert kept.table(["ov"], None, probes=["norm"]).equals(first)
    assert len(measured) == 1
    file = tmp_path / "walk.parquet"
    if lacking == "damaged":
        file.write_bytes(file.read_bytes()[:-20])
    if lacking == "failed":
        first.attrs["failed"] = {"100": "it could not be read"}
        kept_tables.write_table(first, file)
    if lacking == "version":
        monkeypatch.setattr(kept_tables, "library_version", lambda: "another")
    circuits, probes = (["ov", "qk"] if lacking == "circuits" else ["ov"]), ["norm"]
    probes += ["effective_rank"] if lacking == "probes" else []
    if lacking == "damaged":
        with pytest.warns(UserWarning, match=r"walk\.parquet cannot be read and is made anew"):
            again = kept.table(circuits, None, probes=probes)
    else:
        again = kept.table(circuits, None, probes=probes)
    assert len(measured) == 2
    assert set(again["circuit"]) == set(circuits)
    assert set(again["probe"]) == set(probes)
    assert isinstance(again, pd.DataFrame)
    assert not again.attrs["failed"]


def test_a_kept_audit_is_used_until_the_files_change_and_a_damaged_one_is_made_anew(tmp_path):
    said: list[str] = []
    folder = write_run(tmp_path / "walk", STEPS)

    def kept():
        return KeptTables(checkpoints.open_run(folder), tmp_path, said.append)

    first = kept().audit(["ov", "qk"])
    assert kept().audit(["ov", "qk"]) == first
    assert len(said) == 1
    (tmp_path / "walk.audit.json").write_text("{")
    with pytest.warns(UserWarning, match=r"walk\.audit\.json is damaged"):
        assert kept().audit(["ov", "qk"]) == first
    (folder / "step500.safetensors").unlink()
    kept().audit(["ov", "qk"])
    assert len(said) == 3
