"""Which of the files in a folder, on a disk or on a hub, are its checkpoint."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from checkpoints.files.checkpoint import Checkpoint, WeightsError, abridged
from checkpoints.files.shards import Shards, counted_shards, weight_map_of
from checkpoints.files.torch_file import SUFFIXES

BESIDE_WEIGHTS = re.compile(r"training_args|optim|scheduler|scaler|rng_state|random_state|adapter_model|sampler", re.I)
"""What trainers keep beside the weights."""

MAIN = ("model", "pytorch_model", "lit_model")
"""What the weights are called where a trainer keeps other files of the same kind beside them (OLMo's train.pt)."""

ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
"""The low-rank change to a model, kept without it: the checkpoint of a folder that has nothing else."""


def in_folder(
    names: Sequence[str], label: str, read: Callable[[str], bytes], open_file: Callable[[str], Checkpoint]
) -> Checkpoint | None:
    """The checkpoint that a folder of these file names holds, None if there are no weights.

    An index comes first, then one whole file, then shards that count themselves; safetensors before pickles.
    """
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        index = f"{stem}{suffix}.index.json"
        if index in names:
            weight_map = weight_map_of(read(index), f"{label}/{index}")
            files = sorted(set(weight_map.values()))
            absent = [file for file in files if file not in names]
            if absent:
                raise WeightsError(f"{label}/{index} names {abridged(absent)}, which is not there")
            return Shards(label, {file: open_file(file) for file in files}, weight_map)
        if f"{stem}{suffix}" in names:
            return open_file(f"{stem}{suffix}")
        shards = counted_shards([name for name in names if name.endswith(suffix)], label)
        if shards:
            return Shards(label, {file: open_file(file) for file in shards}, None)
    return _only(names, label, open_file)


def _only(names: Sequence[str], label: str, open_file: Callable[[str], Checkpoint]) -> Checkpoint | None:
    """The one file of weights with a name of its own; nanoGPT's ckpt.pt, say."""
    for suffixes in ((".safetensors",), SUFFIXES):
        found = [name for name in names if name.endswith(suffixes) and not BESIDE_WEIGHTS.search(name)]
        if len(found) > 1:
            found = [name for name in found if name.removesuffix(_ending(name)) in MAIN] or found
        if len(found) > 1:
            raise WeightsError(f"{label} holds several files of weights and nothing says which: {abridged(found)}")
        if found:
            return open_file(found[0])
    return next((open_file(name) for name in ADAPTERS if name in names), None)


def _ending(name: str) -> str:
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), "")


def require_inside(path: Path, folder: Path, label: str) -> None:
    """Refuse a link that leads out of the folder, other than into the blobs of the hub's own cache."""
    target, root = path.resolve(), folder.resolve()
    blobs = root.parent.parent / "blobs"  # .../snapshots/COMMIT/ beside .../blobs/, as huggingface-hub keeps them
    if not target.is_relative_to(root) and not (root.parent.name == "snapshots" and target.parent == blobs):
        raise WeightsError(f"{label} is refused: it names {path.name!r}, a link that leads out of its folder")
