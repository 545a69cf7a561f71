"""The probes on a model in training: the same work as `measure` does on files, on the weights where they are.

The final weights are not known yet, so what compares with them is left out; drift compares with the measurement
before, of which the attention weights alone are kept.

Of a sharded model the attention weights of one layer, of now and of before, are gathered on every rank; each measures
its share of the heads, and then comes the next layer. Gathering is done by all ranks in the same order, whatever
happens; measuring may fail on one of them, and then costs its rows.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from checkpoints import Checkpoint, Family, Run
from checkpoints.files.in_memory import InMemory
from checkpoints.run import Entry
from probes.circuits import Builder, Circuit, HeadCircuit, circuits_of, default_circuits, descriptions, head_counts
from probes.measuring.catalogue import PROBES
from probes.measuring.checkpoint import CheckpointTask, Plan, measure_checkpoint, missing_rows
from probes.measuring.measure import known_probes, provenance
from probes.monitor.distributed import SingleProcess
from probes.monitor.live_weights import LiveWeights
from probes.monitor.shares import as_in_the_model, in_order, one_layer, own_share

LIVE = tuple(name for name, probe in PROBES.items() if probe.reads != "now and reference")


class LiveMeasurement:
    """What is measured of a model, and the weights of the last time."""

    def __init__(
        self,
        weights: LiveWeights,
        name: str,
        circuits: str | Sequence[str] | Mapping[str, Builder] | None,
        probes: Sequence[str] | None,
        config: Mapping[str, Any] | None,
        family: Family | str | None,
        ranks: SingleProcess,
    ) -> None:
        self.weights, self.ranks = weights, ranks
        self.run = Run(
            source="a model in training",
            name=name,
            entries=[Entry(0, "the model", lambda: weights.now("the model"))],
            family=family if isinstance(family, str) else "unknown",
            config={**weights.config(), **(config or {})},
            circuits=descriptions(circuits),
            family_override=family if isinstance(family, Family) else None,
        )
        wanted = default_circuits(self.run) if circuits is None else circuits
        if ranks.count > 1 and isinstance(wanted, Mapping):
            raise ValueError(
                f"the model is spread over {ranks.count} ranks, which share out its heads: of such a model only "
                "circuits of attention heads can be measured, not those that a function builds"
            )
        found = circuits_of(self.run, (wanted,) if isinstance(wanted, str) else wanted)
        work = Plan(
            run=name,
            circuits=found,
            heads=head_counts(found, self.run.representative_checkpoint()),
            probes=live_probes(probes),
            components=PROBES["marginalized_effective_rank"].components or 1,
            references={},
            token=secrets.token_hex(8),
        )
        self.attrs = provenance(self.run, work)
        """What the numbers mean, as in a table of `measure`."""
        self.work = own_share(work, ranks)
        self._names = _names_by_layer(found, self.run.representative_checkpoint())
        self._read = sorted({name for names in self._names.values() for name in names})
        self._before: Entry | None = None

    def measure(self, step: int) -> tuple[pd.DataFrame, str | None]:
        """All numbers of the weights as they are now, and why some are missing; on the first rank alone."""
        now = self.ranks.everywhere(self.weights.now, f"the model at step {step}")
        own = list(self._at_once(step, now) if self.ranks.count == 1 else self._by_layer(step, now))
        if any(PROBES[name].reads == "now and before" for name in self.work.probes):
            kept = self.ranks.everywhere(now.copy_of, self._read, now.label)
            self._before = Entry(step, kept.label, lambda: kept)
        parts = [part for parts in self.ranks.gather(own) for part in parts]
        failure = next((failure for _, failure in parts if failure), None)
        table = in_order([rows for rows, _ in parts])
        table.attrs.update(self.attrs)
        return table, failure

    def _at_once(self, step: int, now: InMemory) -> Iterator[tuple[pd.DataFrame, str | None]]:
        """All layers; each tensor is read when it is needed."""
        yield measure_checkpoint(self.work, CheckpointTask(Entry(step, now.label, lambda: now), self._before))

    def _by_layer(self, step: int, now: InMemory) -> Iterator[tuple[pd.DataFrame, str | None]]:
        """This rank's share of each layer that it has one of."""
        for layer in self._names:
            yield from self._layer(layer, Entry(step, now.label, lambda: now))

    def _layer(self, layer: int, now: Entry) -> list[tuple[pd.DataFrame, str | None]]:
        """Every rank gathers every layer, whatever becomes of measuring it, and lets go of it before the next."""
        work, names = one_layer(self.work, layer), self._names[layer]
        task = CheckpointTask(_gathered(now, names), _gathered(self._before, names) if self._before else None)
        if not work.heads:
            return []
        rows, failure = _measured_or_missing(work, task)
        return [(as_in_the_model(rows, self.ranks), failure)]


def _gathered(entry: Entry, names: list[str]) -> Entry:
    """The same with these tensors, whole, in memory."""
    checkpoint = entry.open()
    assert isinstance(checkpoint, InMemory)
    whole = checkpoint.gathered(names)
    return replace(entry, open=lambda: whole)


def _measured_or_missing(work: Plan, task: CheckpointTask) -> tuple[pd.DataFrame, str | None]:
    """A table, whatever goes wrong: the other ranks do not wait for an explanation."""
    try:
        return measure_checkpoint(work, task)
    except Exception as error:
        reason = f"{task.now.label}: {type(error).__name__}: {error}"
        return missing_rows(work, task.now.step, reason), reason


def live_probes(names: Sequence[str] | None) -> tuple[str, ...]:
    """All that can be measured during training, or those named; others raise."""
    chosen = LIVE if names is None else known_probes(names)
    for name in chosen:
        if name not in LIVE:
            raise ValueError(
                f"{name} compares with the final weights, which are not known during training: use subspace_drift, "
                "or `measure` on the checkpoints afterwards"
            )
    return tuple(chosen)


def _names_by_layer(circuits: Mapping[str, Circuit], checkpoint: Checkpoint) -> dict[int, list[str]]:
    """The tensors that each layer is read from; all of them where a function builds a circuit."""
    names: dict[int, set[str]] = {}
    for circuit in circuits.values():
        for layer in circuit.layers:
            read = circuit.layout.names(layer) if isinstance(circuit, HeadCircuit) else checkpoint
            names.setdefault(layer, set()).update(read)
    return {layer: sorted(names[layer]) for layer in sorted(names)}
