"""One checkpoint in several files: `model.safetensors.index.json`, or shards that count themselves (`-00001-of-00003`).

An index is a claim about files, and is believed only where the files agree: every tensor it names lies in the shard
it names, no shard holds one that belongs elsewhere, and no shard's name leads out of the folder.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from torch import Tensor

from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError, abridged

COUNTED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.\w+)")


class Shards(Checkpoint):
    """The tensors of several files as one checkpoint."""

    def __init__(self, label: str, shards: Mapping[str, Checkpoint], weight_map: Mapping[str, str] | None) -> None:
        self.label = label
        self.shards = shards
        self.weight_map = weight_map

    @property
    def lists_cheaply(self) -> bool:
        """Whether all of the files do."""
        return super().lists_cheaply and all(shard.lists_cheaply for shard in self.shards.values())

    @cached_property
    def _places(self) -> dict[str, str]:
        """By the tensor's name in the file: the shard that holds it."""
        places: dict[str, str] = {}
        for file, shard in self.shards.items():
            for name in shard._table():
                if name in places:
                    raise WeightsError(f"{self.label}: tensor {name!r} is in {places[name]} and in {file} too")
                places[name] = file
        if self.weight_map is not None:
            self._compare(self.weight_map, places)
        return places

    def _compare(self, index: Mapping[str, str], places: Mapping[str, str]) -> None:
        for name in sorted({*index, *places}):
            if index.get(name) != places.get(name):
                said, is_in = index.get(name, "no shard"), places.get(name, "none of them")
                raise WeightsError(
                    f"{self.label}: the index says that {name!r} is in {said}, and it is in {is_in}. "
                    "Index and shards are not of the same save; delete the index to go by the shards alone"
                )

    def _table(self) -> Mapping[str, Stored]:
        return {name: self.shards[file]._table()[name] for name, file in self._places.items()}

    def _read(self, name: str) -> Tensor:
        return self.shards[self._places[name]]._read(name)

    def verify(self) -> None:
        """Compare every shard with its checksums."""
        for shard in self.shards.values():
            shard.verify()

    def _prefetch(self, raw_names: list[str]) -> None:
        by_shard: dict[str, list[str]] = {}
        for name in raw_names:
            by_shard.setdefault(self._places[name], []).append(name)
        for file, wanted in by_shard.items():
            self.shards[file]._prefetch(wanted)


def weight_map_of(text: str | bytes, label: str) -> dict[str, str]:
    """The index: by tensor, the file that holds it. Names of files that lead elsewhere are refused."""
    try:
        weight_map: Any = json.loads(text)["weight_map"]
        files = {str(file) for file in weight_map.values()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{label} is not an index of shards: {str(error)[:200] or type(error).__name__}. "
            "Copy it again or delete it, to go by the shards alone"
        ) from None
    if not files:
        raise WeightsError(f"{label} names no shard")
    for file in files:
        require_plain_name(file, label)
    return {str(name): str(file) for name, file in weight_map.items()}


def require_plain_name(file: str, label: str) -> None:
    """Refuse a file name that leads out of its folder, or that no file can have."""
    parts = PurePosixPath(file).parts
    if "\0" in file or len(file) > 4096:
        raise WeightsError(f"{label} is refused: it names {file[:100]!r}, which no file can be called")
    if not parts or PurePosixPath(file).is_absolute() or ".." in parts or "\\" in file or ":" in file:
        raise WeightsError(f"{label} is refused: it names {file!r}, a path that leads out of its folder")


def counted_shards(names: Sequence[str], label: str) -> list[str]:
    """The shards of a set that counts itself, all of them, or an error that names the missing ones."""
    found: dict[tuple[str, str, str], dict[int, str]] = {}
    for name in names:
        match = COUNTED.fullmatch(name)
        if match:
            found.setdefault((match["stem"], match["count"], match["suffix"]), {})[int(match["number"])] = name
    if not found:
        return []
    if len(found) > 1:
        sets = [f"{stem}-*-of-{count}{suffix}" for stem, count, suffix in found]
        raise WeightsError(f"{label} holds several sets of shards and nothing says which: {abridged(sets)}")
    ((_, count, _), shards) = next(iter(found.items()))
    missing = [str(number) for number in range(1, int(count) + 1) if number not in shards]
    if missing:
        raise WeightsError(f"{label} lacks shard {abridged(missing)} of {int(count)}")
    return [shards[number] for number in sorted(shards)]
