"""Claims and what became of them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

HOLDS, IN_PART, FAILS, CANNOT = "holds", "holds in part", "does not hold", "cannot be judged here"
WORDS = (HOLDS, IN_PART, FAILS, CANNOT)
"""From the strongest word to none."""


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper, where it is printed, what was measured over the seeds, the judgement and its reason.

    worth is how much the word is worth: runs, effect size, rule, and how often nothing would earn it.
    """

    claim: str
    printed: str
    measured: str
    verdict: str
    why: str
    worth: str = ""


def table(verdicts: list[Verdict]) -> pd.DataFrame:
    """Verdicts as a table with readable headings."""
    columns = {
        "claim": "claim",
        "printed": "where",
        "measured": "measured",
        "verdict": "verdict",
        "why": "why",
        "worth": "worth",
    }
    return pd.DataFrame([vars(verdict) for verdict in verdicts], columns=list(columns)).rename(columns=columns)


def average(values: np.ndarray | list[float]) -> float:
    """Mean of what is known; NaN if nothing is."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else float("nan")


def spread(values: np.ndarray | list[float], digits: int = 3) -> str:
    """Mean and standard deviation over seeds; of a single one, the value alone."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        return f"not reached in {(~np.isfinite(values)).sum()} of {len(values)} seeds"
    return f"{values.mean():.{digits}f}" + (f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else "")


def percent(values: np.ndarray | list[float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds, of ratios to one, as percent off."""
    off = 100 * (np.asarray(values, dtype=float) - 1)
    if not np.isfinite(off).all():
        return f"not reached in {(~np.isfinite(off)).sum()} of {len(off)} seeds"
    return f"{off.mean():+.{digits}f} ± {off.std(ddof=1) if len(off) > 1 else 0:.{digits}f} %"


def judge(off: float, holds: float, in_part: float) -> str:
    """By the size of a deviation; one that could not be measured is no evidence either way."""
    if np.isnan(off):
        return CANNOT
    return HOLDS if abs(off) <= holds else IN_PART if abs(off) <= in_part else FAILS


def beyond(values: np.ndarray | list[float], control: np.ndarray | list[float]) -> str:
    """By a control: whether all, most or few of the values lie above every value of the control."""
    control = np.asarray(control, dtype=float)
    above = np.asarray(values, dtype=float) > control[np.isfinite(control)].max(initial=-np.inf)
    return HOLDS if above.all() else IN_PART if above.mean() >= 0.5 else FAILS


def seen(values: np.ndarray | list[float]) -> str:
    """In how many runs something was seen (finite), and where."""
    values = np.asarray(values, dtype=float)
    known = values[np.isfinite(values)]
    return f"{len(known)} of {len(values)}" + (f" (at {known.min():.2f} - {known.max():.2f})" if len(known) else "")


def seen_only_here(values: np.ndarray | list[float], control: np.ndarray | list[float]) -> str:
    """By a control: seen in every run and in no control; in part if in every run, or in half of them and no control."""
    here, there = np.isfinite(np.asarray(values, dtype=float)), np.isfinite(np.asarray(control, dtype=float))
    if here.all() and not there.any():
        return HOLDS
    return IN_PART if here.all() or (here.mean() >= 0.5 and not there.any()) else FAILS


def together(*verdicts: str) -> str:
    """Of several parts of one claim: the verdict of the whole. Holding in one part only is holding in part.

    With a part that cannot be judged, the whole cannot, unless the others settle it: what holds in one part and fails
    in another holds in part, whatever becomes of the third.
    """
    if CANNOT in verdicts:
        judged = set(verdicts) - {CANNOT}
        return IN_PART if IN_PART in judged or len(judged) > 1 else CANNOT
    if all(verdict == HOLDS for verdict in verdicts):
        return HOLDS
    return FAILS if all(verdict == FAILS for verdict in verdicts) else IN_PART
