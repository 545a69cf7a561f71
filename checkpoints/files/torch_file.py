"""A file written by torch.save: a state dict, or something that holds one.

Such files are pickles, and pickles are programs. They are read with `weights_only=True` and nothing else: what asks
for more is refused, with its name, and is never run.
"""

import io
import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError, abridged

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")

HOLDERS = ("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network", "params", "weights")
"""Keys under which trainers keep the weights, tried in this order."""

STEP_KEYS = ("global_step", "iter_num", "step", "iteration", "steps")
"""Keys under which trainers keep the step."""

CONFIG_KEYS = ("model_args", "model_config", "hparams", "hyper_parameters", "config", "args")
"""Keys under which trainers keep the shape of the model."""


class TorchFile(Checkpoint):
    """The state dict in one torch file. Tensors are mapped from the disk where the format allows it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.label = str(path)

    @property
    def lists_cheaply(self) -> bool:
        """Whether the tensors can be mapped from the disk: files of before torch 1.6 have to be read."""
        return "_content" in self.__dict__ or zipfile.is_zipfile(self.path)

    @cached_property
    def _content(self) -> Any:
        return load(self.path)

    @cached_property
    def _state(self) -> dict[str, Tensor]:
        return state_dict_in(self._content, self.label)

    def _table(self) -> Mapping[str, Stored]:
        return {name: Stored(t.dtype, tuple(t.shape), self.label) for name, t in self._state.items()}

    def _read(self, name: str) -> Tensor:
        # a copy: what is mapped from the disk must not change, or vanish, under the reader's hands
        return self._state[name].clone()

    @property
    def recorded_step(self) -> int | None:
        """The step that the trainer kept beside the weights."""
        return next((step for step in self._kept(STEP_KEYS) if type(step) is int), None)

    @property
    def recorded_config(self) -> dict[str, Any]:
        """The shape of the model, where the trainer kept it beside the weights."""
        return next((dict(config) for config in self._kept(CONFIG_KEYS) if isinstance(config, Mapping)), {})

    def _kept(self, keys: tuple[str, ...]) -> list[Any]:
        """What the trainer kept under these keys."""
        _ = self._state  # a file without weights is refused before anything else is believed
        return [self._content[key] for key in keys if key in self._content]


def load(path: Path) -> Any:
    """What torch.save wrote, as data. Raises WeightsError for everything that is not data, or not whole."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if path.stat().st_size == 0:
        raise WeightsError(f"{path} cannot be read: it is empty. Copy it again or delete it")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_safe_archive(path))
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        raise WeightsError(f"{path} is refused and nothing of it was run: {_reason(path, error)}") from None
    except Exception as error:  # a damaged file fails in many ways, none of them worth telling apart
        raise WeightsError(
            f"{path} cannot be read ({path.stat().st_size} bytes): {_first_line(error)}. "
            "It is cut short, damaged or not a file of torch.save; copy it again or delete it"
        ) from None


def _reason(path: Path, error: Exception) -> str:
    wanted = [name for name in _asks_for(path) if not name.startswith(("torch.", "torch._utils.", "collections."))]
    if wanted:
        return (
            f"it is not only data, it asks for {abridged(wanted)}. "
            "If you trust it, load it yourself and save the state dict alone, as safetensors"
        )
    return f"it is damaged or not a file of torch.save ({_first_line(error)})"


def _asks_for(path: Path) -> list[str]:
    """The functions and classes that a pickle names, found by reading its instructions; none of them is followed."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            pickles = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
    else:
        pickles = [path.read_bytes()]
    names: dict[str, None] = {}
    for content in pickles:
        stream, strings = io.BytesIO(content), [""]
        for _ in range(5):  # the older format is several pickles, one after the other
            try:
                for instruction, argument, _ in pickletools.genops(stream):
                    if instruction.name == "GLOBAL":
                        names[str(argument).replace(" ", ".")] = None
                    elif instruction.name == "STACK_GLOBAL":
                        names[".".join(strings[-2:])] = None
                    elif isinstance(argument, str):
                        strings.append(argument)
            except Exception:  # what follows is not a pickle: the raw bytes of tensors, or damage
                break
    return list(names)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _is_safe_archive(path: Path) -> bool:
    """Whether this is a zip archive, as torch writes since 1.6. Archives that play tricks with names are refused."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        names = [entry.filename for entry in archive.infolist()]
        links = [entry.filename for entry in archive.infolist() if (entry.external_attr >> 28) == 0xA]
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
            raise WeightsError(f"{path} is refused: its archive holds {name!r}, a path that leads outside")
    if links:
        raise WeightsError(f"{path} is refused: its archive holds a symbolic link, {links[0]!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise WeightsError(f"{path} is refused: its archive holds {twice!r} twice")
    return True


def state_dict_in(content: Any, label: str) -> dict[str, Tensor]:
    """The tensors of a model, whether saved alone or inside what a trainer keeps."""
    if not isinstance(content, Mapping):
        raise WeightsError(f"{label} holds a {type(content).__name__}, not a state dict")
    for key in HOLDERS:  # first: a trainer may keep a tensor or two, its best loss say, beside the weights
        if isinstance(content.get(key), Mapping):
            return state_dict_in(content[key], f"{label}[{key!r}]")
    tensors = {name: value for name, value in content.items() if isinstance(value, Tensor) and isinstance(name, str)}
    if tensors:
        return tensors
    raise WeightsError(
        f"{label} holds no tensors by name, only {abridged([*map(str, content)])}; a state dict is expected, alone or "
        f"under one of {', '.join(HOLDERS)}"
    )
