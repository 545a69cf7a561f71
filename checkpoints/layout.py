"""The run directory: what a run leaves on disk.

    run.json                    format version, name, family, config, seed, package versions; where there are any, how
                                a theory relates to it (see `probes.align`) and its circuits (`checkpoints.circuits`)
    metrics.jsonl               one line of scalars per step; the loss at every step
    step-000001000.safetensors  the weights after 1000 updates
    resume-000001000.safetensors  what training needs to go on from there, bit for bit (the last two are kept)
    probes.csv, events.jsonl    what a monitor measured and announced, where there was one (see `probes.monitor`)

Files that end in json or safetensors appear whole or not at all: they are written under another name, flushed to the
disk and renamed. The others are appended to; a line cut short by a crash is ignored by readers and dropped on resuming.
Everything is data: JSON and safetensors, nothing that runs.
"""

import glob
import json
import operator
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from checkpoints.remote_path import RemotePath

FORMAT = "checkpoint-probes run"
VERSION = 1

MOST_STEPS = 2**62
"""What is written must be read again: whatever is larger is no number of updates."""

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"

Folder = TypeVar("Folder", Path, Path | RemotePath)
"""A folder and what lies in it, on a disk or in a store."""

_NAME = re.compile(r"(step|resume)-(\d{9,})\.safetensors")


def left_overs(path: Path) -> list[Path]:
    """What a kill in the middle of a write leaves behind: our temporary files, and those safetensors makes itself."""
    return [*path.glob(".*.partial"), *path.glob(".tmp??????")]


def remove_left_overs(file: Path) -> None:
    """What kills in the middle of writing this file left beside it. For whoever is the only one to write it."""
    for left_over in file.parent.glob(f".{glob.escape(file.name)}.*.partial"):
        left_over.unlink(missing_ok=True)


def as_step(step: Any) -> int:
    """A step as a plain integer, or an error: what is saved under another name would never be found again."""
    try:
        number = operator.index(step)
    except TypeError:
        raise ValueError(f"step is {step!r}: a whole number is expected") from None
    if number < 0:
        raise ValueError(f"step is {str(number)[:40]}: it counts updates and cannot be negative")
    if number >= MOST_STEPS:
        raise ValueError(f"step is {str(number)[:40]}...: no run has made so many updates")
    return number


def step_file(step: int) -> str:
    """Name of the file with the weights after `step` updates."""
    return f"step-{step:09d}.safetensors"


def resume_file(step: int) -> str:
    """Name of the file with the training state after `step` updates."""
    return f"resume-{step:09d}.safetensors"


def files_of(path: Folder, kind: str) -> dict[int, Folder]:
    """Files of one kind ("step" or "resume") by step, ascending."""
    return files_named(path, (entry.name for entry in path.iterdir()), kind)


def files_named(path: Folder, names: Iterable[str], kind: str) -> dict[int, Folder]:
    """The same from a listing of the directory."""
    matches = [match for match in map(_NAME.fullmatch, names) if match and match[1] == kind]
    return dict(sorted((int(match[2]), path / match[0]) for match in matches))


def to_disk(descriptor: int) -> None:
    """Wait until a file or directory is on the disk, so that a power cut cannot take it back.

    All that has to outlive one goes through here. It is most of what writing a small checkpoint costs; tests replace it
    where no crash is their subject.
    """
    os.fsync(descriptor)


def append(path: Path, held: bytearray) -> None:
    """Add what is held to a file, and forget what was written even where the rest could not be.

    So a disk that is full cuts no line for good: once there is room, the next call goes on in the middle of it.
    """
    if not held:
        return
    try:
        with open(path, "ab", buffering=0) as file:
            while held:
                del held[: file.write(held)]
    except OSError as error:
        raise OSError(
            f"{path} could not be written: {error}. {len(held)} bytes are held and tried again: make room, or write "
            "elsewhere"
        ) from error


def append_at_exit(path: Path, held: bytearray, process: int) -> None:
    """The same where nobody is left to be told of an error. What a forked process holds is a copy, not its to write."""
    if os.getpid() == process:
        with suppress(OSError):
            append(path, held)


def write_text(path: Path, text: str) -> None:
    """Write text, whole or not at all."""
    _atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def create_json(path: Path, content: Mapping[str, Any]) -> bool:
    """The same of a file that is not there yet. False, and nothing is changed, where another process was faster."""
    try:
        _atomically(path, lambda temporary: temporary.write_text(json.dumps(content, indent=2) + "\n"), _put_if_new)
    except OSError as error:
        if isinstance(error.__cause__, FileExistsError):
            return False
        raise
    return True


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors, whole or not at all. Views, transposes and tensors that share memory are stored as they look."""
    # safetensors would refuse shared memory and scramble what is not contiguous: give each tensor memory of its own
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{path.name}: {name!r} is a {type(tensor).__name__}, not a tensor")
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    _atomically(path, lambda temporary: save_file(own, temporary, metadata))


def _atomically(path: Path, write: Callable[[Path], Any], put: Callable[[Path, Path], None] = os.replace) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            to_disk(file.fileno())
        put(temporary, path)
        _flush_directory(path.parent)
    except Exception as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            f"{path} could not be written: {error}. Nothing of it is left behind; all earlier files are as they were"
        ) from error


def _put_if_new(temporary: Path, path: Path) -> None:
    """Give a file its name, or raise FileExistsError: of several processes one succeeds, where links can be made."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links; or who was faster has tidied up already
        if path.exists():
            raise FileExistsError(str(path)) from None
        os.replace(temporary, path)
    else:
        temporary.unlink()


def _flush_directory(path: Path) -> None:
    """Make a rename itself survive a power cut, where the system allows a directory to be flushed."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        to_disk(descriptor)
    except OSError:
        pass  # the file itself is there and whole
    finally:
        os.close(descriptor)
