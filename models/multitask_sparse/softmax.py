"""Softmax self-attention on the same sparse tasks (paper 004, Appendix I): keys and queries apart, no closed form.

A prompt of task s shows psi examples c_j (e_s, Lambda), signs c_j = +-1, and asks with c (e_s, 0). The output is
[V G softmax(G^T W_K^T W_Q G)]_s at the query. There are keys k_s of the feature and k_y of the target (one for all
tasks) and queries q_s; m = (k_s + Lambda k_y) . q_s is the score of an example of the query's sign, o = k_s . q_s that
of the query itself. The answer depends on the signs only through their mean x, relative to the query's:

    f = [ (V_ss + Lambda V_sy) (n_+ e^m - n_- e^-m) + V_ss e^o ] / (n_+ e^m + n_- e^-m + e^o),

with n_+- = psi (1 +- x) / 2.

The loss is the expectation over the signs, by Gauss quadrature for the binomial law (exact for short contexts). Tasks
meet in k_y alone. Trained by gradient descent on the whole data, or by AdamW (Table 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from models.adam_of_seeds import AdamConfig, AdamOfSeeds
from models.multitask_sparse.model import MultitaskConfig, draw_frequency, start_of

OPTIMIZERS = ("gd", "adamw")
_NODES = 7

Parameters = Mapping[str, Float64[Tensor, "seeds ..."]]


@dataclass(frozen=True)
class SoftmaxConfig(MultitaskConfig):
    """The same with the dimension of keys and queries, the standard deviation they start with, and the optimizer."""

    inner: int = 8
    spread: float = 0.3
    init: float = 0.1
    learning_rate: float = 1.0
    optimizer: str = "gd"
    weight_decay: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer is {self.optimizer!r}: one of {', '.join(OPTIMIZERS)} is expected")
        if self.batch:
            raise ValueError("softmax attention is trained on all of its data: batch must be 0")
        if self.inner < 1 or not self.spread > 0:
            raise ValueError(f"inner is {self.inner}, spread {self.spread}: both must be above 0")


CIRCUITS: Mapping[str, Any] = {
    "ov": {
        "beside": [
            {"tensors": ["value"], "pattern": "task coordinate -> 1 1 task task", "at": {"coordinate": 0}},
            {"tensors": ["value"], "pattern": "task coordinate -> 1 1 task 1", "at": {"coordinate": 1}},
        ]
    },
    "qk": {"tensors": ["key", "query"], "pattern": "row inner, column inner -> 1 1 row column"},
}
"""V, and the part of W_K^T W_Q between features."""


class SoftmaxAttention:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "multitask-sparse-softmax"
    circuits = CIRCUITS
    threads = 1

    def __init__(self, config: SoftmaxConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        self.tasks, _, _ = start_of(config)
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self.frequency = torch.stack([draw_frequency(config, self.tasks, g) for g in self.generators])
        self.strength, self.probability = (torch.as_tensor(x) for x in (self.tasks.strength, self.tasks.probability))
        self.context = torch.as_tensor(np.maximum(1.0, np.round(self.tasks.context)))
        self.signs, self.sign_weights = sign_means(self.context.numpy())
        start = [self._start(generator) for generator in self.generators]
        adam = AdamConfig(config.learning_rate, weight_decay=config.weight_decay)
        self.adam = AdamOfSeeds({name: torch.stack([s[name] for s in start]) for name in start[0]}, adam)

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The config; there is no theory of it."""
        return {"attention": "softmax", **asdict(self.config)}, None

    def update(self) -> Mapping[str, Tensor]:
        """One update of every seed; training and test loss before it."""
        parameters = {name: value.requires_grad_() for name, value in self.adam.parameters.items()}
        squared = 0.5 * (self.sign_weights * (self.outputs(parameters) - self.strength[:, None]).square()).sum(-1)
        loss = (self.frequency * squared).sum(-1)
        gradients = torch.autograd.grad(loss.sum(), list(parameters.values()))
        test_loss = (self.probability * squared.detach()).sum(-1)
        for value in parameters.values():
            value.requires_grad_(False)
        if self.config.optimizer == "adamw":
            self.adam.update(dict(zip(parameters, gradients, strict=True)))
        else:
            for value, gradient in zip(parameters.values(), gradients, strict=True):
                value.sub_(gradient, alpha=self.config.learning_rate)
        return {"loss": loss.detach(), "test_loss": test_loss}

    def outputs(self, parameters: Parameters) -> Float64[Tensor, "seeds tasks nodes"]:
        """f of every task, relative to the sign of the query, at the quadrature nodes of the signs."""
        value, key, target, query = (parameters[name] for name in ("value", "key", "target_key", "query"))
        own = (key * query).sum(-1)
        score = own + self.strength * (query * target[:, None]).sum(-1)
        up, down = score.exp()[..., None] * (1 + self.signs) / 2, (-score).exp()[..., None] * (1 - self.signs) / 2
        itself = (own.exp() / self.context)[..., None]
        example = (value[..., 0] + self.strength * value[..., 1])[..., None]
        return (example * (up - down) + value[..., :1] * itself) / (up + down + itself)

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """value [tasks, 2] on feature and target, key and query [tasks, inner], target_key [inner]."""
        return {name: value[index].detach() for name, value in self.adam.parameters.items()}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Parameters, Adam's memory and the data."""
        return self.adam.state(index) | {"frequency": self.frequency[index]}

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        self.adam.restore(states)
        self.frequency = torch.stack([state["frequency"] for state in states])

    def _start(self, generator: torch.Generator) -> dict[str, Tensor]:
        c = self.config

        def normal(*shape: int) -> Tensor:
            return c.spread * torch.randn(*shape, generator=generator, dtype=torch.float64)

        value = torch.full((c.tasks, 2), c.init, dtype=torch.float64)
        return {
            "value": value,
            "key": normal(c.tasks, c.inner),
            "target_key": normal(c.inner),
            "query": normal(c.tasks, c.inner),
        }


def sign_means(
    contexts: Float64[np.ndarray, " tasks"], nodes: int = _NODES
) -> tuple[Float64[Tensor, "tasks nodes"], Float64[Tensor, "tasks nodes"]]:
    """Values and weights of the mean of psi random signs, for every psi: Gauss quadrature for the binomial law.

    Its polynomials are Krawtchouk's. With fewer than `nodes` outcomes it is the law itself, filled up with outcomes of
    weight 0.
    """
    found = {}
    for psi in np.unique(contexts):
        count = min(nodes, int(psi) + 1)
        k = np.arange(1, count)
        off = np.sqrt(k * (psi - k + 1)) / psi  # of the recursion for x = (2 n_+ - psi) / psi
        values, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
        spare = nodes - count
        found[psi] = np.pad(values, (0, spare)), np.pad(vectors[0] ** 2, (0, spare))
    values, weights = (torch.as_tensor(np.stack([found[psi][i] for psi in contexts])) for i in range(2))
    return values, weights
