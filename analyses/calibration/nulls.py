"""Curves in which nothing happens that a detector should call a cliff, a stage or a dip.

*Drifts* are the smooth, monotone curves of the cells of short records. *Quiet* nulls are those of the table of peers:
decays, power laws, noise, walks, kinks, the reduced models of paper 003 and the many tasks of 004. *Benign* are what
healthy training does and what looks like something: schedules of the learning rate, warm-up and loss spikes, U-shapes,
oscillation, upward jumps. Of these some rows are right (a spike may be called a spike, a jump a rise, a drop at a marked
step an intervention), and `Shape.allowed` says which.
"""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from analyses.calibration.shapes import Record
from analyses.calibration.truth import Shape
from models.depth_and_context.spectrum import power_law
from models.depth_and_context.theory import FixedCovarianceFlow, IsoFlow, RotatedFlow
from models.multitask_sparse.task import PowerLaw, power_law_tasks
from models.multitask_sparse.theory import FullFlow, aligned_start

Make = Callable[[Record, np.random.Generator], Shape]


def drift(record: Record, rng: np.random.Generator) -> Shape:
    """A smooth monotone curve over a record, up or down: exponential, power of t, ln t, straight, root."""
    last, sign = record.last, rng.choice([-1.0, 1.0])
    first = max(float(record.steps[0]), last / len(record.steps) / 3, 1.0)
    kind = rng.integers(5)
    tau, power = last * np.exp(rng.uniform(np.log(0.05), np.log(2))), rng.uniform(0.1, 0.8)

    def curve(steps: np.ndarray) -> np.ndarray:
        t = steps + first
        pieces = (np.exp(-steps / tau), t**-power, -np.log(t), -steps / last, -np.sqrt(steps / last))
        return sign * pieces[kind]

    return Shape("drift", curve)


def level(record: Record, rng: np.random.Generator) -> Shape:
    """Nothing but noise: the curve is zero, and the noise is then of its own scale."""
    return Shape("noise alone", lambda steps: np.zeros(len(steps)))


def exponentials(record: Record, rng: np.random.Generator) -> Shape:
    """One to three exponential decays at once."""
    count = int(rng.integers(1, 4))
    taus = record.last * np.exp(rng.uniform(np.log(0.02), np.log(1), count))
    shares = rng.uniform(0.3, 1, count)
    return Shape("exponentials", lambda steps: (shares * np.exp(-steps[:, None] / taus)).sum(1))


def power(record: Record, rng: np.random.Generator) -> Shape:
    """A power of the step, with an offset of a few of its first steps."""
    exponent, offset = rng.uniform(0.1, 1.2), record.steps[min(2, len(record.steps) - 1)] * rng.uniform(0.5, 3) + 1
    return Shape("power law", lambda steps: (steps / offset + 1) ** -exponent)


def kink(record: Record, rng: np.random.Generator) -> Shape:
    """A straight fall that ends in a plateau."""
    bend = record.last * rng.uniform(0.1, 0.7)
    return Shape("kink", lambda steps: np.where(steps < bend, 1 - 0.8 * steps / bend, 0.2))


def walk(record: Record, rng: np.random.Generator) -> Shape:
    """A random walk in the number of the checkpoint; the noise of the cell comes on top."""
    path = np.cumsum(rng.standard_normal(len(record.steps))) / np.sqrt(len(record.steps))
    return Shape("random walk", lambda steps: np.interp(steps, record.steps, path))


def walk_in_time(record: Record, rng: np.random.Generator) -> Shape:
    """A random walk in t, as of weights that only diffuse: the further apart two checkpoints, the more it moves."""
    gaps = np.diff(record.steps, prepend=0.0)
    path = np.cumsum(rng.standard_normal(len(gaps)) * np.sqrt(gaps)) / np.sqrt(record.last)
    return Shape("walk in time", lambda steps: np.interp(steps, record.steps, path))


@cache
def _model_decays() -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Losses of solvable models without a transition: papers 003 (three data models) and 004 (many tasks)."""
    spectrum = power_law(1.5, 1.0, 400)
    tasks = power_law_tasks(PowerLaw(1.8), 2000, 50.0, 0.5)
    flows = (
        (FixedCovarianceFlow(spectrum, 1), 1.0),
        (FixedCovarianceFlow(spectrum, 4), 1.0),
        (RotatedFlow(spectrum, 4, per_direction=False), 1.0),
        (IsoFlow(4, 1.0), 1.0),
        (FullFlow(tasks, *aligned_start(tasks, 0.4)), 0.1),
    )
    times = np.concatenate(([0.0], np.geomspace(1e-2, 1e4, 800)))
    return tuple((times * unit, np.asarray(flow.loss(times * unit))) for flow, unit in flows)


def model_decay(record: Record, rng: np.random.Generator) -> Shape:
    """A loss of a solvable model that only decays."""
    decays = _model_decays()
    times, loss = decays[rng.integers(len(decays))]
    scale = record.last / (times[-1] * 10 ** rng.uniform(-2, 0))
    return Shape("003 and 004, decays", lambda steps: np.interp(steps, times * scale, loss))


def jump(record: Record, rng: np.random.Generator) -> Shape:
    """A decay with one jump upwards, which is a rise and nothing else."""
    at, height, tau = record.last * rng.uniform(0.2, 0.8), rng.uniform(0.1, 0.6), record.last * rng.uniform(0.1, 0.5)
    return Shape("upward jump", lambda steps: np.exp(-steps / tau) + height * (steps > at), allowed=("rise",))


def _under_rate(record: Record, rate: Callable[[np.ndarray], np.ndarray], floor: float) -> Callable:
    """A power law in the sum of the learning rate so far, over a floor that falls with the rate itself."""
    grid = np.linspace(0, 1, 4001)
    clock = np.concatenate(([0.0], np.cumsum((rate(grid)[1:] + rate(grid)[:-1]) / 2) * (grid[1] - grid[0])))

    def curve(steps: np.ndarray) -> np.ndarray:
        share = steps / record.last
        return (np.interp(share, grid, clock) * 300 + 1) ** -0.35 + floor * rate(share)

    return curve


def cosine(record: Record, rng: np.random.Generator) -> Shape:
    """The learning rate falls as a cosine, after a short warm-up; the noise floor of the loss falls with it."""
    warm = rng.uniform(0.002, 0.02)

    def rate(share: np.ndarray) -> np.ndarray:
        return np.minimum(share / warm, 1) * (0.55 + 0.45 * np.cos(np.pi * share))

    return Shape("cosine", _under_rate(record, rate, rng.uniform(0.02, 0.08)))


def stable_decay(record: Record, rng: np.random.Generator) -> Shape:
    """Warm-up, stable, decay: the last 10 to 25 % of the run cool down in a straight line."""
    cool = 1 - rng.uniform(0.1, 0.25)

    def rate(share: np.ndarray) -> np.ndarray:
        return np.minimum(share / 0.01, 1) * np.clip((1 - share) / (1 - cool), 0, 1)

    return Shape("warm-up, stable, decay", _under_rate(record, rate, rng.uniform(0.02, 0.08)))


def step_decay(record: Record, rng: np.random.Generator) -> Shape:
    """The learning rate is divided by ten at two steps, which are handed to the detector as interventions."""
    at = record.last * np.sort(rng.uniform(0.25, 0.85, 2))

    def rate(share: np.ndarray) -> np.ndarray:
        return 0.1 ** np.searchsorted(at / record.last, share, side="right").astype(float)

    floor = _under_rate(record, rate, rng.uniform(0.05, 0.15))
    return Shape("step decay, marked", floor, allowed=("intervention",), interventions=tuple(at.tolist()))


def warm_up_spike(record: Record, rng: np.random.Generator) -> Shape:
    """The loss flies up within the first per cent or two and comes back."""
    at, height = record.last * rng.uniform(0.005, 0.03), rng.uniform(0.3, 2)

    def curve(steps: np.ndarray) -> np.ndarray:
        u = steps / at
        return (steps / (at / 3) + 1) ** -0.3 + height * u * np.exp(1 - u)

    return Shape("warm-up spike", curve, allowed=("spike",))


def u_shape(record: Record, rng: np.random.Generator) -> Shape:
    """A validation loss: it falls, and rises slowly as the model overfits."""
    tau, slope = record.last * rng.uniform(0.05, 0.3), rng.uniform(0.2, 0.8)
    return Shape("U-shape", lambda steps: np.exp(-steps / tau) + slope * steps / record.last)


def oscillation(record: Record, rng: np.random.Generator) -> Shape:
    """A decay with a slow oscillation of 2 to 8 periods."""
    periods, size, tau = rng.uniform(2, 8), rng.uniform(0.02, 0.15), record.last * rng.uniform(0.1, 0.5)
    phase = rng.uniform(0, 2 * np.pi)
    return Shape(
        "oscillation",
        lambda steps: np.exp(-steps / tau) + size * np.sin(2 * np.pi * periods * steps / record.last + phase),
    )


def spikes(record: Record, rng: np.random.Generator) -> Shape:
    """A decay with one to three loss spikes, up at once and back within .5 to 3 % of the run."""
    count = int(rng.integers(1, 4))
    at, back = record.last * rng.uniform(0.1, 0.9, count), record.last * rng.uniform(0.005, 0.03, count)
    height, tau = rng.uniform(0.3, 1.5, count), record.last * rng.uniform(0.1, 0.5)

    def curve(steps: np.ndarray) -> np.ndarray:
        since = steps[:, None] - at
        return np.exp(-steps / tau) + (height * np.where(since >= 0, np.exp(-np.maximum(since, 0) / back), 0)).sum(1)

    return Shape("loss spikes", curve, allowed=("spike",))


QUIET: Mapping[str, Make] = {
    "noise alone": level,
    "exponentials": exponentials,
    "power law": power,
    "kink": kink,
    "random walk": walk,
    "walk in time": walk_in_time,
    "003 and 004, decays": model_decay,
    "cosine": cosine,
}

BENIGN: Mapping[str, Make] = {
    "upward jump": jump,
    "warm-up, stable, decay": stable_decay,
    "step decay, marked": step_decay,
    "warm-up spike": warm_up_spike,
    "U-shape": u_shape,
    "oscillation": oscillation,
    "loss spikes": spikes,
}
