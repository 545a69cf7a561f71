"""One linear attention head that learns vector regression in context (paper 000, Eqs 1-8), trained by SGD.

The answer to the query reads only the bottom rows (p1, p2) of W_P and the left columns (q1; q2) of W_Q:

    y_hat = (p1  p2) Gamma (q1; q2) x_q,        Gamma = Z Z^T / N

With Sigma the empirical covariance of the context, W the task, u = q1 x_q, v = q2 x_q and h = Sigma (u + W v),

    y_hat = p1 (h + x_q (x_q . u) / N) + p2 W h.

All four blocks are trained. p2 and q1 are the active ones; p1 and q2 start at zero and should stay there on average.
The gradient is written out by hand, which is several times faster than recording it; a test compares it with automatic
differentiation of Eq 1 on explicit tokens. Several seeds are one batch: blocks are [seeds, d, d].
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from models.linear_icl.task import Prompts, PromptStream, draw_basis, draw_tasks
from models.linear_icl.theory import ExactTheory, PrintedTheory, check_setting
from models.streams import next_of_all

BLOCKS = ("p1", "p2", "q1", "q2")

Blocks = dict[str, Float64[Tensor, "seeds d d"]]


@dataclass(frozen=True)
class LinearICLConfig:
    """One setting of the model.

    init is the amplitude a(0) = p q of every mode; tasks = 0 means endless new ones; null_init is the size of the
    random entries with which p1 and q2 start.
    """

    eigenvalues: tuple[float, ...] = (1.0, 0.5, 0.25)
    context: int = 32
    init: float = 1e-3
    learning_rate: float = 0.05
    batch: int = 512
    tasks: int = 4096
    paired: bool = True
    null_init: float = 0.0

    def __post_init__(self) -> None:
        check_setting(self.eigenvalues, self.context, self.init)
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate is {self.learning_rate}: a positive number is needed")
        if not 0 <= self.null_init < float("inf"):
            raise ValueError(f"null_init is {self.null_init}: zero or a positive number is needed")
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}: at least one prompt is needed")


_P2: Mapping[str, Any] = {"tensors": ["p2"], "pattern": "row column -> 1 1 row column"}
_Q1: Mapping[str, Any] = {"tensors": ["q1"], "pattern": "row column -> 1 1 row column"}

CIRCUITS: Mapping[str, Any] = {"ov": _P2, "qk": _Q1, "product": {"left": _P2, "right": _Q1}}
"""What is written for what was read, what is matched with the query, and their product, which carries the modes."""


class LinearICL:
    """The model in training, for several seeds at once: an `Experiment` of `models.training`."""

    family = "linear-icl"
    circuits = CIRCUITS
    threads = 1  # matrices of a few rows: a second thread costs more than it brings

    def __init__(self, config: LinearICLConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds = config, tuple(seeds)
        d = len(config.eigenvalues)
        self.bases, self.tasks, self.streams = [], [], []
        starts: dict[str, list[Tensor]] = {name: [] for name in BLOCKS}
        for seed in self.seeds:
            generator = torch.Generator().manual_seed(seed)
            self.bases.append(draw_basis(d, generator))
            tasks = draw_tasks(config.tasks, d, generator, paired=config.paired) if config.tasks else None
            self.tasks.append(tasks)
            stream_seed = int(torch.randint(2**62, (1,), generator=generator))
            self.streams.append(PromptStream(config.eigenvalues, config.context, tasks, config.batch, stream_seed))
            for name in ("p1", "q2"):
                starts[name].append(config.null_init * torch.randn(d, d, generator=generator, dtype=torch.float64))
            for name in ("p2", "q1"):
                starts[name].append(config.init**0.5 * torch.eye(d, dtype=torch.float64))
        # kept in the eigenbasis of the covariance; `weights` turns them into the model's own coordinates
        self.blocks: Blocks = {name: torch.stack(start) for name, start in starts.items()}

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The config, and how the checkpoints relate to theory."""
        theory = {
            "time_per_step": self.config.learning_rate,
            "mode_product": ["p2", "q1"],
            "mode_basis": self.bases[index].tolist(),
            "conserved": ["p2", "q1"],
            "null": ["p1", "q2"],
            "task_power": self._task_power(index),
        }
        return asdict(self.config), theory

    def update(self) -> Mapping[str, Tensor]:
        """One SGD update on one batch per seed; the loss before it."""
        loss, gradient = loss_and_gradient(self.blocks, next_of_all(self.streams), self.config.context)
        for name in BLOCKS:
            self.blocks[name].sub_(gradient[name], alpha=self.config.learning_rate)
        return {"loss": loss}

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """p1, p2, q1, q2 in the model's own coordinates."""
        basis = self.bases[index]
        return {name: basis @ self.blocks[name][index] @ basis.T for name in BLOCKS}

    def state(self, index: int) -> Mapping[str, Tensor]:
        """Blocks and the place in the data stream."""
        return {name: self.blocks[name][index] for name in BLOCKS} | self.streams[index].state()

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states."""
        for name in BLOCKS:
            self.blocks[name] = torch.stack([state[name] for state in states])
        for stream, state in zip(self.streams, states, strict=True):
            stream.restore({key: state[key] for key in ("generator", "used")})

    def _task_power(self, index: int) -> list[float]:
        tasks = self.tasks[index]
        return [1.0] * len(self.config.eigenvalues) if tasks is None else tasks.square().mean(0).tolist()


def printed_theory(config: Mapping[str, Any]) -> PrintedTheory:
    """The printed theory of a run, from its config."""
    return PrintedTheory(config["eigenvalues"], config["context"], config["init"])


def exact_theory(config: Mapping[str, Any], theory: Mapping[str, Any]) -> ExactTheory:
    """The exact theory of a run, for the very tasks it was trained on."""
    return ExactTheory(config["eigenvalues"], config["context"], config["init"], task_power=theory["task_power"])


def loss_and_gradient(blocks: Blocks, prompts: Prompts, context: int) -> tuple[Float64[Tensor, " seeds"], Blocks]:
    """Mean loss (Eq 7) over the batch of every seed, and its gradient. prompts are [seeds, batch, ...]."""
    p1, p2, q1, q2 = (blocks[name] for name in BLOCKS)
    x, w = prompts.query, prompts.task
    u, v = x @ q1.mT, x @ q2.mT
    h = _matvec(prompts.covariance, u + w * v)
    own = (x * u).sum(-1, keepdim=True) / context  # what the query adds to its own context
    read1, read2 = h + x * own, w * h
    error = read1 @ p1.mT + read2 @ p2.mT - w * x
    loss = 0.5 * error.square().sum(-1).mean(-1)

    back1, back2 = error @ p1, w * (error @ p2)
    back_h = _matvec(prompts.covariance, back1 + back2)
    back_u = back_h + x * ((back1 * x).sum(-1, keepdim=True) / context)
    count = x.shape[-2]
    gradient = {
        "p1": error.mT @ read1 / count,
        "p2": error.mT @ read2 / count,
        "q1": back_u.mT @ x / count,
        "q2": (w * back_h).mT @ x / count,
    }
    return loss, gradient


def _matvec(matrix: Float64[Tensor, "*batch d d"], vector: Float64[Tensor, "*batch d"]) -> Float64[Tensor, "*batch d"]:
    return (matrix * vector[..., None, :]).sum(-1)
