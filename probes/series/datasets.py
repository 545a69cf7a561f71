"""Data sets with the truth beside them: series and weights of which it is known what happens in them, and when.

    staged_loss        a loss that falls in stages, at half-times of your choosing
    linear_head_loss   the same for settings of the solvable model of paper 000, in its own time
    null               a series in which nothing happens: what is found in it is a false alarm
    planted_weights    matrices in which modes grow at known times along random directions
    planted_heads      the same for several attention heads, kept as factors

    >>> data = probes.datasets.staged_loss(half_times=(300, 1500, 7500), noise=0.05, seed=0)
    >>> found = probes.find_transitions(data.series)  # its cliffs belong at data.times

A stage has two times. `half_times` is when the amplitude behind it is half grown, t* of paper 000: where modes of the
weights belong, and the peaks of `loss_autocorrelation_curvature`. The loss falls as the square of what the amplitude
still lacks and has done half of its drop about a tenth earlier: that is `times`, where the cliffs of `find_transitions`
belong.

Every set is drawn from its `seed`, an int or several: the same seed gives the same numbers, today and in every test and
benchmark of this project, which take their series from here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from probes.matrices.factored import Factored

Seed = int | Sequence[int]
Stages = Float64[np.ndarray, " stages"]
Times = Float64[np.ndarray, " times"]
Steps = Int64[np.ndarray, " steps"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A series and what happens in it.

    series       the values, indexed by step (or by time)
    times        when half of each drop of the series is done, ascending; empty where nothing happens
    half_times   when the amplitude behind each drop is half grown, a little later
    """

    name: str
    description: str
    series: pd.Series
    times: Stages
    half_times: Stages

    def __repr__(self) -> str:
        """Name, length and the true times, without the numbers themselves."""
        when = ", ".join(f"{time:.4g}" for time in self.times) or "nothing happens"
        return f"Dataset({self.name!r}: {len(self.series)} values by {self.series.index.name}; times: {when})"


@dataclass(frozen=True, eq=False)
class PlantedWeights:
    """Weights at several steps and what happens in them.

    matrices     one per step: an array [rows, columns], or a `Factored` [heads, d_model, d_model]
    half_times   when each mode is half grown: [modes], or [heads, modes]
    amplitudes   how large each mode is at each step, without noise: [steps, modes], or [steps, heads, modes]
    """

    name: str
    description: str
    steps: Steps
    matrices: list[np.ndarray] | list[Factored[np.ndarray]]
    half_times: Float64[np.ndarray, "*heads modes"]
    amplitudes: Float64[np.ndarray, "steps *heads modes"]

    def __repr__(self) -> str:
        """Name, number of steps and the true times, without the weights."""
        return f"PlantedWeights({self.name!r}: {len(self.steps)} steps; half_times: {self.half_times.tolist()})"


# Losses that fall in stages


@dataclass(frozen=True)
class LinearHead:
    """One linear attention head that learns regression in context, in the closed form of paper 000.

    eigenvalues s are those of the input covariance, context is the number N of examples in a prompt, init the amplitude
    a(0) at which every mode starts. Time is learning rate x step. The modes are independent, which is right to leading
    order in 1/N.
    """

    eigenvalues: Sequence[float]
    context: int = 128
    init: float = 1e-3

    def __post_init__(self) -> None:
        if not len(self._s) or (self._s <= 0).any() or self.context < 1 or self.init <= 0:
            raise ValueError(f"{self}: positive eigenvalues, context and init are expected")
        if (self.init >= self.fixed_point / 2).any():
            raise ValueError(
                f"init is {self.init:g}: from half of a fixed point or more (the smallest is "
                f"{self.fixed_point.min():.3g}) there is no half-time"
            )

    @staticmethod
    def with_half_times(half_times: Sequence[float], context: int = 128, init: float = 1e-3) -> "LinearHead":
        """The head whose modes have these half-times: s = sqrt(ln(a_inf / a(0) - 1) / (2 t*)), solved by iteration."""
        wanted = np.array(half_times, dtype=np.float64)
        if wanted.ndim != 1 or not len(wanted) or (wanted <= 0).any() or (np.diff(wanted) <= 0).any():
            raise ValueError(f"half_times is {half_times}: positive times in ascending order are expected")
        s = 1 / np.sqrt(wanted)
        for _ in range(200):
            s = np.sqrt(np.log(LinearHead(s.tolist(), context, init).fixed_point / init - 1) / (2 * wanted))
        return LinearHead(s.tolist(), context, init)

    @property
    def fixed_point(self) -> Stages:
        """a_inf = 1 / ((N+1)/N s + Tr S / N), below Eq 10."""
        s, n = self._s, self.context
        return 1 / ((n + 1) / n * s + s.sum() / n)

    def amplitudes(self, times: Times) -> Float64[np.ndarray, "times stages"]:
        """a(t), Eq 13: a logistic of rate 2 s^2 in each mode."""
        decay = np.exp(-2 * self._s**2 * times[:, None])
        return self.fixed_point * self.init / (self.init + (self.fixed_point - self.init) * decay)

    def loss(self, times: Times) -> Times:
        """L(t) = 1/2 sum over modes of s (s / a_inf a^2 - 2 s a + 1), Eq 14."""
        s, a = self._s, self.amplitudes(times)
        return 0.5 * (s * (s / self.fixed_point * a**2 - 2 * s * a + 1)).sum(-1)

    @property
    def half_times(self) -> Stages:
        """t*, when a(t) = a_inf / 2."""
        return np.log((self.fixed_point - self.init) / self.init) / (2 * self._s**2)

    @property
    def loss_half_times(self) -> Stages:
        """When each mode has brought half of the loss it will bring: its part falls as (1 - a / a_inf)^2."""
        start = self.init / self.fixed_point
        halfway = 1 - (1 - start) / np.sqrt(2)
        return np.log(halfway * (1 - start) / (start * (1 - halfway))) / (2 * self._s**2)

    @property
    def _s(self) -> Stages:
        return np.array(self.eigenvalues, dtype=np.float64)


LINEAR_HEADS: Mapping[str, LinearHead] = {
    "four modes": LinearHead((1, 0.5, 0.25, 0.125), 128),
    "three, wide apart": LinearHead((1, 0.4, 0.16), 64),
    "three, short context": LinearHead((1, 0.5, 0.25), 32),
}
"""Settings whose modes are a factor four or more apart in time."""


def staged_loss(half_times: Sequence[float] = (300, 1500, 7500), *, noise: float = 0.05, seed: Seed = 0) -> Dataset:
    """A loss of a linear head whose stages have these half-times, in steps, up to five times the last of them.

    noise is in proportion to the loss, as that of batches is. Later stages drop less, as 1 / sqrt(half-time).
    """
    head = LinearHead.with_half_times(half_times)
    steps = np.arange(int(5 * half_times[-1]))
    description = f"closed-form loss of paper 000 with {len(half_times)} stages, noise {noise:g} of it"
    return _noisy(head, pd.Index(steps, name="step"), noise, seed, "staged loss", description)


def linear_head_loss(
    setting: str | LinearHead = "four modes", *, noise: float = 0.05, seed: Seed = 0, spacing: float = 0.01
) -> Dataset:
    """The loss of a linear head, one of `LINEAR_HEADS` by name, every `spacing` in time, to five times the last t*.

    noise is in proportion to the loss. spacing is the learning rate, if there is one value at every step.
    """
    if isinstance(setting, str) and setting not in LINEAR_HEADS:
        raise ValueError(f"setting is {setting!r}: one of {', '.join(LINEAR_HEADS)} is expected, or a LinearHead")
    head, name = (LINEAR_HEADS[setting], setting) if isinstance(setting, str) else (setting, "linear head")
    times = np.arange(0, 5 * head.half_times[-1], spacing)
    description = f"loss of paper 000, eigenvalues {tuple(head.eigenvalues)}, context {head.context}, noise {noise:g}"
    return _noisy(head, pd.Index(times, name="time"), noise, seed, name, description)


def _noisy(head: LinearHead, index: pd.Index, noise: float, seed: Seed, name: str, description: str) -> Dataset:
    loss = head.loss(index.to_numpy(dtype=np.float64))
    values = loss * (1 + noise * np.random.default_rng(seed).standard_normal(len(loss)))
    series = pd.Series(values, index=index, name="loss")
    return Dataset(name, description, series, head.loss_half_times, head.half_times)


# Series in which nothing happens

NULLS: Mapping[str, str] = {
    "white noise": "independent normal values",
    "exponential": "a decay under white noise",
    "exponential, noise in proportion": "a decay to a fifth, noise in proportion to the value",
    "power law": "a power of the step under faint white noise",
    "power law without noise": "a power of the step",
    "random walk": "sums of independent normal values",
    "slow random walk": "a random walk under white noise, which may be smaller than it or larger",
    "autocorrelated": "AR(1) noise with a memory of .95",
    "kink": "a straight fall that ends in a plateau, under white noise",
}
"""Kinds of series in which nothing happens, and what they are."""


def null(kind: str, n: int = 1000, *, seed: Seed = 0) -> Dataset:
    """A series of n steps, 1 to n, in which nothing happens; rates, powers and sizes of noise are drawn as well."""
    if kind not in NULLS:
        raise ValueError(f"kind is {kind!r}: one of {', '.join(NULLS)} is expected")
    values = _nothing(kind, np.arange(1, n + 1.0), np.random.default_rng(seed))
    series = pd.Series(values, index=pd.RangeIndex(1, n + 1, name="step"), name=kind)
    return Dataset(kind, NULLS[kind], series, np.empty(0), np.empty(0))


def _nothing(kind: str, steps: Times, rng: np.random.Generator) -> Times:
    n = len(steps)
    noise = 10 ** rng.uniform(-2, -0.5) * rng.standard_normal(n)
    match kind:
        case "white noise":
            return noise
        case "exponential":
            return np.exp(-steps / (n * 10 ** rng.uniform(-2, 0))) + noise
        case "exponential, noise in proportion":
            return (np.exp(-steps / (n * 10 ** rng.uniform(-2, 0))) + 0.2) * (1 + noise)
        case "power law":
            return steps ** -rng.uniform(0.1, 1.5) + 0.1 * noise
        case "power law without noise":
            return steps ** -rng.uniform(0.1, 1.5)
        case "random walk":
            return np.cumsum(rng.standard_normal(n))
        case "slow random walk":
            walk = np.cumsum(rng.standard_normal(n)) / np.sqrt(n)
            return walk + 10 ** rng.uniform(-1.5, 0.5) * rng.standard_normal(n)
        case "autocorrelated":
            return _autoregressive(rng.standard_normal(n), 0.95)
        case _:
            bend = n * rng.uniform(0.1, 0.7)
            return np.where(steps < bend, 1 - 0.8 * steps / bend, 0.2) + noise


def _autoregressive(noise: np.ndarray, memory: float) -> np.ndarray:
    from scipy.signal import lfilter  # slow to import, and importing probes must be quick

    return np.asarray(lfilter([1.0], [1.0, -memory], noise))


# Weights in which modes grow

STEEPNESS = 8.0
"""Rate x half-time of a planted mode: it starts at exp(-8) of its size, as modes of the solvable models do."""


def planted_weights(
    half_times: Sequence[float] = (300, 1500),
    *,
    shape: tuple[int, int] = (32, 24),
    steps: Sequence[int] | None = None,
    noise: float = 0.01,
    seed: Seed = 0,
) -> PlantedWeights:
    """Matrices whose modes grow logistically, each to half of its size at its half-time.

    The modes lie along random orthogonal directions that do not move; of n, the first to be learned ends at size n and
    the last at 1. steps are by default 0 and some eighty, log-spaced, to five times the last half-time. noise is the
    norm of what is added to each matrix, drawn anew at every step, as a share of the smallest mode.
    """
    when = np.array(half_times, dtype=np.float64)
    at, rng = _steps(steps, when), np.random.default_rng(seed)
    (u, v), sizes = (_directions(rng, n, len(when)) for n in shape), np.arange(len(when), 0.0, -1)
    amplitudes = _grown(at, when, sizes)
    scale = noise / np.sqrt(shape[0] * shape[1])
    matrices = [(u * a) @ v.T + scale * rng.standard_normal(shape) for a in amplitudes]
    description = f"{len(when)} modes in {shape[0]} x {shape[1]} matrices, noise {noise:g}"
    return PlantedWeights("planted weights", description, at, matrices, when, amplitudes)


def planted_heads(
    half_times: Sequence[Sequence[float]] = ((300, 1500), (600, 3000)),
    *,
    d_model: int = 32,
    d_head: int = 8,
    steps: Sequence[int] | None = None,
    noise: float = 0.01,
    seed: Seed = 0,
) -> PlantedWeights:
    """Heads, one for each row of half_times, whose product left @ right has modes that grow as in `planted_weights`.

    Both factors carry the root of an amplitude, mixed over all of d_head. noise is the norm of what is added to each
    factor of a head, drawn anew at every step, as a share of the root of its smallest mode: before the modes have
    grown, that is what a head consists of.
    """
    when = np.array(half_times, dtype=np.float64)
    if when.ndim != 2 or when.shape[1] > d_head:
        raise ValueError(f"half_times has shape {when.shape}: [heads, modes] with at most d_head = {d_head} modes")
    at, rng = _steps(steps, when), np.random.default_rng(seed)
    heads, modes = when.shape
    u, v = (np.stack([_directions(rng, d_model, modes) for _ in range(heads)]) for _ in range(2))
    mix = np.stack([_directions(rng, d_head, d_head)[:modes] for _ in range(heads)])
    amplitudes = _grown(at, when, np.arange(modes, 0.0, -1))
    scale = noise / np.sqrt(d_model * d_head)

    def noisy(directions: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """A factor [heads, d_model, d_head]."""
        return (directions * roots[:, None]) @ mix + scale * rng.standard_normal((heads, d_model, d_head))

    matrices = [Factored(noisy(u, root), noisy(v, root).mT) for root in np.sqrt(amplitudes)]
    description = f"{modes} modes in each of {heads} heads, d_model {d_model}, d_head {d_head}, noise {noise:g}"
    return PlantedWeights("planted heads", description, at, matrices, when, amplitudes)


def _steps(steps: Sequence[int] | None, half_times: np.ndarray) -> Steps:
    if half_times.size == 0 or (half_times <= 0).any():
        raise ValueError(f"half_times is {half_times.tolist()}: positive steps are expected")
    if steps is not None:
        at = np.array(steps, dtype=np.int64)
        if not len(at) or (np.diff(at) <= 0).any():
            raise ValueError(f"steps is {list(steps)}: steps that increase are expected")
        return at
    return np.unique(np.append(0, np.round(np.geomspace(1, 5 * half_times.max(), 100)))).astype(np.int64)


def _directions(rng: np.random.Generator, dimension: int, count: int) -> Float64[np.ndarray, "dimension count"]:
    """Orthonormal columns that point anywhere."""
    if count > dimension:
        raise ValueError(f"{count} modes do not fit into {dimension} dimensions")
    return np.linalg.qr(rng.standard_normal((dimension, count)))[0]


def _grown(steps: Steps, half_times: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Amplitudes [steps, ..., modes]: logistics."""
    at = steps.reshape(-1, *(1,) * half_times.ndim)
    return sizes / (1 + np.exp(-STEEPNESS * (at / half_times - 1)))
