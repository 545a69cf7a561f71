"""How often the detector was right on series like yours: the table behind every p-value, as data.

`calibration.csv` beside this file is written by `python -m analyses calibration --committed`, on seeds that no
constant was fitted to. A row is one kind of record: how it is sampled, how many values it has, how strongly its noise
is autocorrelated; and says of find_transitions at alpha = .01 on such records

    false_alarm_rate         share of series in which nothing happens that raised an alarm of this kind
    recall                   share of the transitions a person could see that were found
    coverage                 share of the "95 %" intervals that hold the true step
    timing_error             median of |ln(step / true step)|

each but the last with a 95 % interval (`..._low`, `..._high`), and with the number of `series` and `transitions`
behind it; NaN where that was not measured. `release` is the version and the fingerprint of the code that was judged.

    >>> row = probes.series.calibration.row_for("cliff", steps=np.arange(1, 101) * 1000, rho=0.5)
    >>> row.id, row.false_alarm_rate
"""

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd

WHATS = ("any", "cliff", "stage", "dip", "panel")
"""What a row is about: a kind of transition, any of them, or the events of a panel of many series."""

SCHEDULES = ("uniform", "log-spaced", "mixed")


@dataclass(frozen=True)
class CalibrationRow:
    """One row of the table; the top of this file says what the numbers mean. Ranges include both of their ends."""

    id: str
    what: str
    schedule: str
    n_low: int
    n_high: int
    rho_low: float
    rho_high: float
    series: int
    false_alarm_rate: float
    false_alarm_low: float
    false_alarm_high: float
    transitions: int
    recall: float
    recall_low: float
    recall_high: float
    coverage: float
    coverage_low: float
    coverage_high: float
    timing_error: float
    release: str

    def __str__(self) -> str:
        found = "recall not measured" if np.isnan(self.recall) else f"recall {self.recall:.2f}"
        return f"{self.id}: false alarms {self.false_alarm_rate:.3f} of {self.series}, {found}"


COLUMNS = tuple(field.name for field in fields(CalibrationRow))


@cache
def _table() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name("calibration.csv"))


def rows() -> pd.DataFrame:
    """The whole table, one row per kind of record, as it ships with this version."""
    return _table().copy()


def row_for(what: str, steps: Sequence[float] | np.ndarray, rho: float | None = None) -> CalibrationRow | None:
    """The row that a finding of this kind, in a record with these steps, is entitled to; None if there is none.

    what is one of `WHATS`. rho is the lag-one autocorrelation of the noise; where it is not known, the row with the
    highest false-alarm rate among those that fit. None means that records of this kind were never tried: too short, too
    strongly autocorrelated, or a kind that no series of the calibration has.
    """
    if what not in WHATS:
        raise ValueError(f"what is {what!r}: one of {', '.join(WHATS)} is expected")
    at, table = np.asarray(steps, dtype=np.float64), _table()
    fits = (table["what"] == what) & (table["schedule"] == schedule_of(at))
    fits &= (table["n_low"] <= len(at)) & (table["n_high"] >= len(at))
    if rho is not None:
        # below 0 the mean of several values is quieter than white noise says: the row of rho = 0 is on the safe side
        fits &= (table["rho_low"] <= max(rho, 0.0)) & (table["rho_high"] >= max(rho, 0.0))
    found = table.loc[fits & table["false_alarm_rate"].notna()]
    return CalibrationRow(**found.loc[found["false_alarm_rate"].idxmax()].to_dict()) if len(found) else None


def schedule_of(steps: Sequence[float] | np.ndarray) -> str:
    """How a record is sampled: "uniform", "log-spaced", or "mixed" where it is one early and the other late.

    Uniform is the same gap nearly everywhere. Log-spaced is a gap that grows in proportion to the step, both from the
    start to the middle of ln(step) and from there to the end. Such schedules begin with every step, because there are
    none between: they are looked at from where no gap is the smallest any more.
    """
    at = np.asarray(steps, dtype=np.float64)
    if at.ndim != 1 or len(at) < 6 or (np.diff(at) <= 0).any():
        raise ValueError(f"steps has shape {at.shape}: at least 6 steps that increase are expected")
    gaps, middle = np.diff(at), (at[1:] + at[:-1]) / 2
    if (np.abs(np.log(gaps / np.median(gaps))) < np.log(1.5)).mean() >= 0.95:  # one in twenty may be missing
        return "uniform"
    begin = 1 + int(np.flatnonzero(gaps < 1.5 * gaps.min())[-1])
    if len(gaps) - begin < 4:
        return "mixed"
    x, y = np.log(middle[begin:]), np.log(gaps[begin:])
    halves = (x[0], (x[0] + x[-1]) / 2), ((x[0] + x[-1]) / 2, x[-1])
    powers = [float(np.diff(np.interp(ends, x, y))[0] / (ends[1] - ends[0])) for ends in halves]
    return "log-spaced" if all(0.6 <= power <= 1.4 for power in powers) else "mixed"


def release_of_this_code() -> str:
    """The version and a fingerprint of the detector's code, comments and docstrings aside."""
    return release_of("series/transitions")


@cache
def release_of(folder: str) -> str:
    """The version and a fingerprint of one folder of `probes`: "series/transitions" or "events"."""
    try:
        number = version("checkpoint-probes")
    except PackageNotFoundError:
        number = "source"
    series = Path(__file__).parent
    digest = hashlib.sha256()
    for path in [*sorted((series.parent / folder).glob("*.py")), series / "checks.py"]:
        digest.update(path.name.encode() + _code(path.read_text(encoding="utf-8")).encode())
    return f"{number}+{digest.hexdigest()[:8]}"


def is_current() -> bool:
    """Whether the rows of single series were measured with the detector as it is now, and not with an earlier one."""
    table = _table()
    return bool((table.loc[table["what"] != "panel", "release"] == release_of_this_code()).all())


def _code(source: str) -> str:
    """What the source does, without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return ast.dump(tree)
