"""What is measured for Tables 1 and 2 of paper 004: exponents of the sums themselves, and of models trained on 500 tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from analyses.paper_004_sparse_tasks.runs import Group
from analyses.tools.claims import Measured
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.verdicts import spread
from models.multitask_sparse import laws
from models.multitask_sparse.task import PowerLaw, power_law_tasks
from models.multitask_sparse.theory import Corrected, FullFlow, TaskFlow, aligned_start, uniform_start

ALPHAS = (1.8, 2.1)
VARIED = PowerLaw(1.8, 0.3, 0.3)
LONGER = (0.0, 0.3, 0.6)  # beta
STEEPER = (0.0, 0.15, 0.3)  # gamma
STRONG, WEAK = 1e4, 1e-2  # strengths of the most frequent task: the printed time law assumes strong ones
MANY = 10**8  # gathered into bins; with fewer the slopes steepen as the rarest tasks come into sight
SIZES, DRAWS = np.geomspace(100, 10_000, 13), np.geomspace(1e3, 1e6, 13)
RANKS = np.geomspace(100, 10_000, 13)  # tasks being learned, in the window in which laws are fitted
TRIALS = np.geomspace(8, 150_000, 60)
WINDOW = (0.3, 30.0)  # times over which trained models are fitted
SPLIT = "best D"

Law = Callable[[PowerLaw], float]
BY_ALPHA = {f"α = {a:g}": (PowerLaw(a), 0.0) for a in ALPHAS}
BY_BETA = {f"β = {b:g}": (PowerLaw(1.8, b), STRONG) for b in LONGER}
BY_GAMMA = {f"γ = {g:g}": (PowerLaw(1.8, 0.0, g), STRONG) for g in STEEPER} | {"β = γ = 0.3": (VARIED, STRONG)}
ONE_STRONG, ONE_WEAK = {"β = γ = 0.3": (VARIED, STRONG)}, {"β = γ = 0.3": (VARIED, WEAK)}
Settings = Mapping[str, tuple[PowerLaw, float]]


@dataclass(frozen=True)
class Seen:
    """Trained models: by frequency exponent alpha, by size D, by number of prompts N."""

    by_alpha: dict[float, Group]
    by_size: dict[int, Group]
    by_data: dict[int, Group]


class Laws:
    """The four laws of one setting, as curves. Strength 0: the setting of Table 1, from the start of trained models."""

    def __init__(self, law: PowerLaw, strength: float) -> None:
        self.law = law
        context, strength, aligned = (1e4, strength, True) if strength else (100.0, 0.5, False)
        tasks = power_law_tasks(law, MANY, context, strength)
        start = aligned_start(tasks, 0.01) if aligned else uniform_start(tasks, 0.01)
        self.flow = Corrected(tasks, *start)
        pace = self.flow.frequency * tasks.context * (tasks.strength**2 + 1) * tasks.strength
        self.times = 1 / np.interp(RANKS, tasks.rank, pace)
        self.budgets = self.times * RANKS

    @cached_property
    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """The least loss at every budget t D, and the D that gives it."""
        return laws.best_split(self.flow, self.budgets, TRIALS)

    def curve(self, which: str) -> tuple[np.ndarray, np.ndarray]:
        """What is varied, and the loss; for SPLIT one over the best size."""
        if which == "t":
            return self.times, self.flow.test_loss(self.times)
        if which == "D":
            return SIZES, laws.losses_of_size(self.flow, SIZES)
        if which == "N":
            return DRAWS, laws.losses_of_data(self.flow, DRAWS)
        return self.budgets, 1 / self.split[1] if which == SPLIT else self.split[0]

    def fit(self, which: str) -> Fit:
        """The exponent of such a curve."""
        return fit_exponent(*self.curve(which))


@cache
def laws_of(law: PowerLaw, strength: float) -> Laws:
    """The laws of a setting, computed once."""
    return Laws(law, strength)


def exponents(which: str, settings: Settings, expected: Law) -> Callable[[Seen], Measured]:
    """Fitted exponents of the sums with 10^8 tasks over the expected ones, by setting."""

    def measure(_: Seen) -> Measured:
        fits = {name: laws_of(*setting).fit(which) for name, setting in settings.items()}
        told = [f"{name}: {fit}, expected {expected(settings[name][0]):.3f}" for name, fit in fits.items()]
        ratios = np.array([fit.exponent / expected(settings[name][0]) for name, fit in fits.items()])
        sign = "D ~ C^x, x: " if which == SPLIT else ""
        return Measured(
            sign + "; ".join(told), ratios, n=f"{len(fits)} setting{'s' * (len(fits) > 1)}, by sums over 10⁸ tasks"
        )

    return measure


def both(first: Callable[[Seen], Measured], second: Callable[[Seen], Measured]) -> Callable[[Seen], Measured]:
    """Two measurements as one, one after the other."""

    def measure(seen: Seen) -> Measured:
        a, b = first(seen), second(seen)
        return Measured(f"{a.text}; {b.text}", np.concatenate((a.runs, b.runs)), n=a.n)

    return measure


def trained_times(seen: Seen) -> Measured:
    """Exponents of trained models over the printed ones, by alpha. There is no chance in them: data are endless."""
    told, ratios = [], []
    for alpha, group in seen.by_alpha.items():
        fit, printed = fit_exponent(*window(group)), laws.time_exponent(PowerLaw(alpha))
        told.append(f"α = {alpha:g}: {fit}, printed {printed:.3f}")
        ratios.append(fit.exponent / printed)
    text = f"500 tasks, t = {WINDOW[0]:g} - {WINDOW[1]:g}: " + "; ".join(told)
    return Measured(text, np.array(ratios), n="one run per α; without chance in them")


def trained_flow(seen: Seen) -> Measured:
    """The largest deviation of the loss of trained models from that of the full flow, by alpha."""
    off = []
    for group in seen.by_alpha.values():
        times, losses = window(group)
        off.append(float(np.abs(losses / group.flow(FullFlow).test_loss(times) - 1).max()))
    text = "largest deviation of the loss: " + ", ".join(
        f"α = {a:g}: {x:.2%}" for a, x in zip(seen.by_alpha, off, strict=True)
    )
    return Measured(text, np.array(off), n="one run per α; without chance in them")


def trained_sizes(seen: Seen) -> Measured:
    """Final test losses over Eq 64 with the same tasks, by size."""
    ratios = np.array([_over_law(group, laws.losses_of_size, d)[0] for d, group in seen.by_size.items()])
    text = f"loss / Eq 64 with 500 tasks at D = {', '.join(map(str, seen.by_size))}: "
    return Measured(text + ", ".join(f"{x:.3f}" for x in ratios), ratios, n="one run per size; without chance in them")


def trained_draws(seen: Seen) -> Measured:
    """Final test losses over Eq 66 with the same tasks, by number of prompts: one per data set."""
    ratios = {n: _over_law(group, laws.losses_of_data, n) for n, group in seen.by_data.items()}
    text = "loss / Eq 66 with 500 tasks: " + "; ".join(f"N = {n}: {spread(r, 2)}" for n, r in ratios.items())
    return Measured(text, np.concatenate([*ratios.values()]))


def window(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Times and test losses over which a trained model is fitted."""
    times = np.geomspace(WINDOW[0], min(WINDOW[1], group.times[-1]), 15)
    return times, group.at(times)[0]


def _over_law(group: Group, law: Callable[[TaskFlow, np.ndarray], np.ndarray], amount: float) -> np.ndarray:
    """Final test losses over what the scarcity of one resource predicts [seeds]."""
    return group.test_losses[:, -1] / law(endless(group), np.array([float(amount)]))[0]


def endless(group: Group) -> TaskFlow:
    """The flow of a group's tasks without scarcity."""
    flow = group.flow(FullFlow)
    return FullFlow(flow.tasks, flow.v, flow.w)
