"""What a run logged: which metric is the loss, which the learning rate and where it jumps, which are settings.

Names are those of trainers: "loss", "train/loss", "train.lr", "lr-AdamW".
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.transitions.interventions import abrupt_changes

Numbers = Float64[np.ndarray, " n"]

_LOSSES = ("loss", "train_loss", "train/loss", "loss/train", "training_loss", "train")

_CHANGES_BEFORE, _OVER_USUAL = 5, 3.0
"""A jump of the learning rate is larger than so many times the usual change before it."""

_CLOCKS = ("epoch", "step", "global_step")


def finite(metrics: pd.DataFrame, name: str) -> tuple[Numbers, Numbers, int]:
    """Steps above 0 and the values there, and how many values that were logged are not finite."""
    numbers = np.asarray(pd.to_numeric(metrics[name], errors="coerce"), dtype=np.float64)
    at = np.asarray(metrics.index, dtype=np.float64)
    there = np.isfinite(numbers)
    return at[there & (at > 0)], numbers[there & (at > 0)], _not_finite(metrics, name, there)


def _not_finite(metrics: pd.DataFrame, name: str, there: np.ndarray) -> int:
    """Between the first and the last value: a metric that is logged every tenth step lacks no value in between."""
    places = np.flatnonzero(there)
    if not len(places):
        return len(there)
    numbers = np.asarray(pd.to_numeric(metrics[name], errors="coerce"), dtype=np.float64)
    infinite = int(np.isinf(numbers).sum())
    every = np.diff(places)
    usual = int(np.median(every)) if len(every) else 1
    return infinite if usual > 1 else len(there) - len(places)


def loss_name(metrics: pd.DataFrame | None) -> str | None:
    """Which metric is the loss: "loss", or the first whose name says so; None where there is none."""
    names = [] if metrics is None else [str(name) for name in metrics.columns]
    exact = next((wanted for wanted in _LOSSES if wanted in names), None)
    return exact or next((name for name in names if "loss" in name.lower()), None)


def learning_rate_name(metrics: pd.DataFrame | None) -> str | None:
    """Which metric is the learning rate; the first of several."""
    return next((str(name) for name in ([] if metrics is None else metrics.columns) if _is_rate(str(name))), None)


def is_setting(name: str) -> bool:
    """Whether this is a clock or a learning rate: the training is told these, it does not do them."""
    return _last_part(name) in _CLOCKS or _is_rate(name)


def chosen_metrics(metrics: pd.DataFrame, wanted: Sequence[str] | None) -> pd.DataFrame:
    """Those that are named, all of them if none is; and settings, which are not searched and say what was changed."""
    if wanted is None:
        return metrics
    unknown = [name for name in wanted if name not in metrics.columns]
    if unknown:
        raise ValueError(f"no metric is called {', '.join(unknown)}; there are {', '.join(map(str, metrics.columns))}")
    settings = [str(name) for name in metrics.columns if is_setting(str(name)) and name not in wanted]
    return pd.DataFrame(metrics[[*wanted, *settings]])


def interventions_of(metrics: pd.DataFrame | None) -> list[float]:
    """Steps at which the learning rate jumps."""
    name = learning_rate_name(metrics)
    if metrics is None or name is None:
        return []
    at, rate, _ = finite(metrics, name)
    try:
        found = [float(step) for step in abrupt_changes(pd.Series(rate, at))]
    except ValueError:  # a rate below 0 tells no interventions
        return []
    found = [step for step in found if _is_beyond_decay(step, at, rate)]
    above = at[rate > 0]
    begins = float(above[0]) if len(above) and rate[0] == 0 else None  # with which a warm-up begins
    return [step for step in found if step != begins]


def _is_beyond_decay(step: float, at: Numbers, rate: Numbers) -> bool:
    """Whether a jump is more than the next change of a straight decay, whose logarithm jumps where it ends."""
    place = int(np.searchsorted(at, step))
    before = np.abs(np.diff(rate[max(0, place - _CHANGES_BEFORE - 1) : place]))
    return not len(before) or bool(abs(rate[place] - rate[place - 1]) > _OVER_USUAL * np.median(before))


def _last_part(name: str) -> str:
    return name.lower().replace(".", "/").split("/")[-1]


def _is_rate(name: str) -> bool:
    """Lightning calls it lr-Adam, or lr-Adam/pg1 of one group of parameters."""
    return "learning_rate" in name.lower() or any(
        part == "lr" or part.startswith("lr-") for part in name.lower().replace(".", "/").split("/")
    )
