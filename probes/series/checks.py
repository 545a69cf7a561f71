"""What counts as a series here: one number per step, steps strictly increasing, all finite.

Every function on series starts with these checks, so that each of them fails in the same words.
"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64
from torch import Tensor


def read_series(
    values: Any, steps: Any = None, *, least: int = 3, name: str = "values"
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Both as float64 arrays, or a ValueError naming what is wrong and where. Steps default to the
    index of a pandas Series, else to 0, 1, 2 ...
    """
    series = _vector(values, name)
    if steps is None and isinstance(values, pd.Series) and pd.api.types.is_numeric_dtype(values.index):
        steps = values.index
    at = np.arange(len(series), dtype=np.float64) if steps is None else _vector(steps, "steps")
    if len(series) != len(at):
        raise ValueError(f"{name} has {len(series)} entries and steps has {len(at)}: one step per value is expected")
    if len(series) < least:
        raise ValueError(f"{name} has {len(series)} entries: at least {least} are needed")
    order = np.flatnonzero(np.diff(at) <= 0)
    if len(order):
        i = int(order[0])
        raise ValueError(
            f"steps must increase, but entry {i} is {at[i]:g} and entry {i + 1} is {at[i + 1]:g}: "
            "sort the series and drop repeated steps"
        )
    return series, at


def _vector(values: Any, name: str) -> Float64[np.ndarray, " n"]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiuO":
            raise ValueError(f"its dtype is {array.dtype}")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not a series of numbers: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}: one number per step is expected")
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ValueError(f"{name} holds {array[bad[0]]} at index {int(bad[0])} ({len(bad)} such entries in all)")
    if len(array) and np.abs(array).max() > 1e150:
        raise ValueError(
            f"{name} holds {array[np.abs(array).argmax()]:g}: its square overflows, rescale the series first"
        )
    return array


def require_scalar(value: Any, name: str) -> float:
    """A finite number, or a ValueError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"{name} is {value}: a finite number is expected")
    return number
