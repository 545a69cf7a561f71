"""The steps at which a run was changed by hand: told by step, or read off the record of its learning rate."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from probes.series.checks import numeric_index
from probes.series.transitions import constants

Interventions = float | Sequence[float] | np.ndarray | pd.Series
"""Steps; or, as a pandas Series indexed by step, the learning rate, which tells them itself."""


def intervention_steps(interventions: Interventions) -> np.ndarray:
    """Steps of interventions. Of a Series, those at which its values change abruptly."""
    if isinstance(interventions, pd.Series):
        return abrupt_changes(interventions)
    return np.atleast_1d(np.asarray(interventions, dtype=np.float64))


def abrupt_changes(record: pd.Series) -> np.ndarray:
    """The steps at which a positive record jumps, against how it changes around them: a step decay, a restart.

    A warm-up, a cosine and a cool-down change it smoothly and are none. Values that are not finite are left out; from
    or to zero is a jump.
    """
    index = numeric_index(record)
    if index is None:
        raise ValueError(
            f"interventions is a Series whose index is {record.index.dtype}: the learning rate by step is expected, as "
            'run.metrics["learning_rate"] is; or pass the steps themselves as a list'
        )
    kept = np.isfinite(record.to_numpy(dtype=np.float64))
    at, rate = index.to_numpy(dtype=np.float64)[kept], record.to_numpy(dtype=np.float64)[kept]
    if len(rate) < 2:
        return np.empty(0)
    if rate.min() < 0:
        raise ValueError(f"interventions holds a learning rate of {rate.min():g}: none below 0 is expected")
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.abs(np.diff(np.log(rate)))
    change[np.isnan(change)] = 0.0  # zero and zero again
    k = constants.ABRUPT_NEIGHBOURS
    padded = np.pad(change, k, mode="reflect") if len(change) > k else np.pad(change, k, mode="edge")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * k + 1), axis=1)
    jumps = (change > constants.ABRUPT) & (change > constants.ABRUPT_OVER_USUAL * around)
    return at[1:][jumps]
