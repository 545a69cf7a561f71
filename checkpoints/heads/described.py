"""A family described in a file, TOML or JSON: data, never code.

    name = "mine"
    query = {name = "blocks.{layer}.attn.q.weight", axes = "(head d_head) d_model"}
    key = {name = "blocks.{layer}.attn.k.weight", axes = "(head d_head) d_model"}
    value = {name = "blocks.{layer}.attn.v.weight", axes = "(head d_head) d_model"}
    output = {name = "blocks.{layer}.attn.o.weight", axes = "d_model (head d_head)"}
    input_norm = "blocks.{layer}.ln1.weight"

The keys are the arguments of `Family`, those of the four tables the arguments of `Weight`.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from checkpoints.heads.find import family_named
from checkpoints.heads.layout import Family
from checkpoints.heads.weights import Weight

_WEIGHTS = ("query", "key", "value", "output", "disambiguator", "rotary_query", "rotary_key")
_KINDS = {"str": str, "bool": bool, "int": int, "float": (int, float)}


def family_from(text: str) -> Family | str:
    """A family from a file that describes it, or the name of a known one, as it was given on a command line."""
    path = Path(text)
    if path.suffix in (".toml", ".json"):
        return described_family(path)
    return family_named(text).name


def described_family(path: Path) -> Family:
    """The family that a file describes; raises ValueError with what is expected."""
    try:
        content = path.read_bytes().decode()
        described = tomllib.loads(content) if path.suffix == ".toml" else json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: a family is described in TOML or JSON, and this cannot be read: {error}") from None
    if not isinstance(described, Mapping):
        raise ValueError(f"{path}: a table of the arguments of a Family is expected")
    given = {**described}
    for role in _WEIGHTS:
        if role in given:
            given[role] = _weight(given[role], f"{path}, {role}")
    return _made(Family, {"name": path.stem, **given}, str(path))


def _weight(described: Any, where: str) -> Weight:
    if not isinstance(described, Mapping):
        raise ValueError(f'{where}: {{name = "...", axes = "..."}} is expected, {described!r} came')
    given = {**described}
    if "down" in given:
        given["down"] = _weight(given["down"], f"{where}, down")
    return _made(Weight, given, where)


def _made(kind: Any, given: Mapping[str, Any], where: str) -> Any:
    """A Family or Weight of the arguments, each of the type that it must have."""
    known = {one.name: one for one in fields(kind)}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ValueError(f"{where}: {kind.__name__} has no {unknown[0]!r}; it has {', '.join(known)}")
    missing = [name for name, one in known.items() if one.default is MISSING and name not in given]
    if missing:
        raise ValueError(f"{where}: {kind.__name__} needs {', '.join(missing)} too")
    for key, value in given.items():
        name = getattr(known[key].type, "__name__", "")
        wanted = _KINDS.get(name)
        if wanted and not isinstance(value, wanted):
            raise ValueError(f"{where}: {key} is {value!r}, {name} is expected")
    return kind(**{key: _frozen(value) for key, value in given.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
