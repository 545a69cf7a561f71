"""What every head of a model does, found by running its attention modules on unit vectors.

    OV of head h    row i is what the module writes for the i-th unit vector when it attends to it in head h alone
    QK of head h    q_i . k_j: the products of the queries and keys that the module makes of unit vectors

Nothing here knows where a weight is kept, which is what makes it a judge of code that does.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import AttentionInterface

from tests.architectures.calls import TOKENS, Call, ways
from tests.architectures.intercept import attention_function

AttentionInterface.register("unmixed", attention_function)

ATTENTION = re.compile(r"attention|attn|multihead", re.IGNORECASE)
CROSS = re.compile(r"cross|encoder_attn|encdec|encoder_decoder|src_attn", re.IGNORECASE)


@dataclass(frozen=True)
class Truth:
    """One attention module: its path in the model, and per query head the two matrices [head, d_model, d_model]."""

    path: str
    ov: Tensor
    qk: Tensor
    query: Tensor
    """[head, d_model, d]; with `key`, the factors of qk."""
    key: Tensor
    module: nn.Module
    call: Call
    is_gated: bool
    adds_input: bool
    """Whether what the module returns has the residual stream in it."""


@dataclass(frozen=True)
class Unknown:
    """A module that looks like attention and of which no linear truth was found, with the reason."""

    path: str
    module: nn.Module
    reason: str


def truths(model: nn.Module) -> list[Truth | Unknown]:
    """The truth of every attention module of a model, which is turned to float64 for it."""
    model.double()
    for module in model.modules():
        if hasattr(config := getattr(module, "config", None), "_attn_implementation"):
            config._attn_implementation = "unmixed"
    return list(_within("", model))


def _within(path: str, module: nn.Module) -> Iterator[Truth | Unknown]:
    """Outermost modules first; what cannot be told of a module may be told of those inside."""
    reason = None
    if path and ATTENTION.search(type(module).__name__) and any(p.ndim >= 2 for p in module.parameters()):
        found = truth_of(path, module)
        if isinstance(found, Truth):
            yield found
            return
        reason = found
    inner = [found for name, child in module.named_children() for found in _within(f"{path}.{name}".strip("."), child)]
    if reason is not None and not inner:
        yield Unknown(path, module, reason)
    yield from inner


def truth_of(path: str, module: nn.Module) -> Truth | str:
    """The truth of one module, or why there is none."""
    is_cross = bool(CROSS.search(f"{path.split('.')[-1]} {type(module).__name__}"))
    reasons: list[str] = []
    with no_norms(module):
        for dtype in (torch.float64, torch.float32):  # some keep tables that do not follow
            module.to(dtype)
            for call in ways(module, is_cross, dtype):
                try:
                    return measured(path, module, call)
                except Exception as error:  # not linear, or not to be called like this
                    told = str(error) if isinstance(error, NotLinearError) else f"{type(error).__name__}: {error}"
                    reasons.append(told.split("\n")[0][:120])
            if any("dtype" not in reason for reason in reasons):
                break
    unlike = [reason for reason in reasons if ": " not in reason]
    return (unlike or reasons)[0] if reasons else "no way to call it"


class NotLinearError(Exception):
    """The module does something else than attention to what it reads."""


def measured(path: str, module: nn.Module, call: Call) -> Truth:
    """The truth of a module by one way to call it."""
    zero, unmixed = call(*_first(call, torch.zeros(1, max(call.width, call.other_width))))
    if len(unmixed.seen) != 1:
        raise NotLinearError(f"{len(unmixed.seen)} attentions in one module")
    units = torch.eye(max(call.width, call.other_width))
    try:
        parts = [response(call, units)]
    except Exception:  # a module that takes one text at a time
        parts = [response(call, unit[None]) for unit in units]
    written, query, key = (torch.cat(part).transpose(0, 1) for part in zip(*parts, strict=True))  # [head, unit, d]
    ov, query, key = written[:, : call.other_width], query[:, : call.width], key[:, : call.other_width]
    alone, _ = call(*_first(call, torch.ones(1, len(units))))  # nothing is attended to at the first position
    adds_input = float(alone[:, 0].abs().max()) > 0
    qk = query @ _shared(key, query.shape[0]).mT
    truth = Truth(path, ov, qk, query, key, module, call, unmixed.is_gated, adds_input)
    _require_linear(truth, zero)
    return truth


def response(call: Call, vectors: Tensor, offset: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """What each head writes for vectors at the first position, and their queries and keys: [vector, head, d].

    Queries are those of the same vectors `offset` positions later.
    """
    output, unmixed = call(*_first(call, vectors, offset))
    query, key = (x.double() for x in _content(unmixed.seen[0]))
    return output[:, 1 : 1 + query.shape[1]], query[:, :, offset], key[:, :, 0]


def _first(call: Call, vectors: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
    """Texts whose first token is one of the vectors and whose other tokens are zero, for queries and for the rest."""
    made = []
    for width in (call.width, call.other_width):
        tokens = torch.zeros(len(vectors), TOKENS, width, dtype=torch.float64)
        tokens[:, 0] = tokens[:, offset] = vectors[:, :width].double()
        made.append(tokens)
    return made[0], made[1]


def _content(met: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The queries and keys that both come from the input: those of positions do not."""
    both = [(q, k) for q, k in met if float(q[:, :, 0].abs().max()) > 0 and float(k[:, :, 0].abs().max()) > 0]
    if not both:
        raise NotLinearError("no product of a query and a key")
    return both[0]


def _shared(keys: Tensor, heads: int) -> Tensor:
    return keys.repeat_interleave(heads // keys.shape[0], 0)


def _require_linear(truth: Truth, zero: Tensor) -> None:
    """A vector at random is read and written as the unit vectors say."""
    call = truth.call
    vector = torch.randn(1, max(call.width, call.other_width), generator=torch.Generator().manual_seed(2))
    written, query, key = (part[0] for part in response(call, vector))
    values = vector[0].double()
    pairs = [
        (written, values[: call.other_width] @ truth.ov),
        (query, values[: call.width] @ truth.query),
        (key, values[: call.other_width] @ truth.key),
    ]
    for seen, linear in pairs:
        if not torch.allclose(seen, linear, atol=1e-5 * float(seen.abs().max())) or not seen.isfinite().all():
            raise NotLinearError("what it does is not linear in what it reads")
    if float(zero[:, 1:].abs().max()) > 1e-8 * float(truth.ov.abs().max()):
        raise NotLinearError("it writes something for nothing")
    if float(truth.ov.abs().max()) == 0:
        raise NotLinearError("it writes nothing")


def norms_in(module: nn.Module) -> list[nn.Module]:
    """What is called a norm and has no matrix of its own."""
    called = [part for part in module.modules() if "norm" in type(part).__name__.lower()]
    return [part for part in called if all(p.ndim < 2 for p in part.parameters())]


@contextmanager
def no_norms(module: nn.Module, gains: dict[nn.Module, Tensor] | None = None) -> Iterator[None]:
    """Norms inside a module as the identity, or as a product with their gains."""
    norms = norms_in(module)

    def scaled(norm: nn.Module) -> Any:
        gain = (gains or {}).get(norm)
        return lambda x, *args, **kwargs: x if gain is None else x * gain

    for norm in norms:
        norm.forward = scaled(norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward
