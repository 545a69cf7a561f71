"""Where in what a trainer saved the weights are: the state dict alone, or under one of the usual keys.

What is nested is flattened, with dots between the keys ({"encoder": {"0": {"w": ...}}} is encoder.0.w), without the
optimizer and its like. A table that holds itself is refused; so is anything deeper than `DEEPEST`.
"""

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from checkpoints.files.checkpoint import WeightsError, abridged
from checkpoints.files.pickle_values import Fields

HOLDERS = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "module",
    "net",
    "network",
    "params",
    "weights",
    "app",
)
"""Keys under which trainers keep the weights, tried in this order."""

STEP_KEYS = ("global_step", "iter_num", "step", "iteration", "steps", "global_steps")
"""Keys under which trainers keep the step."""

CONFIG_KEYS = ("model_args", "model_config", "hparams", "hyper_parameters", "config", "args")
"""Keys under which trainers keep the shape of the model."""

NOT_WEIGHTS = re.compile(
    r".*optim.*|.*scheduler.*|(grad_)?scaler|.*rng.*|.*random_state.*|callbacks|loops|.*sampler.*|.*loader.*|metrics",
    re.I,
)
"""Keys of what trainers keep beside the weights; tensors in the tables under them are not the model's."""

MOST_NAMES = 500_000
"""Tables that share their parts can have more names than there are atoms."""

DEEPEST = 40


def state_dict_in(content: Any, label: str, leaf: type | tuple[type, ...]) -> dict[str, Any]:
    """The tensors (values of type `leaf`) of a model by name, whether saved alone or inside what a trainer keeps."""
    for _ in range(DEEPEST):
        if not isinstance(content, Mapping):
            kind = content.kind if isinstance(content, Fields) else type(content).__name__
            raise WeightsError(f"{label} holds a {kind}, not a state dict")
        for key in HOLDERS:  # first: a trainer may keep a tensor or two, its best loss say, beside the weights
            if isinstance(content.get(key), Mapping):
                _say_what_is_left_out(content, key, leaf)
                content, label = content[key], f"{label}[{key!r}]"
                break
        else:
            return _tensors(content, label, leaf)
    raise WeightsError(f"{label[:200]} ... is refused: a table that holds itself. Save the state dict alone")


def _say_what_is_left_out(content: Mapping, taken: str, leaf: type | tuple[type, ...]) -> None:
    """Name other tables of weights (an average, a second model) beside the one that is read; once for all files."""
    beside = [key for key in content if isinstance(key, str) and key != taken and not NOT_WEIGHTS.fullmatch(key)]
    others = [key[:80] for key in beside if _holds(content[key], leaf)]
    if others:
        warnings.warn(
            f"read are the weights under {taken!r}; left out is what was saved beside them: {abridged(others)}. To "
            "measure that, save it alone",
            stacklevel=2,
        )


def _holds(value: Any, leaf: type | tuple[type, ...], depth: int = 3) -> bool:
    """Whether a table has tensors in it, not too deep; a tensor by itself is a trainer's number."""
    if not isinstance(value, Mapping) or not depth:
        return False
    return any(isinstance(inner, leaf) or _holds(inner, leaf, depth - 1) for inner in value.values())


def _tensors(content: Mapping, label: str, leaf: type | tuple[type, ...]) -> dict[str, Any]:
    tensors = flattened(content, label, leaf)
    if tensors:
        return tensors
    raise WeightsError(
        f"{label} holds no tensors by name, only {abridged([str(key)[:80] for key in content])}; a state dict is "
        f"expected, alone or under one of {', '.join(HOLDERS)}"
    )


def flattened(content: Mapping, label: str, leaf: type | tuple[type, ...]) -> dict[str, Any]:
    """The tensors of tables and lists within each other, keys joined by dots, without what is not weights."""
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any, tuple[int, ...]]] = [("", content, ())]
    left = MOST_NAMES
    while waiting:
        name, value, above = waiting.pop()
        if isinstance(value, leaf):
            if name in found:
                raise WeightsError(f"{label} holds {name[:200]!r} twice once its tables are flattened")
            found[name] = value
        elif isinstance(value, Mapping | list):
            left -= 1 + len(value) * (1 + len(name) // 64)
            if id(value) in above or len(above) > DEEPEST or left < 0:
                raise WeightsError(
                    f"{label} is refused: it holds itself under {name[:200]!r}, or more tables within each other than "
                    "a model has. Save the state dict alone"
                )
            for key, inner in _items(value):
                if above or isinstance(inner, leaf) or not NOT_WEIGHTS.fullmatch(key):
                    waiting.append((f"{name}.{key}" if name else key, inner, (*above, id(value))))
    return dict(reversed(found.items()))


def _items(value: Mapping | list) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [(str(i), item) for i, item in enumerate(value)]
    return [(str(key), item) for key, item in value.items() if isinstance(key, str | int)]


def kept_step(content: Any) -> int | None:
    """The step that the trainer kept beside the weights."""
    kept = (content.get(key) for key in STEP_KEYS) if isinstance(content, Mapping) else ()
    return next((step for step in kept if type(step) is int and 0 <= step < 1 << 62), None)


def kept_config(content: Any) -> dict[str, Any]:
    """The shape of the model, where the trainer kept it beside the weights."""
    kept = (content.get(key) for key in CONFIG_KEYS) if isinstance(content, Mapping) else ()
    return next((settings for value in kept if (settings := plain(value))), {})


def plain(value: Any) -> dict[str, Any]:
    """Settings as a table of plain values, of an object its attributes; what is deep or no setting is left out."""
    settings = _plain(value, 0)
    return settings if isinstance(settings, dict) else {}


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Fields):
        value = value.fields
    if isinstance(value, Mapping) and depth < 5:
        return {str(key): _plain(inner, depth + 1) for key, inner in list(value.items())[:2000]}
    if isinstance(value, list | tuple) and depth < 5:
        return [_plain(inner, depth + 1) for inner in value[:2000]]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | bool) else None
