"""A run whose steps the caller states: by a pattern, by a function of the path, or one by one.

steps="model_{step}.pth"               {step}, {epoch} or {tokens} is the number, * anything; with / it is a path
steps=r"run7/.*_(\\d+)_\\d+[.]pt"        a regular expression with one group
steps=lambda path: int(path.stem[3:])  the step of a path, None for what is no checkpoint
steps={0: "init.pt", 100: "later.pt"}  paths in the folder, or anywhere
"""

import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from checkpoints.files.checkpoint import abridged
from checkpoints.files.in_folder import BESIDE_WEIGHTS
from checkpoints.remote_path import Place, path_below
from checkpoints.run import Run
from checkpoints.sources.folder import is_weights_file
from checkpoints.sources.names import EPOCH, STEP, TOKEN, number_of
from checkpoints.sources.sequence import NamedRun, Placed
from checkpoints.sources.step_folders import run_of

Steps = str | re.Pattern | Callable[[Place], int | None] | Mapping[int, str | Path]
_PLACEHOLDERS = {"{step}": STEP, "{epoch}": EPOCH, "{tokens}": TOKEN}
_NUMBER = r"(\d+(?:\.\d+)?[kmbtKMBT]|\d+)"
_EXPECTED = 'A pattern such as "model_{step}.pth", or an expression with one group for the step, is expected'
_DEPTH = 4


def stated_run(path: Place, steps: Steps) -> Run:
    """The run in a folder by what the caller says of its steps."""
    if path.is_file():
        raise ValueError(f"steps= is for a folder of checkpoints, {path} is a file")
    if isinstance(steps, Mapping):
        placed, unit = _listed(path, steps), STEP
    elif isinstance(steps, str | re.Pattern):
        expression, unit, whole = _expression(steps)
        placed = _found(path, lambda place: _matched(expression, _seen(place, path, steps), whole), f"steps={steps!r}")
    else:
        placed, unit = _found(path, lambda place: _called(steps, place), "the function steps="), STEP
    return run_of(path, NamedRun(tuple(sorted(placed, key=lambda one: (one.step, one.name))), unit))


def _listed(path: Place, steps: Mapping[int, str | Path]) -> list[Placed]:
    absent = [str(place) for place in steps.values() if not (path / place).exists()]
    if absent:
        raise FileNotFoundError(f"steps=: {abridged(absent)} does not exist in {path}")
    if not steps:
        raise ValueError("steps={} names no checkpoint; {step: path} is expected")
    return [Placed(str(place), _whole(step, f"steps=, {place}")) for step, place in steps.items()]


def _found(path: Place, step_of: Callable[[Place], int | None], asked: str) -> list[Placed]:
    """All that has a step, in the folder and below; what has one is a checkpoint and is not looked into."""
    placed, others, pending = [], [], [(path, 0)]
    while pending:
        folder, depth = pending.pop()
        for place in sorted(folder.iterdir()):
            if not _may_be_one(place):
                continue
            step = step_of(place)
            if step is not None:
                placed.append(Placed(path_below(place, path), step))
            elif place.is_dir() and depth < _DEPTH:
                pending.append((place, depth + 1))
            else:
                others.append(path_below(place, path))
    if not placed:
        raise ValueError(f"{path}: {asked} matches nothing; there is {abridged(others)}")
    return placed


def _may_be_one(place: Place) -> bool:
    if place.name.startswith(".") or BESIDE_WEIGHTS.search(place.name):
        return False
    return place.is_dir() or is_weights_file(place.name)


def _expression(steps: str | re.Pattern) -> tuple[re.Pattern, str, bool]:
    """The regular expression, what its number counts, and whether it must match the whole name."""
    if isinstance(steps, str):
        placeholders = [name for name in _PLACEHOLDERS if name in steps]
        if len(placeholders) > 1 or any(steps.count(name) > 1 for name in placeholders):
            raise ValueError(f"steps={steps!r} has several placeholders, one of {', '.join(_PLACEHOLDERS)} is expected")
        if placeholders:
            text = re.escape(steps).replace(r"\*", "[^/]*")
            return re.compile(text.replace(re.escape(placeholders[0]), _NUMBER)), _PLACEHOLDERS[placeholders[0]], True
    try:
        expression = re.compile(steps)
    except re.error as error:
        raise ValueError(f"steps={steps!r} is no regular expression: {error}. {_EXPECTED}") from None
    if expression.groups != 1:
        raise ValueError(f"steps={steps!r} has {expression.groups} groups. {_EXPECTED}")
    return expression, STEP, False


def _matched(expression: re.Pattern, text: str, whole: bool) -> int | None:
    match = expression.fullmatch(text) if whole else expression.search(text)
    if not match:
        return None
    try:
        return number_of(match[1])
    except ValueError:
        raise ValueError(f"steps={expression.pattern!r} takes {match[1]!r} of {text} for the step: no number") from None


def _seen(place: Place, path: Place, steps: str | re.Pattern) -> str:
    """What the pattern is compared with: the name, or the path inside the folder for patterns with a /."""
    text = steps if isinstance(steps, str) else steps.pattern
    return path_below(place, path) if "/" in text else place.name


def _called(function: Callable[[Place], int | None], place: Place) -> int | None:
    try:
        step = function(place)
    except Exception as error:
        raise ValueError(
            f"the function steps= fails for {place} ({type(error).__name__}: {error}); None is expected for what is no "
            "checkpoint"
        ) from error
    return None if step is None else _whole(step, f"the function steps= of {place}")


def _whole(step: Any, where: str) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise TypeError(f"{where}: a whole number is expected for the step, it is {step!r}") from None
    if number < 0:
        raise ValueError(f"{where}: the step is {number}; 0 or more is expected")
    return number
