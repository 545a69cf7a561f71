"""Measuring what lies in a slot, with little besides the arithmetic: what a small model pays is calls, not products.

The numbers are those of `measure_checkpoint`, batch of layers by batch of layers. It is quicker because the weights lie
where they lay the last time (see `weight_slots`): the matrices of every head are found once per slot, and the heads of
the measurement before are still there, with all that was computed of them.
"""

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from checkpoints.files.in_memory import InMemory
from checkpoints.heads.layout import Layer
from probes.circuits import BuiltCircuit, FromDescription, Matrix, read_layer
from probes.matrices.factored import Factored, factors
from probes.measuring.catalogue import PROBES, Probe
from probes.measuring.checkpoint import UNREADABLE, LayerCircuits, by_shape, numbers_of
from probes.measuring.plan import Place, Plan
from probes.measuring.rows import CheckpointValues
from probes.monitor.slot_heads import SlotHeads
from probes.monitor.spectral_numbers import Formula, formulas_of, spectral_numbers
from probes.monitor.weight_slots import WeightSlots
from probes.threads import one_thread

PREVIOUS = "@previous"
NO_PREVIOUS = "no measurement before this one"
LEFT_OUT = "left out at this step, to stay within the budget"

Matrices = list[tuple[tuple[Place, ...], SlotHeads]]


class SlotMeasurement:
    """The probes of a plan on the weights in slots, and the heads of the measurement before.

    A slot that was measured must stay as it is until the next was: drift compares with it.
    """

    def __init__(self, plan: Plan, slots: WeightSlots) -> None:
        self.plan, self.slots = plan, slots
        self.cost: dict[str, float] = {}
        """Seconds of processor time that each probe took the last time it was measured."""
        self.why_no_previous = NO_PREVIOUS
        self._matrices: dict[tuple[int, tuple[Layer, ...]], Matrices] = {}
        self._previous: list[LayerCircuits] | None = None
        self._rows: dict[tuple, np.ndarray] = {}
        self._formulas: dict[frozenset[str], dict[str, Formula]] = {}

    def measure(self, step: int, slot: int, only: Collection[str] | None = None) -> tuple[CheckpointValues, str | None]:
        """All numbers of what lies in a slot (of some probes alone, if they are named), and why there are none."""
        with one_thread(), self._without_gradients():
            try:
                return self._measured(step, slot, only), None
            except UNREADABLE as error:
                self._previous, self.why_no_previous = None, "the measurement before this one failed"
                reason = f"the model at step {step}: {type(error).__name__}: {error}"
                return self.plan.rows.nothing(step, reason), reason

    def _without_gradients(self) -> AbstractContextManager:
        """Arithmetic is quicker where torch need not keep track of it; somebody's own code may want it to."""
        return torch.inference_mode() if self._is_ours else nullcontext()

    @cached_property
    def _is_ours(self) -> bool:
        """Whether no code but this package's is called."""
        return self._is_cut_out and all(probe.name in PROBES for probe in self.plan.probes)

    def forget(self, reason: str) -> None:
        """The next measurement has nothing before it to compare with."""
        self._previous, self.why_no_previous = None, reason

    def compare_with(self, other: "SlotMeasurement") -> None:
        """The next measurement is compared with the last of another one, whose slots must stay as they are."""
        self._previous, self.why_no_previous = other._previous, other.why_no_previous

    def _measured(self, step: int, slot: int, only: Collection[str] | None) -> CheckpointValues:
        plan = self.plan
        values, why = np.full(len(plan.rows), np.nan), dict[int, str]()
        current: list[LayerCircuits] = []
        cost = dict.fromkeys((probe.name for probe in plan.probes), 0.0)
        chosen = frozenset(cost) if only is None else frozenset(only)
        for number, layers in enumerate(plan.batches):
            heads = {names: alike.read(step) for names, alike in self._read(slot, layers)}
            before = self.why_no_previous if self._previous is None else self._previous[number]
            at_once = self._at_once(heads, chosen, values, cost)
            for probe in plan.probes:
                compares = probe.reads == "current, previous"
                if probe.name not in chosen:
                    why.update(dict.fromkeys(self._rows_of(probe, heads).tolist(), LEFT_OUT))
                elif probe.name not in at_once:
                    began = time.thread_time()
                    for (circuit, layer), found in numbers_of(probe, heads, before if compares else None).items():
                        plan.rows.fill(values, why, (layer, probe.name + PREVIOUS * compares, circuit), found)
                    cost[probe.name] += time.thread_time() - began
                if probe.name not in chosen or (compares and isinstance(before, str)):
                    cost.pop(probe.name, None)  # it did nothing
            current.append(heads)
        self.cost |= cost
        if plan.probes_that_read("current, previous"):
            self._previous = current
        return CheckpointValues(step, values, why)

    def _at_once(
        self, heads: LayerCircuits, chosen: frozenset[str], values: np.ndarray, cost: dict[str, float]
    ) -> set[str]:
        """Fill in what a spectrum gives in one go, where all heads have one; the names of these probes."""
        began = time.thread_time()
        if chosen not in self._formulas:
            self._formulas[chosen] = formulas_of([probe for probe in self.plan.probes if probe.name in chosen])
        found = {names: spectral_numbers(one, self._formulas[chosen]) for names, one in heads.items()}
        done = set.intersection(*(set(numbers) for numbers in found.values())) if found else set()
        for probe in self.plan.probes:
            if probe.name in done:
                numbers = [found[names][probe.name].reshape(-1) for names in heads]
                values[self._rows_of(probe, heads)] = np.concatenate(numbers)
        for name in done:
            cost[name] += (time.thread_time() - began) / len(done)
        return done

    def _rows_of(self, probe: Probe, heads: LayerCircuits) -> np.ndarray:
        """Where the numbers of a probe belong, in the order of the heads of a batch of layers."""
        key = probe.name, tuple(heads)
        if key not in self._rows:
            rows, name = self.plan.rows, probe.name + PREVIOUS * (probe.reads == "current, previous")
            blocks = [(layer, name, circuit) for names in heads for circuit, layer in names]
            parts = [rows.starts[block] + np.arange(np.prod(rows.blocks[block])) for block in blocks]
            self._rows[key] = np.concatenate(parts)
        return self._rows[key]

    def _read(self, slot: int, layers: tuple[Layer, ...]) -> Matrices:
        """The matrices of a batch of layers, those of one shape together."""
        known = self._matrices.get((slot, layers))
        if known is not None:
            return known
        checkpoint, matrices = InMemory(self.slots[slot], "the model"), {}
        for layer in layers:
            wanted = {name: one for name, one in self.plan.circuits.items() if (name, layer) in self.plan.heads}
            matrices |= {(name, layer): matrix for name, matrix in read_layer(wanted, checkpoint, layer).items()}
        alike = by_shape(matrices)
        found = [(names, SlotHeads(some)) for names, some in alike.items()]
        if self._is_cut_out and all(map(self.slots.holds, _parts(alike.values()))):
            self._matrices[slot, layers] = found  # what was computed from the weights is computed again
        return found

    @cached_property
    def _is_cut_out(self) -> bool:
        """Whether which part of the weights a matrix is depends on names and shapes alone, not on somebody's code."""
        built = [one.build for one in self.plan.circuits.values() if isinstance(one, BuiltCircuit)]
        return all(isinstance(build, FromDescription) for build in built)


def _parts(found: Iterable[list[Matrix]]) -> Iterator[Tensor]:
    """All tensors that matrices consist of."""
    for alike in found:
        for matrix in alike:
            yield from factors(matrix) if isinstance(matrix, Factored) else (matrix,)
