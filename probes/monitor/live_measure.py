"""The probes on a model in training: the same work as `measure` does on files, on the weights where they are.

The final weights are not known yet, so what compares with them is left out; drift compares with the measurement
before ("subspace_drift@previous", and per step), of which the attention weights alone are kept. The attention weights
of a small model are copied before they are measured, which is quicker (see `slot_measurement`); those of a large one
are read where they are, layer by layer.

Of a sharded model the attention weights of one layer, of now and of before, are gathered on every rank; each measures
its share of the heads, and then comes the next layer. Gathering is done by all ranks in the same order, whatever
happens; measuring may fail on one of them, and then costs its rows. Rank r of n measures heads r, r + n, r + 2n ... of
every circuit in every layer; with fewer heads than ranks, some ranks have none.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from checkpoints import Family, Run
from checkpoints.files.in_memory import InMemory
from checkpoints.heads.layout import Layer
from checkpoints.run import Entry
from probes.circuits import Builder, Circuit, HeadCircuit, circuits_of, default_circuits, descriptions, head_counts
from probes.measuring.catalogue import PROBES, Probe, Wanted, as_probes
from probes.measuring.checkpoint import measure_checkpoint
from probes.measuring.measure import provenance
from probes.measuring.plan import CheckpointTask, Plan, layer_bytes, tensors_by_layer
from probes.measuring.rows import CheckpointValues, RowIndex
from probes.monitor.distributed import SingleProcess
from probes.monitor.live_weights import LiveWeights
from probes.monitor.slot_measurement import NO_PREVIOUS, PREVIOUS, SlotMeasurement
from probes.monitor.weight_slots import SlotLayout, WeightSlots

SMALL_BYTES = 2**25
"""Of the weights that are measured: up to here copying them costs nothing beside what it saves."""


class LiveMeasurement:
    """What is measured of a model, and the weights of the last time."""

    def __init__(
        self,
        weights: LiveWeights,
        name: str,
        circuits: str | Sequence[str] | Mapping[str, Builder] | None,
        probes: Wanted | None,
        removed: int,
        config: Mapping[str, Any] | None,
        family: Family | str | None,
        group: SingleProcess,
    ) -> None:
        self.weights, self.group = weights, group
        self.run = Run(
            source="a model in training",
            name=name,
            entries=[Entry(0, "the model", lambda: weights.now("the model"))],
            family=family if isinstance(family, str) else "unknown",
            config={**weights.config(), **(config or {})},
            circuits=descriptions(circuits),
            family_override=family if isinstance(family, Family) else None,
        )
        with _speaking_of_the_monitor():
            wanted = default_circuits(self.run) if circuits is None else circuits
            found = {} if group.count > 1 and isinstance(wanted, Mapping) else circuits_of(self.run, _several(wanted))
        if group.count > 1 and not (found and all(isinstance(circuit, HeadCircuit) for circuit in found.values())):
            raise ValueError(
                f"the model is spread over {group.count} ranks, which share out its heads: of such a model only "
                "circuits of attention heads can be measured, not those that a function builds, nor other matrices"
            )
        now = self.run.representative_checkpoint()
        plan = Plan(
            run=name,
            circuits=found,
            heads=head_counts(found, now),
            layer_bytes=layer_bytes(found, now),
            probes=live_probes(probes, removed),
            references={},
            stretches={PREVIOUS: "previous"},
            is_live=True,
        )
        self.attrs = provenance(self.run, plan)
        """What the numbers mean, as in a table of `measure`."""
        self.rows: RowIndex = plan.rows
        """Those of every measurement, of the whole model."""
        self._plan = _own_share(plan, group)
        self._tensors = tensors_by_layer(found, now)
        self.names = sorted({name for names in self._tensors.values() for name in names})
        self._before: Entry | None = None
        self._why_no_previous = NO_PREVIOUS
        self._count = 0
        self.plan, self.layout = plan, SlotLayout.of(now.stored, self.names)
        self._in_slots: SlotMeasurement | None = None
        if group.count == 1 and self.layout.nbytes <= SMALL_BYTES:
            self._in_slots = SlotMeasurement(plan, WeightSlots(self.layout, 2 if self.has_drift else 1))

    def table(self, measurements: Sequence[CheckpointValues]) -> pd.DataFrame:
        """Measurements as `measure` gives them."""
        return self.rows.table(measurements, self.attrs)

    @property
    def has_drift(self) -> bool:
        """Whether a measurement is compared with the one before."""
        return bool(self.plan.probes_that_read("current, previous"))

    @property
    def cost(self) -> dict[str, float]:
        """Seconds that each probe took the last time, where that is known: not of a large model."""
        return self._in_slots.cost if self._in_slots else {}

    def warm_up(self) -> None:
        """Do what is slow the first time, in every slot: of a small model that is worth many measurements.

        Somebody's own probes are not called more often than there are measurements.
        """
        slots = self._in_slots
        if slots is None or any(probe.name not in PROBES for probe in self.plan.probes):
            return
        reason, now = slots.why_no_previous, self.weights.now("the model")
        for slot in (*range(slots.slots.count), 0):
            slots.slots.fill(slot, now)
            slots.measure(0, slot)
        slots.forget(reason)

    def forget(self, reason: str) -> None:
        """The next measurement has nothing before it to compare with."""
        self._before, self._why_no_previous = None, reason
        if self._in_slots:
            self._in_slots.forget(reason)

    def take_over(self, other: SlotMeasurement) -> None:
        """Go on where another measurement of the same model stopped."""
        self.forget("the worker died that measured before")
        if self._in_slots:
            self._in_slots.compare_with(other)

    def measure(self, step: int, only: Collection[str] | None = None) -> tuple[CheckpointValues, str | None]:
        """All numbers of the weights as they are now, and why some are missing; on the first rank alone.

        Of a large model the probes are measured all together, whichever are named.
        """
        now = self.group.everywhere(self.weights.now, f"the model at step {step}")
        self._count += 1  # the same step may come again with other weights, which are then not those of before
        if self._in_slots:
            slot = self._count % self._in_slots.slots.count
            self._in_slots.slots.fill(slot, now)
            return self._in_slots.measure(step, slot, only)
        entry = Entry(step, now.label, lambda: now, version=str(self._count))
        own = list(self._at_once(entry) if self.group.count == 1 else self._by_layer(entry))
        if self.has_drift:
            kept = self.group.everywhere(now.copy_of, self.names, now.label)
            self._before = replace(entry, open=lambda: kept)
        return self._whole(step, self.group.gather(own))

    def _at_once(self, now: Entry) -> Iterator[tuple[CheckpointValues, str | None]]:
        """All layers; each tensor is read when it is needed."""
        yield measure_checkpoint(self._plan, _task(now, self._before or self._why_no_previous))

    def _by_layer(self, now: Entry) -> Iterator[tuple[CheckpointValues, str | None]]:
        """This rank's share of each layer that it has one of."""
        for layer in self._tensors:
            yield from self._layer(layer, now)

    def _layer(self, layer: Layer, now: Entry) -> list[tuple[CheckpointValues, str | None]]:
        """Every rank gathers every layer, whatever becomes of measuring it, and lets go of it before the next."""
        plan, names = _one_layer(self._plan, layer), self._tensors[layer]
        before = _gathered(self._before, names) if self._before else self._why_no_previous
        task = _task(_gathered(now, names), before)
        return [_measured_or_missing(plan, task)] if plan.heads else []

    def _whole(
        self, step: int, shares: list[list[tuple[CheckpointValues, str | None]]]
    ) -> tuple[CheckpointValues, str | None]:
        """The numbers of all ranks in one: those of a rank come in the order in which its heads have rows."""
        failure = next((failure for share in shares for _, failure in share if failure), None)
        if self.group.count == 1:
            return shares[0][0]
        values, why = np.full(len(self.rows), np.nan), {}
        for rank, share in enumerate(shares):
            rows = np.flatnonzero(self.rows.head % self.group.count == rank)
            begin = 0
            for found, _ in share:
                own = rows[begin : begin + len(found.values)]
                values[own] = found.values
                why |= {int(own[row]): reason for row, reason in found.why_missing.items()}
                begin += len(own)
        return CheckpointValues(step, values, why), failure


def live_probes(wanted: Wanted | None, removed: int = 4) -> tuple[Probe, ...]:
    """All that can be measured during training, or those asked for; others raise."""
    chosen = as_probes(list(_LIVE) if wanted is None else wanted, removed=removed)
    for probe in chosen:
        if probe.reads == "current, reference":
            raise ValueError(
                f"{probe.name} compares with the final weights, which are not known during training: use "
                "subspace_drift, or `measure` on the checkpoints afterwards"
            )
    return chosen


_LIVE = tuple(name for name, probe in PROBES.items() if probe.reads != "current, reference")


@contextmanager
def _speaking_of_the_monitor() -> Iterator[None]:
    """What readers of files say of `open_run` and the command line, said of what the user has called."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        for ours, theirs in _IN_FILES.items():
            said = said.replace(ours, theirs)
        if said == str(error):
            raise
        error.args = (said,)
        raise


_IN_FILES = {
    "to open_run, or --heads on the command line": "to Monitor(...)",
    "open_run(..., ": "Monitor(..., ",
}


def _several(wanted: str | Sequence[str] | Mapping[str, Builder]) -> Sequence[str] | Mapping[str, Builder]:
    return (wanted,) if isinstance(wanted, str) else wanted


def _task(now: Entry, before: Entry | str) -> CheckpointTask:
    return CheckpointTask(now, {PREVIOUS: before}, frozenset({now.label}))


def _own_share(plan: Plan, group: SingleProcess) -> Plan:
    """The part of the work that this rank does."""
    if group.count == 1:
        return plan
    circuits = {name: _every_nth(circuit, group) for name, circuit in plan.circuits.items()}
    own = {place: len(range(group.rank, heads, group.count)) for place, heads in plan.heads.items()}
    return replace(plan, circuits=circuits, heads={place: heads for place, heads in own.items() if heads})


def _one_layer(plan: Plan, layer: Layer) -> Plan:
    """The part of the work on one layer."""
    return replace(plan, heads={place: heads for place, heads in plan.heads.items() if place[1] == layer})


def _every_nth(circuit: Circuit, group: SingleProcess) -> HeadCircuit:
    assert isinstance(circuit, HeadCircuit)
    build = circuit.build
    return replace(circuit, build=lambda heads: build(heads)[group.rank :: group.count])


def _gathered(entry: Entry, names: list[str]) -> Entry:
    """The same with these tensors, whole, in memory."""
    checkpoint = entry.open()
    assert isinstance(checkpoint, InMemory)
    whole = checkpoint.gathered(names)
    return replace(entry, open=lambda: whole)


def _measured_or_missing(plan: Plan, task: CheckpointTask) -> tuple[CheckpointValues, str | None]:
    """Values, whatever goes wrong: the other ranks do not wait for an explanation."""
    try:
        return measure_checkpoint(plan, task)
    except Exception as error:
        reason = f"{task.current.label}: {type(error).__name__}: {error}"
        return plan.rows.nothing(task.current.step, reason), reason
