"""The table of how often the detector was right: complete, sane, and found again from a record's steps."""

import numpy as np
import pytest

from probes.series import calibration
from probes.series.calibration import COLUMNS, WHATS, row_for, rows, schedule_of

PYTHIA = np.concatenate(([0.0], 2.0 ** np.arange(10), np.arange(1000, 144_000, 1000.0)))


def test_every_row_is_a_kind_of_record_with_rates_inside_their_intervals():
    table = rows()
    assert tuple(table.columns) == COLUMNS
    assert table["id"].is_unique
    assert set(table["what"]) <= set(WHATS)
    for name, rate in (("false_alarm", "false_alarm_rate"), ("recall", "recall"), ("coverage", "coverage")):
        known = table[table[rate].notna()]
        assert len(known) > 10
        assert (known[f"{name}_low"] <= known[rate]).all()
        assert (known[rate] <= known[f"{name}_high"]).all()
    assert (table.groupby(table["what"] == "panel")["release"].nunique() == 1).all()


def test_what_is_handed_out_is_a_copy():
    mine = rows()
    mine.loc[:, "recall"] = 2.0
    assert not (rows()["recall"] == 2.0).any()


@pytest.mark.parametrize(
    ("steps", "rho", "expected"),
    [
        (np.arange(1, 101) * 1000.0, 0.5, "cliff/uniform/n100-199/rho0.25-0.65"),
        (np.arange(1, 101) * 1000.0, -0.3, "cliff/uniform/n100-199/rho0-0.25"),
        (np.unique(np.round(np.geomspace(1, 1e5, 60))), 0.8, "cliff/log-spaced/n50-99/rho0.65-0.9"),
        (PYTHIA, 0.0, "cliff/mixed/n100-199/rho0-0.25"),
        (np.arange(1, 50_001.0), 0.0, "cliff/uniform/n3000-more/rho0-0.25"),
    ],
)
def test_a_record_finds_its_row(steps, rho, expected):
    row = row_for("cliff", steps, rho)
    assert row is not None
    assert row.id == expected


def test_records_that_were_never_tried_have_no_row():
    assert row_for("cliff", np.arange(1, 101.0), 0.97) is None
    assert row_for("cliff", np.arange(1, 11.0), 0.0) is None


def test_without_rho_the_worst_of_the_rows_that_fit():
    steps, table = np.arange(1, 51) * 100.0, rows()
    fit = table[(table["what"] == "dip") & (table["schedule"] == "uniform") & (table["n_low"] == 50)]
    row = row_for("dip", steps)
    assert len(fit) == 3
    assert row is not None
    assert row.false_alarm_rate == fit["false_alarm_rate"].max()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (np.arange(0, 5000, 100), "uniform"),
        (np.delete(np.arange(0, 5000, 100), 17), "uniform"),  # one checkpoint was lost
        (2.0 ** np.arange(12), "log-spaced"),
        (np.unique(np.append(0, np.round(np.geomspace(1, 7500, 100)))), "log-spaced"),
        (np.unique(np.round(np.geomspace(1, 1e5, 3000))), "log-spaced"),
        (PYTHIA, "mixed"),
        (np.concatenate((np.arange(0, 100, 10), np.arange(100, 2000, 100))), "mixed"),
    ],
)
def test_how_a_record_is_sampled(steps, expected):
    assert schedule_of(steps) == expected


def test_bad_input_is_refused_with_what_is_expected():
    with pytest.raises(ValueError, match="one of any, cliff"):
        row_for("clif", np.arange(100.0))
    with pytest.raises(ValueError, match="at least 6 steps that increase"):
        schedule_of(np.ones(10))


def test_the_fingerprint_passes_over_comments_and_sees_code():
    plain = 'def f(x):\n    """Twice."""\n    return 2 * x\n'
    assert calibration._code(plain) == calibration._code(plain.replace("Twice", "Two times") + "# a comment\n")
    assert calibration._code(plain) != calibration._code(plain.replace("2 * x", "3 * x"))
