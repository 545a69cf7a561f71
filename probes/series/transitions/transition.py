"""One transition, as every finder reports it, and the table of several."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Transition:
    """A row of the table of `find_transitions`, which says what the columns mean."""

    step: float
    low: float
    high: float
    kind: str
    direction: str
    strength: float
    p_value: float
    width: float = float("nan")


_COLUMN_TYPES: dict[Any, str] = {str: "str", int: "int64", float: "float64"}


def transitions_table(rows: Sequence[Transition], kind: type[Transition] = Transition) -> pd.DataFrame:
    """One row each, ordered by step; the columns are the fields of `kind`, whether or not there are rows."""
    types = {field.name: _COLUMN_TYPES[field.type] for field in fields(kind)}
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(types))
    return table.astype(types).sort_values("step", ignore_index=True)
