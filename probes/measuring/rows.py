"""The rows that every checkpoint of a measurement has, and the numbers of one checkpoint in them.

Checkpoints of a run differ in their numbers and in nothing else: which layer, head, circuit, probe and component a row
is of is said once, in a `RowIndex`, and a checkpoint is then one array and the reasons for what is missing. A table is
put together once, at the end. (Building one per checkpoint took half of the time of measuring a small model.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float64, Int64

from checkpoints.heads.layout import Layer, TowerLayer
from probes.measuring.catalogue import ProbeValues
from probes.measuring.tables import COLUMNS, as_table, from_arrow, schema_of

Block = tuple[Layer, str, str]
"""Layer, probe (with what is added to its name) and circuit: the heads and components of these follow one another."""


@dataclass(frozen=True)
class CheckpointValues:
    """The numbers of one checkpoint, NaN where there is none, and then why, by row."""

    step: int
    values: Float64[np.ndarray, " row"]
    why_missing: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RowIndex:
    """Of which layer, probe, circuit, head and component each row is.

    blocks give for each (layer, probe, circuit), in order, how many heads and components it has; components are
    numbered in the table where that is more than one or the probe says so (`numbered`). stages are those of the steps,
    where the checkpoints have any.
    """

    run: str
    blocks: Mapping[Block, tuple[int, int]]
    numbered: frozenset[str]
    stages: Mapping[int, str | None] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows a checkpoint has."""
        return self._length

    @cached_property
    def _length(self) -> int:
        return sum(heads * components for heads, components in self.blocks.values())

    @cached_property
    def starts(self) -> dict[Block, int]:
        """The first row of each block."""
        sizes = [heads * components for heads, components in self.blocks.values()]
        return dict(zip(self.blocks, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    @cached_property
    def head(self) -> Int64[np.ndarray, " row"]:
        """The head of each row."""
        return self._joined(np.repeat(np.arange(heads), components) for heads, components in self.blocks.values())

    @cached_property
    def component(self) -> Int64[np.ndarray, " row"]:
        """The component of each row, whether or not it is numbered in the table."""
        return self._joined(np.tile(np.arange(components), heads) for heads, components in self.blocks.values())

    def fill(self, into: np.ndarray, why: dict[int, str], block: Block, found: ProbeValues) -> None:
        """Put the numbers of a block, and the reasons for those that are missing, where they belong."""
        heads, components = self.blocks[block]
        if found.values.shape != (heads, components):
            layer, _, circuit = block
            raise ValueError(
                f"layer {layer}: {circuit} has {len(found.values)} heads here, and {heads} in most checkpoints"
            )
        start = self.starts[block]
        into[start : start + heads * components] = found.values.reshape(-1)
        for (head, component), reason in found.why_missing.items():
            why[start + head * components + component] = reason

    def leave_out(self, why: dict[int, str], layers: Sequence[Layer], reason: str) -> None:
        """Say why a checkpoint has no numbers of some layers."""
        for block, (heads, components) in self.blocks.items():
            if block[0] in layers:
                start = self.starts[block]
                why.update(dict.fromkeys(range(start, start + heads * components), reason))

    def nothing(self, step: int, reason: str) -> CheckpointValues:
        """A checkpoint of which nothing could be measured."""
        return CheckpointValues(step, np.full(len(self), np.nan), dict.fromkeys(range(len(self)), reason))

    @property
    def names(self) -> list[str]:
        """Of the means over all heads, such as "qk.effective_rank"."""
        return self._groups[0]

    def means(self, found: CheckpointValues) -> dict[str, float]:
        """The mean over all heads of all layers, by a name such as "qk.effective_rank" or "ov.my_probe.2".

        Of a model with towers each has its own: "encoder.qk.effective_rank".
        """
        names, group = self._groups
        known = np.isfinite(found.values)
        counts = np.bincount(group[known], minlength=len(names))
        sums = np.bincount(group[known], found.values[known], minlength=len(names))
        return {name: float(total / n) for name, total, n in zip(names, sums, counts, strict=True) if n}

    @cached_property
    def _groups(self) -> tuple[list[str], np.ndarray]:
        """The names of the means, and which of them each row belongs to."""
        number: dict[str, int] = {}
        rows = []
        for (layer, probe, circuit), (heads, components) in self.blocks.items():
            added = [f".{k}" for k in range(components)] if probe in self.numbered else [""]
            name = f"{layer.tower}.{circuit}.{probe}" if isinstance(layer, TowerLayer) else f"{circuit}.{probe}"
            numbers = [number.setdefault(f"{name}{one}", len(number)) for one in added]
            rows += numbers * heads
        return list(number), np.array(rows)

    def table(self, checkpoints: Sequence[CheckpointValues], attrs: dict[str, Any] | None = None) -> pd.DataFrame:
        """The tidy table of several checkpoints, in this order."""
        if not checkpoints:
            return as_table(
                {name: [] for name in [*COLUMNS, *(["stage"] if self.stages else []), *self._same_for_all]}, attrs
            )
        return from_arrow(self.arrow(checkpoints), attrs or {})

    def arrow(self, checkpoints: Sequence[CheckpointValues]) -> pa.Table:
        """The same as Arrow has it."""
        count, rows = len(checkpoints), len(self)
        columns = {name: pa.chunked_array([column] * count) for name, column in self._same_for_all.items()}
        columns["step"] = pa.array(np.repeat([one.step for one in checkpoints], rows), pa.int64())
        columns["value"] = pa.array(np.concatenate([one.values for one in checkpoints]), pa.float64())
        reasons = [pa.array(_reasons(one.why_missing, rows), pa.string()) for one in checkpoints]
        columns["why_missing"] = pa.chunked_array(reasons)
        if self.stages:
            stages = [pa.array([self.stages.get(one.step)] * rows, pa.string()) for one in checkpoints]
            columns["stage"] = pa.chunked_array(stages)
        schema = schema_of(columns)
        return pa.table([columns[name] for name in schema.names], schema=schema)

    @cached_property
    def _same_for_all(self) -> dict[str, pa.Array]:
        """The columns that are the same for every checkpoint."""
        sizes = [heads * components for heads, components in self.blocks.values()]
        layers, names, circuits = zip(*self.blocks, strict=True)
        plain = np.repeat([name not in self.numbered for name in names], sizes)
        numbers = [layer.layer if isinstance(layer, TowerLayer) else layer for layer in layers]
        towers = [layer.tower if isinstance(layer, TowerLayer) else None for layer in layers]
        return {
            "run": pa.repeat(self.run, len(self)),
            **({"tower": _repeated(towers, sizes)} if any(towers) else {}),
            "layer": pa.array(np.repeat(numbers, sizes), pa.int64()),
            "head": pa.array(self.head, pa.int64()),
            "circuit": _repeated(circuits, sizes),
            "probe": _repeated(names, sizes),
            "component": pa.array(self.component, pa.int64(), mask=plain),
        }

    @staticmethod
    def _joined(parts: Any) -> np.ndarray:
        return np.concatenate(list(parts)).astype(np.int64)


def _repeated(names: Sequence[str | None], sizes: Sequence[int]) -> pa.Array:
    rows = chain.from_iterable([name] * size for name, size in zip(names, sizes, strict=True))
    return pa.array(list(rows), pa.string())


def _reasons(why_missing: Mapping[int, str], rows: int) -> list[str | None]:
    found: list[str | None] = [None] * rows
    for row, reason in why_missing.items():
        found[row] = reason
    return found
