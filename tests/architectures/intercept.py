"""Attention made the identity: whatever a module asks of softmax, the answer is "the first token, one head at a time".

A query at position h + 1 attends, in head h, wholly to the first key, and in the other heads to nothing. So the output
at position h + 1 is what head h writes for what stands at the first position. On the way queries and keys are noted,
as the module has them when they meet. Modules that use Transformers' attention interface are answered there, others
where they call torch: products, softmax, scaled_dot_product_attention. Gates (a sigmoid) are open, and what a norm
divides by is 1: neither is a linear map of the input.
"""

import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

PRODUCTS = {torch.matmul, torch.bmm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm}
SOFTMAXES = {functional.softmax, torch.softmax, Tensor.softmax}
GATES = {torch.sigmoid, Tensor.sigmoid, functional.sigmoid}
NORMS = {functional.layer_norm, functional.rms_norm, functional.normalize, torch.layer_norm, torch.rms_norm}


_active: list["Unmixed"] = []


class Unmixed(TorchFunctionMode):
    """While entered, attention is the identity.

    `seen` has, for every attention, the pairs of queries and keys that may have met in it, [batch, head, token, d]
    each; several where positions have products of their own.
    """

    def __init__(self, batch: int = 1, keeps_norms: bool = False):
        super().__init__()
        self.batch = batch
        self.keeps_norms = keeps_norms
        self.seen: list[list[tuple[Tensor, Tensor]]] = []
        self.is_gated = False
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        self.is_busy = False

    def __enter__(self):
        _active.append(self)
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        _active.pop()
        super().__exit__(*exception)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.is_busy:
            return func(*args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            return (
                self._attend(*args[:3]) if len(args) >= 3 else self._attend(*map(kwargs.get, ("query", "key", "value")))
            )
        if func in SOFTMAXES:
            return self._pattern(args[0] if args else kwargs["input"])
        if func is functional.multi_head_attention_forward:
            return self._inside(func, args, kwargs)
        if func in GATES:
            self.is_gated = True
            return torch.ones_like(args[0])
        if func in NORMS and not self.keeps_norms:
            return args[0]
        result = func(*args, **kwargs)
        if func in PRODUCTS:
            self.products.append((args[0], args[1], result))
        elif func in (torch.baddbmm, Tensor.baddbmm):
            operands = [kwargs.get("batch1", args[1] if len(args) > 1 else None), kwargs.get("batch2", args[-1])]
            self.products.append((operands[0], operands[1], result))
        elif func is torch.einsum and len(args) == 3 and isinstance(args[0], str):
            self._note_einsum(args[0], args[1], args[2], result)
        return result

    def _inside(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Look into a function of torch that is written in Python."""
        asks = functional.has_torch_function
        functional.has_torch_function = lambda *_: False
        try:
            with self:
                return func(*args, **kwargs)
        finally:
            functional.has_torch_function = asks

    def interface(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any):
        """What `transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS` asks for: [batch, head, token, d] each."""
        return self._attend(query, key, value).transpose(1, 2).contiguous(), None

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.is_busy = True
        self.seen.append([self._by_head(query, key)])
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        result = self._one_head_each(query.shape[:-1] + value.shape[-2:-1], value) @ value
        self.is_busy = False
        return result

    def _pattern(self, scores: Tensor) -> Tensor:
        self.is_busy = True
        met = [
            self._by_head(left, right.mT)
            for left, right, result in self.products
            if result.shape[-2] == scores.shape[-2] and left.ndim >= 3 and right.ndim >= 3
        ]
        self.seen.append(met)
        pattern = self._one_head_each(scores.shape, scores)
        self.products.clear()
        self.is_busy = False
        return pattern

    def _one_head_each(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """[.., head, query, key]: query h + 1 attends to key 0 in head h alone."""
        flat = torch.zeros(shape, dtype=like.dtype)
        pattern = flat.view(self.batch, -1, *shape[-2:]) if len(shape) == 3 else flat
        for head in range(pattern.shape[-3]):
            pattern[..., head, head + 1, 0] = 1
        return flat

    def _by_head(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Both as [batch, head, token, d], also where a batch of heads was made one axis."""
        query, key = (x.detach().reshape(self.batch, -1, *x.shape[-2:]).clone() for x in (query, key))
        return query, key

    def _note_einsum(self, equation: str, left: Tensor, right: Tensor, result: Tensor) -> None:
        match = re.fullmatch(r"\s*(\w+)\s*,\s*(\w+)\s*->\s*(\w+)\s*", equation)
        if not match:
            return
        a, b, out = match.groups()
        both = [axis for axis in out if axis in a and axis in b]
        mine, yours = [x for x in out if x in a and x not in b], [x for x in out if x in b and x not in a]
        summed = [x for x in a if x in b and x not in out]
        if len(both) < 1 or len(mine) != 1 or len(yours) != 1 or len(summed) != 1 or out[-2:] != mine[0] + yours[0]:
            return
        left = left.permute([a.index(x) for x in [*both, *mine, *summed]])
        right = right.permute([b.index(x) for x in [*both, *summed, *yours]])
        self.products.append((left, right, result))


def attention_function(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any):
    """The attention that is registered with Transformers: that of the `Unmixed` at work."""
    return _active[-1].interface(module, query, key, value, *args, **kwargs)
