"""The probes on a model in training: the same work as `measure` does on files, on the weights where they are.

The final weights are not known yet, so what compares with them is left out; drift compares with the measurement
before, of which the attention weights alone are kept.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from checkpoints import Family, Heads, Run
from checkpoints.files.in_memory import InMemory
from checkpoints.run import Entry
from probes.catalogue import PROBES
from probes.circuits import Builder, Circuit, HeadCircuit, circuits_of, default_circuits, head_counts
from probes.matrices import Factored
from probes.measure import known_probes
from probes.monitor.live_weights import LiveWeights
from probes.monitor.ranks import Alone
from probes.tables import joined
from probes.work import Task, Work, measure_checkpoint

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
        ranks: Alone,
    ) -> None:
        self.weights, self.ranks = weights, ranks
        run = Run(
            source="a model in training",
            name=name,
            entries=[Entry(0, "the model", lambda: weights.now("the model"))],
            family=family if isinstance(family, str) else "unknown",
            config={**weights.config(), **(config or {})},
            described_heads=family if isinstance(family, Family) else None,
        )
        wanted = default_circuits(run) if circuits is None else circuits
        found = circuits_of(run, (wanted,) if isinstance(wanted, str) else wanted)
        shared = {name: _share(circuit, ranks) for name, circuit in found.items()}
        self.work = Work(
            run=name,
            circuits=shared,
            heads=head_counts(shared, run.typical()),
            probes=live_probes(probes),
            components=PROBES["marginalized_effective_rank"].components or 1,
            references={},
            token=secrets.token_hex(8),
        )
        self._heads = head_counts(found, run.typical())
        self._names = _names_read(found, run.typical())
        self._before: Entry | None = None

    def measure(self, step: int) -> tuple[pd.DataFrame, str | None]:
        """All numbers of the weights as they are now (on the first rank), and why there are none."""
        now = self.weights.now(f"the model at step {step}")
        rows, failure = measure_checkpoint(self.work, Task(Entry(step, now.label, lambda: now), self._before))
        if any(PROBES[name].reads == "now and before" for name in self.work.probes):
            kept = now.copy_of(self._names, now.label)
            self._before = Entry(step, kept.label, lambda: kept)
        parts = self.ranks.gather(self._own(rows))
        return (joined(parts, {}) if len(parts) > 1 else rows), failure

    def _own(self, rows: pd.DataFrame) -> pd.DataFrame:
        """This rank's rows, with the heads numbered as in the whole model."""
        if self.ranks.count == 1:
            return rows
        rows = rows.assign(head=rows["head"] * self.ranks.count + self.ranks.rank)
        whole = [self._heads[circuit, layer] for circuit, layer in zip(rows["circuit"], rows["layer"], strict=True)]
        return rows.loc[rows["head"] < pd.Series(whole, index=rows.index)]


def _share(circuit: Circuit, ranks: Alone) -> Circuit:
    """The heads that this rank measures: every count-th. A rank for which none is left measures the last again."""
    if ranks.count == 1:
        return circuit
    if not isinstance(circuit, HeadCircuit):
        raise ValueError("circuits of one's own cannot be shared out over ranks: only those of attention heads can")
    return replace(circuit, build=_Shared(circuit.build, ranks.rank, ranks.count))


class _Shared:
    def __init__(self, build: Callable[[Heads], Factored], rank: int, count: int) -> None:
        self.build, self.rank, self.count = build, rank, count

    def __call__(self, heads: Heads) -> Factored:
        every = self.build(heads)
        return every[self.rank :: self.count] if self.rank < every.shape[0] else every[-1:]


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


def _names_read(circuits: Mapping[str, Circuit], checkpoint: InMemory | Any) -> list[str]:
    """The tensors that the circuits are read from; all of them where a function builds a circuit."""
    names: set[str] = set()
    for circuit in circuits.values():
        if not isinstance(circuit, HeadCircuit):
            return list(checkpoint)
        names |= {name for layer in circuit.layers for name in circuit.layout.names(layer)}
    return sorted(names)
