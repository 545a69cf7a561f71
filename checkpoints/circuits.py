"""How a run says what its circuits are: data in run.json, from the names of its tensors to matrices, never code.

Attention heads are found by the names of their weights (see `checkpoints.heads`). A run with weights of another kind
describes its circuits, by name, each as a matrix M [layer, head, rows, columns] in einops' notation:

    {"tensors": ["gamma"], "pattern": "layer row column -> layer 1 row column"}
        one tensor, its axes put where they belong
    {"tensors": ["value", "key"], "pattern": "head, head rank row -> 1 1 row (head rank)"}
        two, multiplied in float64; an axis that both have and the outcome has not is summed over
    {"tensors": ["v"], "pattern": "task part -> 1 1 task task", "at": {"part": 0}}
        `at` takes one place along an axis; an axis that is both rows and columns is a diagonal with zeros around it
    {"beside": [M, M]} or {"above": [M, M]}
        matrices of the kinds above as blocks of one, from left to right or from top to bottom
    {"left": M, "right": M}
        the product of two matrices of any kind above, never multiplied out

What a description asks for is checked against names and shapes before anything is computed, and so is its size.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import einops
import torch
from torch import Tensor

from checkpoints.files.checkpoint import Tensors, abridged

LARGEST = 2**27
"""Numbers in a matrix made here, 1 GB of float64: a larger one is a product, and belongs into `left` and `right`."""

FORMS = (
    '{"tensors": [one or two names], "pattern": "axes, axes -> layer head rows columns"} with or without '
    '"at": {axis: place}; {"beside": [...]} or {"above": [...]} of these; or {"left": ..., "right": ...} of all those'
)

_AXIS = re.compile(r"[A-Za-z](?:[A-Za-z0-9_]*[A-Za-z0-9])?")
_GROUPS = re.compile(r"\([^()]*\)|[^\s()]+|[()]")

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Term:
    """One tensor, or the product of two, as a matrix [layer, head, rows, columns]."""

    where: str
    """What the description is of; errors begin with it."""
    names: tuple[str, ...]
    inputs: tuple[Axes, ...]
    outcome: tuple[Axes, ...]
    """Of layer, head, rows and columns, the axes that make it up; none where its length is 1."""
    at: Mapping[str, int] = field(default_factory=dict)

    def read(self, tensors: Tensors) -> Tensor:
        """The matrix; raises ValueError where names or shapes are not what the pattern says."""
        stored = {name: _stored(self.where, tensors, name) for name in self.names}
        self._require_fitting(stored)
        parts = [self._taken(stored[name], axes) for name, axes in zip(self.names, self.inputs, strict=True)]
        axes = [" ".join(axis for axis in given if axis not in self.at) for given in self.inputs]
        groups, is_diagonal = self.outcome, _is_diagonal(self.outcome)
        if is_diagonal:
            groups = groups[:3]
        if len(parts) == 2:
            flat = " ".join(axis for group in groups for axis in group)
            product = einops.einsum(parts[0].double(), parts[1].double(), f"{axes[0]}, {axes[1]} -> {flat}")
            parts, axes = [product], [flat]
        matrix = einops.rearrange(parts[0], f"{axes[0]} -> {' '.join(map(_in_pattern, groups))}")
        return torch.diag_embed(matrix) if is_diagonal else matrix

    def _taken(self, tensor: Tensor, axes: Axes) -> Tensor:
        """The tensor without the axes of which one place is taken."""
        return tensor[tuple(self.at.get(axis, slice(None)) for axis in axes)]

    def _require_fitting(self, stored: Mapping[str, Tensor]) -> None:
        """The shapes are those of the pattern, and what comes out is not too large."""
        sizes: dict[str, int] = {}
        for name, axes in zip(self.names, self.inputs, strict=True):
            shape = tuple(stored[name].shape)
            if len(shape) != len(axes):
                raise ValueError(f"{self.where}: {name!r} is {shape}, the pattern names {len(axes)} axes {axes}")
            for axis, size in zip(axes, shape, strict=True):
                if sizes.setdefault(axis, size) != size:
                    raise ValueError(f"{self.where}: {axis!r} is {sizes[axis]} long, in {name!r} {shape} it is {size}")
        for axis, place in self.at.items():
            if place >= sizes[axis]:
                raise ValueError(f'{self.where}: "at" takes {axis} {place}, of which there are {sizes[axis]}')
        if len(self.names) > 1 or _is_diagonal(self.outcome):  # else nothing is made that is not there already
            _require_moderate(self.where, math.prod(sizes[axis] for group in self.outcome for axis in group))


@dataclass(frozen=True)
class Blocks:
    """Matrices beside or above each other, as one."""

    where: str
    terms: tuple[Term, ...]
    axis: int

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that are read."""
        return tuple(name for term in self.terms for name in term.names)

    def read(self, tensors: Tensors) -> Tensor:
        """The matrix of all blocks."""
        blocks: list[Tensor] = []
        for term in self.terms:
            blocks.append(term.read(tensors))
            _require_moderate(self.where, sum(block.numel() for block in blocks))
        shapes = [tuple(block.shape) for block in blocks]
        if len({(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in shapes}) > 1:
            what = "above" if self.axis == 2 else "beside"
            raise ValueError(f"{self.where}: blocks of {abridged(shapes)} do not fit {what} each other")
        return torch.cat(blocks, self.axis)


@dataclass(frozen=True)
class DescribedCircuit:
    """A circuit as a run describes it: one matrix, or the two of a product."""

    where: str
    parts: tuple[Term | Blocks, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that are read, each once."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.names))

    def read(self, tensors: Tensors) -> list[Tensor]:
        """The matrix [layer, head, rows, columns], or the two whose product it is."""
        matrices = [part.read(tensors) for part in self.parts]
        if len(matrices) == 2:
            left, right = (tuple(matrix.shape) for matrix in matrices)
            if left[-1] != right[-2] or left[:2] != right[:2]:
                raise ValueError(
                    f"{self.where}: left is {left} and right {right}: [layer, head, rows, inner] and "
                    "[layer, head, inner, columns] are expected"
                )
        return matrices


def described_circuit(description: Any, where: str) -> DescribedCircuit:
    """What a description means; raises ValueError that begins with `where` and says what is expected."""
    if isinstance(description, Mapping) and description.keys() == {"left", "right"}:
        sides = (_matrix(description[side], f"{where}, {side}") for side in ("left", "right"))
        return DescribedCircuit(where, tuple(sides))
    return DescribedCircuit(where, (_matrix(description, where),))


def _matrix(description: Any, where: str) -> Term | Blocks:
    for word, axis in (("beside", 3), ("above", 2)):
        if isinstance(description, Mapping) and description.keys() == {word}:
            blocks = description[word]
            if not isinstance(blocks, list | tuple) or len(blocks) < 2:
                raise ValueError(f'{where}: "{word}" is {blocks!r}, a list of at least two is expected')
            return Blocks(where, tuple(_term(block, f"{where}, {word} {i}") for i, block in enumerate(blocks)), axis)
    return _term(description, where)


def _term(description: Any, where: str) -> Term:
    needed = {"tensors", "pattern"}
    if not isinstance(description, Mapping) or not needed <= {*description} <= needed | {"at"}:
        raise ValueError(f"{where}: {_shown(description)} is not a description. Expected is {FORMS}")
    names, pattern, at = description["tensors"], description["pattern"], description.get("at", {})
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not is_list or len(names) not in (1, 2):
        raise ValueError(f'{where}: "tensors" is {_shown(names)}, a list of one or two names is expected')
    if not isinstance(at, Mapping) or not all(type(place) is int and place >= 0 for place in at.values()):
        raise ValueError(f'{where}: "at" is {_shown(at)}, places from 0 on by axis are expected')
    inputs, outcome = _parsed(pattern, f"{where}, pattern {_shown(pattern)}")
    term = Term(where, tuple(names), inputs, outcome, dict(at))
    _require_sense(term, f"{where}, pattern {_shown(pattern)}")
    return term


def _parsed(pattern: Any, where: str) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    if not isinstance(pattern, str) or pattern.count("->") != 1 or len(pattern) > 1000:
        raise ValueError(f'{where}: text of the form "axes, axes -> layer head rows columns" is expected')
    before, after = pattern.split("->")
    inputs = tuple(tuple(given.split()) for given in before.split(","))
    groups = _GROUPS.findall(after)
    if len(groups) != 4:
        raise ValueError(f"{where}: {len(groups)} axes come out, four are expected: layer, head, rows and columns")
    outcome = tuple(() if group == "1" else tuple(group.strip("()").split()) for group in groups)
    for axis in (axis for axes in (*inputs, *outcome) for axis in axes):
        if not _AXIS.fullmatch(axis):
            raise ValueError(f"{where}: {_shown(axis)} cannot be the name of an axis, letters and digits are expected")
    if any(group != "1" and not axes for group, axes in zip(groups, outcome, strict=True)):
        raise ValueError(f"{where}: an axis of length 1 is written 1")
    return inputs, outcome


def _require_sense(term: Term, where: str) -> None:
    """Every axis comes from somewhere and goes somewhere, once."""
    if len(term.inputs) != len(term.names):
        raise ValueError(f"{where}: it has {len(term.inputs)} tensors before the arrow, there are {len(term.names)}")
    if any(len(set(axes)) < len(axes) for axes in term.inputs):
        raise ValueError(f"{where}: an axis stands twice in one tensor")
    given = [axis for axes in term.inputs for axis in axes]
    groups = term.outcome[:3] if _is_diagonal(term.outcome) else term.outcome
    wanted = [axis for group in groups for axis in group]
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"{where}: an axis comes out twice, which only the diagonal of rows and columns may")
    unknown = [axis for axis in (*wanted, *term.at) if axis not in given]
    if unknown:
        raise ValueError(f"{where}: there is no axis {unknown[0]!r} before the arrow")
    lost = [axis for axis in given if axis not in term.at and axis not in wanted and given.count(axis) == 1]
    if lost:
        raise ValueError(f'{where}: {lost[0]!r} is lost: let it come out, or take one place along it with "at"')
    both = [axis for axis in term.at if axis in wanted]
    if both:
        raise ValueError(f'{where}: of {both[0]!r} one place is taken with "at", so it cannot come out')


def _is_diagonal(outcome: tuple[Axes, ...]) -> bool:
    return len(outcome[2]) == 1 and outcome[2] == outcome[3]


def _in_pattern(group: Axes) -> str:
    return f"({' '.join(group)})" if len(group) > 1 else "".join(group) or "1"


def _stored(where: str, tensors: Tensors, name: str) -> Tensor:
    if name not in tensors:
        raise ValueError(f"{where}: there is no tensor {_shown(name)}; there are {abridged(list(tensors))}")
    return tensors[name]


def _require_moderate(where: str, count: int) -> None:
    if count > LARGEST:
        raise ValueError(
            f"{where}: it would hold {count} numbers, at most {LARGEST} are made here. "
            'A product can be left as {"left": ..., "right": ...}'
        )


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 80 else text[:77] + "..."
