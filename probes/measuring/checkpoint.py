"""The work on one checkpoint: read it layer by layer, compare each layer with the reference and with an earlier step.

At most two checkpoints' circuits of one layer are in memory at a time, whatever the size of the model; layers of a
small model are measured together. The small Gram matrices of what will be compared with again are used from step to
step while they fit into `GramCache`, and computed again, to the same bits, where they do not. All arithmetic is on one
thread, so that the numbers are the same to the last bit wherever and beside however many others they are computed.
"""

from collections import OrderedDict
from dataclasses import replace
from functools import cached_property

import numpy as np

from checkpoints import Checkpoint
from checkpoints.heads.layout import Layer
from checkpoints.run import Entry
from probes.circuits import Matrix, read_layer
from probes.matrices.factored import is_thin
from probes.matrices.grams import CachedGrams, Grams
from probes.measuring.catalogue import Probe, ProbeValues
from probes.measuring.layer_heads import LayerHeads
from probes.measuring.plan import CheckpointTask, Place, Plan
from probes.measuring.rows import CheckpointValues
from probes.threads import one_thread

LayerCircuits = dict[tuple[Place, ...], LayerHeads]
"""The circuits of a batch of layers, those of one shape together: what is done to small matrices is done to many."""


class GramCache:
    """What can be used again of recent checkpoints, up to a number of bytes; the least recently used are dropped.

    Of a batch of layers whose weights are few, all is kept; of others the Gram matrices alone, which are small.
    """

    def __init__(self, limit: int = 2**28) -> None:
        self.limit, self.size = limit, 0
        self._kept: OrderedDict[tuple, dict[tuple[Place, ...], LayerHeads | CachedGrams]] = OrderedDict()

    def get(self, key: tuple) -> dict[tuple[Place, ...], LayerHeads | CachedGrams]:
        """What is kept of a batch of layers of a checkpoint."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key, {})

    def put(self, key: tuple, circuits: LayerCircuits, *, whole: bool) -> None:
        """Keep a batch of layers, whole or its Gram matrices, and drop others to make room."""
        if key in self._kept or not all(heads.is_usable.all() for heads in circuits.values()):
            return
        if whole:
            self._kept[key] = dict(circuits)
        else:
            self._kept[key] = {names: heads.grams.cached for names, heads in circuits.items() if heads.grams}
        self.size += self._bytes(key)
        while self.size > self.limit:
            self._drop(next(iter(self._kept)))

    def drop_all_but(self, labels: frozenset[str], token: str, layers: tuple[Layer, ...]) -> None:
        """Drop a batch of layers of all checkpoints that will not be asked for soon."""
        for key in [key for key in self._kept if key[0] == token and key[1] not in labels and key[2] == layers]:
            self._drop(key)

    def _drop(self, key: tuple) -> None:
        self.size -= self._bytes(key)
        del self._kept[key]

    def _bytes(self, key: tuple) -> int:
        """With the factors and inverses of Gram matrices, which come when they are asked for."""
        total = 0
        for kept in self._kept[key].values():
            grams = kept.grams if isinstance(kept, LayerHeads) else kept
            of_both = (grams.of_left, grams.of_right) if isinstance(grams, Grams) else (grams or ())[:2]
            total += 3 * sum(gram.matrix.nbytes for gram in of_both)
            total += kept.nbytes if isinstance(kept, LayerHeads) else 0
        return total


_CACHE = GramCache()


UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, MemoryError)
"""What reading and measuring somebody's file may raise."""


def measure_checkpoint(plan: Plan, task: CheckpointTask) -> tuple[CheckpointValues, str | None]:
    """All numbers of one checkpoint, and why there are none: what cannot be read costs its rows and no others."""
    with one_thread():
        try:
            return _measured(plan, task), None
        except _NotTogetherError:
            return measure_checkpoint(replace(plan, batch_bytes=0), task)
        except UNREADABLE as error:
            reason = f"{task.current.label}: {type(error).__name__}: {error}"
            return plan.rows.nothing(task.current.step, reason), reason


class _NotTogetherError(Exception):
    """One of the layers of a batch cannot be compared, which must not cost the others: they are measured one by one."""


def _measured(plan: Plan, task: CheckpointTask) -> CheckpointValues:
    current = _Reader(plan, task.current, "it")
    references = {suffix: _Reader(plan, entry, "the reference") for suffix, entry in plan.references.items()}
    previous = {suffix: _Reader(plan, entry, "the earlier checkpoint") for suffix, entry in task.previous.items()}
    values, why = np.full(len(plan.rows), np.nan), {}

    def add(heads: LayerCircuits, reads: str, others: LayerCircuits | str | None, suffix: str = "") -> None:
        for probe in plan.probes_that_read(reads):
            if isinstance(others, dict) and heads.keys() != others.keys() and len(layers) > 1:
                raise _NotTogetherError
            for (circuit, layer), found in numbers_of(probe, heads, others).items():
                plan.rows.fill(values, why, (layer, probe.name + suffix, circuit), found)

    for layers in plan.batches:
        try:
            heads = current.circuits(layers)
        except KeyError as error:  # a step that lacks a layer, of a model that grew, has the others
            if len(layers) > 1:
                raise _NotTogetherError from error
            plan.rows.leave_out(why, layers, str(error).strip("\"'"))
            continue
        add(heads, "current", None)
        # what is compared with gets no name here, so that it is gone before the next is read
        if plan.probes_that_read("current, reference"):
            for suffix, reference in references.items():
                is_same = reference.label == current.label
                add(heads, "current, reference", heads if is_same else reference.compared(layers), suffix)
        if plan.probes_that_read("current, previous"):
            for suffix, earlier in previous.items():
                add(heads, "current, previous", earlier.compared(layers), suffix)
        _CACHE.drop_all_but(task.needed_soon, plan.token, layers)
        del heads
    return CheckpointValues(task.current.step, values, why)


class _Reader:
    """A checkpoint of the plan, opened when something of it is needed that is not in the cache."""

    def __init__(self, plan: Plan, entry: Entry | str, what: str) -> None:
        self.plan, self.entry, self.what = plan, entry, what
        self.label = entry if isinstance(entry, str) else entry.label

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Opened, and told what will be read of it."""
        assert isinstance(self.entry, Entry)
        checkpoint = self.entry.open()
        for circuit in self.plan.circuits.values():
            circuit.prefetch(checkpoint)
        return checkpoint

    def circuits(self, layers: tuple[Layer, ...]) -> LayerCircuits:
        """The circuits of some layers."""
        assert isinstance(self.entry, Entry)
        whole = self._whole(layers)
        if whole:
            return whole
        key = self._key(layers)
        cached = _CACHE.get(key)
        matrices: dict[Place, Matrix] = {}
        for layer in layers:
            wanted = {name: one for name, one in self.plan.circuits.items() if (name, layer) in self.plan.heads}
            read = read_layer(wanted, self.checkpoint, layer)
            matrices |= {(name, layer): matrix for name, matrix in read.items()}
        found: LayerCircuits = {}
        for names, alike in by_shape(matrices).items():
            grams = cached.get(names)
            kept = None if grams is None or isinstance(grams, LayerHeads) else grams
            found[names] = LayerHeads(*alike, step=self.entry.step, cached=kept)
        is_small = sum(heads.nbytes for heads in found.values()) <= self.plan.batch_bytes
        _CACHE.put(key, found, whole=is_small and not self.plan.is_live)
        return found

    def compared(self, layers: tuple[Layer, ...]) -> LayerCircuits | str:
        """The same to compare with, or why there is nothing."""
        if isinstance(self.entry, str):
            return self.entry
        if not self._whole(layers):
            try:
                _ = self.checkpoint.stored
            except UNREADABLE as error:
                return f"{self.what} cannot be read: {error}"
        try:
            return self.circuits(layers)
        except UNREADABLE as error:
            if len(layers) > 1:
                raise _NotTogetherError from error
            return f"{self.label}, which it is compared with, cannot be read: {error}"

    def _key(self, layers: tuple[Layer, ...]) -> tuple[str, str, tuple[Layer, ...], str]:
        version = "" if isinstance(self.entry, str) else self.entry.version
        # to ask a server again for each layer would cost more than it tells: within one measurement the label is enough
        return self.plan.token, self.label, layers, version if isinstance(version, str) else ""

    def _whole(self, layers: tuple[Layer, ...]) -> LayerCircuits:
        """These layers, where the cache has all of them."""
        cached = _CACHE.get(self._key(layers))
        whole = {names: heads for names, heads in cached.items() if isinstance(heads, LayerHeads)}
        return whole if len(whole) == len(cached) else {}


def by_shape(matrices: dict[Place, Matrix]) -> dict[tuple[Place, ...], list[Matrix]]:
    """Thin matrices of one shape together, each of the others on its own."""
    groups: dict[tuple, list[Place]] = {}
    for place, matrix in matrices.items():
        alike = (*matrix.shape[1:], matrix.inner) if is_thin(matrix) else place
        groups.setdefault(alike, []).append(place)
    return {tuple(places): [matrices[place] for place in places] for places in groups.values()}


def numbers_of(probe: Probe, heads: LayerCircuits, others: LayerCircuits | str | None) -> dict[Place, ProbeValues]:
    """What a probe finds, by circuit and layer."""
    found: dict[Place, ProbeValues] = {}
    for names, current in heads.items():
        if others is None:
            numbers = _measured_or_not(probe, current)
        elif isinstance(others, str):
            numbers = ProbeValues.nothing(len(current), probe.count, others)
        elif names in others:
            numbers = _measured_or_not(probe, current, others[names])
        else:
            reason = "the shapes of the circuits are others in the checkpoint compared with"
            numbers = ProbeValues.nothing(len(current), probe.count, reason)
        found.update(zip(names, numbers.split(current.heads), strict=True))
    return found


def _measured_or_not(probe: Probe, *heads: LayerHeads) -> ProbeValues:
    """A probe that fails, perhaps somebody's own, costs its own numbers and says why."""
    try:
        return probe.measure(*heads)
    except MemoryError:
        raise  # of the checkpoint, which another attempt may have room for
    except Exception as error:
        reason = f"the probe {probe.name} failed: {type(error).__name__}: {error}"
        return ProbeValues.nothing(len(heads[0]), probe.count, reason)
