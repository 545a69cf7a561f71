"""Figs 3 and 4 of paper 004: power laws of time, size, data and compute, and what varied contexts and strengths do.

Exponents are fitted twice: to the corrected closed form with 10^8 tasks, where power laws are clean, and to models trained
on 500 tasks, where they drift (about 40 s on one core at size quick). Expect: Table 1 within 2 %; Table 2 too, but with the
exponents of its compute row the other way round.
"""

from pathlib import Path

import numpy as np

from analyses.paper_004_sparse_tasks.runs import RUNS, Group, train_group
from analyses.tools.draw import EXACT, MEASURED, PRINTED, mode_colours, panels
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.page import Page
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict, judge, percent, spread
from models.multitask_sparse import laws
from models.multitask_sparse.model import MultitaskConfig
from models.multitask_sparse.task import PowerLaw, power_law_tasks
from models.multitask_sparse.theory import Corrected, FullFlow, TaskFlow, aligned_start, uniform_start

ALPHAS = (1.8, 2.1)
VARIED = PowerLaw(1.8, 0.3, 0.3)
LONGER = (0.0, 0.3, 0.6)  # beta
STEEPER = (0.0, 0.15, 0.3)  # gamma
MANY = 10**8  # gathered into bins; with fewer the slopes steepen as the rarest tasks come into sight
SIZES, DRAWS = np.geomspace(100, 10_000, 13), np.geomspace(1e3, 1e6, 13)
RANKS = np.geomspace(100, 10_000, 13)  # tasks being learned, in the window in which laws are fitted
TRIALS = np.geomspace(8, 150_000, 80)
TRAINED_SIZES, TRAINED_DRAWS = (3, 6, 12, 24), (30, 100, 300, 1000)
WINDOW = (0.3, 30.0)  # times over which trained models are fitted


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Compute, train or load, draw, judge."""
    plain = {alpha: Laws(PowerLaw(alpha), plain_flow(alpha)) for alpha in ALPHAS}
    strong = Laws(VARIED, varied_flow(VARIED, 1e4))
    trained = {
        alpha: _group(MultitaskConfig(tasks=500, alpha=alpha, learning_rate=0.01), "time", size, runs)
        for alpha in ALPHAS
    }
    cut = {d: _group(_long(size=d), f"size{d}", size, runs) for d in TRAINED_SIZES}
    drawn = {n: _group(_long(data=n), f"data{n}", size, runs, seeds=5) for n in TRAINED_DRAWS}
    return Page(
        "sparse_scaling",
        "Many sparse tasks: scaling laws (Figs 3, 4)",
        "With frequencies that fall as a power law, the loss is a power law in time, size, data and compute. The exponents of "
        "Table 1 hold. Those of Table 2 hold for strong tasks, with one exchange: at fixed compute it is D that grows with "
        "the small exponent and t with the large one, as in Table 1.",
        f"corrected closed form: 10⁸ tasks; trained: 500 tasks, ψ = 100, "
        f"Λ = 0.5, learning rate 0.01, {len(drawn[100].runs)} data sets per size",
        draw(plain, strong, trained, cut, drawn),
        "Top, Table 1: loss against time, size, data and compute for two frequency exponents α; the dashed lines have the "
        "printed slopes; dots are models trained on 500 tasks (for size and data α = 1.8), thin lines the same sums with 500 tasks. Bottom, Table 2 at α = 1.8: time "
        "laws for context exponents β and for strength exponents γ, the data law for γ, and the best size at fixed compute, "
        "with the printed slopes (dashed) and, last, the corrected one (dotted).",
        judgements(plain, strong, trained, cut, drawn),
    )


class Laws:
    """The four laws of one setting, as curves."""

    def __init__(self, law: PowerLaw, flow: TaskFlow) -> None:
        self.law, self.flow = law, flow
        pace = flow.frequency * flow.tasks.context * (flow.tasks.strength**2 + 1) * flow.tasks.strength
        self.times = 1 / np.interp(RANKS, flow.tasks.rank, pace)
        self.time = flow.test_loss(self.times)
        self.size = laws.losses_of_size(flow, SIZES)
        self.data = laws.losses_of_data(flow, DRAWS)
        self.budgets = self.times * RANKS
        self.compute, self.best_size = laws.best_split(flow, self.budgets, TRIALS)

    @property
    def fits(self) -> dict[str, Fit]:
        """Fitted exponents of the loss, by what is varied: time, size, data, compute."""
        return {
            "t": fit_exponent(self.times, self.time),
            "D": fit_exponent(SIZES, self.size),
            "N": fit_exponent(DRAWS, self.data),
            "C": fit_exponent(self.budgets, self.compute),
        }

    @property
    def split(self) -> Fit:
        """D ~ C^x at the best split."""
        return fit_exponent(self.budgets, 1 / self.best_size)


def plain_flow(alpha: float) -> TaskFlow:
    """Equal contexts and strengths, from the start of the trained models (Eq 106, ten times smaller)."""
    tasks = power_law_tasks(PowerLaw(alpha), MANY, 100.0, 0.5)
    return Corrected(tasks, *uniform_start(tasks, 0.01))


def varied_flow(law: PowerLaw, strength: float) -> TaskFlow:
    """Contexts and strengths that fall off, from outputs at 1 % of the strength."""
    tasks = power_law_tasks(law, MANY, 1e4, strength)
    return Corrected(tasks, *aligned_start(tasks, 0.01))


def time_fit(law: PowerLaw, strength: float) -> tuple[np.ndarray, np.ndarray, Fit]:
    """Times, losses and the time exponent of one setting."""
    flow = varied_flow(law, strength)
    pace = flow.frequency * flow.tasks.context * (flow.tasks.strength**2 + 1) * flow.tasks.strength
    times = 1 / np.interp(RANKS, flow.tasks.rank, pace)
    losses = flow.test_loss(times)
    return times, losses, fit_exponent(times, losses)


def draw(
    plain: dict[float, Laws], strong: Laws, trained: dict[float, Group], cut: dict[int, Group], drawn: dict[int, Group]
):
    """Two rows: Table 1 and Table 2."""
    figure, axes = panels(2, 4, height=3.8)
    for (alpha, found), colour in zip(plain.items(), mode_colours(2), strict=True):
        curves = (
            (found.times, found.time, laws.time_exponent(found.law), "time t"),
            (SIZES, found.size, laws.size_exponent(found.law), "size D"),
            (DRAWS, found.data, laws.data_exponent(found.law), "data N"),
            (found.budgets, found.compute, laws.compute_exponent(found.law), "compute t D"),
        )
        for ax, (x, y, exponent, label) in zip(axes[0], curves, strict=True):
            ax.plot(x, y, color=colour, linewidth=2.2, label=f"α = {alpha:g}")
            ax.plot(x, 1.4 * y[0] * (x / x[0]) ** -exponent, **PRINTED)
            ax.set(xscale="log", yscale="log", xlabel=label, ylabel="test loss")
        times = np.geomspace(0.3, trained[alpha].times[-1], 25)
        axes[0, 0].plot(times, trained[alpha].at(times)[0], "o", color=colour, markersize=3)
        axes[0, 0].plot(times, trained[alpha].flow(FullFlow).test_loss(times), **EXACT)
    for ax, groups, law in ((axes[0, 1], cut, laws.losses_of_size), (axes[0, 2], drawn, laws.losses_of_data)):
        amounts = np.geomspace(min(groups), max(groups), 20)
        ax.plot(amounts, law(_endless(groups[min(groups)]), amounts), **EXACT, label="500 tasks")
        for x, group in groups.items():
            ends = group.test_losses[:, -1]
            ax.plot(np.full(len(ends), x), ends, "o", color=MEASURED, markersize=4, alpha=0.6)
    for ax, chosen, name in (
        (axes[1, 0], [PowerLaw(1.8, b, 0.0) for b in LONGER], "β"),
        (axes[1, 1], [PowerLaw(1.8, 0.0, g) for g in STEEPER], "γ"),
    ):
        for law, colour in zip(chosen, mode_colours(3), strict=True):
            times, losses, _ = time_fit(law, 1e4)
            value = law.context if name == "β" else law.strength
            x, y = times / times[0], losses / losses[0]
            ax.plot(x, y, color=colour, linewidth=2.2, label=f"{name} = {value:g}")
            ax.plot(x, 1.2 * x ** -laws.time_exponent(law), **PRINTED)
        ax.set(xscale="log", yscale="log", xlabel="time t (from its start)", ylabel="test loss (relative)")
    for gamma, colour in zip(STEEPER, mode_colours(3), strict=True):
        law = PowerLaw(1.8, 0.0, gamma)
        losses = laws.losses_of_data(varied_flow(law, 1e4), DRAWS)
        axes[1, 2].plot(DRAWS, losses / losses[0], color=colour, linewidth=2.2, label=f"γ = {gamma:g}")
        axes[1, 2].plot(DRAWS, 1.2 * (DRAWS / DRAWS[0]) ** -laws.data_exponent(law), **PRINTED)
    axes[1, 2].set(xscale="log", yscale="log", xlabel="data N", ylabel="test loss (relative)")
    ax, x = axes[1, 3], strong.budgets / strong.budgets[0]
    y = strong.best_size / strong.best_size[0]
    ax.plot(x, y, "o-", color=MEASURED, label="best D")
    ax.plot(x, x ** laws.printed_best_size_exponent(VARIED), **PRINTED, label="Table 2")
    ax.plot(x, x ** laws.best_size_exponent(VARIED), ":", color="#a11", label="exchanged")
    ax.set(xscale="log", yscale="log", xlabel="compute t D (relative)", ylabel="best size D (relative)")
    for row, titles in zip(
        axes,
        (("time", "size", "data", "compute"), ("time, β", "time, γ", "data, γ", "best size, β = γ = 0.3")),
        strict=True,
    ):
        for ax, title in zip(row, titles, strict=True):
            ax.set_title(title)
            ax.legend(fontsize=8)
    return figure


def judgements(
    plain: dict[float, Laws], strong: Laws, trained: dict[float, Group], cut: dict[int, Group], drawn: dict[int, Group]
) -> list[Verdict]:
    """Tables 1 and 2."""
    exponents = {"t": laws.time_exponent, "D": laws.size_exponent, "N": laws.data_exponent, "C": laws.compute_exponent}

    def row(which: str) -> tuple[str, float]:
        fits = {alpha: found.fits[which] for alpha, found in plain.items()}
        text = "; ".join(f"α = {a:g}: {fit}, printed {exponents[which](plain[a].law):.3f}" for a, fit in fits.items())
        return text, max(abs(fit.off(exponents[which](plain[a].law))) for a, fit in fits.items())

    (time, time_off), (size, size_off), (data, data_off), (compute, compute_off) = (row(which) for which in "tDNC")
    simulated = {alpha: fit_exponent(*_window(group)) for alpha, group in trained.items()}
    against = {
        alpha: group.at(_window(group)[0])[0] / group.flow(FullFlow).test_loss(_window(group)[0])
        for alpha, group in trained.items()
    }
    sizes = np.array([_over_law(group, laws.losses_of_size, d) for d, group in cut.items()])
    draws = {n: _over_law(group, laws.losses_of_data, n) for n, group in drawn.items()}
    splits = {alpha: found.split for alpha, found in plain.items()}
    longer = {b: time_fit(PowerLaw(1.8, b, 0.0), 1e4)[2] for b in LONGER}
    steeper = {g: time_fit(PowerLaw(1.8, 0.0, g), 1e4)[2] for g in STEEPER}
    weak = time_fit(VARIED, 1e-2)[2]
    fits = strong.fits

    def times_off(found: dict[float, Fit], law) -> float:
        return max(abs(fit.off(laws.time_exponent(law(x)))) for x, fit in found.items())

    return [
        Verdict(
            "time: t^(-(α - 1)/α)",
            "Table 1, Fig 3a",
            f"{time}; trained on 500 tasks, t = {WINDOW[0]:g} - {WINDOW[1]:g}: "
            + "; ".join(f"α = {a:g}: {fit}" for a, fit in simulated.items()),
            judge(time_off, 0.02, 0.1),
            "clean with 10⁸ tasks; with 500 the slope drifts, but the trained loss is that of the exact flow to "
            + f"{max(float(np.abs(r - 1).max()) for r in against.values()):.1%}",
        ),
        Verdict(
            "size: D^(-(α - 1))",
            "Table 1, Fig 3b",
            f"{size}; trained, measured / Eq 64 at D = {', '.join(map(str, cut))}: {', '.join(f'{x:.3f}' for x in sizes[:, 0])}",
            judge(size_off, 0.02, 0.1),
            "the tasks that the model has no room for",
        ),
        Verdict(
            "data: N^(-(α - 1)/α)",
            "Table 1, Fig 3c",
            f"{data}; trained on drawn data, measured / Eq 66: "
            + "; ".join(f"N = {n}: {spread(r, 2)}" for n, r in draws.items()),
            judge(data_off, 0.02, 0.1),
            "tasks that were never drawn; single data sets scatter around the expectation",
        ),
        Verdict(
            "compute: C^(-(α - 1)/(α + 1))",
            "Table 1, Fig 3d",
            compute,
            judge(compute_off, 0.02, 0.1),
            "best split of t D between time and size",
        ),
        Verdict(
            "best split: D ~ C^(1/(α + 1)), t ~ C^(α/(α + 1))",
            "Table 1",
            "; ".join(
                f"α = {a:g}: D ~ C^{fit}, printed {laws.best_size_exponent(plain[a].law):.3f}"
                for a, fit in splits.items()
            ),
            judge(max(abs(fit.off(laws.best_size_exponent(plain[a].law))) for a, fit in splits.items()), 0.03, 0.1),
            "most of the compute goes into time",
        ),
        Verdict(
            "varied context lengths slow learning: t^(-(α - 1)/(α + β))",
            "Table 2, Fig 4a",
            "; ".join(
                f"β = {b:g}: {fit}, printed {laws.time_exponent(PowerLaw(1.8, b, 0.0)):.3f}"
                for b, fit in longer.items()
            ),
            judge(times_off(longer, lambda b: PowerLaw(1.8, b, 0.0)), 0.02, 0.1),
            "rare tasks are also seen in shorter contexts",
        ),
        Verdict(
            "varied strengths: t^(-(α + 2γ - 1)/(α + β + 3γ))",
            "Table 2, Fig 4c",
            "strong tasks (Λ to 10⁴): "
            + "; ".join(
                f"γ = {g:g}: {fit}, printed {laws.time_exponent(PowerLaw(1.8, 0.0, g)):.3f}"
                for g, fit in steeper.items()
            )
            + f"; β = γ = 0.3: {fits['t']}, printed {laws.time_exponent(VARIED):.3f}. Weak tasks (Λ from 0.01 down), β = γ = 0.3: {weak}",
            IN_PART if times_off(steeper, lambda g: PowerLaw(1.8, 0.0, g)) < 0.02 else FAILS,
            f"assumes Λ² ≫ 1; for Λ ≪ 1, Λ² + 1 is 1 and the exponent (α + 2γ - 1)/(α + β + γ) = {laws.weak_time_exponent(VARIED):.3f}",
        ),
        Verdict(
            "size and data with varied strengths: D^-(α + 2γ - 1), N^-((α + 2γ - 1)/α)",
            "Table 2, Fig 4d, e",
            f"β = γ = 0.3: D: {fits['D']}, printed {laws.size_exponent(VARIED):.3f}; N: {fits['N']}, printed "
            f"{laws.data_exponent(VARIED):.3f} in Table 2 and {laws.printed_data_exponent_105(VARIED):.3f} in Eq 105",
            judge(
                max(abs(fits["D"].off(laws.size_exponent(VARIED))), abs(fits["N"].off(laws.data_exponent(VARIED)))),
                0.02,
                0.1,
            ),
            "Table 2 is right; Eq 105 has γ where 2γ belongs",
        ),
        Verdict(
            "compute with varied strengths: C^-((α + 2γ - 1)/(α + β + 3γ + 1))",
            "Table 2, Fig 4f",
            f"β = γ = 0.3: {fits['C']}, printed {laws.compute_exponent(VARIED):.3f}",
            judge(fits["C"].off(laws.compute_exponent(VARIED)), 0.02, 0.1),
            "the loss at the best split",
        ),
        Verdict(
            "at that split t ~ C^(1/(α + β + 3γ + 1)) and D takes the rest",
            "Table 2",
            f"β = γ = 0.3: D ~ C^{strong.split}, printed {laws.printed_best_size_exponent(VARIED):.3f}, exchanged "
            f"{laws.best_size_exponent(VARIED):.3f}",
            HOLDS if abs(strong.split.off(laws.printed_best_size_exponent(VARIED))) < 0.03 else FAILS,
            "the two exponents are exchanged: Eq 67 gives D the exponent α_t/(α_t + α_D), the small one",
        ),
        Verdict(
            "(ours) trained models follow the laws at their own, finite number of tasks",
            "Eqs 64 - 66 with 500 tasks",
            f"size, measured / predicted: {percent(sizes[:, 0])}; data, mean over data sets: "
            + percent([float(r.mean()) for r in draws.values()]),
            judge(float(np.mean([abs(r.mean() - 1) for r in draws.values()])), 0.15, 0.4),
            "no fit: the sums themselves",
        ),
    ]


def _window(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Times and test losses over which a trained model is fitted."""
    times = np.geomspace(WINDOW[0], min(WINDOW[1], group.times[-1]), 15)
    return times, group.at(times)[0]


def _over_law(group: Group, law, amount: float) -> np.ndarray:
    """Final test losses over what the scarcity of one resource predicts [seeds]."""
    return group.test_losses[:, -1] / law(_endless(group), np.array([float(amount)]))[0]


def _endless(group: Group) -> TaskFlow:
    """The flow of a group's tasks without scarcity."""
    flow = group.flow(FullFlow)
    return FullFlow(flow.tasks, flow.v, flow.w)


def _long(**scarce: int) -> MultitaskConfig:
    """Training long enough that only the named resource is scarce."""
    return MultitaskConfig(tasks=500, learning_rate=0.012, **scarce)


def _group(config: MultitaskConfig, name: str, size: str, runs: Path, seeds: int = 1) -> Group:
    scarce = config.data or config.size
    steps = {"toy": 100, "quick": 15_000 if scarce else 4000, "paper": 60_000 if scarce else 20_000}[size]
    return train_group(
        config, f"{name}-alpha{config.alpha:g}", steps, size, runs, min(seeds, 2) if size == "toy" else seeds
    )
