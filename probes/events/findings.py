"""One finding in one panel or one metric, before findings at the same time become one event.

Weights are judged by bursts of their panels, metrics (dense, one series each) by `find_transitions`. Each panel and
each metric is one test. Tests of weights and tests of metrics are two families: what the loss does, which is beyond
doubt in most runs, shall not make the weights' findings look surer.
"""

import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from probes.events.bursts import Burst, find_bursts
from probes.events.panels import MATRICES, Panel
from probes.series.logged import interventions_of, is_setting
from probes.series.transitions.find import find_transitions

SMALLEST = 0.05
"""Change within a burst, as a share of the range of a series (the median over its members), below which it is no event:
in the first steps of a run ranks move by thousandths, fast for that time and of no consequence."""

MEMBERS_Q = 0.07
"""False-discovery rate of the heads that take part, below the tenth that is promised: the place was chosen where heads
were fast, which helps those that only seem so."""

CLOSE = 0.1
"""In ln(step): findings at most this far apart are at the same time, as are those of which one lies in the other's
stretch."""

COMES_BACK = 0.5
"""Share of the change that is left after it, below which it was a dip or a spike."""

NO_CALIBRATION = "no calibration row"


@dataclass(frozen=True)
class Member:
    """A head (or matrix) in an event: how many times faster than usual, by how much it changed, how sure that is.

    change is that of ln(value), or of the value where no logarithm was taken (`Finding.is_log`).
    """

    circuit: str
    layer: int
    head: int
    name: str
    speed: float
    change: float
    p_value: float
    q_value: float
    takes_part: bool


@dataclass(frozen=True)
class Finding:
    """Something that one panel (circuit and probe) or one metric (circuit None) shows.

    size is that of the change: of a metric in its own unit, of a panel the strength. is_resolved: the checkpoints show
    its curves without noise, so that there is little doubt that they changed, and no calibration of it.
    """

    run: str
    name: str
    step: float
    low: float
    high: float
    kind: str
    direction: str
    strength: float
    p_value: float
    q_value: float
    rests_on: str
    circuit: str | None = None
    probe: str | None = None
    component: int | None = None
    tower: str | None = None
    stage: str | None = None
    members: tuple[Member, ...] = ()
    is_log: bool = False
    size: float = float("nan")
    is_resolved: bool = False

    @property
    def rank(self) -> tuple[int, float, float]:
        """Events are named after the first by this: heads, then other matrices, then metrics, the surest of each."""
        kind = 2 if self.circuit is None else 1 if self.circuit == MATRICES else 0
        return kind, self.q_value, self.p_value

    @property
    def taking_part(self) -> list[Member]:
        """The heads that take part, the fastest (for itself) first."""
        return sorted((one for one in self.members if one.takes_part), key=lambda one: -one.speed)


def adjusted(p_values: Sequence[float]) -> np.ndarray:
    """q-values of Benjamini and Hochberg: of tests with as small a q, at most that share is expected to be false."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    ranked = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1)
    return q


def in_weights(panels: Sequence[Panel], *, alpha: float, seed: int) -> list[Finding]:
    """What the panels of one run show, with q-values over all of them; all that has p <= alpha."""
    by_panel = [_in_panel(panel, alpha, seed) for panel in panels]
    return _with_q_values(by_panel)


def in_metrics(
    run: str, metrics: pd.DataFrame, *, alpha: float
) -> tuple[list[Finding], dict[str, list[tuple[float, float]]], dict[str, str]]:
    """What the metrics of one run show, where they were searched, and why others were not.

    Where a learning rate was logged, what happens at its jumps is of kind "intervention".
    """
    by_metric, where, refused = [], {}, {}
    changed = interventions_of(metrics)
    for name in metrics.columns:
        if is_setting(str(name)):
            refused[str(name)] = "a clock or a setting of the training, not what it does"
            continue
        numbers = np.asarray(pd.to_numeric(metrics[name], errors="coerce"), dtype=np.float64)
        series = pd.Series(numbers, metrics.index).loc[np.isfinite(numbers)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # how much was searched is said with the events
                found = find_transitions(series, alpha=alpha, interventions=changed)
        except ValueError as error:
            refused[str(name)] = str(error)
            continue
        where[str(name)] = [(float(low), float(high)) for low, high in found.attrs.get("searched", [])]
        if not where[str(name)]:
            refused[str(name)] = f"{len(series)} values: a change could have been seen nowhere"
            where.pop(str(name))
        steps, whole = series.index.to_numpy(dtype=np.float64), float(np.ptp(series.to_numpy()))
        by_metric.append([_of_transition(run, str(name), row, steps, whole) for row in found.to_dict("records")])
    return _with_q_values(by_metric), where, refused


def _of_transition(run: str, name: str, row: Mapping, steps: np.ndarray, whole: float) -> Finding:
    return Finding(
        run=run,
        name=name,
        step=float(row["step"]),
        low=float(row["low"]),
        high=float(row["high"]),
        kind=str(row["kind"]),
        direction=str(row["direction"]),
        strength=float(row["strength"]),
        p_value=float(row["p_value"]),
        q_value=float("nan"),
        rests_on=calibration_row(str(row["kind"]), steps, None),
        size=float(row["strength"]) * whole,
    )


def calibration_row(what: str, steps: np.ndarray, rho: float | None) -> str:
    """The id of the calibration's row that such a finding is entitled to, or that there is none."""
    from probes.series.calibration import WHATS, row_for

    if what not in WHATS or len(steps) < 6:
        return NO_CALIBRATION
    row = row_for(what, steps, rho)
    return NO_CALIBRATION if row is None else row.id


def at_once(one: Finding, other: Finding) -> bool:
    """Whether two findings are at the same time: one lies in the other's stretch, or they are next to each other."""
    inside = one.low <= other.step <= one.high or other.low <= one.step <= other.high
    return one.stage == other.stage and (inside or bool(abs(np.log(other.step / one.step)) <= CLOSE))


def _with_q_values(by_test: Sequence[Sequence[Finding]]) -> list[Finding]:
    """With the q-value of each among all tests, of which those count that show something at the same time.

    What they show at another time does not: beside a large event that every probe shows, a second finding of one probe
    would have a q-value no larger than its p-value, and of many probes one finds something by chance.
    """
    everything = []
    for number, found in enumerate(by_test):
        for one in found:
            there = [min((o.p_value for o in other if at_once(one, o)), default=1.0) for other in by_test]
            there[number] = one.p_value
            everything.append(replace(one, q_value=float(adjusted(there)[number])))
    return everything


def _in_panel(panel: Panel, alpha: float, seed: int) -> list[Finding]:
    rng = np.random.default_rng([seed, zlib.crc32(panel.name.encode())])
    found = find_bursts(panel.x, panel.values, panel.layers, panel.windows, alpha=alpha, rng=rng)
    findings = [_of_burst(panel, burst) for burst in found]
    return [one for one in findings if one is not None]


def _of_burst(panel: Panel, burst: Burst) -> Finding | None:
    q_values = adjusted(burst.series_p_values.tolist())
    taking_part = q_values <= MEMBERS_Q
    ranges = np.ptp(panel.values, axis=0)
    chosen = taking_part if taking_part.any() else q_values == q_values.min()
    strength = float(np.median(np.abs(burst.changes[chosen]) / ranges[chosen]))
    if strength < SMALLEST:
        return None
    kind, direction = _shape(panel, burst, chosen)
    columns = zip(panel.heads, burst.speeds, burst.changes, burst.series_p_values, q_values, chosen, strict=True)
    return Finding(
        run=panel.run,
        name=panel.name,
        step=float(np.exp(burst.at)),
        low=float(np.exp(burst.low)),
        high=float(np.exp(burst.high)),
        kind=kind,
        direction=direction,
        strength=strength,
        p_value=burst.p_value,
        q_value=float("nan"),
        rests_on=NO_CALIBRATION if burst.is_resolved else calibration_row("panel", panel.steps, None),
        circuit=panel.circuit,
        probe=panel.probe,
        component=panel.component,
        tower=panel.tower,
        stage=panel.stage,
        members=tuple(
            Member(
                one.circuit, one.layer, one.head, one.name, float(speed), float(change), float(p), float(q), bool(part)
            )
            for one, speed, change, p, q, part in columns
        ),
        is_log=panel.is_log,
        size=strength,
        is_resolved=burst.is_resolved,
    )


def _shape(panel: Panel, burst: Burst, chosen: np.ndarray) -> tuple[str, str]:
    """Kind (stage, or dip and spike where most of it comes back at once) and direction (rise, fall, mixed)."""
    x, values = panel.x, panel.values[:, chosen]
    before = values[(x < burst.at) & (x >= burst.at - 2 * burst.width)].mean(0)
    after = values[(x >= burst.high) & (x < burst.high + 2 * burst.width)]
    change = burst.changes[chosen]
    share = float(change[change > 0].sum() / np.abs(change).sum())
    direction = "rise" if share > 0.75 else "fall" if share < 0.25 else "mixed"
    left = (after.mean(0) - before) * np.sign(change) / np.maximum(np.abs(change), 1e-300) if len(after) else None
    if left is None or np.median(left) >= COMES_BACK or direction == "mixed":
        return "stage", direction
    return ("spike" if direction == "rise" else "dip"), direction
