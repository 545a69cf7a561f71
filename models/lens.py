"""Small transformers whose weights carry TransformerLens' names: every checkpoint is a TransformerLens model.

    from transformer_lens.model_bridge import TransformerBridge
    bridge = TransformerBridge.boot_native(run.config["bridge"])
    bridge.load_state_dict(dict(run.checkpoint(step)))            # strict: nothing is missing, nothing is left over

Training itself goes another, faster way: no biases and no LayerNorm here, queries, keys and values in one product, all
parameters in one vector. The biases TransformerLens expects are zeros in the checkpoint. A test compares the logits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float32
from torch import Generator, Tensor

Vector = Float32[Tensor, " parameters"]


@dataclass(frozen=True)
class Shape:
    """What a transformer without biases and LayerNorm is made of. d_mlp = 0 means attention only."""

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    n_ctx: int
    d_vocab: int
    d_vocab_out: int
    d_mlp: int = 0

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_heads", "d_model", "d_head"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1 is needed")
        if self.n_heads > self.d_model:
            raise ValueError(
                f"n_heads is {self.n_heads} and d_model {self.d_model}: more heads than dimensions, so that heads "
                f"could not write apart from each other. Use at most {self.d_model} heads"
            )
        if self.d_head > self.d_model:
            raise ValueError(
                f"d_head is {self.d_head} and d_model {self.d_model}: a head cannot be wider than the model"
            )

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every parameter, in the order in which they lie in the vector."""
        inner = self.n_heads * self.d_head
        shapes: dict[str, tuple[int, ...]] = {
            "embed.weight": (self.d_vocab, self.d_model),
            "pos_embed.weight": (self.n_ctx, self.d_model),
        }
        for layer in range(self.n_layers):
            block = f"blocks.{layer}"
            shapes |= {f"{block}.attn.{name}.weight": (inner, self.d_model) for name in ("q", "k", "v")}
            shapes[f"{block}.attn.o.weight"] = (self.d_model, inner)
            if self.d_mlp:
                shapes[f"{block}.mlp.in.weight"] = (self.d_mlp, self.d_model)
                shapes[f"{block}.mlp.out.weight"] = (self.d_model, self.d_mlp)
        return shapes | {"unembed.weight": (self.d_vocab_out, self.d_model)}

    def bridge(self) -> dict[str, Any]:
        """The configuration from which `TransformerBridge.boot_native` builds this model."""
        config = {
            name: getattr(self, name) for name in ("n_layers", "n_heads", "d_model", "d_head", "n_ctx", "d_vocab")
        }
        config |= {"d_vocab_out": self.d_vocab_out, "normalization_type": None, "attn_only": not self.d_mlp}
        return config | ({"d_mlp": self.d_mlp, "act_fn": "relu"} if self.d_mlp else {})


def draw(shape: Shape, scale: float, writing_scale: float, generator: Generator) -> Vector:
    """A start: N(0, scale / sqrt(columns)), with another scale for what writes into the residual stream."""
    parts = []
    for name, size in shape.parameters().items():
        writes = name.endswith(("attn.o.weight", "mlp.out.weight"))
        deviation = (writing_scale if writes else scale) / math.sqrt(size[-1])
        parts.append(deviation * torch.randn(math.prod(size), generator=generator))
    return torch.cat(parts)


def split(vector: Vector, shape: Shape) -> dict[str, Tensor]:
    """The parameters by name, with q, k and v of each layer as one matrix `qkv`; views through which gradients flow."""
    sizes: dict[str, tuple[int, ...]] = {}
    for name, size in shape.parameters().items():
        block, _, kind = name.removesuffix(".weight").rpartition(".")
        if kind == "q":
            sizes[f"{block}.qkv.weight"] = (3 * size[0], size[1])
        elif kind not in ("k", "v"):
            sizes[name] = size
    parts = vector.split([math.prod(size) for size in sizes.values()])  # one node backwards, however many parameters
    return {name: part.view(size) for (name, size), part in zip(sizes.items(), parts, strict=True)}


def named(vector: Vector, shape: Shape) -> dict[str, Tensor]:
    """The parameters as they are saved: TransformerLens' names, and zeros for the biases it expects."""
    weights: dict[str, Tensor] = {}
    sizes = shape.parameters()
    parts = vector.detach().split([math.prod(size) for size in sizes.values()])
    for (name, size), part in zip(sizes.items(), parts, strict=True):
        weights[name] = part.view(size)
        if not name.startswith(("embed", "pos_embed")):
            weights[name.removesuffix("weight") + "bias"] = torch.zeros(size[0])
    return weights


def vector_of(weights: Mapping[str, Tensor], shape: Shape) -> Vector:
    """Back from a checkpoint to the vector of parameters."""
    return torch.cat([weights[name].reshape(-1) for name in shape.parameters()])
