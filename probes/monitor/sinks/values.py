"""What sinks make of the numbers that they are given.

Other programs read what sinks write, and few of them know infinity: what is not finite is missing, in every sink. And a
dashboard has no room for every head: it shows one number per circuit, probe and layer, the mean over the heads.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from probes.measuring.tables import mean_over_heads


def finite_scalars(scalars: Mapping[str, float]) -> dict[str, float]:
    """Those that are numbers, without NaN and infinities."""
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


def means_by_tag(table: pd.DataFrame) -> dict[int, dict[str, float]]:
    """By step, "ov/effective_rank/layer 0" or "qk/marginalized_effective_rank k=4/layer 1", and the mean over heads.

    Where a model has towers, "ov/effective_rank/encoder layer 0".
    Heads without a number are left out of the mean; where no head has one it is NaN.
    """
    found: dict[int, dict[str, float]] = {}
    means = mean_over_heads(finite_rows(table))
    towers = [f"{tower} " for tower in means["tower"]] if "tower" in means.columns else [""] * len(means)
    columns = ("step", "circuit", "probe", "component", "layer", "value")
    rows = zip(towers, *(means[name] for name in columns), strict=True)
    for tower, step, circuit, probe, component, layer, value in rows:
        name = probe if pd.isna(component) else f"{probe} k={component}"
        found.setdefault(int(step), {})[f"{circuit}/{name}/{tower}layer {layer}"] = float(value)
    return found
