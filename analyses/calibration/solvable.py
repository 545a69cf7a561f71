"""The losses of the five solvable models: gradient flows at random settings, and SGD on fresh batches.

    000  one linear head, exact flow             modes coupled by the noise of finite contexts
    001  several heads, population flow          plateau after plateau
    002  merged weights                          one drop, all modes at once
    003  full linear attention on rotated data   one drop; its reduced models decay without any (see `nulls`)
    004  sparse tasks                            a drop for every task

(The closed form of paper 000 is the family "modes" of `shapes`.) Flows are integrated once for each set of seeds, kept
as curves over ln t, and moved in time to where a record has values: a flow has no clock of its own, learning rate x
step is its time. Their transitions are those of `truth.transitions_of` within the record. SGD losses are what the
trainers of `models` log, at every step; their truth is the expected loss of the weights that SGD really went through.

Two corrections came after results had been seen. The half of a drop was that of the whole flow at first, also where its
tail goes on beyond the last step, which no record shows: the last tenth of a drop of paper 002 takes longer than all
the rest. And the truth of SGD was that of the flow of the same start; but SGD leaves a saddle when its noise happens to
point the right way: on the tuning seed the second stage of paper 001 came at 2,529 where the flow has it at 2,132.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.ndimage import gaussian_filter1d

from analyses.calibration.sampling import Noise
from analyses.calibration.shapes import Record
from analyses.calibration.truth import LEAST_HEIGHT, Shape, Truth, transitions_of
from models.depth_and_context.attention_theory import FullAttentionFlow
from models.depth_and_context.spectrum import power_law
from models.linear_icl.model import LinearICL, LinearICLConfig, exact_theory
from models.linear_icl.theory import ExactTheory
from models.merged_weights.model import MergedWeights, MergedWeightsConfig, merged_flow
from models.merged_weights.theory import MergedFlow, moments_of_fixed
from models.multi_head.model import MultiHead, MultiHeadConfig
from models.multi_head.theory import PopulationFlow
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig
from models.multitask_sparse.task import Tasks
from models.multitask_sparse.theory import FullFlow, aligned_start
from models.training import Experiment

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

    def at(self, scale: float, family: str, last: float) -> Shape:
        """The same, with `scale` steps to a unit of time, up to the last step of a record."""
        x = np.log(self.times * scale)

        def curve(steps: np.ndarray) -> np.ndarray:
            return np.interp(np.log(np.maximum(steps, 1e-9)), x, self.loss)

        until = np.append(x[x < np.log(last)], np.log(last))
        return Shape(family, curve, transitions_of(np.exp(until), curve(np.exp(until))))


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
    return flow.at(record.place(rng) / flow.truths[-1].time, family, record.last)


# Losses of the trainers

SMOOTHED = 0.03
"""In ln t: what the expected loss is smoothed by before its transitions are read off. A jitter of the weights is none."""


@dataclass(frozen=True)
class Trained:
    """A loss logged at every step from 1 on, and beside it the expected loss of the weights that it was logged of."""

    family: str
    loss: np.ndarray
    expected: np.ndarray

    @property
    def shape(self) -> Shape:
        """The expected loss as a shape, its transitions as large as one that can be visible."""
        steps, last = np.arange(1.0, len(self.expected) + 1), np.log(len(self.expected))
        x = np.linspace(0, last, 1500)
        smooth = gaussian_filter1d(np.interp(np.exp(x), steps, self.expected), SMOOTHED * 1500 / last, mode="nearest")
        found = transitions_of(np.exp(x), smooth)
        truths = tuple(truth for truth in found if truth.height >= LEAST_HEIGHT * np.ptp(self.expected))
        return Shape(self.family, lambda at: np.interp(at, steps, self.expected), truths)

    @property
    def noise(self) -> Noise:
        """Noise in proportion to the loss, of the size of what is not expected while the loss is high."""
        high = self.expected[1:] > self.expected.min() + 0.5 * np.ptp(self.expected)
        off = (np.diff(self.loss - self.expected) / np.sqrt(2))[high]
        return Noise("sgd", float(np.median(np.abs(off)) / 0.6745 / np.ptp(self.expected)))


def trained(seeds: Sequence[int], steps: int) -> list[Trained]:
    """The losses of four models trained by SGD on small batches, one of each per seed.

    (The reduced model of paper 003 starts at zero weights and has no transition; it is among the nulls.)
    """
    head = LinearICL(LinearICLConfig((1.0, 0.4), context=32, init=1e-3, learning_rate=90 / steps, batch=64), seeds)
    heads = MultiHead(MultiHeadConfig(heads=2, init=0.2, learning_rate=800 / steps, batch=64), seeds)
    weights = MergedWeights(MergedWeightsConfig(learning_rate=40 / steps, batch=64), seeds)
    tasks = MultitaskAttention(MultitaskConfig(4, 2.2, learning_rate=1 / steps, batch=64), seeds)
    return [
        *_train("000 SGD", head, steps, _of_linear_head(head)),
        *_train("001 SGD", heads, steps, "expected_loss"),
        *_train("002 SGD", weights, steps, _of_merged_weights(weights)),
        *_train("004 SGD", tasks, steps, "test_loss"),
    ]


Expected = Callable[[], np.ndarray]
"""The expected loss [seeds] of the weights as they are."""


def _of_linear_head(model: LinearICL) -> Expected:
    """That of the diagonals of p2 and q1, which are all that the flow has; SGD adds a jitter beside them."""
    theories = [exact_theory(*model.describe(index)) for index in range(len(model.seeds))]

    def expected() -> np.ndarray:
        p, q = (model.blocks[name].diagonal(dim1=-2, dim2=-1).numpy() for name in ("p2", "q1"))
        return np.array([theory.loss_of(p[index], q[index]) for index, theory in enumerate(theories)])

    return expected


def _of_merged_weights(model: MergedWeights) -> Expected:
    flows = []
    for index in range(len(model.seeds)):
        config, theory = model.describe(index)
        flows.append(merged_flow(config, theory, model.weights(index)))

    def expected() -> np.ndarray:
        value, key_query = (model.blocks[name].numpy() for name in ("value", "key_query"))
        here = [slice(index, index + 1) for index in range(len(flows))]
        return np.concatenate([flow.loss_of(value[k], key_query[k]) for flow, k in zip(flows, here, strict=True)])

    return expected


def _train(family: str, model: Experiment, steps: int, expected: Expected | str) -> list[Trained]:
    """Updates without files. A model that logs the expected loss itself does so by this name."""
    logged, beside = [], []
    for _ in range(steps):
        before = None if isinstance(expected, str) else expected()
        scalars = model.update()
        logged.append(scalars["loss"].numpy().copy())
        beside.append(scalars[expected].numpy().copy() if isinstance(expected, str) else before)
    return [Trained(family, *pair) for pair in zip(np.array(logged).T, np.array(beside).T, strict=True)]
