"""A folder of torch.distributed.checkpoint: `.metadata` says which chunks each tensor has, `*.distcp` hold them.

`.metadata` is a pickle of a few classes of torch's, which are read here as fields with values and as nothing else. Each
chunk is a file of torch.save inside a .distcp file, at an offset; a tensor is put together from its chunks, which must
cover it once. Names are those of the state dict that was saved, flattened: what was under "model" loses that word, and
the optimizer is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.byte_source import BytesInMemory, ByteSource
from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError
from checkpoints.files.pickle_values import Fields, Function
from checkpoints.files.shards import require_plain_name
from checkpoints.files.state_dict import NOT_WEIGHTS, STEP_KEYS, state_dict_in
from checkpoints.files.torch_archive import open_archive, read_pickle
from checkpoints.files.torch_pickle import DIMENSIONS, LARGEST, NAMES, TensorRecord

METADATA = ".metadata"
SUFFIX = ".distcp"


_CHECKPOINT, _OLDER = "torch.distributed.checkpoint", "torch.distributed._shard.sharded_tensor.metadata"
_CLASSES = ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex")


def _as_fields(name: str) -> Function:
    kind = name.rpartition(".")[2]
    return Function(name, lambda *_: Fields(kind))


def _names() -> dict[str, Any]:
    """The classes of the metadata, old places and new, as fields; a path as text."""
    names: dict[str, Any] = dict(NAMES)
    for kind in (*_CLASSES, "StorageMeta", "TensorProperties"):
        names[f"{_CHECKPOINT}.metadata.{kind}"] = _as_fields(kind)
    for name in ("filesystem._StorageInfo", "filesystem._StoragePrefix"):
        names[f"{_CHECKPOINT}.{name}"] = _as_fields(name)
    names[f"{_OLDER}.TensorProperties"] = _as_fields("TensorProperties")
    for name in (f"{_CHECKPOINT}.metadata._MEM_FORMAT_ENCODING", f"{_OLDER}.MEM_FORMAT_ENCODING"):
        names[name] = Function(name, lambda value, *_: value)
    for name in ("pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath", "pathlib._local.WindowsPath"):
        names[name] = Function(name, lambda *parts: "/".join(map(str, parts[:100])))
    return names


METADATA_NAMES = _names()


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item lies: a range of a file."""

    file: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Sharded:
    """A tensor as the metadata describes it: a dtype, a shape, and the chunks by where they begin."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    chunks: dict[tuple[int, ...], tuple[int, ...]]
    name: str


class DistributedCheckpoint(Checkpoint):
    """The tensors of one such folder; `open_bytes` gives a file of it by name."""

    def __init__(self, label: str, open_bytes: Callable[[str], ByteSource]) -> None:
        self.label = label
        self._open_bytes = open_bytes
        self._files: dict[str, ByteSource] = {}

    def _file(self, name: str) -> ByteSource:
        if name not in self._files:
            self._files[name] = self._open_bytes(name)
        return self._files[name]

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        source = self._file(METADATA)
        content, _ = read_pickle(source, source.read(0, source.size).tobytes(), METADATA_NAMES, None)
        if not isinstance(content, Fields) or content.kind != "Metadata":
            raise self._fault("it is not the metadata of torch.distributed.checkpoint")
        return content.fields

    def _fault(self, reason: str) -> WeightsError:
        return WeightsError(f"{self.label}/{METADATA} cannot be read: {reason}. Copy the folder again or delete it")

    @cached_property
    def _places(self) -> dict[tuple[str, tuple[int, ...] | None], Place]:
        """Where each chunk, and each thing that is no tensor, lies."""
        places = {}
        for index, info in self._table_of("storage_data").items():
            if not isinstance(index, Fields) or not isinstance(info, Fields):
                raise self._fault("its list of places makes no sense")
            file, start, length = (info.fields.get(key) for key in ("relative_path", "offset", "length"))
            name, offset = index.fields.get("fqn"), index.fields.get("offset")
            span = _sizes((start, length))
            if span is None or not isinstance(file, str) or not isinstance(name, str):
                raise self._fault(f"the place of {str(name)[:200]!r} makes no sense")
            if info.fields.get("transform_descriptors"):
                raise self._fault(f"{name!r} is stored transformed (compressed, say). Save without extensions")
            require_plain_name(file, f"{self.label}/{METADATA}")
            places[name, offset if isinstance(offset, tuple) else None] = Place(file, span[0], sum(span))
        return places

    def _table_of(self, key: str) -> dict:
        table = self._metadata.get(key)
        if not isinstance(table, dict):
            raise self._fault(f"it has no {key}")
        return table

    @cached_property
    def _tensors(self) -> dict[str, Sharded]:
        """What is stored, by the names within the model."""
        tree: dict[str, Any] = {}
        paths = self._metadata.get("planner_data")
        for name, described in self._table_of("state_dict_metadata").items():
            if not isinstance(name, str) or not isinstance(described, Fields):
                raise self._fault("its list of tensors makes no sense")
            if described.kind != "TensorStorageMetadata":
                continue
            path = paths.get(name) if isinstance(paths, dict) else None
            if not isinstance(path, tuple) or not 0 < len(path) <= DIMENSIONS:
                path = (name,)
            if len(path) == 1 and NOT_WEIGHTS.fullmatch(name.split(".")[0]) and "." in name:
                continue  # flattened before it was saved, the optimizer too
            self._put(tree, tuple(map(str, path)), self._sharded(name, described.fields))
        return state_dict_in(tree, self.label, Sharded)

    def _put(self, tree: dict[str, Any], path: tuple[str, ...], tensor: Sharded) -> None:
        for key in path[:-1]:
            tree = tree.setdefault(key, {})
            if not isinstance(tree, dict):
                raise self._fault(f"{tensor.name!r} would lie within a tensor")
        if path[-1] in tree:
            raise self._fault(f"two tensors are {'.'.join(path)!r}")
        tree[path[-1]] = tensor

    def _sharded(self, name: str, fields: dict[str, Any]) -> Sharded:
        properties, shape, chunks = fields.get("properties"), _sizes(fields.get("size")), fields.get("chunks")
        state = properties.fields.get("") if isinstance(properties, Fields) else None
        dtype = state[0] if isinstance(state, tuple) and state else None
        if not isinstance(dtype, torch.dtype) or shape is None or not isinstance(chunks, list):
            raise self._fault(f"tensor {name!r} has no dtype, shape or chunks that make sense")
        found: dict[tuple[int, ...], tuple[int, ...]] = {}
        for chunk in chunks:
            kept = chunk.fields if isinstance(chunk, Fields) else {}
            offsets, sizes = _sizes(kept.get("offsets")), _sizes(kept.get("sizes"))
            if offsets is None or sizes is None or not len(offsets) == len(sizes) == len(shape):
                raise self._fault(f"a chunk of tensor {name!r} makes no sense")
            if 0 not in sizes and found.setdefault(offsets, sizes) != sizes:
                raise self._fault(f"tensor {name!r} has two chunks at {offsets}")
        if not covers(shape, found):
            raise self._fault(f"the {len(found)} chunks of tensor {name!r} do not cover its shape {shape} once")
        return Sharded(dtype, shape, found, name)

    def _table(self) -> Mapping[str, Stored]:
        return {name: Stored(tensor.dtype, tensor.shape, self.label) for name, tensor in self._tensors.items()}

    def _read(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        if len(tensor.chunks) == 1 and next(iter(tensor.chunks.values())) == tensor.shape:
            return self._chunk(tensor, next(iter(tensor.chunks)))
        places = [self._place(tensor, offsets) for offsets in tensor.chunks]
        if Stored(tensor.dtype, tensor.shape, "").bytes > sum(place.stop - place.start for place in places):
            raise self._fault(f"tensor {name!r} is larger than its chunks")
        whole = torch.empty(tensor.shape, dtype=tensor.dtype)
        for offsets, sizes in tensor.chunks.items():
            window = tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
            whole[window] = self._chunk(tensor, offsets)
        return whole

    def _place(self, tensor: Sharded, offsets: tuple[int, ...]) -> Place:
        place = self._places.get((tensor.name, offsets))
        if place is None:
            raise self._fault(f"it does not say where the chunk of {tensor.name!r} at {offsets} is")
        return place

    def _item(self, place: Place) -> Any:
        """What torch.save wrote at this place, and its archive."""
        source = self._file(place.file)
        if place.stop > source.size:
            raise WeightsError(
                f"{source.label} is {source.size} bytes long, and {self.label}/{METADATA} says that something lies at "
                f"bytes {place.start} to {place.stop}: it is cut short or of another save. Copy the folder again"
            )
        label = f"{source.label} (bytes {place.start} to {place.stop})"
        return open_archive(BytesInMemory(source.read(place.start, place.stop), label))

    def _chunk(self, tensor: Sharded, offsets: tuple[int, ...]) -> Tensor:
        place, sizes = self._place(tensor, offsets), tensor.chunks[offsets]
        archive = self._item(place)
        record = archive.content
        if not isinstance(record, TensorRecord) or record.shape != sizes or record.dtype != tensor.dtype:
            what = f"{record.dtype} {record.shape}" if isinstance(record, TensorRecord) else "no tensor"
            raise self._fault(f"the chunk of {tensor.name!r} at {offsets} should be {tensor.dtype} {sizes}, is {what}")
        return archive.tensor(record)

    def _prefetch(self, raw_names: list[str]) -> None:
        ranges: dict[str, list[tuple[int, int]]] = {}
        for name in raw_names:
            tensor = self._tensors[name]
            for offsets in tensor.chunks:
                place = self._place(tensor, offsets)
                ranges.setdefault(place.file, []).append((place.start, place.stop))
        for file, wanted in ranges.items():
            self._file(file).prefetch(wanted)

    def verify(self) -> None:
        """Compare every item with its checksums."""
        for place in self._places.values():
            self._item(place).verify()

    @property
    def recorded_step(self) -> int | None:
        """The step, where it was saved beside the weights."""
        for (name, _), place in self._places.items():
            if name.rpartition(".")[2] in STEP_KEYS and not name.startswith("optim"):
                step = self._item(place).content
                if type(step) is int and 0 <= step < LARGEST:
                    return step
        return None


def _sizes(values: Any) -> tuple[int, ...] | None:
    """A few whole numbers that a file can hold, None for anything else."""
    if not isinstance(values, list | tuple) or len(values) > DIMENSIONS:
        return None
    return tuple(values) if all(type(value) is int and 0 <= value < LARGEST for value in values) else None


def covers(shape: tuple[int, ...], chunks: Mapping[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether chunks (sizes by offsets) cover a shape, each place once: they must form a grid."""
    if 0 in shape:
        return not chunks
    count = 1
    for axis, size in enumerate(shape):
        starts = sorted({offsets[axis] for offsets in chunks})
        ends = dict(pairwise([*starts, size]))
        if not starts or starts[0] != 0:
            return False
        if any(offsets[axis] + sizes[axis] != ends[offsets[axis]] for offsets, sizes in chunks.items()):
            return False
        count *= len(starts)
    return len(chunks) == count
