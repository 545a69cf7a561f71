"""A model that was spread over processes when it was saved, tensor-parallel: one file per rank, each with its part.

Which way a tensor was cut is known for the layers of Megatron and gpt-neox, by name: columns of what goes in (axis 0 of
a Linear's weight), rows of what comes out (axis 1). What has another name and is the same in every part was not cut.
What is neither stays in its parts, under its name and the rank (`mlp.w.rank0`): nothing is guessed.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError

FIRST_AXIS = re.compile(
    r".*(query_key_value|linear_qkv)\.(weight|bias)|.*(word_embeddings|output_layer|final_linear)\.weight"
)
"""Cut along axis 0: heads, and the vocabulary."""

UNGATED = re.compile(r".*(dense_h_to_4h|linear_fc1)\.(weight|bias)")
"""Cut along axis 0 too, if the layer has no gate: then each part would hold some of both halves."""

SECOND_AXIS = re.compile(r".*(attention\.dense|linear_proj|dense_4h_to_h|linear_fc2)\.weight")
"""Cut along axis 1."""

CONVERT = "Convert it to Hugging Face's format with the trainer's own tools, and open that"


class ParallelParts(Checkpoint):
    """The tensors of all ranks as one checkpoint."""

    def __init__(self, label: str, parts: Sequence[Checkpoint], *, is_gated: bool | None = None) -> None:
        self.label, self.parts, self.is_gated = label, list(parts), is_gated

    @property
    def lists_cheaply(self) -> bool:
        """Whether all of the parts do."""
        return super().lists_cheaply and all(part.lists_cheaply for part in self.parts)

    def _axis(self, name: str) -> int | None:
        if FIRST_AXIS.fullmatch(name) or (self.is_gated is False and UNGATED.fullmatch(name)):
            return 0
        return 1 if SECOND_AXIS.fullmatch(name) else None

    @cached_property
    def _places(self) -> dict[str, tuple[str, int | None, int | None]]:
        """By name: the name in the parts, the axis along which they are joined, or the rank that has it."""
        tables = [part._table() for part in self.parts]
        if any(set(table) != set(tables[0]) for table in tables):
            odd = sorted(set.symmetric_difference(set(tables[0]), *map(set, tables[1:])))[:3]
            raise WeightsError(f"{self.label}: its parts do not hold the same tensors ({odd}). {CONVERT}")
        places: dict[str, tuple[str, int | None, int | None]] = {}
        for name in tables[0]:
            axis = self._axis(name)
            if axis is not None:
                places[name] = (name, axis, None)
                self._joined([table[name] for table in tables], axis, name)
            elif UNGATED.fullmatch(name) or not self._is_everywhere(name, tables):
                places |= {f"{name}.rank{rank}": (name, None, rank) for rank in range(len(self.parts))}
            else:
                places[name] = (name, None, 0)
        return places

    def _is_everywhere(self, name: str, tables: list[Mapping[str, Stored]]) -> bool:
        if len({(table[name].shape, table[name].dtype) for table in tables}) > 1:
            return False
        first = self.parts[0]._read(name)
        return all(torch.equal(first, part._read(name)) for part in self.parts[1:])

    def _joined(self, stored: list[Stored], axis: int, name: str) -> Stored:
        shapes = [part.shape for part in stored]
        rest = {(part.dtype, part.shape[:axis], part.shape[axis + 1 :], len(part.shape) > axis) for part in stored}
        if len(rest) > 1 or not next(iter(rest))[3]:
            raise WeightsError(f"{self.label}: the parts of {name!r} have shapes {shapes}, which do not fit together")
        shape = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
        return Stored(stored[0].dtype, shape, self.label)

    def _table(self) -> Mapping[str, Stored]:
        table = {}
        for shown, (name, axis, rank) in self._places.items():
            parts = [part._table()[name] for part in self.parts]
            table[shown] = parts[rank] if rank is not None else self._joined(parts, axis or 0, name)
        return table

    def _read(self, name: str) -> Tensor:
        name, axis, rank = self._places[name]
        if rank is not None:
            return self.parts[rank]._read(name)
        return torch.cat([part._read(name) for part in self.parts], axis or 0)

    def _prefetch(self, raw_names: list[str]) -> None:
        for number, part in enumerate(self.parts):
            wanted = [self._places[name] for name in raw_names]
            part._prefetch([name for name, _, rank in wanted if rank is None or rank == number])

    def verify(self) -> None:
        """Compare every part with its checksums."""
        for part in self.parts:
            part.verify()

    @property
    def recorded_step(self) -> int | None:
        """The step that the first part records."""
        return self.parts[0].recorded_step

    @property
    def recorded_config(self) -> dict[str, Any]:
        """The settings that the first part records."""
        return self.parts[0].recorded_config


class Layers(Checkpoint):
    """One file per layer, as gpt-neox writes a pipeline: `layer_02-model_00-model_states.pt`.

    Those with attention are called layers.0, layers.1, ... as in the model; the others keep the number of their file.
    """

    def __init__(self, label: str, layers: Mapping[int, Checkpoint]) -> None:
        self.label, self.layers = label, dict(sorted(layers.items()))

    @property
    def lists_cheaply(self) -> bool:
        """Whether all of the layers do."""
        return super().lists_cheaply and all(layer.lists_cheaply for layer in self.layers.values())

    @cached_property
    def _places(self) -> dict[str, tuple[int, str]]:
        places: dict[str, tuple[int, str]] = {}
        block = 0
        for number, layer in self.layers.items():
            names = list(layer._table())
            is_block = any("attention" in name for name in names)
            prefix = f"layers.{block}." if is_block else f"layer_{number:02d}."
            block += is_block
            places |= {prefix + name: (number, name) for name in names}
        return places

    def _table(self) -> Mapping[str, Stored]:
        return {shown: self.layers[number]._table()[name] for shown, (number, name) in self._places.items()}

    def _read(self, name: str) -> Tensor:
        number, name = self._places[name]
        return self.layers[number]._read(name)

    def _prefetch(self, raw_names: list[str]) -> None:
        wanted: dict[int, list[str]] = {}
        for shown in raw_names:
            number, name = self._places[shown]
            wanted.setdefault(number, []).append(name)
        for number, names in wanted.items():
            self.layers[number]._prefetch(names)

    def verify(self) -> None:
        """Compare every layer with its checksums."""
        for layer in self.layers.values():
            layer.verify()
