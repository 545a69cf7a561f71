"""Softmax attention layers and nothing else, trained to foretell the next token.

    x_0 = W_E[token] + W_pos[position],   x_l = x_(l-1) + sum over heads of A_h x_(l-1) W_V W_O,   logits = x_L W_U

Learned absolute positions, causal attention, no LayerNorm, no biases, no MLP. Every `score_every` steps the attention
patterns on a fixed set of sequences say what each head does:

    previous-token score    mean attention from a token to the one before it
    prefix-matching score   mean attention from a repeated token to what followed it in earlier copies: an induction
                            head, by what it looks at (repeated-subsequence task only)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own habit)
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from models.adamw import AdamW, AdamWConfig
from models.attention_only.tasks import RepeatedSubsequence, Task
from models.lens import Shape, draw, named, split
from models.seed_by_seed import SeedBySeed

FAMILY = "attention-only"

_SCORED_SEQUENCES = 64
_SCORED_SEED = 2**40  # the sequences on which heads are scored: the same for every seed and step


@dataclass(frozen=True)
class AttentionOnlyConfig:
    """One setting of the model. init_scale is in units of 1 / sqrt(d_model)."""

    n_layers: int = 2
    n_heads: int = 2
    d_model: int = 32
    d_head: int = 16
    task: Task = field(default_factory=RepeatedSubsequence)
    optimizer: AdamWConfig = field(default_factory=lambda: AdamWConfig(3e-3, 0.01, (0.9, 0.99), warm_up=100))
    batch: int = 32
    init_scale: float = 0.8
    score_every: int = 25

    def __post_init__(self) -> None:
        self.shape  # noqa: B018 (refuses impossible ones)
        if self.batch < 1 or self.score_every < 1:
            raise ValueError(f"batch is {self.batch} and score_every {self.score_every}: at least 1 is needed")
        if not 0 < self.init_scale < float("inf"):
            raise ValueError(f"init_scale is {self.init_scale}: a positive number is needed")

    @property
    def shape(self) -> Shape:
        """The sizes of the transformer that this is."""
        tokens = self.task.vocabulary
        return Shape(self.n_layers, self.n_heads, self.d_model, self.d_head, self.task.length - 1, tokens, tokens)

    def describe(self) -> dict[str, Any]:
        """What run.json says: every setting, the name of the task, and what TransformerLens builds the model from."""
        return asdict(self) | {
            "task": {"name": type(self.task).__name__, **asdict(self.task)},  # pyright: ignore[reportArgumentType]
            "bridge": self.shape.bridge(),
        }


def attention_only(config: AttentionOnlyConfig, seeds: Sequence[int]) -> SeedBySeed:
    """The model in training, for these seeds."""
    return SeedBySeed(FAMILY, config.describe(), lambda seed: AttentionOnly(config, seed), seeds)


class AttentionOnly:
    """One seed in training: a `Learner`."""

    def __init__(self, config: AttentionOnlyConfig, seed: int) -> None:
        self.config, self.shape = config, config.shape
        self._generator = torch.Generator().manual_seed(seed)
        self.optimizer = AdamW(_start(config, self._generator), config.optimizer)
        task = config.task
        self._scored = task.draw(_SCORED_SEQUENCES, torch.Generator().manual_seed(_SCORED_SEED))
        self._sources = task.sources(self._scored) if isinstance(task, RepeatedSubsequence) else None
        self._done = 0

    def update(self) -> Mapping[str, float]:
        """One update on a new batch; the loss before it, its parts, and now and then the scores of the heads."""
        batch = self.config.task.draw(self.config.batch, self._generator)
        scalars = self.head_scores() if self._done % self.config.score_every == 0 else {}
        predicted = logits(split(self.optimizer.parameters, self.shape), self.shape, batch.tokens[:, :-1])
        targets = batch.tokens[:, 1:]
        losses = F.cross_entropy(predicted.flatten(0, 1), targets.flatten(), reduction="none")
        loss = losses.mean()
        with torch.no_grad():
            scores = self.config.task.scores(batch, losses.view_as(targets), predicted.argmax(-1) == targets)
        self.optimizer.step(loss)
        self._done += 1
        return {"loss": float(loss.detach()), **scores, **scalars}

    def head_scores(self) -> dict[str, float]:
        """What each head attends to, on the fixed set of sequences: names end in .layer.head."""
        with torch.no_grad():
            weights = split(self.optimizer.parameters, self.shape)
            found = patterns(weights, self.shape, self._scored.tokens[:, :-1])
        scores = {"previous_token": previous_token_score(found)}
        if self._sources is not None:
            scores["prefix_matching"] = prefix_matching_score(found, self._sources)
        return {
            f"{name}.{layer}.{head}": float(value[layer, head])
            for name, value in scores.items()
            for layer in range(self.shape.n_layers)
            for head in range(self.shape.n_heads)
        }

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters under TransformerLens' names."""
        return named(self.optimizer.parameters, self.shape)

    def state(self) -> Mapping[str, Tensor]:
        """Parameters, optimizer and the place in the data stream."""
        return self.optimizer.state() | {"generator": self._generator.get_state(), "done": torch.tensor(self._done)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        self.optimizer.restore(state)
        self._generator.set_state(state["generator"])
        self._done = int(state["done"])


def logits(
    weights: Mapping[str, Tensor], shape: Shape, tokens: Int64[Tensor, "count length"]
) -> Float[Tensor, "count length vocabulary"]:
    """Logits of the next token at every position."""
    x = _embedded(weights, tokens)
    for layer in range(shape.n_layers):
        q, k, v = _heads(weights, shape, layer, x)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), weights[f"blocks.{layer}.attn.o.weight"])
    return F.linear(x, weights["unembed.weight"])


def patterns(
    weights: Mapping[str, Tensor], shape: Shape, tokens: Int64[Tensor, "count length"]
) -> Float[Tensor, "layer count head query key"]:
    """What every head attends to."""
    x, found = _embedded(weights, tokens), []
    future = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    for layer in range(shape.n_layers):
        q, k, v = _heads(weights, shape, layer, x)
        scores = (q @ k.mT).div_(math.sqrt(shape.d_head)).masked_fill_(future, -torch.inf)
        found.append(scores.softmax(-1))
        mixed = found[-1] @ v
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), weights[f"blocks.{layer}.attn.o.weight"])
    return torch.stack(found)


def previous_token_score(found: Float[Tensor, "layer count head query key"]) -> Float[Tensor, "layer head"]:
    """Mean attention from a token to the one before it."""
    return found.diagonal(-1, dim1=-2, dim2=-1).mean((1, 3))


def prefix_matching_score(
    found: Float[Tensor, "layer count head query key"], sources: Bool[Tensor, "count query key"]
) -> Float[Tensor, "layer head"]:
    """Mean attention, from the tokens before a repeat, to what followed in earlier copies (`sources` of the task)."""
    queries = sources.any(-1)
    looked = (found * sources[None, :, None]).sum(-1)
    return (looked * queries[None, :, None]).sum((1, 3)) / queries.sum()


def _start(config: AttentionOnlyConfig, generator: torch.Generator) -> Tensor:
    """Writing weights are smaller by sqrt(2 layers), so that the residual stream starts no larger in deeper models."""
    return draw(config.shape, config.init_scale, config.init_scale / math.sqrt(2 * config.n_layers), generator)


def _embedded(weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    return F.embedding(tokens, weights["embed.weight"]) + weights["pos_embed.weight"][: tokens.shape[1]]


def _heads(weights: Mapping[str, Tensor], shape: Shape, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [count, head, length, d_head] of one layer."""
    together = F.linear(x, weights[f"blocks.{layer}.attn.qkv.weight"])
    q, k, v = together.view(*x.shape[:2], 3, shape.n_heads, shape.d_head).permute(2, 0, 3, 1, 4)
    return q, k, v
