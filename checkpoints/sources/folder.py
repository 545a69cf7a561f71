"""One checkpoint on disk: a file of weights, or a folder with weights and perhaps a config."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from checkpoints.files import Checkpoint, WeightsError
from checkpoints.files.by_name import FILE_SUFFIXES, open_by_name
from checkpoints.files.checkpoint import abridged
from checkpoints.files.in_folder import BESIDE_WEIGHTS, in_folder, is_within, require_inside
from checkpoints.remote_path import Place, RemotePath


def open_file(path: Place) -> Checkpoint:
    """One file of weights."""
    source = path.byte_source() if isinstance(path, RemotePath) else path
    checkpoint = open_by_name(path.name, source)
    checkpoint.is_remote = isinstance(path, RemotePath)
    return checkpoint


def open_folder(path: Place) -> Checkpoint:
    """The checkpoint in a folder; raises WeightsError where there is none."""
    checkpoint = weights_in(path)
    if checkpoint is None:
        inside = abridged(sorted(entry.name for entry in path.iterdir()))
        raise WeightsError(f"{path} holds no weights ({', '.join('*' + s for s in FILE_SUFFIXES)}): {inside}")
    return checkpoint


def weights_in(path: Place, below: int = 2) -> Checkpoint | None:
    """The checkpoint in a folder, or in the one folder below it that holds one; None if there are no weights.

    Trainers put folders into folders: `checkpoint-10/global_step10/`, `iter_0000010/mp_rank_00/`, `step10/model/`.
    """

    def inside(name: str) -> Checkpoint:
        if isinstance(path, Path):  # a store has no links
            require_inside(path / name, path, str(path))
        return open_file(path / name)

    found = in_folder(_listed(path), str(path), lambda name: (path / name).read_bytes(), inside)
    if found is not None:
        found.is_remote = isinstance(path, RemotePath)
    if found is not None or not below:
        return found
    folders = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and not BESIDE_WEIGHTS.search(entry.name)]
    deeper = [one for one in (weights_in(folder, below - 1) for folder in folders) if one is not None]
    return deeper[0] if len(deeper) == 1 else None


def _listed(path: Place) -> list[str]:
    """The files of a folder, with those in the folders that trainers make within a checkpoint."""
    names = []
    for entry in sorted(path.iterdir()):
        if entry.is_file():
            names.append(entry.name)
        elif entry.is_dir() and is_within(entry.name, path.name):
            names += [f"{entry.name}/{name}" for name in _listed(entry)]
    return names


def is_weights_file(name: str) -> bool:
    """Whether a file is one of weights, by its ending: `model.safetensors`, `model.pth.tar`."""
    return name.endswith(FILE_SUFFIXES)


def opener(path: Place) -> partial[Checkpoint]:
    """How to open what is at this path, later."""
    return partial(open_folder if path.is_dir() else open_file, path)


def config_beside(*folders: Place) -> dict[str, Any]:
    """The first config.json found in these folders, and the first config of a low-rank adapter (PEFT's) added to it."""
    found: dict[str, Any] = {}
    for name in ("config.json", "adapter_config.json"):
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is not None:
            found |= parsed_config(file.read_bytes(), str(file))
    return found


def parsed_config(text: bytes, label: str) -> dict[str, Any]:
    """A config file as a table."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{label} is not JSON: {str(error)[:200]}. Copy it again or delete it") from None
    if not isinstance(config, dict):
        raise ValueError(f"{label} is not a table of settings")
    return config
