"""A tiny transformer trained by several ranks on different data, each with the whole model or a part of it."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

D_HEAD, TOKENS, LENGTH = 4, 10, 6


class Attention(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        d_model = D_HEAD * heads
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(x).unflatten(-1, (3 * self.heads, D_HEAD)).transpose(-2, -3).chunk(3, -3)
        return self.c_proj(scaled_dot_product_attention(*parts, is_causal=True).transpose(-2, -3).flatten(-2))


class Block(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.dropout = nn.LayerNorm(D_HEAD * heads), Attention(heads), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.attn(self.ln_1(x)))


class Transformer(nn.Module):
    """With nanoGPT's names, and its embedding tied to its output."""

    def __init__(self, heads: int, layers: int = 2) -> None:
        super().__init__()
        self.config = {"n_head": heads}
        self.wte = nn.Embedding(TOKENS, D_HEAD * heads)
        self.h = nn.ModuleList(Block(heads) for _ in range(layers))
        self.lm_head = nn.Linear(D_HEAD * heads, TOKENS, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        return self.lm_head(x)


def inside(model: nn.Module) -> nn.Module:
    """A model without its wrapper, if it has one."""
    return getattr(model, "module", model)


def wrapped(model: nn.Module) -> nn.Module:
    """As it is."""
    return model


def replicated(model: Transformer) -> nn.Module:
    return DistributedDataParallel(model)


def sharded(model: Transformer) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Training:
    """Iterating makes one update after the other: (updates made, this rank's loss before the last)."""

    def __init__(self, spread: Callable[[Transformer], nn.Module], heads: int = 2, steps: int = 8) -> None:
        torch.manual_seed(0)
        self.model = spread(Transformer(heads))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.steps, self.losses = steps, []
        of_this_rank = torch.Generator().manual_seed(dist.get_rank())
        self.tokens = torch.randint(TOKENS, (steps, 4, LENGTH), generator=of_this_rank)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        torch.manual_seed(dist.get_rank())  # of dropout
        self.model.train()
        for step in range(self.steps):
            loss = self.loss(self.tokens[step], self.model)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(loss.detach())
            yield step + 1, loss

    def loss(self, tokens: Tensor, model: nn.Module) -> Tensor:
        return cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    def evaluate(self) -> dict[str, float]:
        """The loss on other tokens; draws random numbers on the way."""
        return {"test_loss": float(self.loss(torch.randint(TOKENS, (4, LENGTH)), inside(self.model)))}

    def weights(self) -> dict[str, Tensor]:
        """All of them, whole; every rank has to ask."""
        state = self.model.state_dict()
        return {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).clone() for name, t in state.items()}
