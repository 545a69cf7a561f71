"""Where exactly a stage is, and how long it takes: a local fit in ln t.

Around a hump of the descent the series is a parabola in ln t, which is what its surroundings go on doing, plus a step
1 / (1 + exp((x - c) / s)), or its square: the curve ends up lower than it would have. The interval is every place of
the middle of a step that the profile likelihood does not exclude at 95 %, over all widths, both shapes and two
backgrounds (a straight line and a parabola): what the fit misses is counted as noise, and what shape or background
would move is inside.
"""

from dataclasses import dataclass

import numpy as np

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums


@dataclass(frozen=True)
class LogFit:
    """A step in ln t: its middle x with an interval, its logistic width in ln t and its height."""

    x: float
    low: float
    high: float
    width: float
    height: float


def fit_in_log_time(
    sums: Sums, x: float, width: float, reach: float, masked: list[tuple[float, float]]
) -> LogFit | None:
    """The best step within `reach` of x = ln t, of about `width`; None where too few values surround it.

    masked are stretches of ln t that are left out.
    """
    first = np.log(max(float(sums.at[0]), float(sums.at[1] - sums.at[0])))
    low, high = max(x - reach, first), min(x + reach, float(np.log(sums.at[-1])))
    edges = np.exp(np.linspace(low, high + 1e-12, constants.LOG_BINS + 1))
    means = sums.over(edges[:-1], edges[1:])
    some = means.count > 0
    with np.errstate(divide="ignore"):
        middle = np.log(means.at)
    for start, stop in masked:
        some &= (middle < start) | (middle > stop)
    if some.sum() < constants.LOG_FEWEST_BINS:
        return None
    scale = sums.over(np.exp(np.array([x - width])), np.exp(np.array([x + width])))
    sd = means.one_value[some] * np.sqrt(scale.inflation[0] / means.count[some])
    u = (middle[some] - x) / width
    y = means.mean[some] / sd
    centres, widths = constants.LOG_CENTRES, np.array(constants.LOG_WIDTHS)
    away = (u[:, None, None] - centres[:, None]) / widths  # [bins, centres, widths]
    logistic = 0.5 * (1 - np.tanh(away / 2))
    half_of_square = (u[:, None, None] - centres[:, None]) / widths - constants.HALF_OF_SQUARE
    squared = (0.5 * (1 - np.tanh(half_of_square / 2))) ** 2
    steps = np.stack([logistic, squared], axis=-1)
    line = np.column_stack((np.ones_like(u), u))
    parabola = np.column_stack((line, u**2))
    fits = [_chi2(background, steps, y, sd) for background in (line, parabola)]
    chi2, height = fits[1]
    best = np.unravel_index(int(np.where(height > 0, chi2, np.inf).argmin()), chi2.shape)
    if not height[best] > 0:
        return None
    misfit = max(1.0, float(chi2[best]) / max(1, len(u) - constants.LOG_FITTED))
    allowed = float(chi2[best]) + constants.PROFILE * misfit
    inside = np.zeros(len(centres), dtype=bool)
    for one, its_height in fits:
        inside |= ((one <= allowed) & (its_height > 0)).any((1, 2))
    spacing = centres[1] - centres[0]
    at = centres[np.flatnonzero(inside)]
    return LogFit(
        x + width * float(centres[best[0]]),
        x + width * float(at.min() - spacing / 2),
        x + width * float(at.max() + spacing / 2),
        width * float(widths[best[1]]),
        min(1.0, float(height[best])),
    )


def _chi2(background: np.ndarray, shapes: np.ndarray, y: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the background plus each of the shapes [bins, ...], and the height of that shape."""
    q, _ = np.linalg.qr(background / sd[:, None])
    columns = (shapes / sd.reshape(-1, *(1,) * (shapes.ndim - 1))).reshape(len(y), -1)
    columns = columns - q @ (q.T @ columns)
    rest = y - q @ (q.T @ y)
    size = np.maximum((columns**2).sum(0), 1e-300)
    along = columns.T @ rest
    chi2 = (rest**2).sum() - along**2 / size
    return chi2.reshape(shapes.shape[1:]), (along / size).reshape(shapes.shape[1:])
