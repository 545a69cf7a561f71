"""How a curve bends: slope and curvature of a series on uneven steps, with the smoothing said out loud.

At each point a parabola is fitted to the series with Gaussian weights of width `smoothing`; its first and second
derivatives are the slope and the curvature. Inside the series this is exactly the derivative of the series smoothed
with that Gaussian; at the ends the parabola adapts, where a convolution would invent a bend. Each value weighs by the
stretch of axis it stands for, so that dense and sparse stretches count alike. Where the spacing is wider than
the smoothing, the neighbours on either side are taken in.

Training stages are spread over decades, so the axis is the logarithm of the step (`slope`, `curvature`) unless the name
says otherwise (`linear_curvature`): on a linear axis each later stage bends ten times less than the one before.
Smoothing of .2 in ln(step) is what the noise of SGD needs (.15 and less invents peaks); it moves a peak by up to 8 %.
A clean curve can do with .05.

A pandas Series needs no steps beside it (they are its index) and gives a Series with the same index; an array gives an
array. Step 0 has no logarithm: it is refused, not dropped.

What peaks where, measured on the solvable model of paper 000 with known times t*:

    curvature of `loss_autocorrelation` in log lag    at t*, within 3 %
    `norm_growth`, d||M||/d ln t                      at .96 - 1.01 t*
    `norm_curvature`, d^2||M||/d(ln t)^2              at .78 - .87 t*: it leads
"""

from collections.abc import Callable
from typing import overload

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.autocorrelation import loss_autocorrelation
from probes.series.checks import Values, WithoutIndex, read_even_series, read_series, require_scalar

Curve = Float64[np.ndarray, " n"]
Binned = Float64[np.ndarray, " bins"]

_BINS_PER_WIDTH = 8
_KEPT_WHOLE = 1000


@overload
def slope(values: pd.Series, steps: Values | None = None, *, smoothing: float = 0.2) -> pd.Series: ...
@overload
def slope(values: WithoutIndex, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve: ...
def slope(values: Values, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve | pd.Series:
    """d values / d ln(step) at each step; smoothing is a width in ln(step)."""
    return _in_log_steps(values, steps, smoothing)[0]


@overload
def curvature(values: pd.Series, steps: Values | None = None, *, smoothing: float = 0.2) -> pd.Series: ...
@overload
def curvature(values: WithoutIndex, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve: ...
def curvature(values: Values, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve | pd.Series:
    """d^2 values / d ln(step)^2 at each step; smoothing is a width in ln(step)."""
    return _in_log_steps(values, steps, smoothing)[1]


@overload
def linear_curvature(values: pd.Series, steps: Values | None = None, *, smoothing: float) -> pd.Series: ...
@overload
def linear_curvature(values: WithoutIndex, steps: Values | None = None, *, smoothing: float) -> Curve: ...
def linear_curvature(values: Values, steps: Values | None = None, *, smoothing: float) -> Curve | pd.Series:
    """d^2 values / d step^2 at each step, as the paper prints it; smoothing is a width in steps."""
    series, at = read_series(values, steps, least=4)
    return _in_kind(_derivatives(series, at, smoothing)[1], values)


@overload
def norm_growth(norms: pd.Series, steps: Values | None = None, *, smoothing: float = 0.2) -> pd.Series: ...
@overload
def norm_growth(norms: WithoutIndex, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve: ...
def norm_growth(norms: Values, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve | pd.Series:
    """d||M|| / d ln(step): peaks when a mode is learned."""
    return _in_log_steps(norms, steps, smoothing)[0]


@overload
def norm_curvature(norms: pd.Series, steps: Values | None = None, *, smoothing: float = 0.2) -> pd.Series: ...
@overload
def norm_curvature(norms: WithoutIndex, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve: ...
def norm_curvature(norms: Values, steps: Values | None = None, *, smoothing: float = 0.2) -> Curve | pd.Series:
    """d^2||M|| / d ln(step)^2, the measure of Fig 4B: peaks about a fifth before a mode is learned."""
    return _in_log_steps(norms, steps, smoothing)[1]


def loss_autocorrelation_curvature(
    loss: Values,
    *,
    spacing: float | None = None,
    smoothing: float = 0.2,
    estimate: Callable[[Values], Curve] = loss_autocorrelation,
) -> pd.DataFrame:
    """d^2 A / d(ln lag)^2 of the loss, the measure of Fig 4A: columns lag and curvature, lags log-spaced.

    spacing is the number of steps (or the time) between two values of the loss: by default that of the index of a
    pandas Series, which must be even, and 1 for anything else. Peaks fall at the times the modes are learned, counted
    from the first value. estimate is how A is estimated, of those in `probes.series.autocorrelation`.
    """
    if spacing is None:
        _, spacing = read_even_series(loss, name="loss")
    if require_scalar(spacing, "spacing") <= 0:
        raise ValueError(f"spacing is {spacing}: a positive number of steps is expected")
    correlation = estimate(loss)
    if len(correlation) < 5:
        raise ValueError(f"loss has {len(correlation)} entries: at least 5 are needed")
    # lag 0 has no logarithm; beyond it, lags closer together than the bins carry nothing new
    lags = np.arange(1, len(correlation))
    _check_smoothing(smoothing, float(np.log(lags[-1])))
    x, y, _ = _binned(correlation[1:], np.log(lags), smoothing)
    at = np.exp(x)
    return pd.DataFrame({"lag": at * spacing, "curvature": _derivatives(y, x, smoothing)[1]})


def peaks(values: Values, steps: Values | None = None, *, prominence: float = 0.05) -> pd.DataFrame:
    """Local maxima that rise by at least `prominence` x the range above their surroundings: step, height, prominence.

    Ends are no peaks. The position is the top of a parabola through the three highest points, in ln(step).
    """
    series, at = read_series(values, steps)
    if not 0 < prominence <= 1:
        raise ValueError(f"prominence is {prominence}: a fraction of the range, above 0 and at most 1, is expected")
    from scipy.signal import find_peaks  # half a second to import, and importing probes must be quick

    x = _log(at)
    spread = float(series.max() - series.min())
    tops, found = find_peaks(series, prominence=prominence * spread) if spread > 0 else (np.array([], int), {})
    rows = []
    for top, height in zip(tops, found.get("prominences", []), strict=True):
        left, here, right = x[top - 1 : top + 2] - x[top]
        below_left, below_right = series[top] - series[top - 1], series[top] - series[top + 1]
        # the vertex of the parabola through (left, -below_left), (here = 0, 0), (right, -below_right)
        bend = below_left / (left * (left - right)) - below_right / (right * (left - right))
        tilt = below_left * right / (left * (left - right)) - below_right * left / (right * (left - right))
        shift = here + (tilt / (2 * bend) if bend > 0 else 0.0)
        rows.append({"step": float(np.exp(x[top] + shift)), "height": float(series[top]), "prominence": float(height)})
    return pd.DataFrame(rows, columns=["step", "height", "prominence"], dtype=np.float64)


def _in_log_steps(
    values: Values, steps: Values | None, smoothing: float
) -> tuple[Curve | pd.Series, Curve | pd.Series]:
    """First and second derivative in ln(step)."""
    series, at = read_series(values, steps, least=4)
    first, second = _derivatives(series, _log(at), smoothing)
    return _in_kind(first, values), _in_kind(second, values)


def _in_kind(curve: Curve, values: Values) -> Curve | pd.Series:
    """The curve as a Series, if that is what the values came as."""
    return pd.Series(curve, index=values.index, name=values.name) if isinstance(values, pd.Series) else curve


def _log(at: Curve) -> Curve:
    if at[0] <= 0:
        raise ValueError(f"steps begin at {at[0]:g}, which has no logarithm: drop it, or pass steps + 1")
    return np.log(at)


def _derivatives(series: Curve, x: Curve, smoothing: float) -> tuple[Curve, Curve]:
    _check_smoothing(smoothing, float(x[-1] - x[0]))
    at, mean, weight = _binned(series, x, smoothing)
    width = np.maximum(smoothing, _reach(at))
    first, second = _local_parabolas(at, mean, weight, width)
    return np.interp(x, at, first), np.interp(x, at, second)


def _check_smoothing(smoothing: float, length: float) -> None:
    if require_scalar(smoothing, "smoothing") <= 0:
        raise ValueError(f"smoothing is {smoothing}: a positive width is expected")
    if smoothing > length:
        raise ValueError(
            f"smoothing is {smoothing:g}, but the series is only {length:g} long on this axis: "
            "there is nothing left to differentiate"
        )


def _reach(at: Curve) -> Curve:
    """The smallest width at which the neighbours on both sides, and two others at least, carry weight."""
    gap = np.diff(at)
    both_sides = np.maximum(np.append(gap[0], gap), np.append(gap, gap[-1]))
    far = np.concatenate(([np.inf] * 2, at, [np.inf] * 2))
    around = np.sort([np.abs(far[shift : shift + len(at)] - at) for shift in (0, 1, 3, 4)], axis=0)
    return np.maximum(0.75 * both_sides, 0.5 * around[1])


def _binned(series: Curve, x: Curve, smoothing: float) -> tuple[Binned, Binned, Binned]:
    """Means over bins an eighth of the smoothing wide, and the stretch of axis each stands for.

    Long series become short ones; a series of at most a thousand values keeps every one.
    """
    bins = np.floor((x - x[0]) * (_BINS_PER_WIDTH / smoothing)) if len(x) > _KEPT_WHOLE else np.arange(len(x))
    starts = np.flatnonzero(np.append(True, np.diff(bins) > 0))
    count = np.diff(np.append(starts, len(x)))
    at = np.add.reduceat(x, starts) / count
    mean = np.add.reduceat(series, starts) / count
    edges = np.concatenate((x[:1], (at[1:] + at[:-1]) / 2, x[-1:]))
    return at, mean, np.maximum(np.diff(edges), np.finfo(np.float64).tiny)


def _local_parabolas(at: Curve, mean: Curve, weight: Curve, width: Curve) -> tuple[Curve, Curve]:
    first, second = np.empty_like(at), np.empty_like(at)
    reach = 5 * width.max()
    for start in range(0, len(at), 256):
        rows = slice(start, start + 256)
        low, high = np.searchsorted(at, [at[rows][0] - reach, at[rows][-1] + reach])
        u = (at[None, low:high] - at[rows, None]) / width[rows, None]
        w = weight[None, low:high] * np.exp(-0.5 * u**2)
        w /= w.sum(1, keepdims=True)
        powers = u[..., None] ** np.arange(5)
        moments = np.einsum("ij,ijp->ip", w, powers)
        design = moments[:, np.add.outer(np.arange(3), np.arange(3))]
        centred = mean[None, low:high] - mean[rows, None]
        target = np.einsum("ij,ijp->ip", w * centred, powers[..., :3])
        try:
            coefficients = np.linalg.solve(design, target[..., None])[..., 0]
        except np.linalg.LinAlgError:
            raise ValueError(
                "some steps lie too close together, for how far apart others are, to differentiate"
            ) from None
        first[rows] = coefficients[:, 1] / width[rows]
        second[rows] = 2 * coefficients[:, 2] / width[rows] ** 2
    return first, second
