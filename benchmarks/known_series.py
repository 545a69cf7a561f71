"""Series of which it is known what happens in them: closed-form losses with their cliffs, and decays without any."""

import numpy as np

from models.linear_icl.theory import PrintedTheory

CLIFFS = {
    "four modes": PrintedTheory([1, 0.5, 0.25, 0.125], 128, 1e-3),
    "three, wide apart": PrintedTheory([1, 0.4, 0.16], 64, 1e-3),
    "three, short context": PrintedTheory([1, 0.5, 0.25], 32, 1e-3),
}
"""Losses of paper 000 whose modes are a factor four or more apart in time."""

NOTHING_HAPPENS = (
    "white noise",
    "exponential",
    "exponential, noise in proportion",
    "power law",
    "power law without noise",
    "random walk",
    "slow random walk",
    "autocorrelated",
    "kink",
)


def noisy_loss(theory: PrintedTheory, noise: float, seed: int, spacing: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """The loss at every step of learning rate `spacing`, noise in proportion to the loss, to five times the last t*."""
    times = np.arange(0, 5 * theory.half_times[-1], spacing)
    loss = theory.loss(times)
    return loss * (1 + noise * np.random.default_rng(seed).standard_normal(len(times))), times


def nothing(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A series of n steps in which nothing happens, and its steps."""
    steps = np.arange(1, n + 1.0)
    noise = 10 ** rng.uniform(-2, -0.5) * rng.standard_normal(n)
    match kind:
        case "white noise":
            values = noise
        case "exponential":
            values = np.exp(-steps / (n * 10 ** rng.uniform(-2, 0))) + noise
        case "exponential, noise in proportion":
            values = (np.exp(-steps / (n * 10 ** rng.uniform(-2, 0))) + 0.2) * (1 + noise)
        case "power law":
            values = steps ** -rng.uniform(0.1, 1.5) + 0.1 * noise
        case "power law without noise":
            values = steps ** -rng.uniform(0.1, 1.5)
        case "random walk":
            values = np.cumsum(rng.standard_normal(n))
        case "slow random walk":
            walk = np.cumsum(rng.standard_normal(n)) / np.sqrt(n)
            values = walk + 10 ** rng.uniform(-1.5, 0.5) * rng.standard_normal(n)
        case "autocorrelated":
            values = _autoregressive(rng.standard_normal(n), 0.95)
        case "kink":
            bend = n * rng.uniform(0.1, 0.7)
            values = np.where(steps < bend, 1 - 0.8 * steps / bend, 0.2) + noise
        case _:
            raise ValueError(f"{kind!r} is none of {', '.join(NOTHING_HAPPENS)}")
    return values, steps


def _autoregressive(noise: np.ndarray, memory: float) -> np.ndarray:
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], [1.0, -memory], noise))
