"""Several runs: what is the schedule of the checkpoints, and what controls do too.

schedule   three runs or more, half of all or more, show the same probe of the same circuit at the same step (within
           .05 in ln(step)) although their metrics change at steps that differ: the training is not what they have
           in common
shared     some control shows the same probe of the same circuit, within a factor of two in the step, at least half
           as strongly
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

FEWEST_RUNS = 3

NEAR, AS_LARGE = np.log(2.0), 0.5


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
    by_run: Mapping[str, Sequence[Sequence[Finding]]],
) -> tuple[dict[str, set[tuple[str, float]]], list[str]]:
    """The (name, step) of findings that are the schedule's, by run, and a sentence for each."""
    if len(by_run) < 2:
        return {}, []
    if len(by_run) < FEWEST_RUNS:
        return {}, [f"{len(by_run)} runs: what is the schedule of the checkpoints can be told from {FEWEST_RUNS} on"]
    flat = {run: [one for findings in events for one in findings] for run, events in by_run.items()}
    learned = {run: _main_step(findings) for run, findings in flat.items()}
    names = {one.name for findings in flat.values() for one in findings if one.circuit is not None}
    found: dict[str, set[tuple[str, float]]] = {}
    notes = []
    for name in sorted(names):
        at = [(run, one) for run, findings in flat.items() for one in findings if one.name == name]
        for cluster in _clusters(at):
            runs = {run for run, _ in cluster}
            when = [step for run in runs if (step := learned[run]) is not None]
            if len(runs) < max(FEWEST_RUNS, len(by_run) / 2) or len(when) < 2:
                continue
            if np.ptp(np.log(when)) > DIFFERENT:
                for run, one in cluster:
                    found.setdefault(run, set()).add((one.name, one.step))
                notes.append(
                    f"{name} at step {cluster[0][1].step:.0f} in {len(runs)} of {len(by_run)} runs, which learn at "
                    f"steps {min(when):.0f} to {max(when):.0f}: the schedule of the checkpoints, not reported"
                )
    return found, notes


def _main_step(findings: Sequence[Finding]) -> float | None:
    """When a run learns: the step of the largest change of a metric."""
    metrics = [one for one in findings if one.circuit is None]
    return max(metrics, key=lambda one: one.strength).step if metrics else None


def _clusters(at: list[tuple[str, Finding]]) -> list[list[tuple[str, Finding]]]:
    clusters: list[list[tuple[str, Finding]]] = []
    for run, one in sorted(at, key=lambda pair: pair[1].step):
        if clusters and np.log(one.step / clusters[-1][0][1].step) <= SAME_STEP:
            clusters[-1].append((run, one))
        else:
            clusters.append([(run, one)])
    return clusters


def is_shared(findings: Sequence[Finding], controls: Sequence[Sequence[Finding]]) -> bool:
    """Whether a control shows this too."""
    with_metric = any(one.circuit is None for one in findings)
    deciding = findings[:1] if with_metric else findings
    return any(_alike(one, other) for one in deciding for control in controls for other in control)


def _alike(one: Finding, other: Finding) -> bool:
    near = abs(np.log(other.step / one.step)) <= NEAR
    return one.name == other.name and bool(near) and other.size >= AS_LARGE * one.size
