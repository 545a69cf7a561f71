"""Several runs: what is the schedule of the checkpoints, and what controls do too.

schedule   three runs or more, half of all or more, show the same probe of the same circuit at the same step (within
           .05 in ln(step)) although a metric that changes much in all of them, in the same direction, does so at steps
           that differ, and no metric changes at that step: the training is not what they have in common. As many runs
           as meet by chance, with as many findings as they have, are not enough
shared     some control shows the same probe of the same circuit, or the same metric, in the same direction,
           within a factor of 1.5 in the step, at least half as strongly
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from probes.events.findings import Finding

Tables = pd.DataFrame | Sequence[pd.DataFrame] | Mapping[str, pd.DataFrame]

SAME_STEP = 0.05
"""In ln(step)."""

DIFFERENT = 0.15
"""Spread (largest minus smallest ln(step)) of the metrics' events beyond which runs do not learn at the same time."""

MUCH = 0.5
"""Strength of the change of a metric by which it is told when a run learns."""

FEWEST_RUNS = 3

BY_CHANCE = 0.05
"""Of a panel: how many such meetings may be expected where every run has its findings anywhere, for one to count."""

NEAR, AS_LARGE = np.log(1.5), 0.5


def as_tables(tables: Tables, what: str) -> dict[str, pd.DataFrame]:
    """One table per run, by its name."""
    if isinstance(tables, pd.DataFrame):
        several = [tables]
    elif isinstance(tables, Mapping):
        several = [table.assign(run=name) for name, table in tables.items()]
    else:
        several = list(tables)
    found: dict[str, pd.DataFrame] = {}
    for table in several:
        if "run" not in table.columns or table.empty:
            raise ValueError(f"{what}: a table of probes with numbers is expected, as `probes.measure` makes them")
        for name, rows in table.groupby("run", sort=False):
            if str(name) in found:
                raise ValueError(f'{what}: two tables have a run called {name!r}: use table.assign(run="...")')
            found[str(name)] = rows
    if not found:
        raise ValueError(f"{what}: no table is given")
    return found


def schedule_steps(
    by_run: Mapping[str, Sequence[Sequence[Finding]]], searched: Mapping[str, Sequence[tuple[float, float]]]
) -> tuple[dict[str, set[tuple[str, float]]], list[str]]:
    """The (name, step) of findings that are the schedule's, by run, and a sentence for each.

    searched has the stretches of steps in which a panel could be looked at, by its name.
    """
    if len(by_run) < 2:
        return {}, []
    if len(by_run) < FEWEST_RUNS:
        return {}, [f"{len(by_run)} runs: what is the schedule of the checkpoints can be told from {FEWEST_RUNS} on"]
    flat = {run: [one for findings in events for one in findings] for run, events in by_run.items()}
    names = {one.name for findings in flat.values() for one in findings if one.circuit is not None}
    found: dict[str, set[tuple[str, float]]] = {}
    notes = []
    for name in sorted(names):
        at = [(run, one) for run, findings in flat.items() for one in findings if one.name == name]
        each = [sum(run == other for other, _ in at) for run in flat]
        length = sum(np.log(high / max(low, 1)) for low, high in searched.get(name, []))
        for cluster in _clusters(at):
            runs = {run: flat[run] for run, _ in cluster}
            if len(runs) < max(FEWEST_RUNS, len(by_run) / 2) or _has_metric(cluster[0][1].step, runs):
                continue
            if meetings_by_chance(each, len(runs), SAME_STEP / max(length, SAME_STEP)) > BY_CHANCE:
                continue
            learned = _learned(runs)
            if learned is not None:
                for run, one in cluster:
                    found.setdefault(run, set()).add((one.name, one.step))
                notes.append(
                    f"{name} at step {cluster[0][1].step:.0f} in {len(runs)} of {len(by_run)} runs, of which "
                    f"{learned[0]} changes at steps {learned[1]:.0f} to {learned[2]:.0f}: the schedule of the "
                    "checkpoints or of the optimizer, not reported"
                )
    return found, notes


def meetings_by_chance(findings: Sequence[int], runs: int, share: float) -> float:
    """How often so many runs meet within this share of what was searched, each having its findings anywhere in it."""
    expected = 0.0
    for first, count in enumerate(findings):
        met = np.array([1.0])  # how likely 0, 1, 2 ... of the other runs follow at once
        for other, their in enumerate(findings):
            if other != first:
                once = 1 - (1 - share) ** their
                met = np.convolve(met, [1 - once, once])
        expected += count * float(met[runs - 1 :].sum())
    return expected


def _has_metric(step: float, runs: Mapping[str, Sequence[Finding]]) -> bool:
    """Whether in half of these runs a metric changes at this step."""
    near = [
        any(one.circuit is None and abs(np.log(one.step / step)) <= DIFFERENT for one in findings)
        for findings in runs.values()
    ]
    return sum(near) >= len(near) / 2


def _learned(runs: Mapping[str, Sequence[Finding]]) -> tuple[str, float, float] | None:
    """The metric by which these runs learn at the most different steps, and the first and last of these steps."""
    changes: dict[tuple[str, str], list[float]] = {}
    for findings in runs.values():
        much = [one for one in findings if one.circuit is None and one.strength >= MUCH]
        for name, direction in {(one.name, one.direction) for one in much}:
            alike = [one for one in much if (one.name, one.direction) == (name, direction)]
            changes.setdefault((name, direction), []).append(max(alike, key=lambda one: one.strength).step)
    spreads = {change: float(np.ptp(np.log(steps))) for change, steps in changes.items() if len(steps) == len(runs)}
    widest = max(spreads, key=lambda change: spreads[change], default=None)
    if widest is None or spreads[widest] <= DIFFERENT:
        return None
    return widest[0], min(changes[widest]), max(changes[widest])


def _clusters(at: list[tuple[str, Finding]]) -> list[list[tuple[str, Finding]]]:
    clusters: list[list[tuple[str, Finding]]] = []
    for run, one in sorted(at, key=lambda pair: pair[1].step):
        if clusters and np.log(one.step / clusters[-1][0][1].step) <= SAME_STEP:
            clusters[-1].append((run, one))
        else:
            clusters.append([(run, one)])
    return clusters


def compared(findings: Sequence[Finding], controls: Sequence[Sequence[Finding]]) -> tuple[list[Finding], list[bool]]:
    """Findings of one event, those first that no control shows, and of each whether one does."""
    shared = [any(_alike(one, other) for control in controls for other in control) for one in findings]
    order = sorted(range(len(findings)), key=lambda k: (shared[k], findings[k].rank))
    return [findings[k] for k in order], [shared[k] for k in order]


def is_shared(findings: Sequence[Finding], shared: Sequence[bool]) -> bool:
    """Whether an event is the controls' too: none of its metrics is the run's alone, and half of it is not either."""
    if any(one.circuit is None and not is_so for one, is_so in zip(findings, shared, strict=True)):
        return False
    return sum(shared) >= len(shared) / 2


def _alike(one: Finding, other: Finding) -> bool:
    near = bool(abs(np.log(other.step / one.step)) <= NEAR)
    same_way = one.direction == other.direction or "mixed" in (one.direction, other.direction)
    return one.name == other.name and near and same_way and other.size >= AS_LARGE * one.size
