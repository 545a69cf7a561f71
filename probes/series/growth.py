"""How a mode grows: the logistic of linear theory (Eq 13 of paper 000) against three rivals.

    logistic       a_inf / (1 + exp(-r (t - t*)))        from almost nothing, slowly, then at once; t* is the half-time
    exponential    a_inf + (a_0 - a_inf) exp(-r t)       at once, then ever more slowly
    power law      a_0 + c t^b
    straight line  a_0 + c t                             (two numbers to fit; the others have three)

Each is fitted by least squares, its linear numbers solved for exactly, the others searched on a grid and refined.
Checkpoints are spaced as somebody liked; so that R^2 does not depend on it, each value weighs by the stretch of
ln(step) it stands for: every decade of training counts alike, the long wait before a rise as much as the rise.

A logistic that fits is what linear theory predicts, not a proof of it: any sudden change between two levels looks like
one. The table therefore holds the R^2 of every law beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.checks import Values, numeric_index, read_series
from probes.series.times import half_time

Curve = Float64[np.ndarray, " n"]
Points = Float64[np.ndarray, " points"]

LAWS = ("logistic", "exponential", "power law", "straight line")
"""The growth laws that are fitted, by name."""

_BOUNDS = (-20.0, 6.0)  # of the logarithms searched: beyond them every law is flat or a step


@dataclass(frozen=True)
class GrowthFit:
    """One growth law fitted to one series.

    r2        share of the variance of the series that the law explains
    numbers   those of its formula, by name, in steps: half_time and rate of the logistic, exponent of the power law ...
    curve     the law at the steps of the series
    """

    law: str
    r2: float
    numbers: Mapping[str, float]
    curve: Curve


def fit_growth(values: Values, steps: Values | None = None) -> dict[str, GrowthFit]:
    """All four growth laws fitted to one series, by name. R^2 is NaN for a series that does not change."""
    series, at = read_series(values, steps, least=5)
    if at[0] < 0:
        raise ValueError(f"steps begin at {at[0]:g}: they count updates and cannot be negative")
    weight, span = _stretches(at), float(at[-1])
    found = {}
    for law in _laws(at / span):
        best = _search(law, series, weight)
        column = law.column(best[None])
        error, start, scale = (float(number[0]) for number in _solve(column, law.has_start, series, weight))
        numbers = law.numbers(best, start, scale, span)
        found[law.name] = GrowthFit(law.name, _r2(error, series, weight), numbers, start + scale * column[0])
    return found


def mode_growth(trajectories: pd.DataFrame) -> pd.DataFrame:
    """One row per mode: where it ends, when, its logistic's half-time and rate, R^2 of every law, the best of them.

    trajectories has columns circuit, layer, head, mode, step, measured. halfway is the step at which the mode itself
    first reached half of its end, half_time that of the logistic, NaN if it lies beyond the last step; best is missing
    where no law explains anything.
    """
    keys = ["circuit", "layer", "head", "mode"]
    rows = []
    for key, group in trajectories.groupby(keys, sort=False):
        fits = fit_growth(group["measured"].to_numpy(), group["step"].to_numpy())
        logistic = fits["logistic"].numbers
        r2 = {law: fits[law].r2 for law in LAWS}
        known = [law for law in LAWS if np.isfinite(r2[law])]
        reached = logistic["half_time"] <= group["step"].iloc[-1]
        rows.append(
            dict(zip(keys, key if isinstance(key, tuple) else (key,), strict=True))
            | {
                "end": float(group["measured"].iloc[-1]),
                "halfway": _halfway(group["measured"].to_numpy(), group["step"].to_numpy()),
                "half_time": logistic["half_time"] if reached and known else np.nan,
                "rate": logistic["rate"],
            }
            | {f"r2 {law}": r2[law] for law in LAWS}
            | {"best": max(known, key=lambda law: r2[law]) if known else None}
        )
    columns = [*keys, "end", "halfway", "half_time", "rate", *(f"r2 {law}" for law in LAWS), "best"]
    return pd.DataFrame(rows, columns=columns)


def convergence_order(trajectories: Values, steps: Values | None = None) -> list[int]:
    """Modes by the step at which each first reached half of its final amplitude, earliest first.

    trajectories is [time, modes], as `mode_trajectories` gives them for one matrix; a DataFrame brings its steps as its
    index. A mode that ends at zero has not converged to anything and comes last.
    """
    steps = numeric_index(trajectories) if steps is None else steps
    curves = np.asarray(trajectories, dtype=np.float64)
    if curves.ndim != 2:
        raise ValueError(f"trajectories has shape {curves.shape}: [time, modes] of one matrix is expected")
    final = np.abs(curves[-1])
    reached = [
        half_time(curve, steps, start=0.0) if size > 1e-12 * final.max() else np.inf
        for curve, size in zip(curves.T, final, strict=True)
    ]
    return [int(k) for k in np.argsort(reached, kind="stable")]


def _halfway(values: np.ndarray, steps: np.ndarray) -> float:
    return half_time(values, steps, start=0.0) if values[-1] else float("nan")


@dataclass(frozen=True)
class _Law:
    """start + scale x column(p): p is searched, start (if there is one) and scale are solved for.

    column takes p [points, numbers] and gives [points, n]. Time is in units of the run; the numbers in p are
    logarithms, so that what they stand for stays positive.
    """

    name: str
    has_start: bool
    column: Callable[[np.ndarray], np.ndarray]
    grid: np.ndarray
    numbers: Callable[[np.ndarray, float, float, float], dict[str, float]]


def _laws(x: Curve) -> list[_Law]:
    first = np.log(x[x > 0][0])
    half_times = np.concatenate((np.linspace(first, np.log(2), 40), np.log(np.linspace(0.1, 2, 20))))
    steepness = np.log(np.geomspace(1, 200, 16))  # r t*: the start is a_inf / (1 + exp(r t*))
    return [
        _Law(
            "logistic",
            False,
            lambda p: _sigmoid(np.exp(p[:, 1:]) * (x / np.exp(p[:, :1]) - 1)),
            np.stack(np.meshgrid(half_times, steepness), -1).reshape(-1, 2),
            lambda p, start, scale, span: {
                "end": scale,
                "half_time": span * float(np.exp(p[0])),
                "rate": float(np.exp(p[1] - p[0])) / span,
            },
        ),
        _Law(
            "exponential",
            True,
            lambda p: 1 - np.exp(-np.exp(p) * x),
            np.linspace(np.log(0.03), -first, 80)[:, None],
            lambda p, start, scale, span: {
                "start": start,
                "end": start + scale,
                "rate": float(np.exp(p[0])) / span,
            },
        ),
        _Law(
            "power law",
            True,
            lambda p: x ** np.exp(p),
            np.log(np.geomspace(0.02, 20, 60))[:, None],
            lambda p, start, scale, span: {"start": start, "exponent": float(np.exp(p[0]))},
        ),
        _Law(
            "straight line",
            True,
            lambda p: np.broadcast_to(x, (len(p), len(x))),
            np.empty((1, 0)),
            lambda p, start, scale, span: {"start": start, "slope": scale / span},
        ),
    ]


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * z))


def _solve(
    columns: Float64[np.ndarray, "points n"], has_start: bool, series: Curve, weight: Curve
) -> tuple[Points, Points, Points]:
    """Weighted squared error, start and scale of the best fit with each of the columns."""
    mean = columns @ weight if has_start else np.zeros(len(columns))
    level = float(series @ weight) if has_start else 0.0
    centred = columns - mean[:, None]
    size = centred**2 @ weight
    scale = np.where(size > 0, (centred * (series - level)) @ weight / np.where(size > 0, size, 1), 0)
    start = level - scale * mean
    error = (series - start[:, None] - scale[:, None] * columns) ** 2 @ weight
    return error, start, scale


def _search(law: _Law, series: Curve, weight: Curve) -> np.ndarray:
    """The best point of the grid, refined."""
    best = law.grid[np.argmin(_solve(law.column(law.grid), law.has_start, series, weight)[0])]
    if len(best) == 0:
        return best
    from scipy.optimize import minimize  # half a second to import, and importing probes must be quick

    def error(p: np.ndarray) -> float:
        return float(_solve(law.column(np.clip(p, *_BOUNDS)[None]), law.has_start, series, weight)[0][0])

    found = minimize(error, best, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": np.inf, "maxiter": 200})
    return np.clip(found.x, *_BOUNDS)


def _r2(error: float, series: Curve, weight: Curve) -> float:
    if series.max() == series.min():
        return float("nan")
    return 1 - error / float((series - series @ weight) ** 2 @ weight)


def _stretches(at: Curve) -> Curve:
    """The stretch of ln(step + first step) each value stands for, as a share of the whole."""
    axis = np.log(at + at[at > 0][0])
    edges = np.concatenate((axis[:1], (axis[1:] + axis[:-1]) / 2, axis[-1:]))
    return np.diff(edges) / (axis[-1] - axis[0])
