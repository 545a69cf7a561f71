"""Which of the files in a folder, on a disk or on a hub, are its checkpoint.

Names may lead into the folders that trainers make within a checkpoint (`is_within`): checkpoint-500/global_step500/ of
DeepSpeed, mp_rank_00/ of Megatron, model_and_optim/ of OLMo. Looked for, in this order: an index, one whole file or
shards that count themselves, as Hugging Face writes them; torch.distributed.checkpoint; a file per layer (gpt-neox);
DeepSpeed; Megatron; one file with a name of its own.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from checkpoints.files.byte_source import ByteSource
from checkpoints.files.checkpoint import Checkpoint, WeightsError, abridged
from checkpoints.files.distributed import METADATA, SUFFIX, DistributedCheckpoint
from checkpoints.files.parallel_parts import CONVERT, Layers, ParallelParts
from checkpoints.files.shards import Shards, counted_shards, weight_map_of
from checkpoints.files.torch_file import SUFFIXES, TorchFile
from checkpoints.files.zero3 import ZeroThree

BESIDE_WEIGHTS = re.compile(r"training_args|optim|scheduler|scaler|rng_state|random_state|adapter_model|sampler", re.I)
"""What trainers keep beside the weights."""

WITHIN = re.compile(r"mp_rank_\d+(_\d+)*|pytorch_model_fsdp_\d+|pytorch_model|model_and_optim|checkpoint")
"""Folders within a checkpoint that hold its weights."""

MAIN = ("model", "pytorch_model", "lit_model")
"""What the weights are called where a trainer keeps other files of the same kind beside them (OLMo's train.pt)."""

ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
"""The low-rank change to a model, kept without it: the checkpoint of a folder that has nothing else."""

Open = Callable[[str], Checkpoint]


def in_folder(names: Sequence[str], label: str, read: Callable[[str], bytes], open_file: Open) -> Checkpoint | None:
    """The checkpoint that a folder of these file names holds, None if there are no weights."""
    checkpoint = _hugging_face(names, label, read, open_file)
    for find in (_distributed, _by_layer, _deepspeed, _megatron, _only):
        checkpoint = find(names, label, open_file) if checkpoint is None else checkpoint
    return checkpoint


def is_within(name: str, above: str) -> bool:
    """Whether a folder is part of the checkpoint above it: `mp_rank_00`, or `global_step500` within `checkpoint-500`.

    `global_step500` within a folder without that number is a step of a run.
    """
    step = re.fullmatch(r"global_step0*(\d+)", name)
    if step is not None:
        return re.search(rf"(?<!\d)0*{step[1]}$", above) is not None
    return WITHIN.fullmatch(name) is not None


def _hugging_face(names: Sequence[str], label: str, read: Callable[[str], bytes], open_file: Open) -> Checkpoint | None:
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        index = f"{stem}{suffix}.index.json"
        if index in names:
            weight_map = weight_map_of(read(index), f"{label}/{index}")
            files = sorted(set(weight_map.values()))
            absent = sorted(set(files) - set(names))
            if absent:
                raise WeightsError(f"{label}/{index} names {abridged(absent)}, which is not there")
            return Shards(label, {file: open_file(file) for file in files}, weight_map)
        if f"{stem}{suffix}" in names:
            return open_file(f"{stem}{suffix}")
        shards = counted_shards([name for name in names if name.endswith(suffix)], label)
        if shards:
            return Shards(label, {file: open_file(file) for file in shards}, None)
    return None


def _distributed(names: Sequence[str], label: str, open_file: Open) -> Checkpoint | None:
    """A folder of torch.distributed.checkpoint, or the one within that is not the optimizer's."""
    with_chunks = {name.rpartition("/")[0] for name in names if name.endswith(SUFFIX)}
    with_metadata = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == METADATA}
    found = sorted(folder for folder in with_chunks if not re.search(r"(^|/)optim[^/]*$", folder))
    if not found:
        return None
    folder = _one(found, label, "checkpoints of torch.distributed")
    if folder not in with_metadata:
        raise WeightsError(
            f"{label} has {SUFFIX} files and no {METADATA}, without which nobody can say what is in them: the save was "
            "interrupted or the copy left out what begins with a dot"
        )
    inner = f"{folder}/" if folder else ""
    return DistributedCheckpoint(f"{label}/{folder}" if folder else label, lambda name: _bytes(open_file(inner + name)))


def _bytes(checkpoint: Checkpoint) -> ByteSource:
    """The bytes of a file, whatever is in it."""
    source: Any = getattr(checkpoint, "bytes", None)
    if not isinstance(source, ByteSource):
        raise WeightsError(f"{checkpoint.label} cannot be read by ranges")
    return source


def _matching(pattern: str, names: Sequence[str]) -> dict[str, list[re.Match]]:
    """Matches of names in one of the folders within, by folder."""
    found: dict[str, list[re.Match]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        match = re.fullmatch(pattern, file)
        if match:
            found.setdefault(folder, []).append(match)
    return found


def _one(choices: list[str], label: str, what: str) -> str:
    if len(choices) > 1:
        raise WeightsError(f"{label} holds several {what}, in {abridged(choices)}: open one of these folders")
    return choices[0]


def _by_layer(names: Sequence[str], label: str, open_file: Open) -> Checkpoint | None:
    """A file for each layer and rank: `layer_02-model_00-model_states.pt`."""
    found = _matching(r"layer_(?P<layer>\d+)-model_(?P<rank>\d+)-model_states\.pt", names)
    if not found:
        return None
    folder = _one(sorted(found), label, "checkpoints by layer")
    layers: dict[int, dict[int, str]] = {}
    for match in found[folder]:
        layers.setdefault(int(match["layer"]), {})[int(match["rank"])] = f"{folder}/{match[0]}" if folder else match[0]
    ranks = {tuple(sorted(files)) for files in layers.values()}
    if ranks != {tuple(range(max(map(len, ranks))))}:
        raise WeightsError(f"{label}: not every layer has a file of every model-parallel rank; copy the folder again")
    return Layers(
        label,
        {
            layer: _joined(label, [open_file(files[rank]) for rank in sorted(files)], is_gated=False)
            for layer, files in layers.items()
        },
    )


def _joined(label: str, parts: list[Checkpoint], *, is_gated: bool | None) -> Checkpoint:
    return parts[0] if len(parts) == 1 else ParallelParts(label, parts, is_gated=is_gated)


def _deepspeed(names: Sequence[str], label: str, open_file: Open) -> Checkpoint | None:
    """`mp_rank_00_model_states.pt`, whole but for model parallelism, or the pieces of ZeRO-3."""
    whole = _matching(r"mp_rank_(?P<rank>\d+)_model_states\.pt", names)
    pieces = _matching(r"(bf16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_(?P<part>\d+)_model_states\.pt", names)
    if not whole and not pieces:
        return None
    folder = _one(sorted({*whole, *pieces}), label, "checkpoints of DeepSpeed")
    inner = f"{folder}/" if folder else ""
    if folder in whole:
        files = sorted((int(match["rank"]), inner + match[0]) for match in whole[folder])
        return _joined(label, [open_file(file) for _, file in files], is_gated=None)
    optimizers = _matching(r"(bf16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_(?P<part>\d+)_optim_states\.pt", names)
    if any(int(match["part"]) for match in pieces[folder]):
        raise WeightsError(f"{label} is ZeRO-3 and model-parallel at once, which is not put together here. {CONVERT}")
    models, values = (
        [open_file(inner + match[0]) for match in sorted(found.get(folder, []), key=lambda match: int(match["rank"]))]
        for found in (pieces, optimizers)
    )
    return ZeroThree(label, models, values)


def _megatron(names: Sequence[str], label: str, open_file: Open) -> Checkpoint | None:
    """`mp_rank_00/model_optim_rng.pt`, a folder for each rank."""
    pattern = (
        r"(?P<above>(?:.*/)?)mp_rank_(?P<rank>\d+)(?P<stage>_\d+)*/(?:model_optim_rng|model_rng|model_weights)\.pt"
    )
    found = [match for name in names if (match := re.fullmatch(pattern, name))]
    if not found:
        return None
    above = _one(sorted({match["above"] for match in found}), label, "checkpoints of Megatron")
    if any(match["stage"] and int(match["stage"][1:]) for match in found):
        raise WeightsError(f"{label}/{above} was saved pipeline-parallel, each stage counts its own layers. {CONVERT}")
    parts = [open_file(match[0]) for match in sorted(found, key=lambda match: int(match["rank"]))]
    if len(parts) == 1:
        return parts[0]
    content = parts[0].archive.content if isinstance(parts[0], TorchFile) else {}
    version = content.get("checkpoint_version", 0) if isinstance(content, dict) else 0
    if not isinstance(version, int | float) or version < 2:
        raise WeightsError(f"{label} has parts of format {version}, which ordered the heads otherwise. {CONVERT}")
    is_gated = parts[0].recorded_config.get("swiglu")
    return _joined(label, parts, is_gated=is_gated if isinstance(is_gated, bool) else None)


def _only(names: Sequence[str], label: str, open_file: Open) -> Checkpoint | None:
    """The one file of weights with a name of its own; nanoGPT's ckpt.pt, say, or model.pt beside train.pt."""
    for suffixes in ((".safetensors",), SUFFIXES, (".msgpack",), (".npz",)):
        found = [name for name in names if name.endswith(suffixes) and not BESIDE_WEIGHTS.search(name)]
        found = [name for name in found if "/" not in name] or found
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
