"""A run in an object store or on a web server: recognised as on a disk (see `checkpoints.remote_path`).

To what the other sources find is added what only a store knows: a version of every checkpoint, so that one which was
written anew is measured anew, and the hashes of its files, by which it is audited without being read.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from checkpoints.files.in_folder import BESIDE_WEIGHTS
from checkpoints.files.torch_file import SUFFIXES
from checkpoints.remote_path import RemotePath
from checkpoints.run import Entry, Run
from checkpoints.store import Store


def find(url: str, store: Store | None, recognised: Callable[[RemotePath], Run]) -> Run:
    """The run at an address, by what recognises runs in folders."""
    place = (store or Store()).at(url)
    run = recognised(place)
    return replace(run, entries=[_with_version(entry, place) for entry in run.entries])


def _with_version(entry: Entry, place: RemotePath) -> Entry:
    below = entry.label.removeprefix(str(place)).strip("/")
    path = place / below if below else place
    return replace(entry, version=partial(_version, path), content=partial(content_hashes, path))


def _version(path: RemotePath) -> str:
    return path.version


def content_hashes(path: RemotePath) -> dict[str, str]:
    """By file of weights, what the store gives for its content, with its size; a date identifies no content."""
    names = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
    weights = [file for file in names if file.name.endswith((".safetensors", *SUFFIXES))]
    weights = [file for file in weights if not BESIDE_WEIGHTS.search(file.name)]
    safe = [file for file in weights if file.suffix == ".safetensors"]
    return {file.name: hash for file in safe or weights if (hash := file.content_hash)}
