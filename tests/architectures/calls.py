"""How to call an attention module alone: an argument for every parameter of its forward, by the parameter's name.

Positions are all the first, so that rotation is the identity. Modules differ in whether tokens stand in a batch, in a
row of several texts or in an image, and in how they want the rotation; what works is what is used.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.architectures.intercept import Unmixed

TOKENS = 16
QUERIES = {"query", "queries", "q", "query_tensor", "query_states", "latents"}
OTHERS = {
    *("key", "keys", "k", "key_tensor", "key_states", "value", "values", "v", "value_tensor", "value_states"),
    *("key_value_states", "encoder_hidden_states", "cross_attention_states", "context", "memory"),
}
"""What is read for keys and values where it is given apart."""
ROTATIONS = {"position_embeddings", "rotary_pos_emb", "freqs_cis", "freqs_ci", "rope_position_embeddings"}


@dataclass(frozen=True)
class Call:
    """One way to call a module that works: how tokens stand, what stands for rotation, and the widths that are read."""

    module: nn.Module
    standing: str
    rotation: Any
    mask: Tensor | None
    alibi: Tensor | None
    width: int
    other_width: int
    is_cross: bool
    dtype: torch.dtype = torch.float64
    positions: Tensor | None = None

    def __call__(self, tokens: Tensor, others: Tensor, keeps_norms: bool = False) -> tuple[Tensor, Unmixed]:
        """Output [batch, token, d] for inputs [batch, token, d], and what was seen on the way."""
        arguments = _arguments(self, *(self._stood(x.to(self.dtype)) for x in (tokens, others)))
        with torch.no_grad(), Unmixed(len(tokens), keeps_norms) as unmixed:
            output = self.module(**arguments)
        output = output[0] if isinstance(output, tuple | list) else output
        output = getattr(output, "last_hidden_state", output)
        if self.standing == "first":
            output = output.transpose(0, 1)
        return output.reshape(len(tokens), TOKENS, -1).double(), unmixed

    def _stood(self, tokens: Tensor) -> Tensor:
        if self.standing == "packed":
            return tokens[0]
        if self.standing == "image":
            side = int(TOKENS**0.5)
            return tokens.reshape(len(tokens), side, side, -1)
        return tokens.transpose(0, 1) if self.standing == "first" else tokens


def ways(module: nn.Module, is_cross: bool, dtype: torch.dtype) -> Iterator[Call]:
    """Ways in which the module, of that dtype, might want to be called, the usual ones first."""
    widths = list(dict.fromkeys(_widths(module)))[:4]
    ones = torch.ones(1, 1, TOKENS, TOKENS, dtype=dtype)
    biases = torch.zeros(_heads(module), 1, TOKENS, dtype=dtype)
    masks: tuple[Any, ...] = ((ones, biases),)
    if not getattr(getattr(module, "config", None), "alibi", False):  # which stands instead of rotation
        masks = ((None, None), (ones, None), *masks, (ones[0, :1, 0], None))
    needs_rotation = ROTATIONS & set(_parameters(module))
    for width in widths:
        for other in [width, *[w for w in widths if w != width]] if is_cross else [width]:
            for standing in ("batch", "packed", "image", "first"):
                for rotation in _rotations(module, dtype) if needs_rotation else [None]:
                    for mask, alibi in masks:
                        yield Call(module, standing, rotation, mask, alibi, width, other, is_cross, dtype)


def _widths(module: nn.Module) -> Iterator[int]:
    for part in module.modules():
        weight = getattr(part, "weight", None)
        if isinstance(part, nn.Linear):
            yield part.in_features
        elif isinstance(weight, Tensor) and weight.ndim == 2:
            yield weight.shape[0]
    for parameter in module.parameters(recurse=False):
        yield from parameter.shape[-1:]
        yield from parameter.shape[:1]


def _rotations(module: nn.Module, dtype: torch.dtype) -> Iterator[Any]:
    """(cos, sin) of no rotation, in the shapes that are met; a complex one; none."""
    d_head = getattr(module, "qk_rope_head_dim", None) or getattr(module, "head_dim", 12)
    for shape in ((1, TOKENS, 1), (TOKENS, 1), (1, TOKENS, d_head), (TOKENS, d_head), (1, 1, TOKENS, d_head)):
        yield torch.ones(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
    yield torch.ones(1, TOKENS, 1, dtype=torch.complex128 if dtype == torch.float64 else torch.complex64)
    yield None


def _parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {n: p for n, p in inspect.signature(module.forward).parameters.items() if p.kind in kinds}


def _arguments(call: Call, tokens: Tensor, others: Tensor) -> dict[str, Any]:
    module = call.module
    known = {
        "cu_seqlens": torch.tensor([0, TOKENS], dtype=torch.int32),
        "position_ids": torch.zeros(1, TOKENS, dtype=torch.long) if call.positions is None else call.positions,
        "alibi": call.alibi,
        "position_bias": torch.zeros(_heads(module), TOKENS, TOKENS, dtype=call.dtype),
        "residual": tokens,
        "input_tensor": tokens,
        "layer_idx": 0,
        "max_seqlen": TOKENS,
        "height": int(TOKENS**0.5),
        "width": int(TOKENS**0.5),
        "output_attentions": False,
        "use_cache": False,
        "shared_kv_states": {},
    }
    found: dict[str, Any] = {}
    for number, (name, parameter) in enumerate(_parameters(module).items()):
        is_needed = parameter.default is inspect.Parameter.empty
        if name in OTHERS:
            if is_needed or call.is_cross:
                found[name] = others
        elif number == 0 or (name in QUERIES and is_needed):
            found[name] = tokens
        elif name in ROTATIONS:
            found[name] = call.rotation
        elif name in ("attention_mask", "mask", "attn_mask"):
            found[name] = call.mask
        elif (
            name in ("position_ids", "shared_kv_states")
            or (name == "position_bias" and call.alibi is not None)
            or (is_needed and name in known)
        ):
            found[name] = known[name]
        elif is_needed:
            found[name] = None
    return found


def _heads(module: nn.Module) -> int:
    return next((getattr(module, n) for n in ("num_heads", "num_attention_heads", "n_heads") if hasattr(module, n)), 4)
