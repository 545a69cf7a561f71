"""The losses of the five solvable models: gradient flows at random settings, and SGD on fresh batches.

    000  one linear head, exact flow             modes coupled by the noise of finite contexts
    001  several heads, population flow          plateau after plateau
    002  merged weights                          one drop, all modes at once
    003  full linear attention on rotated data   one drop; its reduced models decay without any (see `nulls`)
    004  sparse tasks                            a drop for every task

(The closed form of paper 000 is the family "modes" of `shapes`.) Flows are integrated once for each set of seeds, kept
as curves over ln t, and moved in time to where a record has values: a flow has no clock of its own, learning rate x
step is its time. Their transitions are those of `truth.transitions_of`. SGD losses are what the trainers of `models`
log, at every step; their truth is that of the flow of the same start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from analyses.calibration.sampling import Noise
from analyses.calibration.shapes import Record
from analyses.calibration.truth import Shape, Truth, transitions_of
from models.depth_and_context.attention_theory import FullAttentionFlow
from models.depth_and_context.spectrum import power_law
from models.linear_icl.model import LinearICL, LinearICLConfig, exact_theory
from models.linear_icl.theory import ExactTheory
from models.merged_weights.model import MergedWeights, MergedWeightsConfig, merged_flow
from models.merged_weights.theory import MergedFlow, moments_of_fixed
from models.multi_head.model import MultiHead, MultiHeadConfig
from models.multi_head.theory import PopulationFlow
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig, flow_of
from models.multitask_sparse.task import Tasks
from models.multitask_sparse.theory import FullFlow, aligned_start

SETTINGS = 4
"""Flows integrated per model and set of seeds."""


def _times(half_times: np.ndarray) -> np.ndarray:
    known = half_times[np.isfinite(half_times) & (half_times > 0)]
    return np.geomspace(known.min() / 50, known.max() * 20, 1500)


def linear_head(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Paper 000, two to four modes, context 8 to 128."""
    s = np.cumprod([1.0, *rng.uniform(0.35, 0.6, rng.integers(1, 4))])
    flow = ExactTheory(s, int(rng.choice([8, 16, 32, 128])), float(10 ** rng.uniform(-4, -2)))
    times = _times(flow.half_times)
    return times, flow.loss(times)


def several_heads(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Paper 001, two or three heads of rank one."""
    heads, d = int(rng.integers(2, 4)), 4
    s = np.sort(rng.uniform(0.05, 0.5, d))[::-1].copy()
    size = 10 ** rng.uniform(-2, -1)
    value, key, query = size * rng.standard_normal(heads), *(size * rng.standard_normal((2, heads, 1, d)))
    flow = PopulationFlow(s, 1 / 31, value, key, query)
    half = flow.half_times
    times = _times(half)
    return times, flow.loss(times)


def merged(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Paper 002, five modes that share one value."""
    s, size = np.sort(rng.uniform(0.1, 1, 5))[::-1].copy(), 10 ** rng.uniform(-2, -0.7)
    a = rng.standard_normal((5, 5))
    start = a @ a.T
    flow = MergedFlow(moments_of_fixed(s, 20), float(size), size * start / np.linalg.norm(start))
    times = _times(flow.half_times)
    return times, flow.loss(times)


def full_attention(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Paper 003, all weights trained from a small balanced start."""
    spectrum = power_law(rng.uniform(1.2, 2), rng.uniform(0.8, 1.5), 200)
    flow = FullAttentionFlow(spectrum, int(rng.integers(1, 9)), float(rng.uniform(0.15, 0.4)), per_direction=False)
    times = _times(flow.half_times)
    return times, flow.loss(times)


def sparse_tasks(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Paper 004, two to four tasks of quite different frequency."""
    count = int(rng.integers(2, 5))
    weight = np.cumprod([1.0, *1 / rng.uniform(3, 8, count - 1)])
    ones = np.ones(count)
    tasks = Tasks(np.arange(1.0, count + 1), weight / weight.sum(), 50 * ones, rng.uniform(0.3, 0.8) * ones, ones)
    # weights of equal size and frequencies a few times apart: without more, later drops would be too small to see
    flow = FullFlow(tasks, *aligned_start(tasks, float(10 ** rng.uniform(-3.5, -2)), 0.1))
    times = _times(flow.half_times)
    return times, flow.loss(times)


FLOWS: Mapping[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    "000 flow": linear_head,
    "001 flow": several_heads,
    "002 flow": merged,
    "003 flow": full_attention,
    "004 flow": sparse_tasks,
}


@dataclass(frozen=True)
class Flow:
    """A loss over ln t in its own time, and its transitions."""

    times: np.ndarray
    loss: np.ndarray
    truths: tuple[Truth, ...]

    def at(self, scale: float, family: str) -> Shape:
        """The same, with `scale` steps to a unit of time."""
        x = np.log(self.times * scale)

        def curve(steps: np.ndarray) -> np.ndarray:
            return np.interp(np.log(np.maximum(steps, 1e-9)), x, self.loss)

        truths = (Truth(t.time * scale, t.early * scale, t.late * scale, t.height, kind=t.kind) for t in self.truths)
        return Shape(family, curve, tuple(truths))


@cache
def flows(family: str, seed: int) -> tuple[Flow, ...]:
    """The flows of one model at `SETTINGS` settings; a setting in which nothing happens is drawn again."""
    rng, found = np.random.default_rng([seed, *family.encode()]), []
    while len(found) < SETTINGS:
        times, loss = FLOWS[family](rng)
        if truths := transitions_of(times, loss):
            found.append(Flow(times, loss, truths))
    return tuple(found)


def of_flow(family: str, seed: int, record: Record, rng: np.random.Generator) -> Shape:
    """One of the flows of a model, its last transition where the record has values."""
    every = flows(family, seed)
    flow = every[rng.integers(len(every))]
    return flow.at(record.place(rng) / flow.truths[-1].time, family)


# Losses of the trainers


@dataclass(frozen=True)
class Trained:
    """A loss logged at every step from 1 on, the flow's loss beside it, and the flow's transitions in steps."""

    family: str
    loss: np.ndarray
    flow: np.ndarray
    truths: tuple[Truth, ...]

    @property
    def shape(self) -> Shape:
        """The flow as a shape."""
        steps = np.arange(1.0, len(self.flow) + 1)
        return Shape(self.family, lambda at: np.interp(at, steps, self.flow), self.truths)

    @property
    def noise(self) -> Noise:
        """Noise in proportion to the loss, of the size of what the flow does not explain while the loss is high."""
        high = self.flow[1:] > self.flow.min() + 0.5 * np.ptp(self.flow)
        off = (np.diff(self.loss - self.flow) / np.sqrt(2))[high]
        return Noise("sgd", float(np.median(np.abs(off)) / 0.6745 / np.ptp(self.flow)))


def trained(seeds: Sequence[int], steps: int) -> list[Trained]:
    """The losses of four models trained by SGD on small batches, one of each per seed.

    (The reduced model of paper 003 starts at zero weights and has no transition; it is among the nulls.)
    """
    head = LinearICLConfig((1.0, 0.4), context=32, init=1e-3, learning_rate=90 / steps, batch=64)
    heads = MultiHeadConfig(heads=2, init=0.2, learning_rate=800 / steps, batch=64)
    weights = MergedWeightsConfig(learning_rate=40 / steps, batch=64)
    tasks = MultitaskConfig(4, 2.2, learning_rate=1 / steps, batch=64)
    return [
        *_train("000 SGD", LinearICL(head, seeds), steps, _exact),
        *_train("001 SGD", MultiHead(heads, seeds), steps, _several),
        *_train("002 SGD", MergedWeights(weights, seeds), steps, _merged),
        *_train("004 SGD", MultitaskAttention(tasks, seeds), steps, _tasks),
    ]


def _exact(model: LinearICL, index: int) -> ExactTheory:
    return exact_theory(*model.describe(index))


def _several(model: MultiHead, index: int) -> PopulationFlow:
    parts = (model.blocks[name][index].numpy().copy() for name in ("value", "key", "query"))
    return PopulationFlow(model.config.eigenvalues, model.config.inverse_context, *parts)


def _merged(model: MergedWeights, index: int) -> MergedFlow:
    config, theory = model.describe(index)
    return merged_flow(config, theory, {name: part.clone() for name, part in model.weights(index).items()})


def _tasks(model: MultitaskAttention, index: int) -> FullFlow:
    config, theory = model.describe(index)
    flow = flow_of(FullFlow, config, theory)
    assert isinstance(flow, FullFlow)
    return flow


def _train(family: str, model: object, steps: int, flow_of_start: Callable) -> list[Trained]:
    """Updates without files; the flow is that of the weights before the first."""
    count = len(model.seeds)  # pyright: ignore[reportAttributeAccessIssue]
    theories = [flow_of_start(model, index) for index in range(count)]
    logged = np.array([model.update()["loss"].numpy() for _ in range(steps)])  # pyright: ignore[reportAttributeAccessIssue]
    pace = model.config.learning_rate  # pyright: ignore[reportAttributeAccessIssue]
    at = np.arange(1.0, steps + 1)
    found = []
    for index, theory in enumerate(theories):
        times = np.concatenate(([0.0], np.geomspace(0.5, steps, 1500)))
        loss = np.asarray(theory.loss(times * pace))
        truths = transitions_of(times[1:], loss[1:])
        found.append(Trained(family, logged[:, index], np.interp(at, times, loss), truths))
    return found
