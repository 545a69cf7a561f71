"""One attention layer and one MLP that read `a b =` and answer at `=`, trained on all training pairs at once.

No LayerNorm, no biases; AdamW with a strong weight decay, which is what makes the network generalise long after it has
learned the training pairs by heart. The loss is computed in float64: in float32 it is rounded to zero while the
gradient still matters.

Only `=` is read, so only its query is computed, and keys and values are computed once per token and position instead of
once per pair. A test compares the logits with TransformerLens'.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own habit)
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from models.adamw import AdamW, AdamWConfig
from models.lens import Shape, draw, named, split, vector_of
from models.modular_addition.task import ModularArithmetic, Pairs
from models.seed_by_seed import SeedBySeed

FAMILY = "modular-addition"


@dataclass(frozen=True)
class ModularAdditionConfig:
    """One setting of the model. Test loss and accuracy are measured every `test_every` steps."""

    n_heads: int = 4
    d_model: int = 64
    d_head: int = 16
    d_mlp: int = 256
    task: ModularArithmetic = field(default_factory=ModularArithmetic)
    optimizer: AdamWConfig = field(default_factory=lambda: AdamWConfig(3e-3, 1.0, (0.9, 0.98), warm_up=10))
    init_scale: float = 1.0
    test_every: int = 5

    def __post_init__(self) -> None:
        self.shape  # noqa: B018 (refuses impossible ones)
        if self.d_mlp < 1 or self.test_every < 1:
            raise ValueError(f"d_mlp is {self.d_mlp} and test_every {self.test_every}: at least 1 is needed")
        if not 0 < self.init_scale < float("inf"):
            raise ValueError(f"init_scale is {self.init_scale}: a positive number is needed")

    @property
    def shape(self) -> Shape:
        """The transformer: three positions, a token for `=`."""
        p = self.task.modulus
        return Shape(1, self.n_heads, self.d_model, self.d_head, 3, p + 1, p, self.d_mlp)

    def describe(self) -> dict[str, Any]:
        """What run.json says: every setting, and what TransformerLens builds the model from."""
        return asdict(self) | {"n_layers": 1, "bridge": self.shape.bridge()}


def config_of(description: Mapping[str, Any]) -> ModularAdditionConfig:
    """Back from what run.json says."""
    optimizer = description["optimizer"]
    plain = ("n_heads", "d_model", "d_head", "d_mlp", "init_scale", "test_every")
    return ModularAdditionConfig(
        task=ModularArithmetic(**description["task"]),
        optimizer=AdamWConfig(**(optimizer | {"betas": tuple(optimizer["betas"])})),
        **{name: description[name] for name in plain},
    )


def modular_addition(config: ModularAdditionConfig, seeds: Sequence[int]) -> SeedBySeed:
    """The model in training, for these seeds."""
    return SeedBySeed(FAMILY, config.describe(), lambda seed: ModularAddition(config, seed), seeds)


class ModularAddition:
    """One seed in training: a `Learner`."""

    def __init__(self, config: ModularAdditionConfig, seed: int) -> None:
        self.config, self.shape = config, config.shape
        generator = torch.Generator().manual_seed(seed)
        self.training, self.test = config.task.split(generator)
        self.optimizer = AdamW(draw(self.shape, config.init_scale, config.init_scale, generator), config.optimizer)
        self._done = 0

    def update(self) -> Mapping[str, float]:
        """One update on all training pairs; loss and accuracy before it."""
        weights = split(self.optimizer.parameters, self.shape)
        logits = answer(weights, self.shape, self.training.first, self.training.second)
        loss = loss_of(logits, self.training.answer)
        scalars = {"loss": float(loss.detach()), "accuracy": _accuracy(logits, self.training)}
        if self._done % self.config.test_every == 0:
            with torch.no_grad():
                logits = answer(weights, self.shape, self.test.first, self.test.second)
                scalars["test_loss"] = float(loss_of(logits, self.test.answer))
                scalars["test_accuracy"] = _accuracy(logits, self.test)
        self.optimizer.step(loss)
        self._done += 1
        return scalars

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters under TransformerLens' names."""
        return named(self.optimizer.parameters, self.shape)

    def state(self) -> Mapping[str, Tensor]:
        """Parameters and optimizer; the pairs follow from the seed."""
        return self.optimizer.state() | {"done": torch.tensor(self._done)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        self.optimizer.restore(state)
        self._done = int(state["done"])


def answer(
    weights: Mapping[str, Tensor], shape: Shape, first: Int64[Tensor, " count"], second: Int64[Tensor, " count"]
) -> Float[Tensor, "count answers"]:
    """Logits at `=`. weights are those of `split`."""
    embedding, position = weights["embed.weight"], weights["pos_embed.weight"]
    inner = shape.n_heads * shape.d_head
    query_weight, key_weight, value_weight = weights["blocks.0.attn.qkv.weight"].split(inner)
    equals = embedding[-1] + position[2]
    query = (query_weight @ equals).view(shape.n_heads, shape.d_head) / math.sqrt(shape.d_head)
    scores, values = [], []
    # every token at position 0, every token at position 1, and `=`
    for tokens, chosen in ((embedding + position[0], first), (embedding + position[1], second), (equals[None], None)):
        keys = F.linear(tokens, key_weight).view(-1, shape.n_heads, shape.d_head)
        of_token = torch.cat(((keys * query).sum(-1), F.linear(tokens, value_weight)), -1)
        of_pair = of_token.expand(len(first), -1) if chosen is None else F.embedding(chosen, of_token)
        scores.append(of_pair[:, : shape.n_heads])
        values.append(of_pair[:, shape.n_heads :].unflatten(-1, (shape.n_heads, shape.d_head)))
    pattern = torch.stack(scores).softmax(0)[..., None]
    mixed = pattern[0] * values[0] + pattern[1] * values[1] + pattern[2] * values[2]
    x = equals + F.linear(mixed.flatten(1), weights["blocks.0.attn.o.weight"])
    hidden = F.relu_(F.linear(x, weights["blocks.0.mlp.in.weight"]))  # in place: 5 % of an update, the same bits
    x = x + F.linear(hidden, weights["blocks.0.mlp.out.weight"])
    return F.linear(x, weights["unembed.weight"])


def loss_of(logits: Float[Tensor, "count answers"], answers: Int64[Tensor, " count"]) -> Float64[Tensor, ""]:
    """Mean cross-entropy, in float64."""
    return F.cross_entropy(logits.double(), answers)


def all_logits(
    checkpoint: Mapping[str, Tensor], config: ModularAdditionConfig
) -> Float64[Tensor, "order order answer"]:
    """The logits for every pair, both terms and the answers in order of exponents: what `fourier` looks at."""
    elements, order = config.task.elements, config.task.order
    weights = split(vector_of(checkpoint, config.shape), config.shape)
    with torch.no_grad():
        logits = answer(weights, config.shape, elements.repeat_interleave(order), elements.repeat(order))
    return logits[:, elements].double().view(order, order, order)


def _accuracy(logits: Tensor, pairs: Pairs) -> float:
    return float((logits.argmax(-1) == pairs.answer).double().mean())
