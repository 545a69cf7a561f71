"""What a monitor knows, as plain data, so that a training which is resumed goes on being watched as if nothing was."""

from collections.abc import Mapping
from typing import Any

from probes.measuring.rows import CheckpointValues, RowIndex
from probes.monitor.measured_table import MeasuredTable
from probes.monitor.tracked_scalars import TrackedScalars
from probes.series.online import Event, Record
from probes.series.online import state as series_state
from probes.series.online.state import as_plain, from_plain

VERSION = 1


def state_of(
    step: int, tracked: TrackedScalars, detected: list[Event], measured: MeasuredTable, *, table: bool
) -> dict[str, Any]:
    """Lists, numbers and strings."""
    return {
        "version": VERSION,
        "step": step,
        "records": {
            name: series_state.state_of(one) for name, one in tracked.records.items() if name not in tracked.detectors
        },
        "detectors": {name: series_state.state_of(one) for name, one in tracked.detectors.items()},
        "autocorrelations": {name: series_state.state_of(one) for name, one in tracked.autocorrelations.items()},
        "events": [as_plain(event) for event in detected],
        "measurements": [
            {"step": one.step, "values": as_plain(one.values), "why_missing": as_plain(dict(one.why_missing))}
            for one in measured
        ]
        if table
        else None,
    }


def restore(
    known: Mapping[str, Any], step: int, tracked: TrackedScalars, measured: MeasuredTable, rows: RowIndex
) -> list[Event]:
    """Bring back what was known, in place of what there is; the events. Raises ValueError where it is another run's."""
    if known.get("version") != VERSION:
        raise ValueError(f"this is no state of a Monitor of version {VERSION}: it has version {known.get('version')!r}")
    if known["step"] != step:
        raise ValueError(
            f"the state is of step {known['step']}, and this monitor began at step {step}: make it with "
            f"Monitor(..., step={known['step']})"
        )
    tracked.clear()
    probes = set(rows.names)
    for name, state in known["detectors"].items():
        tracked.begin_again(name, name in probes, watched=True)
        if name in tracked.detectors:
            series_state.restore(tracked.detectors[name], state)
        else:  # it is not searched any more
            series_state.restore(tracked.records[name], state["record"])
    for name, state in known["records"].items():
        tracked.begin_again(name, name in probes, watched=False)
        series_state.restore(tracked.records[name], state)
    for name, state in known["autocorrelations"].items():
        if name in tracked.autocorrelations:
            series_state.restore(tracked.autocorrelations[name], state)
    kept = known["measurements"]
    found = [one for one in measured if one.step < step]
    if kept is not None:
        found = [
            CheckpointValues(one["step"], from_plain(one["values"]), from_plain(one["why_missing"])) for one in kept
        ]
    began = [one for one in measured if one.step == step and not any(other.step == step for other in found)]
    measured.replace([*(one for one in found if len(one.values) == len(rows)), *began])
    for one in began:  # the weights that training goes on from were measured when this monitor was made
        means = {name: mean for name, mean in rows.means(one).items() if _is_later(step, tracked.records.get(name))}
        tracked.add(step, means, are_probes=True)
    return [from_plain(event) for event in known["events"]]


def _is_later(step: int, record: Record | None) -> bool:
    return record is None or record.last is None or step > record.last
