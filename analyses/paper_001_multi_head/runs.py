"""The runs behind the pages on paper 001: trained once, kept, and found again by the next page.

Fig 1 has four heads for four eigenvectors; Figs 2 and 8 eight eigenvectors, nine heads and several ranks; the variants
change one thing of Fig 1. Sizes: toy (seconds, for tests), quick (six seeds, as in print), paper (smaller start, less
noise, ten seeds). What is about seeds rather than about SGD is asked of the population flow, from dozens of starts; those
of the first seeds are the starts of the runs that are trained.

`Source` says which of all this is meant.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from analyses.tools.source import Source
from checkpoints import Run, open_run, schedules
from models.multi_head.blocks import MultiHeadWithBlocks
from models.multi_head.many_flows import ManyFlows, many_flows
from models.multi_head.model import WEIGHTS, MultiHead, MultiHeadConfig, population_flow
from models.multi_head.softmax import SoftmaxMultiHead
from models.multi_head.theory import PopulationFlow, plateau_losses
from models.training import train
from probes import Alignment, align

RUNS = Path("checkpoints/runs")
SEEDS = {"toy": 2, "quick": 6, "paper": 10}
STARTS = {"toy": 4, "quick": 48, "paper": 96}  # of the population flow
NAMES = ("first seeds", "fresh seeds")  # in verdicts; `which_seeds` says which these are

FIGURE_1 = MultiHeadConfig()
HARMONIC = tuple(1 / d / sum(1 / k for k in range(1, 9)) for d in range(1, 9))  # lambda_d = 1 / d, trace 1
FIGURE_2 = MultiHeadConfig(eigenvalues=HARMONIC, heads=9, batch=256)
FIGURE_7 = MultiHeadConfig(context=32, heads=5)
FIGURE_9 = MultiHeadConfig(eigenvalues=(0.35, 0.35, 0.15, 0.15))


@dataclass(frozen=True)
class Group:
    """Several seeds of one setting, each beside its own population flow."""

    config: MultiHeadConfig
    runs: list[Run]

    @cached_property
    def levels(self) -> np.ndarray:
        """L(M_m), m = 0 .. D (Eqs 5, 12)."""
        return plateau_losses(self.config.eigenvalues, self.config.inverse_context)

    @cached_property
    def flows(self) -> list[PopulationFlow]:
        """Eq 45 from each run's own start."""
        return [population_flow(run.config, run.theory or {}, run.checkpoint(run.steps[0])) for run in self.runs]

    @cached_property
    def alignments(self) -> list[Alignment]:
        """Each run beside its flow."""
        return [align(run, flow) for run, flow in zip(self.runs, self.flows, strict=True)]

    @cached_property
    def half_times(self) -> np.ndarray:
        """When each mode was half learned: [seeds, modes], infinity where it was not."""
        return np.stack([a.modes["measured_half_time"].to_numpy() for a in self.alignments])

    @cached_property
    def loss(self) -> np.ndarray:
        """The expected loss of the weights at every step: [seeds, steps]."""
        return np.stack([run.metrics["expected_loss"].to_numpy() for run in self.runs])

    @cached_property
    def times(self) -> np.ndarray:
        """Theory time of every step."""
        return self.config.learning_rate * self.runs[0].metrics.index.to_numpy()

    @property
    def seeds(self) -> range:
        """Indices of the runs."""
        return range(len(self.runs))

    def weights(self, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Times of the checkpoints, and value, key and query at each of them, in the eigenbasis."""
        run = self.runs[seed]
        basis = torch.tensor((run.theory or {})["mode_basis"], dtype=torch.float64)
        parts = [run.checkpoint(step) for step in run.steps]
        stacked = {name: torch.stack([part[name] for part in parts]) for name in WEIGHTS}
        turned = {name: (t @ basis if name != "value" else t).numpy() for name, t in stacked.items()}
        return self.config.learning_rate * np.array(run.steps), turned

    @property
    def facts(self) -> str:
        """What was run, in a line."""
        c = self.config
        return (
            f"eigenvalues {', '.join(f'{s:.3g}' for s in c.eigenvalues)}; N {'up to' if c.next_token else '='} {c.context}; "
            f"H = {c.heads}, R = {c.rank}; w_init = {c.init:g}; learning rate {c.learning_rate:g}, batch {c.batch}, "
            f"{self.runs[0].steps[-1]} steps, {len(self.runs)} seeds"
        )


def figure_1(source: Source) -> Group:
    """D = 4, N = 31, four heads of rank one."""
    if source.size == "paper":
        return _group(replace(FIGURE_1, init=0.1, learning_rate=0.5), "figure-1", 30000, source)
    return _group(_sized(FIGURE_1, source.size), "figure-1", {"toy": 700, "quick": 4000}[source.size], source)


def of_context(context: int, source: Source) -> Group:
    """The same as Fig 1 with longer or shorter prompts."""
    if context == FIGURE_1.context:
        return figure_1(source)
    config, steps = replace(_sized(FIGURE_1, source.size), context=context), {"toy": 700, "quick": 4000, "paper": 12000}
    return _group(config, f"figure-1-N{context}", steps[source.size], source)


def next_token(source: Source) -> Group:
    """Fig 5: every prefix of a sequence of 31 examples."""
    batch = {"toy": 16, "quick": 64, "paper": 128}[source.size]
    config = replace(_sized(FIGURE_1, source.size), next_token=True, batch=batch)
    config = replace(config, learning_rate=0.5)  # short prefixes are noisy
    return _group(config, "figure-5", {"toy": 700, "quick": 8000, "paper": 12000}[source.size], source)


def of_rank(rank: int, source: Source) -> Group:
    """Fig 2: D = 8, nine heads of rank R."""
    quick, paper = (16000, 40000) if rank == 1 else (8000, 16000)
    steps = {"toy": 250, "quick": quick, "paper": paper}[source.size]
    return _group(replace(_sized(FIGURE_2, source.size), rank=rank), f"figure-2-R{rank}", steps, source)


def value_weights(rank: int, source: Source) -> Group:
    """Fig 7: D = 4, five heads of rank R."""
    steps = {"toy": 250, "quick": 4000, "paper": 8000}[source.size]
    return _group(replace(_sized(FIGURE_7, source.size), rank=rank), f"figure-7-R{rank}", steps, source)


def repeated(source: Source) -> Group:
    """Fig 9: two eigenvalues, twice each."""
    steps = {"toy": 700, "quick": 4000, "paper": 8000}[source.size]
    return _group(_sized(FIGURE_9, source.size), "figure-9", steps, source)


def with_blocks(source: Source) -> Group:
    """Fig 1 with the blocks in training that are set to zero (Appendices D.1, E.1)."""
    config = replace(_sized(FIGURE_1, source.size), batch={"toy": 16, "quick": 256, "paper": 512}[source.size])
    config = replace(config, learning_rate={"toy": 0.05}.get(source.size, 0.5))  # the noise of the blocks is large
    steps = {"toy": 60, "quick": 4000, "paper": 12000}[source.size]
    return Group(config, _train(partial(MultiHeadWithBlocks, config), "blocks", steps, source))


def softmax(source: Source) -> list[Run]:
    """Fig 3: softmax attention."""
    size = source.size
    config = replace(_sized(FIGURE_1, size), init=0.1 if size != "toy" else 1.0, batch={"toy": 16}.get(size, 128))
    steps = {"toy": 200, "quick": 4000, "paper": 12000}[size]
    return _train(partial(SoftmaxMultiHead, config), "figure-3", steps, source)


def starts(source: Source, share: int = 1) -> range:
    """Seeds of the starts of the flow, or one in `share` of them where a flow is dear."""
    first = 1000 if source.is_fresh else 0
    return range(first, first + max(2, STARTS[source.size] // share))


def which_seeds(source: Source) -> str:
    """What verdicts call first and fresh, for the facts of a page."""
    told = []
    for name, one in zip(NAMES, (source, source.fresh), strict=True):
        if one:
            trained, flow = one.seeds(SEEDS[one.size]), starts(one)
            told.append(f"{name}: trained {trained[0]}-{trained[-1]}, flow {flow[0]}-{flow[-1]}")
    return "; ".join(told).capitalize()


def starts_of(config: MultiHeadConfig, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, key and query of many starts, in the eigenbasis: those from which these seeds are trained."""
    blocks = MultiHead(replace(config, batch=1), seeds).blocks
    value, key, query = (blocks[name].numpy() for name in WEIGHTS)
    return value, key, query


def flows_from(config: MultiHeadConfig, seeds: Sequence[int], end: float, step: float = 1.0) -> ManyFlows:
    """The population flow from the starts of these seeds."""
    return many_flows(config.eigenvalues, config.inverse_context, starts_of(config, seeds), end, step)


def _sized(config: MultiHeadConfig, size: str) -> MultiHeadConfig:
    """Toy: fast and rough, but modes are learned. Paper: half of the noise."""
    if size == "toy":
        return replace(config, batch=32, init=1.0)
    return replace(config, learning_rate=0.5) if size == "paper" else config


def _group(config: MultiHeadConfig, name: str, steps: int, source: Source) -> Group:
    return Group(config, _train(partial(MultiHead, config), name, steps, source))


def _train(make: Callable[[Sequence[int]], MultiHead], name: str, steps: int, source: Source) -> list[Run]:
    schedule = schedules.log_spaced(steps, 14 if source.size == "toy" else 150)
    seeds = source.seeds(SEEDS[source.size])
    paths = train(make, seeds, source.runs / f"multi-head-{source.size}", name, steps, schedule)
    return [open_run(path) for path in paths]
