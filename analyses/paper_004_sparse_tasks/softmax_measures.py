"""What is measured of softmax attention on sparse tasks: exponents per seed, of time, size, data and compute."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analyses.paper_004_sparse_tasks.runs import Group
from analyses.tools.claims import Measured, by_group
from analyses.tools.exponents import slopes
from analyses.tools.verdicts import spread
from models.multitask_sparse import laws
from models.multitask_sparse.task import PowerLaw, power_law_tasks

ALPHA, OTHER = 1.8, 2.1
BETAS = (0.3, 0.6)
SIZES, DRAWS = (3, 6, 12, 24, 48), (10, 30, 100, 300)
FITTED = SIZES[:-1]  # the largest size is for the best split: its rarest tasks are not learned at the end
WINDOW = (30.0, 3000.0)  # times of gradient descent; linear attention is faster by psi
STEPS = (30.0, 600.0)  # of AdamW
BUDGETS = {"gd": np.geomspace(500, 20_000, 12), "adamw": np.geomspace(300, 5000, 12)}


@dataclass(frozen=True)
class Trained:
    """Softmax attention by one optimizer: endless data by alpha; by size; by number of prompts."""

    optimizer: str
    by_alpha: dict[float, Group]
    by_size: dict[int, Group]
    by_data: dict[int, Group]

    @property
    def law(self) -> PowerLaw:
        """Of the runs by size and by data."""
        return PowerLaw(next(iter(self.by_size.values())).config.alpha)


@dataclass(frozen=True)
class Seen:
    """Softmax attention by both optimizers, with varied contexts by beta, and linear attention on the same (0 first)."""

    gd: Trained
    adamw: Trained
    varied: dict[float, Group]
    linear: dict[float, Group]


def time_slopes(group: Group, window: tuple[float, float] = WINDOW) -> np.ndarray:
    """Of the test loss over a window of times, or of what there is of it."""
    times = np.geomspace(window[0], max(min(window[1], group.times[-1]), 2 * window[0]), 20)
    return slopes(times, group.at(times))


def step_slopes(group: Group) -> np.ndarray:
    """The same over steps, for an optimizer whose steps are no time."""
    rate = group.config.learning_rate
    return time_slopes(group, (STEPS[0] * rate, STEPS[1] * rate))


def size_slopes(trained: Trained) -> np.ndarray:
    """Of the loss at the end against D."""
    return slopes(np.array(FITTED), np.stack([trained.by_size[d].test_losses[:, -1] for d in FITTED], 1))


def data_slopes(trained: Trained) -> np.ndarray:
    """Of the loss at the end against N."""
    return slopes(np.array(DRAWS), np.stack([trained.by_data[n].test_losses[:, -1] for n in DRAWS], 1))


def frontier(trained: Trained) -> tuple[np.ndarray, np.ndarray]:
    """Budgets t D, and the least loss of any size at each [seeds, budgets]; t counts steps for AdamW."""
    budgets = BUDGETS[trained.optimizer]
    losses = []
    for d, group in trained.by_size.items():
        times = group.times if trained.optimizer == "gd" else group.times / group.config.learning_rate
        at = np.clip(budgets / d, times[1], times[-1])
        losses.append(np.stack([np.exp(np.interp(at, times, np.log(row))) for row in group.test_losses]))
    return budgets, np.min(losses, 0)


def compute_slopes(trained: Trained) -> np.ndarray:
    """Of the least loss against compute."""
    return slopes(*frontier(trained))


def of_times(seen: Seen) -> Measured:
    """Time exponents of gradient descent over the printed ones, by alpha."""
    printed = {a: laws.time_exponent(PowerLaw(a)) for a in seen.gd.by_alpha}
    found = {a: time_slopes(group) for a, group in seen.gd.by_alpha.items()}
    told = (f"α = {a:g}: {spread(v)}, printed {printed[a]:.3f}" for a, v in found.items())
    return Measured("; ".join(told), np.concatenate([v / printed[a] for a, v in found.items()]))


def of_sizes(which: str) -> Callable[[Seen], Measured]:
    """Size exponents over the printed one; the slope of the sum with as many tasks is told."""

    def measure(seen: Seen) -> Measured:
        trained: Trained = getattr(seen, which)
        share = _probability(trained)
        sums = np.array([share[d - 1 :].sum() for d in FITTED])
        return _over(size_slopes(trained), laws.size_exponent(trained.law), slopes(np.array(FITTED), sums[None])[0])

    return measure


def of_draws(which: str) -> Callable[[Seen], Measured]:
    """Data exponents over the printed one; the slope of the sum with as many tasks is told."""

    def measure(seen: Seen) -> Measured:
        trained: Trained = getattr(seen, which)
        share = _probability(trained)
        sums = np.array([(share * (1 - share) ** n).sum() for n in DRAWS])
        return _over(data_slopes(trained), laws.data_exponent(trained.law), slopes(np.array(DRAWS), sums[None])[0])

    return measure


def of_compute(seen: Seen) -> Measured:
    """Compute exponents of gradient descent over the printed one."""
    printed = laws.compute_exponent(seen.gd.law)
    found = compute_slopes(seen.gd)
    return Measured(f"{spread(found)}, printed {printed:.3f}", found / printed)


def of_contexts(seen: Seen) -> Measured:
    """Time exponents with varied contexts over the printed ones, by beta; linear attention is told."""
    printed = {b: laws.time_exponent(PowerLaw(ALPHA, b)) for b in seen.varied}
    found = {b: time_slopes(group) for b, group in seen.varied.items()}
    linear = {b: linear_slope(seen.linear[b]) for b in seen.varied}
    told = (f"β = {b:g}: {spread(v)}, printed {printed[b]:.3f} (linear: {linear[b]:.3f})" for b, v in found.items())
    return Measured("; ".join(told), np.concatenate([v / printed[b] for b, v in found.items()]))


def contexts_beside_none(seen: Seen) -> Measured:
    """Time exponents with varied contexts over those without, seed by seed from the same start; linear is told."""
    plain = time_slopes(seen.gd.by_alpha[ALPHA])
    found = {f"β = {b:g}": time_slopes(group) / plain for b, group in seen.varied.items()}
    linear = [linear_slope(seen.linear[b]) / linear_slope(seen.linear[0.0]) for b in seen.varied]
    text = f"exponent / that of β = 0: {by_group(found, spread)}; linear attention: {', '.join(f'{x:.3f}' for x in linear)}"
    return Measured(text, np.concatenate([*found.values()]))


def linear_slope(group: Group) -> float:
    """The same of linear attention, whose time runs faster by psi; there is no chance in it."""
    return float(time_slopes(group, (WINDOW[0] / group.config.context, WINDOW[1] / group.config.context))[0])


def adamw_beside_gd(seen: Seen) -> Measured:
    """Time exponents of AdamW over the printed ones; those of gradient descent as controls."""
    adamw, gd = (
        np.concatenate([slope(g) / laws.time_exponent(PowerLaw(a)) for a, g in trained.by_alpha.items()])
        for trained, slope in ((seen.adamw, step_slopes), (seen.gd, time_slopes))
    )
    text = f"time exponent / printed: AdamW (steps {STEPS[0]:g} - {STEPS[1]:g}) {spread(adamw, 2)}; gradient descent {spread(gd, 2)}"
    return Measured(text, adamw, gd)


def adamw_compute(seen: Seen) -> Measured:
    """Compute exponents of AdamW over the printed one; those of gradient descent over theirs as controls."""
    adamw, gd = (compute_slopes(t) / laws.compute_exponent(t.law) for t in (seen.adamw, seen.gd))
    text = f"compute exponent / printed: AdamW (α = {OTHER:g}) {spread(adamw, 2)}; gradient descent (α = {ALPHA:g}) {spread(gd, 2)}"
    return Measured(text, adamw, gd)


def adamw_ends(seen: Seen) -> Measured:
    """The loss at the end of AdamW over that at the start, by alpha."""
    found = {f"α = {a:g}": g.test_losses[:, -1] / g.test_losses[:, 0] for a, g in seen.adamw.by_alpha.items()}
    text = "loss at the end / at the start: " + by_group(found, lambda v: f"{v.mean():.1e}")
    return Measured(text, np.concatenate([*found.values()]))


def _probability(trained: Trained) -> np.ndarray:
    config = next(iter(trained.by_size.values())).config
    return power_law_tasks(trained.law, config.tasks, 1.0, 1.0, exact=config.tasks).probability


def _over(found: np.ndarray, printed: float, sum_of_few: float) -> Measured:
    return Measured(f"{spread(found)}, printed {printed:.3f} (the sum itself: {sum_of_few:.3f})", found / printed)
