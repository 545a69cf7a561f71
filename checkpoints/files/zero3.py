"""DeepSpeed's ZeRO-3: parameters cut into as many pieces as there were processes, one flat vector of each in a file.

    zero_pp_rank_R_mp_rank_00_model_states.pt   names and shapes in order (param_shapes), buffers, frozen parameters
    zero_pp_rank_R_mp_rank_00_optim_states.pt   the float32 values of rank R, all parameters one after the other

A parameter of n values over w ranks has ceil(n / w) of them in each, the last padded; they begin at the same place in
every rank's vector. This is the reckoning of DeepSpeed's own zero_to_fp32.py; where a file departs from it, that
script is what to run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError
from checkpoints.files.torch_file import TorchFile
from checkpoints.files.torch_pickle import LARGEST, TensorRecord

CONVERT = "Run zero_to_fp32.py, which DeepSpeed put beside it, and open what that writes"


@dataclass(frozen=True, slots=True)
class Pieces:
    """A parameter: its whole shape, and for each rank which values of which flat vectors are its."""

    stored: Stored
    pieces: tuple[tuple[int, TensorRecord], ...]
    """File (an index into the files of weights) and the flat values in it, in order."""


class ZeroThree(Checkpoint):
    """The parameters of one ZeRO-3 checkpoint, put together."""

    def __init__(self, label: str, models: Sequence[Checkpoint], optimizers: Sequence[Checkpoint]) -> None:
        files = [*models, *optimizers]
        self.label = label
        self.files = [file for file in files if isinstance(file, TorchFile)]
        self.ranks = len(models)
        if len(models) != len(optimizers) or not models or len(self.files) != len(files):
            raise WeightsError(
                f"{label} has {len(models)} files of model states and {len(optimizers)} of optimizer states: "
                f"ZeRO-3 keeps the weights in both, one each per process. {CONVERT}"
            )

    def _fault(self, reason: str) -> WeightsError:
        return WeightsError(f"{self.label} cannot be put together from its ZeRO-3 pieces: {reason}. {CONVERT}")

    @cached_property
    def _vectors(self) -> list[list[TensorRecord]]:
        """For each rank its flat vectors."""
        vectors = []
        for file in self.files[self.ranks :]:
            kept = file.archive.content.get("optimizer_state_dict") if isinstance(file.archive.content, dict) else None
            groups = kept.get("fp32_flat_groups") if isinstance(kept, dict) else None
            flat = groups if isinstance(groups, list) else [None]
            if not all(isinstance(group, TensorRecord) and len(group.shape) == 1 for group in flat):
                raise self._fault(f"{file.label} has no fp32_flat_groups")
            count = kept.get("partition_count") if isinstance(kept, dict) else None
            count = max(count) if isinstance(count, list) and all(type(n) is int for n in count) and count else count
            if count != self.ranks:
                raise self._fault(f"{file.label} is one of {count} files, and {self.ranks} are here")
            vectors.append(flat)
        if len({tuple(group.shape for group in groups) for groups in vectors}) > 1:
            raise self._fault("the files have vectors of different lengths")
        return vectors

    @cached_property
    def _parameters(self) -> dict[str, Pieces]:
        found: dict[str, Pieces] = {}
        content = self.files[0].archive.content
        groups = content.get("param_shapes") if isinstance(content, dict) else None
        groups = [groups] if isinstance(groups, dict) else groups
        if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
            raise self._fault(f"{self.files[0].label} does not say which parameters there are")
        offset = 0
        for group in groups:
            for name, shape in group.items():
                found[str(name)], offset = self._cut(str(name), shape, offset)
        available = sum(group.shape[0] for group in self._vectors[0])
        if offset != available:
            raise self._fault(f"its parameters take {offset} values per process, and there are {available}")
        found |= self._beside(content)
        shared = content.get("shared_params") if isinstance(content, dict) else None
        for name, other in (shared if isinstance(shared, dict) else {}).items():
            if isinstance(other, str) and other in found:
                found.setdefault(str(name), found[other])
        return found

    def _cut(self, name: str, shape: Any, offset: int) -> tuple[Pieces, int]:
        if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < LARGEST for n in shape):
            raise self._fault(f"parameter {name!r} has no shape")
        share = -(-math.prod(shape) // self.ranks)
        pieces = []
        for rank, vectors in enumerate(self._vectors):
            begin = 0
            for vector in vectors:
                start, stop = max(offset, begin), min(offset + share, begin + vector.shape[0])
                if start < stop:
                    place = vector.offset + (start - begin) * vector.stride[0]
                    pieces.append((self.ranks + rank, replace(vector, shape=(stop - start,), offset=place)))
                begin += vector.shape[0]
        if sum(piece.shape[0] for _, piece in pieces) != share * self.ranks:
            raise self._fault(f"parameter {name!r} would reach over the end of the vectors")
        dtype = self._vectors[0][0].dtype if self._vectors[0] else torch.float32
        return Pieces(Stored(dtype, shape, self.label), tuple(pieces)), offset + share

    def _beside(self, content: dict) -> dict[str, Pieces]:
        """Buffers, which are whole in the first file, and frozen parameters, a fragment of each in every file."""
        found: dict[str, Pieces] = {}
        module, buffers = content.get("module"), content.get("buffer_names")
        for name in buffers if isinstance(buffers, list | set) and isinstance(module, dict) else ():
            record = module.get(name) if isinstance(module, dict) else None
            if isinstance(record, TensorRecord):
                found[str(name)] = Pieces(Stored(record.dtype, record.shape, self.label), ((0, record),))
        shapes = content.get("frozen_param_shapes")
        for name, shape in (shapes if isinstance(shapes, dict) else {}).items():
            contents = [file.archive.content for file in self.files[: self.ranks]]
            fragments = [kept.get("frozen_param_fragments") if isinstance(kept, dict) else None for kept in contents]
            records = [table.get(name) if isinstance(table, dict) else None for table in fragments]
            pieces = tuple((rank, record) for rank, record in enumerate(records) if isinstance(record, TensorRecord))
            count = sum(math.prod(record.shape) for _, record in pieces)
            if len(pieces) != self.ranks or not isinstance(shape, tuple) or count < math.prod(shape):
                raise self._fault(f"the frozen parameter {name!r} is not all there")
            found[str(name)] = Pieces(Stored(pieces[0][1].dtype, shape, self.label), pieces)
        return found

    def _table(self) -> Mapping[str, Stored]:
        return {name: parameter.stored for name, parameter in self._parameters.items()}

    def _read(self, name: str) -> Tensor:
        stored, pieces = self._parameters[name].stored, self._parameters[name].pieces
        values = [self.files[file].archive.tensor(record).reshape(-1) for file, record in pieces]
        if not values:
            return torch.empty(stored.shape, dtype=stored.dtype)
        return torch.cat(values)[: math.prod(stored.shape)].reshape(stored.shape)

    def _prefetch(self, raw_names: list[str]) -> None:
        for number, file in enumerate(self.files):
            ranges = []
            for piece in (piece for name in raw_names for piece in self._parameters[name].pieces if piece[0] == number):
                begin = file.archive.place(piece[1].storage)
                ranges.append((begin + piece[1].span[0], begin + piece[1].span[1]))
            file.bytes.prefetch(ranges)

    def verify(self) -> None:
        """Compare every file with its checksums."""
        for file in self.files:
            file.verify()

    @property
    def recorded_step(self) -> int | None:
        """The step that the first file records."""
        content = self.files[0].archive.content
        step = content.get("global_steps") if isinstance(content, dict) else None
        return step if type(step) is int else None
