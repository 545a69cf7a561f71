"""What is to be measured: the same for all checkpoints of a run (`Plan`), and for one of them (`CheckpointTask`).

Both are sent to worker processes and clusters, so they hold values and functions, no open files. Probes travel as
values: one that was defined in a notebook cell goes along.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from checkpoints import Checkpoint
from checkpoints.heads.layout import Layer, TowerLayer
from checkpoints.run import Entry
from probes.circuits import BuiltCircuit, Circuit
from probes.measuring.catalogue import Probe
from probes.measuring.rows import Block, RowIndex
from probes.measuring.stretches import Stretch, partner

Place = tuple[str, Layer]
"""A circuit and a layer."""


@dataclass(frozen=True)
class Plan:
    """What is the same for all checkpoints of a run."""

    run: str
    circuits: Mapping[str, Circuit]
    heads: Mapping[Place, int]
    layer_bytes: Mapping[Layer, int]
    """How large the weights are that each layer is read from."""
    probes: Sequence[Probe]
    references: Mapping[str, Entry | str]
    """By what is added to a probe's name ("" or "@5000"), what it is compared with, or the reason why there is none."""
    stretches: Mapping[str, Stretch]
    """By what is added to a probe's name ("" or "@-250"), the stretch of training that it is measured over."""
    stages: Mapping[int, str | None] = field(default_factory=dict)
    """By step, the stage of training; empty where there is one stage only."""
    is_live: bool = False
    """Whether the weights go on changing once they were measured: they must not be kept, only what was computed."""
    batch_bytes: int = 2**20
    """Weights of the layers that are measured together: for a small model the calls cost more than the arithmetic. More
    would leave the processor's cache."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tells what is cached for this measurement from what is for another."""

    def __post_init__(self) -> None:
        for reads, given, argument in (
            ("current, reference", self.references, "references"),
            ("current, previous", self.stretches, "drift_over"),
        ):
            asked = self.probes_that_read(reads)
            if asked and not given:
                raise ValueError(
                    f"{argument} is empty, so {asked[0].name} would have no rows: name something to compare with, or "
                    "leave it out of `probes`"
                )

    def suffixes(self, probe: Probe) -> Sequence[str]:
        """What is added to a probe's name, once for each that it is compared with."""
        if probe.reads == "current, reference":
            return list(self.references)
        return list(self.stretches) if probe.reads == "current, previous" else [""]

    def probes_that_read(self, reads: str) -> list[Probe]:
        """The probes that need this."""
        return [probe for probe in self.probes if probe.reads == reads]

    @cached_property
    def rows(self) -> RowIndex:
        """The rows of every checkpoint: layer by layer, probe by probe, circuit by circuit, head by head."""
        blocks: dict[Block, tuple[int, int]] = {}
        for layer in self.layers:
            for reads in ("current", "current, reference", "current, previous"):
                probes = self.probes_that_read(reads)
                for suffix in self.suffixes(probes[0]) if probes else ():
                    for probe in probes:
                        for circuit in self.circuits:
                            if (circuit, layer) in self.heads:
                                size = self.heads[circuit, layer], probe.count
                                blocks[layer, probe.name + suffix, circuit] = size
        numbered = {p.name + suffix for p in self.probes if p.components is not None for suffix in self.suffixes(p)}
        return RowIndex(self.run, blocks, frozenset(numbered), self.stages)

    @cached_property
    def batches(self) -> list[tuple[Layer, ...]]:
        """Layers that are measured together: one by one, but several where they are small."""
        found: list[tuple[Layer, ...]] = []
        for layer in self.layers:
            last = found[-1] if found else ()
            if last and sum(self.layer_bytes[one] for one in (*last, layer)) <= self.batch_bytes:
                found[-1] = (*last, layer)
            else:
                found.append((layer,))
        return found

    @cached_property
    def layers(self) -> list[Layer]:
        """All layers with heads to be measured, tower by tower."""
        return in_order(layer for _, layer in self.heads)


@dataclass(frozen=True)
class CheckpointTask:
    """One checkpoint, with those that it is compared with.

    previous gives, by what is added to a probe's name, an earlier checkpoint or the reason why there is none;
    needed_soon are the labels of checkpoints that one of the next few tasks will ask for again.
    """

    current: Entry
    previous: Mapping[str, Entry | str]
    needed_soon: frozenset[str] = frozenset()


def in_order(layers: Iterable[Layer]) -> list[Layer]:
    """Each layer once: towers as they come, and the layers of each by number."""
    found = list(dict.fromkeys(layers))
    towers = list(dict.fromkeys(layer.tower for layer in found if isinstance(layer, TowerLayer)))

    def place(layer: Layer) -> tuple[int, int]:
        return (towers.index(layer.tower), layer.layer) if isinstance(layer, TowerLayer) else (-1, layer)

    return sorted(found, key=place)


def tensors_by_layer(circuits: Mapping[str, Circuit], checkpoint: Checkpoint) -> dict[Layer, list[str]]:
    """The tensors that each layer is read from; all of them where a function builds a circuit."""
    names: dict[Layer, set[str]] = {}
    for circuit in circuits.values():
        for layer in circuit.layers:
            read = checkpoint if isinstance(circuit, BuiltCircuit) else circuit.layout.names(layer)
            names.setdefault(layer, set()).update(read)
    return {layer: sorted(names[layer]) for layer in in_order(names)}


def layer_bytes(circuits: Mapping[str, Circuit], checkpoint: Checkpoint) -> dict[Layer, int]:
    """How large the tensors are that each layer is read from."""
    stored = checkpoint.stored
    return {
        layer: sum(stored[name].bytes for name in names)
        for layer, names in tensors_by_layer(circuits, checkpoint).items()
    }


_SOON = 4
"""Tasks: what is asked for later than that is read again, or memory would grow with the number of checkpoints."""


def tasks_of(plan: Plan, entries: Sequence[Entry]) -> list[CheckpointTask]:
    """A task for each checkpoint of a run, in order."""
    steps = [entry.step for entry in entries]
    by_step = dict(zip(steps, entries, strict=True))
    previous: list[dict[str, Entry | str]] = []
    for place in range(len(steps)):
        found = {added: partner(stretch, steps, place) for added, stretch in plan.stretches.items()}
        previous.append({added: by_step[one] if isinstance(one, int) else one for added, one in found.items()})
    references = _labels([plan.references])
    soon = [references | _labels(previous[place + 1 : place + 1 + _SOON]) for place in range(len(steps) - 1)]
    return [
        CheckpointTask(entry, partners, frozenset(needed))
        for entry, partners, needed in zip(entries, previous, [*soon, set()], strict=True)
    ]


def _labels(previous: Sequence[Mapping[str, Entry | str]]) -> set[str]:
    return {entry.label for found in previous for entry in found.values() if isinstance(entry, Entry)}
