"""What stands around attention: the norm before it, the norm on what it writes, the rotation of its positions.

Found by running the layer that the module is in and seeing what flows where. A norm's gain is what it multiplies a
normalised vector with, measured and not read: some keep 1 + w.
"""

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.architectures.calls import TOKENS, Call, ways
from tests.architectures.intercept import Unmixed
from tests.architectures.truth import Truth, measured, no_norms, norms_in, response

OFFSET = 3


def folded(model: nn.Module, truth: Truth) -> tuple[Tensor, Tensor] | None:
    """OV and QK with the gains of the norms before, inside and after attention; None where that cannot be told."""
    inside = {norm: gain for norm in _norms(truth.module) if (gain := gain_of(norm)) is not None}
    around = _around(model, truth)
    if around is None:
        return None
    before, after = around
    with no_norms(truth.module, inside):
        try:
            scaled = measured(truth.path, truth.module, truth.call)
        except Exception:  # a gain of another shape than that of what is normed
            return None
    ov, qk = scaled.ov, scaled.qk
    if before is not None:
        ov, qk = before[:, None] * ov, before[:, None] * qk * before
    return (ov if after is None else ov * after), qk


def at_offset(model: nn.Module, truth: Truth) -> Tensor | None:
    """QK between a query and the key `OFFSET` positions before it, rotated as the model does it."""
    positions = torch.arange(TOKENS)[None]
    is_plain = False
    rotations = _rotations(model, truth, positions)
    for rotation in [*rotations, truth.call.rotation]:
        call = replace(truth.call, rotation=rotation, positions=positions)
        try:
            with no_norms(truth.module):
                _, query, key = response(call, torch.eye(truth.call.width), OFFSET)
        except Exception:  # not the rotation that this module wants
            continue
        query, key = query.transpose(0, 1), key.transpose(0, 1)
        turned = query @ key.repeat_interleave(len(query) // len(key), 0).mT
        if not torch.allclose(turned, truth.qk, atol=1e-6 * float(truth.qk.abs().max())):
            return turned
        is_plain = is_plain or any(rotation is one for one in rotations)
    return truth.qk if is_plain else None  # a layer that rotates nothing, whatever it is given


def gain_of(norm: nn.Module, size: int | None = None) -> Tensor | None:
    """What a norm multiplies with; None for what is no RMSNorm and no LayerNorm. Without weights it has that size."""
    sizes = [p.shape[-1] for p in norm.parameters()] or ([size] if size else [])
    if not sizes:
        return None
    vectors = 1e3 * torch.randn(2, sizes[0], generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        try:
            normed = norm.double()(vectors)
        except Exception:
            return None
    centred = vectors - vectors.mean(-1, keepdim=True)
    for plain in (vectors, centred):
        gain = normed / (plain / plain.pow(2).mean(-1, keepdim=True).sqrt())
        if normed.shape == vectors.shape and torch.allclose(gain[0], gain[1], rtol=1e-5):
            return gain[0].double()
    return None


def _norms(module: nn.Module) -> list[nn.Module]:
    """Those on the way of one head; a norm of the sum with the residual stream is not."""
    of_sums = {id(part) for owner in module.modules() if "Output" in type(owner).__name__ for part in owner.modules()}
    return [norm for norm in norms_in(module) if id(norm) not in of_sums]


def _around(model: nn.Module, truth: Truth) -> tuple[Tensor | None, Tensor | None] | None:
    """Gains of the norm whose output attention reads and of the norm that reads what attention writes."""
    layer = _layer_of(model, truth.path)
    norms = [norm for norm in norms_in(layer) if norm not in list(truth.module.modules())]
    seen: dict[Any, Any] = {}
    hooks = [truth.module.register_forward_hook(lambda m, a, k, o: seen.update({m: (a, k, o)}), with_kwargs=True)]
    hooks += [n.register_forward_hook(lambda m, a, o: seen.update({m: (a, o)})) for n in norms]
    try:
        if not any(
            _runs(replace(way, width=truth.call.width, rotation=truth.call.rotation), seen, truth.module)
            for way in ways(layer, False, truth.call.dtype)
        ):
            return None
    finally:
        for hook in hooks:
            hook.remove()
    args, kwargs, output = seen[truth.module]
    read = [*args, *kwargs.values()]
    written = output[0] if isinstance(output, tuple) else output
    before = [n for n in norms if n in seen and any(seen[n][1] is x for x in read)]
    after = [n for n in norms if n in seen and seen[n][0] and seen[n][0][0] is written and not truth.adds_input]
    gains = [gain_of(found[0], truth.call.width) if found else None for found in (before, after)]
    if any(found and gain is None for found, gain in zip((before, after), gains, strict=True)):
        return None
    return gains[0], gains[1]


def _runs(way: Call, seen: dict[Any, Any], module: nn.Module) -> bool:
    tokens = torch.randn(1, TOKENS, way.width, generator=torch.Generator().manual_seed(4))
    seen.clear()
    with suppress(Exception):  # what comes after attention may not like it; what was seen by then counts
        way(tokens, tokens, keeps_norms=True)
    return module in seen


def _layer_of(model: nn.Module, path: str) -> nn.Module:
    """The innermost numbered module that attention is in."""
    parts = path.split(".")
    numbered = [n for n, part in enumerate(parts) if part.isdigit()]
    return model.get_submodule(".".join(parts[: numbered[-1] + 1])) if numbered else model.get_submodule(path)


def _rotations(model: nn.Module, truth: Truth, positions: Tensor) -> list[Any]:
    """What the rotary modules of the model make of positions, the nearest to this attention first; None without any."""
    kinds = [(p, m) for p, m in model.named_modules() if re.search("rotary|rope", type(m).__name__, re.IGNORECASE)]
    kinds.sort(key=lambda item: -len(_common(item[0], truth.path)))
    if not kinds:
        return [None]
    layer_type = _layer_type(model, truth)
    found = []
    for _, rotary in kinds:
        for extra in ([layer_type], []) if layer_type else ([],):
            try:
                with torch.no_grad(), Unmixed(keeps_norms=True):
                    found.append(
                        rotary(torch.zeros(1, TOKENS, truth.call.width).to(truth.call.dtype), positions, *extra)
                    )
            except Exception:  # not called like this
                continue
    return found


def _layer_type(model: nn.Module, truth: Truth) -> str | None:
    """What kind of layer it is, where rotations differ by that."""
    for owner in (truth.module, _layer_of(model, truth.path)):
        for name in ("layer_type", "attention_type"):
            if isinstance(found := getattr(owner, name, None), str):
                return found
    kinds, number = (
        getattr(getattr(truth.module, "config", None), "layer_types", None),
        truth.module.__dict__.get("layer_idx"),
    )
    return kinds[number] if kinds and isinstance(number, int) and number < len(kinds) else None


def _common(first: str, second: str) -> str:
    same = [a for a, b in zip(first, second, strict=False) if a == b]
    return "".join(same)
