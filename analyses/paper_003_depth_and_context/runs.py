"""The runs behind the pages on paper 003: trained once, kept, and found again by the next page.

Sizes: toy (seconds, for tests), quick (the demo), paper (the dimension of the printed figures, more seeds).
"""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from checkpoints import Run, open_run, schedules
from models.depth_and_context.attention import AttentionConfig, LinearAttention
from models.depth_and_context.model import DepthConfig, ReducedGamma, draw_batch, flow_of, loss_and_gradient
from models.depth_and_context.softmax import SoftmaxConfig, SoftmaxLayers
from models.depth_and_context.task import Contexts, spectrum_for
from models.training import train

RUNS = Path("checkpoints/runs")
SEEDS = {"toy": 2, "quick": 6, "paper": 6}


@dataclass(frozen=True)
class Group:
    """Several seeds of one setting."""

    config: DepthConfig
    runs: list[Run]

    @cached_property
    def losses(self) -> np.ndarray:
        """Logged losses [seeds, steps]."""
        return np.stack([run.metrics["loss"].to_numpy() for run in self.runs])

    @cached_property
    def times(self) -> np.ndarray:
        """Theory time of every logged loss."""
        return self.config.learning_rate * self.runs[0].metrics.index.to_numpy()

    def binned(self, width: float = 0.1, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Times and losses [seeds, times], averaged in bins of ln(time) with at least so many steps."""
        later = self.times > 0
        bins = np.floor(np.log(self.times[later]) / width)
        groups = [bins == value for value in np.unique(bins)]
        groups = [group for group in groups if group.sum() >= least] or groups
        times = np.array([self.times[later][group].mean() for group in groups])
        return times, np.stack([self.losses[:, later][:, group].mean(1) for group in groups], 1)

    @cached_property
    def flow(self) -> Any:
        """The theory of these runs."""
        return flow_of(self.runs[0].config)

    @cached_property
    def late_gamma(self) -> Tensor:
        """gamma averaged over the last third of each run [seeds, layers, n, n]: SGD jitters about its mean."""
        found = []
        for run in self.runs:
            late = [step for step in run.steps if step >= 0.7 * run.steps[-1]]
            found.append(torch.stack([run.checkpoint(step)["gamma"] for step in late]).mean(0))
        return torch.stack(found)

    def fresh_loss(self, gamma: Tensor, count: int = 2000, seed: int = 10**6) -> np.ndarray:
        """The loss of gamma [seeds, ...] on contexts nobody trained on, with infinitely many tests: [seeds]."""
        config = self.config.__class__(**{**self._arguments, "batch": count, "tests": 0})
        spectrum = spectrum_for(config.data, config.dimension, config.capacity, config.source)
        one = draw_batch(config, spectrum, [torch.Generator().manual_seed(seed)])
        shared = Contexts(*(getattr(one, f).expand(len(gamma), *getattr(one, f).shape[1:]) for f in vars(one)))
        return loss_and_gradient(gamma, shared, config.depth)[0].numpy()

    @property
    def _arguments(self) -> dict:
        return {name: self.runs[0].config[name] for name in self.config.__dataclass_fields__}


def scale_of(group: Group) -> np.ndarray:
    """Tr Gamma / D late in training, mean over layers [seeds]."""
    return torch.diagonal(group.late_gamma, dim1=-2, dim2=-1).mean((-1, -2)).numpy()


def path_ratios(group: Group, flow: Any) -> np.ndarray:
    """Loss along training over a flow's, mean over seeds and over at least 6 steps each [times]."""
    times, losses = group.binned(0.3, least=6)
    return losses.mean(0) / flow.loss(times)


def train_group(config: DepthConfig, steps: int, size: str, runs: Path = RUNS, seeds: int | None = None) -> Group:
    """Train or load the seeds of one setting."""
    attention, softmax = isinstance(config, AttentionConfig), isinstance(config, SoftmaxConfig)
    parts = [config.data, f"L{config.depth}", f"D{config.dimension}", f"P{config.context}"]
    parts += [f"N{config.width}"] * bool(config.width) + ["untied"] * config.untied + ["attention"] * attention
    parts += [f"softmax{config.stream}-mlp{config.hidden}"] if isinstance(config, SoftmaxConfig) else []
    parts += [f"noise{config.noise:g}"] * bool(config.noise)
    parts += [f"nu{config.capacity:g}-beta{config.source:g}"] * (config.data != "iso")
    parts += [f"B{config.batch}-lr{config.learning_rate:g}-{steps}"]
    kind = LinearAttention if attention else SoftmaxLayers if softmax else ReducedGamma
    make = partial(kind, config)
    chosen = range(seeds or SEEDS[size])
    # most of a checkpoint's price is the disk's: few early ones, and enough late ones to average over
    late = range(int(0.7 * steps), steps + 1, max(1, steps // 40))
    schedule = [steps // 2] if size == "toy" or softmax else sorted({*schedules.log_spaced(steps, 10), *late})
    paths = train(make, chosen, runs / f"depth-and-context-{size}", "-".join(parts), steps, schedule)
    return Group(config, [open_run(path) for path in paths])
