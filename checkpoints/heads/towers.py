"""What the stacks of a model are called where there are several: encoder, decoder, cross, text, vision, audio ...

The words come from the names of the tensors; where two stacks would get the same, the whole path tells them apart.
"""

import re
from dataclasses import replace

from checkpoints.heads.configs import WORDS
from checkpoints.heads.stack import Stack

_CROSS = re.compile(r"cross|encoder_attn|EncDecAttention|multihead_attn", re.IGNORECASE)


def with_towers(stacks: list[Stack]) -> list[Stack]:
    """The stacks with a name each, if there are several."""
    if len(stacks) < 2:
        return stacks
    names = [stack.family.tower or _tower(stack) for stack in stacks]
    names = [name if names.count(name) == 1 else _path(stack) for name, stack in zip(names, stacks, strict=True)]
    names = [name if names.count(name) == 1 else f"{name}.{number}" for number, name in enumerate(names)]
    return [replace(stack, tower=name) for name, stack in zip(names, stacks, strict=True)]


def _tower(stack: Stack) -> str:
    module = stack.module
    if _CROSS.search(module):
        return "cross"
    words = re.split(r"[._]", stack.prefix.lower())
    for word in words:
        for tower, meant in WORDS.items():
            if word in meant:
                return tower
        if word in ("encoder", "decoder"):
            return word
    return _path(stack)


def _path(stack: Stack) -> str:
    """The path of the stack without numbers and what every model has."""
    steps = [
        step for step in stack.module.split(".") if step and step not in ("model", "layers", "{layer}", "blocks", "h")
    ]
    own = [step for step in steps if step not in ("self_attn", "attn", "attention", "self")]
    return ".".join(own or steps) or "main"
