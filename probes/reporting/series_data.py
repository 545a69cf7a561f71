"""A tidy table as what the map draws: rows (matrices), columns (checkpoints), one series per probe and component.

Long records are thinned so that the page stays small enough to be mailed: the first and last checkpoint and those next
to events stay, of the others as many as fit, evenly. Events were searched in all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.events.panels import MATRICES
from probes.reporting.packing import Packed, pack
from probes.reporting.page_data import Band, Missing, Null, Row, Series

MOST_NUMBERS = 910_000
"""In all series and modes together; at two bytes and base64, 2.5 MB."""

MOST_COLUMNS = 400

QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, eq=False)
class Cube:
    """All numbers of a table: values [series, row, step] with the names of each axis."""

    series: Sequence[tuple[str, int | None]]
    rows: Sequence[Row]
    steps: Sequence[int]
    values: Float64[np.ndarray, "series row step"]


def read_cube(table: pd.DataFrame) -> Cube:
    """The numbers of one run's table: rows by circuit, tower, layer and head, series in the order of the probes."""
    circuit, circuits = _numbered(table["circuit"])
    tower, towers = _numbered(table["tower"].fillna("") if "tower" in table.columns else [""] * len(table))
    probe, probes = _numbered(table["probe"])
    layer, head = (np.asarray(table[name], dtype=np.int64) for name in ("layer", "head"))
    component = np.asarray(table["component"].fillna(-1), dtype=np.int64)
    row_of, places = _combined(circuit, tower, layer, head)
    series_of, which = _combined(probe, component)
    steps, step_of = np.unique(np.asarray(table["step"], dtype=np.int64), return_inverse=True)
    rows = [Row(circuits[c], int(number), int(h), towers[t]) for c, t, number, h in places]
    series = [(probes[p], None if k < 0 else int(k)) for p, k in which]
    values = np.full((len(series), len(rows), len(steps)), np.nan)
    values[series_of, row_of, step_of] = np.asarray(table["value"], dtype=np.float64)
    return Cube(series, rows, [int(step) for step in steps], np.where(np.isfinite(values), values, np.nan))


def _numbered(names: Any) -> tuple[np.ndarray, list[str]]:
    """Each name as a number, in the order in which they first come, and the names."""
    codes, found = pd.factorize(np.asarray(names, dtype=object))
    return np.asarray(codes, dtype=np.int64), [str(name) for name in found]


def _combined(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which combination each line has, and all combinations, in order; one number stands for a line, to sort fast."""
    lows = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    shifted = [column - low for column, low in zip(columns, lows, strict=True)]
    codes, place = np.unique(np.ravel_multi_index(shifted, sizes), return_inverse=True)
    found = np.stack(np.unravel_index(codes, sizes), axis=1) + np.array(lows)
    return place, found


def series_name(probe: str, component: int | None) -> str:
    """As in the names of panels: "norm", "marginalized_effective_rank.4"."""
    return probe if component is None else f"{probe}.{component}"


def shown_columns(steps: Sequence[int], numbers_per_step: int, near: Sequence[float]) -> list[int]:
    """Which checkpoints are shown: all, or as many as fit with those nearest to the steps `near`."""
    most = max(20, min(MOST_COLUMNS, MOST_NUMBERS // max(1, numbers_per_step)))
    if len(steps) <= most:
        return list(range(len(steps)))
    at = np.asarray(steps, dtype=np.float64)
    kept = {0, len(steps) - 1} | {int(np.argmin(np.abs(at - step))) for step in near}
    evenly = np.linspace(0, len(steps) - 1, max(2, most - len(kept)))
    return sorted(kept | {round(float(place)) for place in evenly})


def packed_series(
    cube: Cube,
    columns: Sequence[int],
    meanings: Mapping[str, str],
    searched: Mapping[str, Sequence[tuple[float, float]]],
    not_searched: Mapping[str, str],
    nulls: Mapping[str, Sequence[Null]],
) -> list[Series]:
    """The shown columns of every series, with what it means and where it could be searched.

    searched and not_searched are by panel: circuit.probe or circuit.probe.component, with tower or stage before it.
    """
    found = []
    for number, (probe, component) in enumerate(cube.series):
        name = series_name(probe, component)
        by_circuit: dict[str, list[tuple[float, float]]] = {}
        refused: dict[str, str] = {}
        for circuit in dict.fromkeys(row.circuit for row in cube.rows):
            panel = f"{circuit}.{name}"
            if not any(key == panel or key.endswith(f".{panel}") for key in (*searched, *not_searched)):
                panel = f"{MATRICES}.{name}"  # one panel for all that are no heads
            same = _same_panels(panel, not_searched)
            panels = [key for key in searched if key == same or key.endswith(f".{same}")]
            if panels:
                by_circuit[circuit] = [stretch for key in panels for stretch in searched[key]]
            else:
                why = [reason for key, reason in not_searched.items() if key == panel or key.endswith(f".{panel}")]
                refused[circuit] = why[0] if why else "it was not searched"
        found.append(
            Series(
                name=name,
                probe=probe,
                component=component,
                meaning=meanings.get(probe, "not described"),
                values=pack(np.ascontiguousarray(cube.values[number][:, list(columns)])),
                searched=by_circuit,
                not_searched=refused,
                nulls=tuple(nulls.get(name, ())),
            )
        )
    return found


def _same_panels(panel: str, not_searched: Mapping[str, str]) -> str:
    """The panel that stands for this one, where both have the same numbers."""
    reason = not_searched.get(panel, "")
    start, end = "the same numbers as ", ", which are counted once"
    return reason.removeprefix(start).removesuffix(end) if reason.startswith(start) else panel


def missing_of(table: pd.DataFrame, cube: Cube, columns: Sequence[int]) -> tuple[list[Missing], list[str]]:
    """Why numbers are missing: by series and column, with the rows where not all of them are."""
    rows_without = table.loc[~np.isfinite(np.asarray(table["value"], dtype=np.float64))]
    if rows_without.empty:
        return [], []
    column_of = {cube.steps[column]: number for number, column in enumerate(columns)}
    rows_without = rows_without.loc[rows_without["step"].isin(list(column_of))]
    row_of = {(row.tower, row.layer, row.head, row.circuit): number for number, row in enumerate(cube.rows)}
    series_of = {key: number for number, key in enumerate(cube.series)}
    reasons: dict[str, int] = {}
    found: dict[tuple[int, int, int], list[int]] = {}
    towers = rows_without["tower"].fillna("") if "tower" in rows_without.columns else [""] * len(rows_without)
    columns_needed = ("probe", "component", "step", "layer", "head", "circuit", "why_missing")
    for tower, probe, component, step, layer, head, circuit, why in zip(
        towers, *(rows_without[name] for name in columns_needed), strict=True
    ):
        reason = reasons.setdefault("not a finite number" if pd.isna(why) else str(why), len(reasons))
        series = series_of[str(probe), None if pd.isna(component) else int(component)]
        row = row_of[str(tower), int(layer), int(head), str(circuit)]
        found.setdefault((series, column_of[int(step)], reason), []).append(row)
    everything = len(cube.rows)
    missing = [
        Missing(series, column, reason, () if len(rows) == everything else tuple(rows))
        for (series, column, reason), rows in found.items()
    ]
    return missing, list(reasons)


def band_of(table: pd.DataFrame, run: str, role: str) -> Band:
    """Quantiles over the heads of a run, by series and circuit."""
    cube = read_cube(table)
    columns = shown_columns(cube.steps, 3 * len(cube.series) * 20, ())
    circuits = list(dict.fromkeys(row.circuit for row in cube.rows))
    quantiles: dict[str, Packed] = {}
    for number, (probe, component) in enumerate(cube.series):
        for circuit in circuits:
            rows = [place for place, row in enumerate(cube.rows) if row.circuit == circuit]
            values = cube.values[number][rows][:, columns]
            quantiles[f"{series_name(probe, component)}|{circuit}"] = pack(_quantiles(values))
    return Band(run, role, [cube.steps[column] for column in columns], quantiles)


def _quantiles(values: Float64[np.ndarray, "row step"]) -> Float64[np.ndarray, "three step"]:
    there = np.isfinite(values).any(axis=0)
    found = np.full((len(QUANTILES), values.shape[1]), np.nan)
    if there.any():
        found[:, there] = np.nanquantile(values[:, there], QUANTILES, axis=0)
    return found


def packed_modes(table: pd.DataFrame | None, rows: Sequence[Row], steps: Sequence[int]) -> dict[str, Packed]:
    """Singular values and mode amplitudes of these rows at these steps: [row * component, step] by probe."""
    if table is None or not rows:
        return {}
    cube = read_cube(table)
    place = {row: number for number, row in enumerate(cube.rows)}
    column = {step: number for number, step in enumerate(cube.steps)}
    found = {}
    for probe in dict.fromkeys(name for name, _ in cube.series):
        parts = [number for number, (name, _) in enumerate(cube.series) if name == probe]
        values = np.full((len(rows), len(parts), len(steps)), np.nan)
        for n, row in enumerate(rows):
            for m, step in enumerate(steps):
                if row in place and step in column:
                    values[n, :, m] = cube.values[parts, place[row], column[step]]
        found[probe] = pack(values.reshape(len(rows) * len(parts), len(steps)))
    return found
