"""Milliseconds per update of the transformers trained here, beside a plain lean loop and TransformerLens' own module.

The lean loop is what one would write for speed and nothing else: the same model as an `nn.Module` without biases, fused
attention, AdamW, no metrics. Ours measures as it trains (losses by kind of token, scores of heads, test accuracy).
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own habit)
from torch import Tensor, nn
from transformer_lens.model_bridge import TransformerBridge

from benchmarks.clock import best_of_turns
from models.attention_only.model import AttentionOnly, AttentionOnlyConfig
from models.lens import Shape
from models.modular_addition.model import ModularAddition, ModularAdditionConfig
from models.modular_addition.presets import PAPER

_UPDATES = 25  # per turn: ours scores heads once in so many


class Lean(nn.Module):
    """A transformer without biases and LayerNorm; if `last_only`, only the last position asks and answers."""

    def __init__(self, shape: Shape, last_only: bool) -> None:
        super().__init__()
        self.shape, self.last_only = shape, last_only
        for name, size in shape.parameters().items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.randn(size) / math.sqrt(size[-1])))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        w, s = dict(self.named_parameters()), self.shape
        x = w["embed_weight"][tokens] + w["pos_embed_weight"]
        for layer in range(s.n_layers):
            asking = x[:, -1:] if self.last_only else x
            q, k, v = (
                F.linear(source, w[f"blocks_{layer}_attn_{name}_weight"])
                .unflatten(-1, (s.n_heads, s.d_head))
                .transpose(1, 2)
                for name, source in (("q", asking), ("k", x), ("v", x))
            )
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=not self.last_only)
            x = asking + F.linear(mixed.transpose(1, 2).flatten(2), w[f"blocks_{layer}_attn_o_weight"])
            if s.d_mlp:
                hidden = F.relu(F.linear(x, w[f"blocks_{layer}_mlp_in_weight"]))
                x = x + F.linear(hidden, w[f"blocks_{layer}_mlp_out_weight"])
        return F.linear(x, w["unembed_weight"])


def updates(model: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], *, double: bool) -> Callable[[], None]:
    """A plain loop of `_UPDATES` updates."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loop() -> None:
        for _ in range(_UPDATES):
            tokens, targets = batch()
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits.double() if double else logits, targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return loop


def attention_only(layers: int) -> dict[str, Callable[[], object]]:
    """The routes for one depth; every batch is drawn anew, as in training."""
    config = AttentionOnlyConfig(n_layers=layers)
    learner, generator = AttentionOnly(config, 0), torch.Generator().manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        tokens = config.task.draw(config.batch, generator).tokens
        return tokens[:, :-1], tokens[:, 1:]

    lens = TransformerBridge.boot_native(config.shape.bridge())  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "ours": lambda: [learner.update() for _ in range(_UPDATES)],
        "lean": updates(Lean(config.shape, last_only=False), batch, double=False),
        "TransformerLens": updates(lens, batch, double=False),
    }


def modular_addition(config: ModularAdditionConfig) -> dict[str, Callable[[], object]]:
    """The routes for one setting; the lean loop also reads only `=`."""
    learner = ModularAddition(config, 0)
    pairs = learner.training
    tokens = torch.stack((pairs.first, pairs.second, torch.full_like(pairs.first, config.task.modulus)), 1)
    lean = Lean(config.shape, last_only=True)
    return {
        "ours": lambda: [learner.update() for _ in range(_UPDATES)],
        "lean": updates(lean, lambda: (tokens, pairs.answer), double=True),
    }


def run() -> None:
    """Print ms per update and the ratio to the lean loop."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print("Training, ms per update, one thread; ours includes its metrics.")
    print(f"{'model':>28} {'ours':>8} {'lean':>8} {'TransformerLens':>16} {'ours / lean':>12}")
    cases = {f"attention-only, {layers} layer(s)": attention_only(layers) for layers in (1, 2, 3, 4)}
    cases |= {"modular-addition, quick": modular_addition(ModularAdditionConfig())}
    cases |= {"modular-addition, paper": modular_addition(PAPER)}
    for name, routes in cases.items():
        ms = {route: 1e3 * seconds / _UPDATES for route, seconds in best_of_turns(routes, rounds=3).items()}
        lens = f"{ms['TransformerLens']:.1f}" if "TransformerLens" in ms else "-"
        print(f"{name:>28} {ms['ours']:8.1f} {ms['lean']:8.1f} {lens:>16} {ms['ours'] / ms['lean']:11.2f}x")
    torch.set_num_threads(threads)
