"""Claims and what became of them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper, where it is printed, what was measured over the seeds, the judgement and its reason."""

    claim: str
    printed: str
    measured: str
    verdict: str
    why: str


def table(verdicts: list[Verdict]) -> pd.DataFrame:
    """Verdicts as a table with readable headings."""
    columns = {"claim": "claim", "printed": "where", "measured": "measured", "verdict": "verdict", "why": "why"}
    return pd.DataFrame([vars(verdict) for verdict in verdicts], columns=list(columns)).rename(columns=columns)


def spread(values: np.ndarray | list[float], digits: int = 3) -> str:
    """Mean and standard deviation over seeds."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        return f"not reached in {(~np.isfinite(values)).sum()} of {len(values)} seeds"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1) if len(values) > 1 else 0:.{digits}f}"


def percent(values: np.ndarray | list[float], digits: int = 1) -> str:
    """Mean and standard deviation over seeds, of ratios to one, as percent off."""
    off = 100 * (np.asarray(values, dtype=float) - 1)
    if not np.isfinite(off).all():
        return f"not reached in {(~np.isfinite(off)).sum()} of {len(off)} seeds"
    return f"{off.mean():+.{digits}f} ± {off.std(ddof=1) if len(off) > 1 else 0:.{digits}f} %"


def judge(off: float, holds: float, in_part: float) -> str:
    """By the size of a deviation."""
    return HOLDS if abs(off) <= holds else IN_PART if abs(off) <= in_part else FAILS
