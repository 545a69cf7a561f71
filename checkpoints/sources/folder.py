"""One checkpoint on disk: a file of weights, or a folder with weights and perhaps a config."""

import json
import re
from collections.abc import Iterable, Mapping
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
        links = "".join(f"; {said}" for said in dangling_links(path))
        raise WeightsError(f"{path} holds no weights ({', '.join('*' + s for s in FILE_SUFFIXES)}): {inside}{links}")
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


_ROTATION = re.compile(r"^(rope|rotary|partial_rotary)")
_DECIDING = re.compile(rf"heads?$|^head_dim$|^model_type$|{_ROTATION.pattern}|^layer_types$|^n_query_groups$")


def dangling_links(path: Place) -> tuple[str, ...]:
    """What to say of links in a folder that lead nowhere, of pipes and devices: they are left out, and not silently."""
    if not isinstance(path, Path):  # a store has none
        return ()
    others = [entry for entry in sorted(path.iterdir()) if not entry.is_file() and not entry.is_dir()]
    links = [entry.name for entry in others if entry.is_symlink() and not entry.exists()]
    pipes = [entry.name for entry in others if entry.name not in links]
    said = [f"left out, links to something that is not there (any more): {abridged(links)}"] if links else []
    return (*said, *([f"left out, neither files nor folders: {abridged(pipes)}"] if pipes else ()))


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


def config_of_all(*folders: Place) -> tuple[dict[str, Any], tuple[str, ...]]:
    """As `config_beside`, without what the configs of the folders contradict each other in, and what to say of that.

    One config goes for all checkpoints, so what is not the same in all (heads, rotation) is nobody's. On a disk every
    folder is looked at, elsewhere the first and the last.
    """
    looked_at = folders if all(isinstance(folder, Path) for folder in folders) else (folders[0], folders[-1])
    return agreed(config_beside(*folders), [_readable_config(folder) for folder in looked_at])


def agreed(config: dict[str, Any], others: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config without the settings of heads and rotation in which another one differs, and what to say of these."""
    ours = _deciding(config)
    theirs = [_deciding(other) for other in others]
    differing = sorted({key for other in theirs for key in ours.keys() & other.keys() if ours[key] != other[key]})
    if not differing:
        return config, ()
    kept = {key: value for key, value in config.items() if key not in differing}
    if any(_ROTATION.search(key) for key in differing):  # a type alone would stand for its usual rotation
        kept = {key: value for key, value in kept.items() if not _ROTATION.search(key)}
        kept["rope_parameters"] = {"rope_type": "not the same in all checkpoints"}
    notice = (
        f"the config.json files of the checkpoints differ in {', '.join(differing)}: none of them goes for all, so "
        "these settings are left out. Say which hold with config= (--config KEY=VALUE), or open the checkpoints apart"
    )
    return kept, (notice,)


def _deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide how attention is read, those of configs within the config as well."""
    inner = {k: _deciding(v) for k, v in config.items() if k.endswith("_config") and isinstance(v, Mapping)}
    return {key: value for key, value in config.items() if _DECIDING.search(key)} | inner


def _readable_config(folder: Place) -> dict[str, Any]:
    """The config of one checkpoint, {} where it has none or a damaged one: another's goes for all."""
    try:
        return config_beside(folder)
    except ValueError:
        return {}


def parsed_config(text: bytes, label: str) -> dict[str, Any]:
    """A config file as a table."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{label} is not JSON: {str(error)[:200]}. Copy it again or delete it") from None
    if not isinstance(config, dict):
        raise ValueError(f"{label} is not a table of settings")
    if config.get("model_type", "") is None:
        del config["model_type"]
    if not isinstance(config.get("model_type", ""), str):
        raise ValueError(f"{label} says model_type {config['model_type']!r}; a name is expected")
    return config
