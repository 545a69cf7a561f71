"""The work on one checkpoint: read it layer by layer, compare each layer with the reference and the step before.

At most two checkpoints' circuits of one layer are in memory at a time, whatever the size of the model. The small Gram
matrices of a reference are used again from step to step while they fit into `GramMemory`, and computed again, to the
same bits, where they do not. All arithmetic is on one thread, so that the numbers are the same to the last bit
wherever and beside however many others they are computed.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from checkpoints import Checkpoint
from checkpoints.run import Entry
from probes.catalogue import PROBES, Numbers, Probe
from probes.circuits import Circuit, read_layer
from probes.grams import Definite, Grams
from probes.matrices import factors, is_thin
from probes.stack import Stack
from probes.tables import as_table

Place = tuple[str, int]
"""A circuit and a layer."""


@dataclass(frozen=True)
class Work:
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
class Task:
    """One checkpoint: its entry and the one before it."""

    now: Entry
    before: Entry | None


Remembered = tuple[Definite, Definite, Tensor]


class GramMemory:
    """The Gram matrices of recent stacks, up to a number of bytes; the least recently used are forgotten."""

    def __init__(self, limit: int = 2**28) -> None:
        self.limit, self.size = limit, 0
        self._kept: OrderedDict[tuple, Remembered] = OrderedDict()

    def get(self, key: tuple) -> Remembered | None:
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

    def _bytes(self, pair: Remembered) -> int:
        return 3 * sum(definite.matrix.nbytes for definite in pair[:2])  # with their factors and inverses


_MEMORY = GramMemory()


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


def measure_checkpoint(work: Work, task: Task) -> tuple[pd.DataFrame, str | None]:
    """All numbers of one checkpoint, and why there are none: what cannot be read costs its rows and no others."""
    with one_thread():
        try:
            return _measured(work, task), None
        except UNREADABLE as error:
            reason = f"{task.now.label}: {type(error).__name__}: {error}"
            return missing_rows(work, task.now.step, reason), reason


def _measured(work: Work, task: Task) -> pd.DataFrame:
    now = _opened(work, task.now)
    others: dict[str, Checkpoint | str] = {
        suffix: _readable(work, entry, "the reference") for suffix, entry in work.references.items()
    }
    before: Checkpoint | str = "no checkpoint before this one"
    if task.before:
        before = _readable(work, task.before, "the checkpoint before")
    rows = Rows(work.run, task.now.step)
    for layer in sorted({layer for _, layer in work.heads}):
        stacks = _stacks(work, task.now, now, layer)
        _add(rows, work, layer, stacks, "now", "", None)
        for suffix, other in others.items():
            entry = work.references[suffix]
            compared = stacks if entry.label == task.now.label else _compared(work, entry, other, layer)
            _add(rows, work, layer, stacks, "now and reference", suffix, compared)
        compared = _compared(work, task.before, before, layer) if task.before else str(before)
        _add(rows, work, layer, stacks, "now and before", "", compared)
        if task.before:
            _MEMORY.forget(work.token, task.before.label, layer, keep=[e.label for e in work.references.values()])
    return rows.table()


def _opened(work: Work, entry: Entry) -> Checkpoint:
    checkpoint = entry.open()
    for circuit in work.circuits.values():
        circuit.prefetch(checkpoint)
    return checkpoint


def _readable(work: Work, entry: Entry, what: str) -> Checkpoint | str:
    """A checkpoint to compare with, or why there is none."""
    try:
        checkpoint = _opened(work, entry)
        _ = checkpoint.stored
    except UNREADABLE as error:
        return f"{what} cannot be read: {error}"
    return checkpoint


def _compared(work: Work, entry: Entry, checkpoint: Checkpoint | str, layer: int) -> dict[str, Stack] | str:
    """The circuits of a layer to compare with, or why there are none."""
    if isinstance(checkpoint, str):
        return checkpoint
    try:
        return _stacks(work, entry, checkpoint, layer)
    except UNREADABLE as error:
        return f"{entry.label}, which it is compared with, cannot be read: {error}"


def _stacks(work: Work, entry: Entry, checkpoint: Checkpoint, layer: int) -> dict[str, Stack]:
    """The circuits of one layer."""
    wanted = {name: circuit for name, circuit in work.circuits.items() if (name, layer) in work.heads}
    stacks = {}
    for name, matrix in read_layer(wanted, checkpoint, layer).items():
        key, known = (work.token, entry.label, name, layer), None
        if is_thin(matrix):
            remembered = _MEMORY.get(key)
            known = Grams(*factors(matrix), *remembered) if remembered else None
        stacks[name] = Stack(matrix, known)
        if known is None and stacks[name].grams is not None and stacks[name].is_usable.all():
            _MEMORY.put(key, stacks[name].grams)
    return stacks


def _add(
    rows: "Rows",
    work: Work,
    layer: int,
    stacks: dict[str, Stack],
    reads: str,
    suffix: str,
    others: dict[str, Stack] | str | None,
) -> None:
    """The rows of all probes that read this."""
    for name in work.probes:
        probe = PROBES[name]
        if probe.reads != reads:
            continue
        for circuit, now in stacks.items():
            if isinstance(others, str):
                numbers = _nothing(len(now), 1, others)
            else:
                numbers = _numbers(probe, now, None if others is None else others[circuit], work.components)
            rows.add(layer, circuit, name + suffix, probe.components is not None, numbers)


def _numbers(probe: Probe, now: Stack, other: Stack | None, components: int) -> Numbers:
    arguments = (now,) if other is None else (now, other)
    return probe.function(*arguments, **({"components": components} if probe.components else {}))


def _nothing(heads: int, components: int, reason: str) -> Numbers:
    return Numbers(np.full((heads, components), np.nan), [[reason] * components for _ in range(heads)])


def missing_rows(work: Work, step: int, reason: str) -> pd.DataFrame:
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
    blocks: list[dict] = field(default_factory=list)

    def add(self, layer: int, circuit: str, probe: str, has_components: bool, numbers: Numbers) -> None:
        """The numbers of all heads of one circuit in one layer."""
        heads, components = numbers.values.shape
        self.blocks.append(
            {
                "layer": np.full(heads * components, layer),
                "head": np.repeat(np.arange(heads), components),
                "circuit": [circuit] * (heads * components),
                "probe": [probe] * (heads * components),
                "component": np.tile(np.arange(components), heads) if has_components else np.full(heads, -1),
                "value": numbers.values.reshape(-1),
                "why_missing": [reason for reasons in numbers.why_missing for reason in reasons],
            }
        )

    def table(self) -> pd.DataFrame:
        """All of them, sorted by layer, head and circuit as they were added."""
        count = sum(len(block["layer"]) for block in self.blocks)
        joined = {
            name: np.concatenate([block[name] for block in self.blocks])
            if name in ("layer", "head", "component", "value")
            else [item for block in self.blocks for item in block[name]]
            for name in ("layer", "head", "circuit", "probe", "component", "value", "why_missing")
        }
        component = np.asarray(joined.pop("component"))
        masked = pd.arrays.IntegerArray(component.astype(np.int64), component < 0)
        columns = {"run": [self.run] * count, "step": np.full(count, self.step), "component": masked, **joined}
        return as_table(columns)
