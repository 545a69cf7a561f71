"""One run and what the probes see of it, read from its table, on a time axis on which seeds can be averaged.

Seeds reach the same event at different steps, so curves are drawn against step / anchor, the step of each run's own
event. A control has no event; its anchor is that of the runs it is compared with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import probes
from analyses.tools.draw import band
from checkpoints import Run

REMOVED = 4  # largest k of the marginalized rank
PROBES = (
    "norm",
    "marginalized_effective_rank",
    "subspace_distance",
    "column_subspace_distance",
    "subspace_drift",
)

Curve = tuple[np.ndarray, np.ndarray]  # steps and values


@dataclass(eq=False)
class Study:
    """One run. horizons are the multiples of the anchor that are taken as the end of training, besides its end.

    spacing is the number of steps over which drift is measured: checkpoints lie closer together at the start.
    """

    run: Run
    anchor: float
    spacing: int
    horizons: tuple[float, ...]
    _looked_up: dict[tuple, pd.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Every probe of every head of OV and QK at every checkpoint."""
        table = probes.measure(
            self.run,
            ("ov", "qk"),
            probes=PROBES,
            removed=REMOVED,
            references=sorted({*map(self.end, self.horizons), int(self.steps[-1])}),
            drift_over=self.spacing,
        )
        if table.attrs["condemned"]:
            raise ValueError(
                f"run {self.run.name!r}: {table.attrs['audit']}. Delete {self.run.path} and train it again"
            )
        return table

    def by_head(self, probe: str, circuit: str, component: int | None = None) -> pd.DataFrame:
        """One probe of one circuit: a row per checkpoint, a column per (layer, head)."""
        key = probe, circuit, component
        if key not in self._looked_up:
            self._looked_up[key] = probes.by_head(self.table, *key)
        return self._looked_up[key]

    def rank(self, circuit: str, k: int = 0) -> Curve:
        """The effective rank without the k largest components, mean over heads."""
        return self.steps, _mean(self.by_head("marginalized_effective_rank", circuit, k))

    def norm(self, circuit: str) -> np.ndarray:
        """Norm of all heads together."""
        return np.sqrt((self.by_head("norm", circuit).to_numpy() ** 2).sum(1))

    def distance_from(self, end: int, circuit: str, probe: str = "subspace_distance") -> np.ndarray:
        """Distance from the checkpoint taken as the end, mean over heads; NaN after it."""
        return np.where(self.steps <= end, _mean(self.by_head(f"{probe}@{end}", circuit)), np.nan)

    def drift_of(self, circuit: str) -> Curve:
        """Movement of the row space since `spacing` steps before, mean over heads, at multiples of the spacing."""
        regular = (self.steps % self.spacing == 0) & np.isin(self.steps - self.spacing, self.steps)
        return self.steps[regular], _mean(self.by_head(f"subspace_drift@-{self.spacing}", circuit))[regular]

    @cached_property
    def alignment(self) -> probes.GrowthFits:
        """How the modes grew."""
        return probes.align(self.run)

    @cached_property
    def steps(self) -> np.ndarray:
        """At which there are checkpoints."""
        return np.array(self.run.steps)

    def end(self, horizon: float) -> int:
        """The last checkpoint not after a multiple of the anchor."""
        return int(self.steps[self.steps <= horizon * self.anchor][-1])

    def at(self, values: np.ndarray, step: float) -> float:
        """A curve over checkpoints, at a step between them."""
        return float(np.interp(step, self.steps, values))


def _mean(heads: pd.DataFrame) -> np.ndarray:
    """Over heads. A head without a number leaves none: a mean over fewer heads would be a step in the curve."""
    return heads.to_numpy().mean(1)


AnyStudy = TypeVar("AnyStudy", bound=Study)


def metric(run: Run, name: str) -> pd.Series:
    """One column of the metrics, at the steps that have it."""
    return pd.Series(run.metrics[name]).dropna()


def curve(values: pd.Series) -> Curve:
    """A series as steps and values."""
    return values.index.to_numpy(), values.to_numpy()


def first_above(values: pd.Series, level: float) -> float:
    """First step above a level; NaN if never."""
    above = values.index.to_numpy()[values.to_numpy() > level]
    return float(above[0]) if len(above) else np.nan


def show(
    ax: Axes,
    group: Sequence[AnyStudy],
    values: Callable[[AnyStudy], Curve],
    grid: np.ndarray,
    colour,
    label: str | None = None,
    linestyle: str = "-",
) -> None:
    """Mean and spread over seeds, where all of them are known."""
    rows = []
    for study in group:
        steps, y = values(study)
        known = np.isfinite(y)
        rows.append(np.interp(grid, steps[known] / study.anchor, y[known], left=np.nan, right=np.nan))
    curves = np.stack(rows)
    everywhere = np.isfinite(curves).all(0)
    band(ax, grid[everywhere], curves[:, everywhere], colour, label, linestyle)


def show_heads(ax: Axes, study: Study, probe: str, circuit: str) -> None:
    """Single heads of one run over the band of all of them; of more than can be told apart those that change most."""
    heads = study.table.loc[study.table["circuit"] == circuit, ["layer", "head"]].drop_duplicates()
    named = [f"{layer}.{head}" for layer, head in heads.itertuples(index=False)]
    over_anchor = study.table.assign(step=study.table["step"] / study.anchor)
    chosen = named if len(named) <= probes.plot.MOST_HEADS else None
    probes.plot.curves(over_anchor, chosen, circuit=circuit, probe=probe, log=False, ax=ax)
    ax.set_title("", loc="left")


def shade(axes: Sequence[Axes], first: float, last: float) -> None:
    """Mark the transition, if there is one."""
    for ax in axes if np.isfinite([first, last]).all() else ():
        ax.axvspan(first, last, color="#ffd54d", alpha=0.35, linewidth=0)


def each(compute: Callable[[AnyStudy], float], group: Sequence[AnyStudy]) -> np.ndarray:
    """One number per run."""
    return np.array([compute(study) for study in group], dtype=float)


def drops(found: pd.DataFrame) -> pd.DataFrame:
    """Of what `find_transitions` found, the falls that stay: cliffs, and stages in log time."""
    return found.loc[found["kind"].isin(("cliff", "stage")) & (found["direction"] == "fall")].reset_index(drop=True)


def cliff(loss: pd.Series, around: float) -> float:
    """The drop `find_transitions` reports nearest to a step, as a ratio to it; NaN if none within 30 %."""
    ratios = drops(probes.find_transitions(loss))["step"].to_numpy() / around
    near = ratios[(ratios > 1 / 1.3) & (ratios < 1.3)]
    return float(near[np.argmin(np.abs(np.log(near)))]) if len(near) else np.nan


def nearest_peak(steps: np.ndarray, values: np.ndarray, around: float, scale: float) -> float:
    """The peak nearest to a step in ln(step), as a ratio to it; NaN if there is none within a factor 1.5.

    A peak stands out by at least a twentieth of `scale`, one for all runs: else the noise of a flat curve has peaks.
    """
    share = 0.05 * scale / np.ptp(values)
    if share > 1:
        return np.nan
    found = probes.peaks(values, steps, prominence=share)["step"].to_numpy() / around
    found = found[(found > 1 / 1.5) & (found < 1.5)]
    return float(found[np.argmin(np.abs(np.log(found)))]) if len(found) else np.nan


def halfway_down(steps: np.ndarray, values: np.ndarray) -> float:
    """When a distance has come halfway from its first value to zero; NaN if never. What is NaN is left out."""
    known = np.isfinite(values)
    try:
        return probes.half_time(values[known], steps[known], end=0.0)
    except ValueError:
        return np.nan


def dip(steps: np.ndarray, values: np.ndarray, around: float) -> tuple[float, float]:
    """How deep the lowest point near a step lies below the lower of the two shoulders, and where it is.

    Near is within a half of the step; shoulders are the highest points before and after, in the whole run. Depth is a
    share of the shoulder: 0 for a curve that only falls or only rises.
    """
    near = np.flatnonzero(np.abs(steps / around - 1) <= 0.5)
    lowest = near[np.argmin(values[near])]
    shoulder = min(values[: lowest + 1].max(), values[lowest:].max())
    return float(1 - values[lowest] / shoulder), float(steps[lowest])


NEAR, SHOULDER = 1.25, 1.5  # factors: how near to its step a notch is looked for, and how far off its shoulders are


def notch(steps: np.ndarray, values: np.ndarray, around: float) -> tuple[float, float]:
    """How deep a curve is notched at a step, a sharp V there, and where the lowest point is.

    The lowest point within a factor NEAR of the step, against the line in ln(step) between the values a factor SHOULDER
    before and after that point (or at the end of the run), as a share of the line. 0 for a straight line; slow sags and
    curves that only fall have little of it, because their shoulders fall too. NaN where no checkpoint is so near.
    """
    x = np.log(np.maximum(steps, 0.5) / around)
    near = np.flatnonzero(np.abs(x) <= np.log(NEAR))
    if not len(near):
        return np.nan, np.nan
    lowest = near[np.argmin(values[near])]
    line = np.interp(x[lowest] + np.log(SHOULDER) * np.array([-1, 1]), x, values).mean()
    return float(1 - values[lowest] / line), float(steps[lowest])
