"""The work on one checkpoint: read it layer by layer, compare each layer with the reference and the step before.

At most two checkpoints' circuits of one layer are in memory at a time, whatever the size of the model. The small Gram
matrices of a reference are used again from step to step while they fit into `GramCache`, and computed again, to the
same bits, where they do not. All arithmetic is on one thread, so that the numbers are the same to the last bit
wherever and beside however many others they are computed.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pandas as pd
import torch
from threadpoolctl import ThreadpoolController

from checkpoints import Checkpoint
from checkpoints.run import Entry
from probes.circuits import Circuit, Matrix, read_layer
from probes.matrices.factored import is_thin
from probes.matrices.grams import CachedGrams, Grams
from probes.measuring.catalogue import PROBES, Probe, ProbeValues
from probes.measuring.layer_heads import LayerHeads
from probes.measuring.tables import as_table

Place = tuple[str, int]
"""A circuit and a layer."""


@dataclass(frozen=True)
class Plan:
    """What is the same for all checkpoints of a run."""

    run: str
    circuits: Mapping[str, Circuit]
    heads: Mapping[Place, int]
    probes: Sequence[str]
    components: int
    references: Mapping[str, Entry]
    """By what is added to a probe's name ("" or "@5000"), the checkpoint that it is compared with."""
    token: str
    """Tells what is remembered for this measurement from what was for another."""


@dataclass(frozen=True)
class CheckpointTask:
    """One checkpoint: its entry and the one before it."""

    now: Entry
    before: Entry | None


class GramCache:
    """The Gram matrices of recent stacks, up to a number of bytes; the least recently used are forgotten."""

    def __init__(self, limit: int = 2**28) -> None:
        self.limit, self.size = limit, 0
        self._kept: OrderedDict[tuple, CachedGrams] = OrderedDict()

    def get(self, key: tuple) -> CachedGrams | None:
        """Both Gram matrices, if they are remembered."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: tuple, grams: Grams) -> None:
        """Remember both."""
        if key not in self._kept:
            self._kept[key] = grams.of_left, grams.of_right, grams.squared_norm
            self.size += self._bytes(self._kept[key])
        while self.size > self.limit:
            self.size -= self._bytes(self._kept.popitem(last=False)[1])

    def forget(self, token: str, label: str, layer: int, keep: list[str]) -> None:
        """Drop a layer of a checkpoint that will not be asked for again."""
        if label not in keep:
            for key in [key for key in self._kept if key[:2] == (token, label) and key[3] == layer]:
                self.size -= self._bytes(self._kept.pop(key))

    def _bytes(self, pair: CachedGrams) -> int:
        return 3 * sum(definite.matrix.nbytes for definite in pair[:2])  # with their factors and inverses


_MEMORY = GramCache()


@contextmanager
def one_thread() -> Iterator[None]:
    """Arithmetic on one thread: the same bits everywhere, and no fight with other processes over the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _pools().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


@cache
def _pools() -> ThreadpoolController:
    """The libraries with threads of their own; finding them takes longer than measuring a small layer."""
    return ThreadpoolController()


UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, MemoryError)
"""What reading and measuring somebody's file may raise."""


def measure_checkpoint(work: Plan, task: CheckpointTask) -> tuple[pd.DataFrame, str | None]:
    """All numbers of one checkpoint, and why there are none: what cannot be read costs its rows and no others."""
    with one_thread():
        try:
            return _measured(work, task), None
        except UNREADABLE as error:
            reason = f"{task.now.label}: {type(error).__name__}: {error}"
            return missing_rows(work, task.now.step, reason), reason


def _measured(work: Plan, task: CheckpointTask) -> pd.DataFrame:
    now = _opened(work, task.now)
    references = {suffix: _readable(work, entry, "the reference") for suffix, entry in work.references.items()}
    before: Checkpoint | str = "no checkpoint before this one"
    if task.before:
        before = _readable(work, task.before, "the checkpoint before")
    rows = Rows(work.run, task.now.step)
    for layer in sorted({layer for _, layer in work.heads}):
        stacks = _stacks(work, task.now, now, layer)
        add = partial(_add, rows, work, layer, stacks)
        add("now", None)
        # what is compared with gets no name here, so that it is gone before the next is read
        for suffix, entry in work.references.items():
            is_now = entry.label == task.now.label
            add("now and reference", stacks if is_now else _compared(work, entry, references[suffix], layer), suffix)
        add("now and before", _compared(work, task.before, before, layer))
        if task.before:
            _MEMORY.forget(work.token, task.before.label, layer, keep=[e.label for e in work.references.values()])
        del stacks, add
    return rows.table()


def _opened(work: Plan, entry: Entry) -> Checkpoint:
    checkpoint = entry.open()
    for circuit in work.circuits.values():
        circuit.prefetch(checkpoint)
    return checkpoint


def _readable(work: Plan, entry: Entry, what: str) -> Checkpoint | str:
    """A checkpoint to compare with, or why there is none."""
    try:
        checkpoint = _opened(work, entry)
        _ = checkpoint.stored
    except UNREADABLE as error:
        return f"{what} cannot be read: {error}"
    return checkpoint


LayerCircuits = dict[tuple[str, ...], LayerHeads]
"""The circuits of one layer, those of one shape together: what is done to small matrices is done to many at once."""


def _compared(work: Plan, entry: Entry | None, checkpoint: Checkpoint | str, layer: int) -> LayerCircuits | str:
    """The circuits of a layer to compare with, or why there are none."""
    if entry is None or isinstance(checkpoint, str):
        return str(checkpoint)
    try:
        return _stacks(work, entry, checkpoint, layer)
    except UNREADABLE as error:
        return f"{entry.label}, which it is compared with, cannot be read: {error}"


def _stacks(work: Plan, entry: Entry, checkpoint: Checkpoint, layer: int) -> LayerCircuits:
    """The circuits of one layer."""
    wanted = {name: circuit for name, circuit in work.circuits.items() if (name, layer) in work.heads}
    stacks = {}
    for names, matrices in _by_shape(read_layer(wanted, checkpoint, layer)).items():
        key = (work.token, entry.label, names, layer)
        remembered = _MEMORY.get(key)
        stacks[names] = LayerHeads(*matrices, remembered=remembered)
        if remembered is None and stacks[names].grams is not None and stacks[names].is_usable.all():
            _MEMORY.put(key, stacks[names].grams)
    return stacks


def _by_shape(matrices: dict[str, Matrix]) -> dict[tuple[str, ...], list[Matrix]]:
    """Thin matrices of one shape together, each of the others on its own."""
    groups: dict[tuple, list[str]] = {}
    for name, matrix in matrices.items():
        alike = (*matrix.shape[1:], matrix.inner) if is_thin(matrix) else (name,)
        groups.setdefault(alike, []).append(name)
    return {tuple(names): [matrices[name] for name in names] for names in groups.values()}


def _add(
    rows: "Rows",
    work: Plan,
    layer: int,
    stacks: LayerCircuits,
    reads: str,
    others: LayerCircuits | str | None,
    suffix: str = "",
) -> None:
    """The rows of all probes that read this."""
    for name in work.probes:
        probe = PROBES[name]
        if probe.reads != reads:
            continue
        found: dict[str, ProbeValues] = {}
        for names, now in stacks.items():
            if others is None:
                numbers = _numbers(probe, now, None, work.components)
            elif isinstance(others, str):
                numbers = _nothing(len(now), 1, others)
            elif names in others:
                numbers = _numbers(probe, now, others[names], work.components)
            else:
                numbers = _nothing(len(now), 1, "the shapes of the circuits are others in the checkpoint compared with")
            found.update(zip(names, numbers.split(now.heads), strict=True))
        for circuit in sorted(found, key=list(work.circuits).index):
            rows.add(layer, circuit, name + suffix, probe.components is not None, found[circuit])


def _numbers(probe: Probe, now: LayerHeads, other: LayerHeads | None, components: int) -> ProbeValues:
    arguments = (now,) if other is None else (now, other)
    return probe.function(*arguments, **({"components": components} if probe.components else {}))


def _nothing(heads: int, components: int, reason: str) -> ProbeValues:
    return ProbeValues(np.full((heads, components), np.nan), [[reason] * components for _ in range(heads)])


def missing_rows(work: Plan, step: int, reason: str) -> pd.DataFrame:
    """The rows that a checkpoint would have had, all missing for one reason."""
    rows = Rows(work.run, step)
    for (circuit, layer), heads in work.heads.items():
        for name in work.probes:
            probe = PROBES[name]
            count = work.components if probe.components else 1
            for suffix in work.references if probe.reads == "now and reference" else ("",):
                rows.add(layer, circuit, name + suffix, probe.components is not None, _nothing(heads, count, reason))
    return rows.table()


@dataclass
class Rows:
    """Rows of one step, collected block by block."""

    run: str
    step: int
    blocks: list[tuple[int, str, str, bool, ProbeValues]] = field(default_factory=list)

    def add(self, layer: int, circuit: str, probe: str, has_components: bool, numbers: ProbeValues) -> None:
        """The numbers of all heads of one circuit in one layer."""
        self.blocks.append((layer, circuit, probe, has_components, numbers))

    def table(self) -> pd.DataFrame:
        """All of them, in the order in which they were added."""
        layers, circuits, probes, has_components, numbers = zip(*self.blocks, strict=True)
        shapes = [block.values.shape for block in numbers]
        sizes = [heads * components for heads, components in shapes]
        component = np.concatenate([np.tile(np.arange(components), heads) for heads, components in shapes])
        columns = {
            "run": [self.run] * sum(sizes),
            "step": np.full(sum(sizes), self.step),
            "layer": np.repeat(layers, sizes),
            "head": np.concatenate([np.repeat(np.arange(heads), components) for heads, components in shapes]),
            "circuit": np.repeat(np.array(circuits, dtype=object), sizes),
            "probe": np.repeat(np.array(probes, dtype=object), sizes),
            "component": pd.arrays.IntegerArray(component, np.repeat(np.logical_not(has_components), sizes)),
            "value": np.concatenate([block.values.reshape(-1) for block in numbers]),
            "why_missing": [reason for block in numbers for reasons in block.why_missing for reason in reasons],
        }
        return as_table(columns)
