"""Where among the names of a checkpoint a family's tensors are, and what looks like attention and is elsewhere."""

import re
from collections.abc import Iterable, Mapping
from functools import cache

from checkpoints.files import Stored
from checkpoints.files.checkpoint import abridged
from checkpoints.heads.layout import Family
from checkpoints.heads.stack import Stack, named

ATTENTION_LIKE = re.compile(
    r"attn|attention|to_q|in_proj|W_[QKVO]|(^|[._])(q|k|v|o|qkv|wq|query|key|value)(_?proj|_lin)?([._]|$)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def places(family: Family, stored: Mapping[str, Stored]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """By prefix, the layers that have all that the family requires, and those that have only some of it."""
    found: dict[str, set[int]] = {}
    template = family.query.name
    tail = template.split("{layer}")[-1]
    names = [name for name in stored if name.endswith(tail)]
    if "{layer}" in template:
        pattern = _pattern(template)
        for name in names:
            match = pattern.fullmatch(name)
            if match:
                found.setdefault(match["prefix"], set()).add(int(match["layer"]))
    else:
        ends = [name.removesuffix(template) for name in names]
        for prefix, layer in _numbered([prefix for prefix in ends if not prefix or prefix.endswith(".")]):
            found.setdefault(prefix, set()).add(layer)
    wanted = [*family.tensors, *family.requires]
    result = {}
    for prefix, layers in found.items():
        whole = {layer for layer in layers if all(named(prefix, name, layer) in stored for name in wanted)}
        if whole:
            result[prefix] = (tuple(sorted(whole)), tuple(sorted(layers - whole)))
    return result


@cache
def _pattern(template: str) -> re.Pattern:
    return re.compile(r"(?P<prefix>(?:.*\.)?)" + re.escape(template).replace(r"\{layer\}", r"(?P<layer>\d+)"))


def _numbered(prefixes: Iterable[str]) -> list[tuple[str, int]]:
    """Every prefix with {layer} in the place of the number that varies, and that number; 0 where there is none.

    Where several vary the last one counts, and the others make stacks of their own; where none does, the first.
    """
    alike: dict[str, list[str]] = {}
    for prefix in prefixes:
        alike.setdefault(_NUMBER.sub("{}", prefix), []).append(prefix)
    found = []
    for members in alike.values():
        numbers = [_NUMBER.findall(prefix) for prefix in members]
        varying = [place for place in range(len(numbers[0])) if len({row[place] for row in numbers}) > 1]
        for prefix, row in zip(members, numbers, strict=True):
            if not row:
                found.append((prefix, 0))
                continue
            place = varying[-1] if varying else 0
            spans = [match.span() for match in _NUMBER.finditer(prefix)]
            start, end = spans[place]
            found.append((prefix[:start] + "{layer}" + prefix[end:], int(row[place])))
    return found


def without_attention(stacks: list[Stack], stored: Mapping[str, Stored], already: set[str]) -> list[str]:
    """What looks like attention and is in none of the stacks, and layers that have none, each in one line."""
    modules = [stack.module for stack in stacks] + [module for module in already if module]
    read = {name for stack in stacks for layer in stack.layers for name in stack.names(layer)}
    inside = [re.compile(re.escape(module).replace(r"\{layer\}", r"\d+")) for module in modules if module.strip(".")]
    found: dict[str, str] = {}
    for name, entry in stored.items():
        is_matrix = len(entry.shape) > 1 and min(entry.shape) > 1 and ATTENTION_LIKE.search(name)
        if is_matrix and name not in read and not any(pattern.match(name) for pattern in inside):
            kind = _NUMBER.sub("{}", name).rsplit(".", 2 if name.endswith("weight") else 1)[0]
            found.setdefault(kind, name)
    lines = [f"{kind} (e.g. {name}): not in a layout known here" for kind, name in found.items()]
    if len(lines) > 6:
        lines = [*lines[:5], f"{len(lines) - 5} more kinds of tensors that look like attention"]
    return [*(line for stack in stacks for line in _bare_layers(stack, stored)), *lines]


def _bare_layers(stack: Stack, stored: Mapping[str, Stored]) -> list[str]:
    """Layers of the same stack that have no attention of this kind."""
    if "{layer}" not in stack.module:
        return []
    stem = stack.module.split("{layer}")[0]
    pattern = re.compile(re.escape(stem) + r"(\d+)\.")
    numbers = {int(match[1]) for name in stored if (match := pattern.match(name))}
    bare = sorted(numbers - set(stack.layers))
    what = f"{stem}{{layer}}: no attention of this kind in layers"
    return [f"{what} {abridged(bare)}, of {len(numbers)}"] if bare else []
