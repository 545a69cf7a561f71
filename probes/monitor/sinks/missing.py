"""What is not finite is missing, in every sink: other programs read these files, and few of them know infinity."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd


def finite_scalars(scalars: Mapping[str, float]) -> dict[str, float]:
    """Those that are numbers."""
    return {name: float(value) for name, value in scalars.items() if math.isfinite(value)}


def finite_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table with infinities as missing values that say so."""
    infinite = np.isinf(table["value"].to_numpy())
    if not infinite.any():
        return table
    table = table.copy()
    table.loc[infinite, "why_missing"] = [f"it was {value}" for value in table.loc[infinite, "value"]]
    table.loc[infinite, "value"] = np.nan
    return table
