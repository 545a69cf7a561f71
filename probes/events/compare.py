"""What sets runs apart from controls: by how much, and how often runs that differ in nothing would be told apart.

Of every panel of every run one number is taken, its fastest change: the largest mean over heads of
|d value / d ln(step)| in units of each head's range, through windows of .2. Runs against controls is then the
difference of the means of ln of that number, with Welch's interval, and an exact permutation: all ways to call as many
of these runs controls.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from probes.events.controls import Tables, as_tables
from probes.events.panels import Panel, read_panels

WIDTH = 0.2
"""In ln(step), of the windows that speeds are taken through, or the nearest that a schedule allows."""

MOST_PERMUTATIONS = 20_000


def set_apart(table: Tables, controls: Tables) -> pd.DataFrame:
    """How much faster the fastest change of the runs is than that of the controls, panel by panel, the surest first.

    times      exp of the difference of the mean logarithms: 2 is twice as fast. low, high: 95 %
    at         the steps of the fastest change in the runs
    p_value    share of all ways to divide these runs into as many and as many that differ at least as much
    p_any      the same for the largest difference (in its standard errors) among all panels: the rate at which runs
               that differ in nothing would be told apart by this table
    `attrs["smallest_p"]` is what so many runs can reach at best: three against three, .1.
    """
    runs, others = as_tables(table, "table"), as_tables(controls, "controls")
    if len(runs) < 2 or len(others) < 2:
        raise ValueError(f"{len(runs)} runs and {len(others)} controls: two or more of each are expected")
    numbers, places = _numbers({**runs, **others})
    if numbers.empty:
        raise ValueError("no panel can be searched in all runs and controls")
    values, is_run = numbers.to_numpy(), np.arange(len(numbers)) < len(runs)
    assignments = _assignments(len(numbers), len(runs))
    studentised = np.stack([_t_values(values, chosen) for chosen in assignments])
    differences = np.stack([values[chosen].mean(0) - values[~chosen].mean(0) for chosen in assignments])
    observed, t_values = differences[0], studentised[0]
    half = _margin(values, is_run)
    found = pd.DataFrame(
        {
            "panel": numbers.columns,
            "times": np.exp(observed),
            "low": np.exp(observed - half),
            "high": np.exp(observed + half),
            "at": [places[name][: len(runs)] for name in numbers.columns],
            "p_value": (np.abs(differences) >= np.abs(observed) - 1e-9).mean(0),
            "p_any": (np.abs(studentised).max(1)[:, None] >= np.abs(t_values) - 1e-9).mean(0),
        }
    ).sort_values(["p_any", "p_value"], ignore_index=True)
    found.attrs["runs"], found.attrs["controls"] = list(runs), list(others)
    found.attrs["smallest_p"] = float((1 + (len(runs) == len(others))) / comb(len(numbers), len(runs)))
    return found


def _numbers(tables: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, list[int]]]:
    """ln of the fastest change [run, panel], of panels that all runs have, and where it is in each run."""
    by_run, places = {}, {}
    for run, table in tables.items():
        panels, _ = read_panels(table)
        fastest = {panel.name: _fastest(panel) for panel in panels}
        by_run[run] = {name: speed for name, (speed, _) in fastest.items()}
        for name, (_, step) in fastest.items():
            places.setdefault(name, []).append(step)
    return pd.DataFrame(by_run).T.dropna(axis=1), places


def _fastest(panel: Panel) -> tuple[float, int]:
    windows = min(panel.windows, key=lambda one: abs(one.width - WIDTH))
    speeds = np.abs(windows.speed @ (panel.values / np.ptp(panel.values, axis=0))).mean(1)
    best = int(np.argmax(speeds))
    return float(np.log(speeds[best])), round(float(np.exp(windows.at[best])))


def _assignments(total: int, runs: int) -> list[np.ndarray]:
    """Which are called runs, the true ones first."""
    if comb(total, runs) <= MOST_PERMUTATIONS:
        chosen: Sequence[Sequence[int]] = list(combinations(range(total), runs))
    else:
        rng = np.random.default_rng(0)
        chosen = [range(runs), *(rng.permutation(total)[:runs].tolist() for _ in range(MOST_PERMUTATIONS - 1))]
    return [np.isin(np.arange(total), list(one)) for one in chosen]


def _t_values(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return (values[chosen].mean(0) - values[~chosen].mean(0)) / np.maximum(_standard_error(values, chosen), 1e-9)


def _standard_error(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.sqrt(sum(part.var(0, ddof=1) / len(part) for part in (values[chosen], values[~chosen])))


def _margin(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Welch's: half of the 95 % interval of the difference."""
    from scipy.special import stdtrit  # slow to import, and importing probes must be quick

    parts = [part.var(0, ddof=1) / len(part) for part in (values[chosen], values[~chosen])]
    counts = [chosen.sum() - 1, (~chosen).sum() - 1]
    freedom = (parts[0] + parts[1]) ** 2 / np.maximum(sum(p**2 / n for p, n in zip(parts, counts, strict=True)), 1e-300)
    return stdtrit(np.maximum(freedom, 1), 0.975) * np.sqrt(parts[0] + parts[1])
