"""What counts as a series here: one number per step, steps strictly increasing, all finite.

A pandas Series brings its steps: its index, where that is numeric. Anything else (an array, a list, a tensor) has steps
beside it, or counts 0, 1, 2 ... Every function on series starts with these checks, so that each of them reads steps in
the same way and fails in the same words.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64
from numpy.typing import ArrayLike
from torch import Tensor

Values = ArrayLike | Tensor
"""One number per step: a pandas Series, an array, a list or a tensor."""

WithoutIndex = np.ndarray | Tensor | Sequence[float] | pd.Index | pd.DataFrame
"""The same but a Series: where a Series gives a Series, these give an array. (A DataFrame is refused, but listed: type
checkers cannot tell that `table["loss"]` is none.)"""

_UNEVEN = 1e-6
"""How far gaps may differ, as a share, and still be one spacing: times that are step x learning rate are rounded."""


def read_series(
    values: Any, steps: Any = None, *, least: int = 3, name: str = "values"
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Both as float64 arrays, or a ValueError naming what is wrong and where. Steps default to the
    index of a pandas Series, else to 0, 1, 2 ...
    """
    series = _vector(values, name)
    if steps is None:
        steps = numeric_index(values)
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


def read_even_series(values: Any, *, name: str) -> tuple[Float64[np.ndarray, " n"], float]:
    """The values and the one spacing of their steps; ValueError where the index of a pandas Series has several."""
    series, at = read_series(values, name=name)
    gaps = np.diff(at)
    spacing = float(at[-1] - at[0]) / len(gaps)
    uneven = np.flatnonzero(np.abs(gaps - gaps[0]) > _UNEVEN * spacing)
    if len(uneven):
        i = int(uneven[0])
        raise ValueError(
            f"{name} is not evenly spaced: its index goes from {at[0]:g} to {at[1]:g} and from {at[i]:g} to "
            f"{at[i + 1]:g}, and an autocorrelation needs one spacing. Interpolate it, or pass {name}.to_numpy() if "
            "the index is not what counts"
        )
    return series, spacing


def numeric_index(values: Any) -> pd.Index | None:
    """The steps that a pandas Series or DataFrame brings along; None if its index is not numbers, or there is none."""
    if isinstance(values, pd.Series | pd.DataFrame) and pd.api.types.is_numeric_dtype(values.index):
        return values.index
    return None


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
