"""The small figures below the map: bends of the loss' autocorrelation and of norms, with their peaks; a theory's modes.

Each is drawn where it can be computed. Where not, the reason is a sentence in its place.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from probes.reporting.page_data import Figure, Line
from probes.reporting.series_data import Cube
from probes.series.derivatives import loss_autocorrelation_curvature, norm_curvature, peaks
from probes.series.logged import finite
from probes.theory import Alignment

_MOST_POINTS = 400
_MOST_LINES = 8


def small_figures(
    metrics: pd.DataFrame | None, loss: str | None, cube: Cube | None, alignment: Alignment | None, not_aligned: str
) -> tuple[list[Figure], list[str]]:
    """The figures there can be, and a sentence for each that cannot."""
    figures, sentences = [], []
    for name, draw in (
        ("Autocorrelation of the loss", lambda: _autocorrelation(metrics, loss)),
        ("Curvature of the norms", lambda: _norms(cube)),
        ("Theory", lambda: _theory(alignment, not_aligned)),
    ):
        try:
            figures.append(draw())
        except ValueError as error:
            sentences.append(f"{name}: not shown, {error}")
    return figures, sentences


def _autocorrelation(metrics: pd.DataFrame | None, loss: str | None) -> Figure:
    if metrics is None or loss is None:
        raise ValueError("no loss was logged")
    at, values, bad = finite(metrics, loss)
    if bad:
        raise ValueError(f"{bad} values of {loss} are not finite, and it needs every step")
    curve = loss_autocorrelation_curvature(pd.Series(values, at))
    x, y = (np.asarray(curve[name], dtype=np.float64) for name in ("lag", "curvature"))
    marks = _peaks(y, x)
    sentence = f"How the autocorrelation of {loss} bends over the lag; {_listed(marks)}."
    return Figure(
        "autocorrelation",
        "Bends in the autocorrelation of the loss",
        sentence,
        "d²A / d(ln lag)²",
        [_line(loss, x, y)],
        marks,
    )


def _norms(cube: Cube | None) -> Figure:
    if cube is None or ("norm", None) not in cube.series:
        raise ValueError("norms were not measured")
    values = cube.values[list(cube.series).index(("norm", None))]
    at = np.asarray(cube.steps, dtype=np.float64)
    lines, marks = [], []
    circuits = list(dict.fromkeys(row.circuit for row in cube.rows))
    for circuit in circuits[:_MOST_LINES]:
        rows = values[[place for place, row in enumerate(cube.rows) if row.circuit == circuit]]
        there = np.isfinite(rows).all(axis=0) & (at > 0)
        if there.sum() < 4:
            continue
        mean = rows[:, there].mean(axis=0)
        bend = np.asarray(norm_curvature(mean, at[there]))
        lines.append(_line(circuit, at[there], bend))
        marks += [(step, f"{circuit} {what}") for step, what in _peaks(bend, at[there])]
    if not lines:
        raise ValueError("fewer than four checkpoints after step 0 have norms")
    left = f" {len(circuits) - _MOST_LINES} other circuits are not drawn." if len(circuits) > _MOST_LINES else ""
    early = " A mode is learned somewhat after such a peak." if marks else ""
    sentence = f"How the mean norm over heads bends over ln(step); {_listed(marks)}.{early}{left}"
    return Figure("norm_curvature", "Bends in the norms", sentence, "d²‖M‖ / d(ln step)²", lines, marks)


def _theory(alignment: Alignment | None, not_aligned: str) -> Figure:
    if alignment is None:
        raise ValueError(not_aligned or "none was given, and the run says nothing of one")
    lines: list[Line] = []
    modes = alignment.modes["mode"].tolist()
    for mode in modes[: _MOST_LINES // 2]:
        rows = alignment.trajectories.loc[alignment.trajectories["mode"] == mode]
        at, measured, predicted = (
            np.asarray(rows[name], dtype=np.float64) for name in ("step", "measured", "predicted")
        )
        lines.append(_line(f"mode {mode + 1}, measured", at, measured))
        lines.append(_line(f"mode {mode + 1}, predicted", at, predicted, dashed=True))
    said = [
        f"mode {int(row['mode']) + 1}: half-time {row['half_time_ratio']:.2f} of the predicted, R² {row['r2']:.3f}"
        for row in alignment.modes.head(_MOST_LINES // 2).to_dict("records")
    ]
    more = f" {len(modes) - _MOST_LINES // 2} further modes are not drawn." if len(modes) > _MOST_LINES // 2 else ""
    sentence = f"Modes as measured and as {alignment.theory} predicts them; {'; '.join(said)}.{more}"
    return Figure("theory", f"Beside theory: {alignment.theory}", sentence, "amplitude", lines)


def _line(name: str, x: np.ndarray, y: np.ndarray, dashed: bool = False) -> Line:
    """At most so many points, evenly."""
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_POINTS)).round().astype(int))
    kept = kept[(x[kept] > 0) & np.isfinite(y[kept])]
    return Line(name, [float(one) for one in x[kept]], [float(one) for one in y[kept]], dashed)


def _peaks(values: np.ndarray, at: np.ndarray) -> list[tuple[float, str]]:
    found = peaks(values, at)
    return [(float(step), f"peak at {step:,.0f}") for step in found["step"]]


def _listed(marks: Sequence[tuple[float, str]]) -> str:
    steps = [f"{step:,.0f}" for step in sorted(step for step, _ in marks)]
    return f"it peaks at {', '.join(steps)}" if steps else "it has no peak"
