"""Fig 3 of paper 003: one fixed covariance, which the model learns to whiten, and what happens when it changes.

Trains three depths on power-law data (six seeds each, 40 s on one core at size quick). Expect: every mode of Gamma follows Eq 10;
the loss falls as t^(-nu beta / (nu beta + 2 nu + 1)), not with the printed exponent; Eq 11 is exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.linalg import expm

from analyses.paper_003_depth_and_context.runs import RUNS, Group, train_group
from analyses.tools.claims import Claim, Measured, by_group, judged
from analyses.tools.draw import EXACT, PRINTED, band, mode_colours, panels
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Small, Together
from analyses.tools.verdicts import spread
from models.depth_and_context import laws
from models.depth_and_context.model import DepthConfig, loss_and_gradient
from models.depth_and_context.spectrum import power_law
from models.depth_and_context.task import Contexts
from models.depth_and_context.theory import (
    FixedCovarianceFlow,
    PrintedFixedCovarianceFlow,
    out_of_distribution_loss,
)

CAPACITY, SOURCE = 2.0, 1.0
DEPTHS = (1, 4, 16)
SHOWN_MODES = 5
ANGLES = np.linspace(0, 1.5, 16)
SHIFTED = 6  # dimension of the distribution-shift experiment
FIRST_ANGLES = 6  # rotations up to which the loss should grow step by step; further on it may come back
WINDOW = (6.0, 600.0)
PAIRS = ((2.0, 1.0), (1.5, 0.7), (3.0, 0.5), (1.2, 2.0), (1.0, 1.0))  # (nu, beta) of the fits to the flow


@dataclass(frozen=True)
class Seen:
    """Runs by depth, losses off distribution by depth (model and Eq 11), and time exponents of Eq 10 by (nu, beta)."""

    groups: dict[int, Group]
    shift: dict[int, tuple[np.ndarray, np.ndarray]]
    fits: dict[tuple[float, float], Fit]


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    groups = {n: _group(n, size, runs) for n in DEPTHS}
    shift = {n: shifted_losses(n) for n in (1, 2, 4, 8)}
    fits = {pair: theory_fit(*pair) for pair in PAIRS}
    config = groups[4].config
    return Page(
        "depth_whitening",
        "One fixed covariance: whitening, and its brittleness (Fig 3)",
        "When all contexts share one covariance the model learns its inverse, mode by mode as Eq 10 says, and needs no "
        "depth. The printed solution for infinite depth is twice too fast, and the printed time exponent is wrong; the "
        "corrected ones are what trained models do. Rotating the covariance breaks the solution as Eq 11 says.",
        f"FS, ν = {CAPACITY:g}, β = {SOURCE:g}, D = {config.dimension}, infinite context and tests, batch {config.batch}, "
        f"learning rate {config.learning_rate}, {groups[4].runs[0].steps[-1]} steps, {len(groups[4].runs)} seeds",
        draw(groups, shift),
        "Left: the leading eigenvalues of Γ for L = 16 (colour), Eq 10 (black) and the printed solution for infinite depth "
        "(dashed). Middle: loss against time for three depths, with Eq 10; the dashed lines have the printed and the "
        "corrected slope. Right: the loss after the covariance was rotated by exp(θ S): dots are the model evaluated, "
        "lines Eq 11.",
        judged(CLAIMS, Seen(groups, shift, fits)),
    )


def theory_fit(capacity: float, source: float) -> Fit:
    """The time exponent of Eq 10 itself, with a billion modes."""
    times = np.geomspace(1e5, 1e9, 30)
    return fit_exponent(times, FixedCovarianceFlow(power_law(capacity, source, 10**9), np.inf).loss(times))


def shifted_losses(depth: int, angles: np.ndarray = ANGLES) -> tuple[np.ndarray, np.ndarray]:
    """Loss of a whitening model where the covariance is rotated: evaluated on every task, and by Eq 11."""
    rng = np.random.default_rng(0)
    covariance = np.diag(np.arange(1.0, SHIFTED + 1) ** -1.0)
    skew = rng.standard_normal((SHIFTED, SHIFTED))
    gamma = torch.as_tensor(depth * np.linalg.inv(covariance))[None, None]
    tasks = SHIFTED**0.5 * torch.eye(SHIFTED, dtype=torch.float64)[None]  # their mean square is the identity
    measured, predicted = [], []
    for angle in angles:
        turn = expm(angle * (skew - skew.T) / 2)
        rotated = turn @ covariance @ turn.T
        rows = torch.as_tensor(SHIFTED**0.5 * np.linalg.cholesky(rotated).T).expand(1, SHIFTED, SHIFTED, SHIFTED)
        contexts = Contexts(rows, torch.zeros(1, SHIFTED, SHIFTED, dtype=torch.float64), rows, tasks)
        measured.append(loss_and_gradient(gamma, contexts, depth)[0].item())
        predicted.append(out_of_distribution_loss(covariance, rotated, np.eye(SHIFTED), depth))
    return np.array(measured), np.array(predicted)


def modes_of(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Times of the checkpoints, and the diagonal of Gamma there [seeds, times, modes]."""
    steps = list(group.runs[0].steps)
    found = [[run.checkpoint(step)["gamma"][0].diagonal().numpy() for step in steps] for run in group.runs]
    return group.config.learning_rate * np.array(steps), np.array(found)


def draw(groups: dict[int, Group], shift: dict[int, tuple[np.ndarray, np.ndarray]]):
    """Three panels, as the paper's figure."""
    figure, axes = panels(1, 3, height=4.2)
    ax, deep = axes[0, 0], groups[DEPTHS[-1]]
    times, found = modes_of(deep)
    printed = PrintedFixedCovarianceFlow(deep.flow.spectrum)
    fine = np.geomspace(0.5, times[-1], 100)
    for k, colour in enumerate(mode_colours(SHOWN_MODES)):
        ax.plot(times[1:], found[:, 1:, k].T, "o", color=colour, markersize=4, alpha=0.6, label=None)
        ax.plot(fine, deep.flow.modes(fine)[:, k], **EXACT, label="Eq 10, L = 16" if k == 0 else None)
        ax.plot(fine, printed.modes(fine)[:, k], **PRINTED, label="printed, L = ∞" if k == 0 else None)
        ax.annotate(
            f"k = {k + 1}",
            (fine[-1], deep.flow.modes(fine[-1:])[0, k]),
            fontsize=9,
            xytext=(5, -3),
            textcoords="offset points",
        )
    ax.set(xscale="log", xlabel="time t", ylabel="eigenvalue γ of Γ", title="modes of Γ", xlim=(0.5, times[-1] * 2.4))
    ax.legend()
    ax = axes[0, 1]
    for n, colour in zip(DEPTHS, mode_colours(3), strict=True):
        times, losses = groups[n].binned()
        band(ax, times, losses, colour, f"L = {n}")
        ax.plot(times, groups[n].flow.loss(times), **EXACT)
    start = groups[4].flow.loss([20.0])[0]
    guide = np.array([20.0, 1000.0])
    for exponent, style, label in (
        (laws.printed_fixed_covariance_time_exponent(CAPACITY, SOURCE), PRINTED, "slope, printed"),
        (
            laws.fixed_covariance_time_exponent(CAPACITY, SOURCE),
            {"color": "#a11", "linestyle": ":"},
            "slope, corrected",
        ),
    ):
        ax.plot(guide, 1.5 * start * (guide / 20) ** -exponent, **style, label=label)
    ax.set(xscale="log", yscale="log", xlabel="time t", ylabel="loss", title=f"ν = {CAPACITY:g}, β = {SOURCE:g}")
    ax.legend()
    ax = axes[0, 2]
    for n, colour in zip(shift, mode_colours(4), strict=True):
        ax.plot(ANGLES, shift[n][1], color=colour)
        ax.plot(ANGLES, shift[n][0], "o", color=colour, label=f"L = {n}")
    ax.set(
        yscale="log", ylim=(1e-4, 1e9), xlabel="rotation θ", ylabel="loss off distribution", title="rotated covariance"
    )
    ax.legend()
    return figure


def late_modes(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Late times, and the leading eigenvalues of Gamma, mean over them [seeds, modes]."""
    times, found = modes_of(group)
    late = times >= 0.7 * times[-1]
    return times[late], found[:, late, :SHOWN_MODES].mean(1)


def modes_over(flow_of: Callable[[Group], FixedCovarianceFlow], depths: tuple[int, ...]) -> Callable[[Seen], Measured]:
    """Leading modes late in training over a flow's, the one furthest off of each run, by depth."""

    def measure(seen: Seen) -> Measured:
        told, worst = {}, []
        for n in depths:
            times, found = late_modes(seen.groups[n])
            ratios = found / flow_of(seen.groups[n]).modes(times)[:, :SHOWN_MODES].mean(0)
            told[f"L = {n}"] = ratios.mean(0)
            worst.append(ratios[:, int(np.abs(ratios.mean(0) - 1).argmax())])
        text = f"leading {SHOWN_MODES} modes late in training, measured / predicted: "
        return Measured(text + by_group(told, lambda v: ", ".join(f"{x:.3f}" for x in v)), np.concatenate(worst))

    return measure


def trained_exponents(law: Callable[[float, float], float]) -> Callable[[Seen], Measured]:
    """The time exponent of every run over a law, by depth."""

    def measure(seen: Seen) -> Measured:
        found = {f"L = {n}": run_exponents(group) for n, group in seen.groups.items()}
        expected = law(CAPACITY, SOURCE)
        text = f"trained, t = {WINDOW[0]:g} - {WINDOW[1]:g}: {by_group(found, spread)}; expected {expected:.3f}"
        return Measured(text, np.concatenate([*found.values()]) / expected)

    return measure


def flow_exponents(law: Callable[[float, float], float]) -> Callable[[Seen], Measured]:
    """The time exponent of Eq 10 with a billion modes over a law, by (nu, beta)."""

    def measure(seen: Seen) -> Measured:
        told = [
            f"ν = {nu:g}, β = {beta:g}: {fit}, expected {law(nu, beta):.3f}" for (nu, beta), fit in seen.fits.items()
        ]
        ratios = np.array([fit.exponent / law(*pair) for pair, fit in seen.fits.items()])
        return Measured("; ".join(told), ratios, n=f"{len(ratios)} pairs (ν, β), by Eq 10 with 10⁹ modes")

    return measure


def no_benefit(seen: Seen) -> Measured:
    """Whether one layer ends no higher than the deeper ones, run by run."""
    end = {n: group.binned()[1][:, -3:].mean(1) for n, group in seen.groups.items()}
    text = "loss at the end of training: " + by_group({f"L = {n}": v for n, v in end.items()}, lambda v: spread(v, 5))
    return Measured(text, (end[1] <= np.min([end[n] for n in DEPTHS[1:]], axis=0)).astype(float))


def zero_loss(_: Seen) -> Measured:
    """The loss at Gamma = L Sigma^-1 without a shift, by depth."""
    losses = np.array([shifted_losses(n, ANGLES[:1])[0][0] for n in (1, 2, 4, 8)])
    return Measured(f"largest over L = 1, 2, 4, 8: {losses.max():.0e}", losses, n="4 depths, the model itself")


def off_distribution(seen: Seen) -> Measured:
    """The largest relative difference between the model and Eq 11, by depth."""
    off = np.array([np.abs(m / np.maximum(p, 1e-12) - 1)[1:].max() for m, p in seen.shift.values()])
    text = f"largest relative difference over {len(ANGLES) - 1} rotations: {off.max():.1e}"
    return Measured(text, off, n=f"{len(off)} depths, the model itself")


def brittle(seen: Seen) -> Measured:
    """The share of rotations, step by step, at which the loss rises, by depth; and the loss at one of them."""
    rises = np.array([np.mean(np.diff(m[:FIRST_ANGLES]) > 0) == 1 for m, _ in seen.shift.values()], dtype=float)
    text = f"loss at θ = {ANGLES[4]:.1f}: " + "; ".join(f"L = {n}: {m[4]:.2g}" for n, (m, _) in seen.shift.items())
    text += (
        f"; it rises at every step up to θ = {ANGLES[FIRST_ANGLES - 1]:.1f} at {rises.sum():.0f} of {len(rises)} depths"
    )
    return Measured(text, rises, n=f"{len(rises)} depths, one random direction of rotation")


_EACH_DEPTH = [f"L = {n}" for n in DEPTHS]
_EACH_PAIR = [f"ν = {nu:g}, β = {beta:g}" for nu, beta in PAIRS]

CLAIMS: list[Claim[Seen]] = [
    Claim(
        "modes of Γ decouple and follow Eq 10",
        "Result 4, Eq 10",
        modes_over(lambda group: group.flow, DEPTHS),
        Together([Close(0.05, 0.15)] * len(DEPTHS), _EACH_DEPTH),
        "Eq 10 has a closed form at every depth; judged by the mode that is furthest off",
    ),
    Claim(
        "at infinite depth γ = ln(1 + 4 ω λ³ t) / (2 λ)",
        "below Eq 10, Eq 86, Fig 3a",
        modes_over(lambda group: PrintedFixedCovarianceFlow(group.flow.spectrum), DEPTHS[-1:]),
        Close(0.1, 0.3),
        "Eq 85 has a factor 2 that Eq 10 has not, and the integration another (next row)",
    ),
    Claim(
        "(ours) at infinite depth γ = ln(1 + 2 ω λ³ t) / (2 λ)",
        "limit of Eq 10",
        modes_over(lambda group: FixedCovarianceFlow(group.flow.spectrum, np.inf), DEPTHS[-1:]),
        Close(0.1, 0.3),
        f"judged by the mode furthest off; the leading one, 4 t ≫ 1, is where depth {DEPTHS[-1]} is not yet infinite",
    ),
    Claim(
        "the loss falls as t^(-β/(ν + νβ + 1)), trained models",
        "Result 4, Eq 89, Fig 3b",
        trained_exponents(laws.printed_fixed_covariance_time_exponent),
        Together([Close(0.1, 0.2)] * len(DEPTHS), _EACH_DEPTH),
        "ω λ³ goes as k^(-νβ - 2ν - 1), and the loss at the last learned mode as k^(-νβ): neither is in Eq 89",
    ),
    Claim(
        "the same, from Eq 10",
        "Result 4, Eq 89",
        flow_exponents(laws.printed_fixed_covariance_time_exponent),
        Together([Close(0.02, 0.1)] * len(PAIRS), _EACH_PAIR),
        "fitted to Eq 10 at t = 10⁵ - 10⁹; the printed form meets the right one only where νβ(ν - 1) + ν² = ν + 1",
    ),
    Claim(
        "(ours) it falls as t^(-νβ/(νβ + 2ν + 1)), trained models",
        "sum of Eq 87",
        trained_exponents(laws.fixed_covariance_time_exponent),
        Together([Close(0.1, 0.2)] * len(DEPTHS), _EACH_DEPTH),
        "few modes and early times bend the slope; next row without either",
    ),
    Claim(
        "(ours) the same, from Eq 10",
        "sum of Eq 87",
        flow_exponents(laws.fixed_covariance_time_exponent),
        Together([Close(0.02, 0.1)] * len(PAIRS), _EACH_PAIR),
        "ν = 1 is among them: laws of time and depth weigh modes by λω, which has a sum for every ν above 0",
    ),
    Claim(
        "Γ = L Σ⁻¹ has zero loss at any depth",
        "Result 3",
        zero_loss,
        Small(1e-12, 1e-3),
        "infinite context; one step of preconditioned descent solves the regression",
    ),
    Claim(
        "deeper models do not outperform one layer",
        "Result 3, Fig 3b",
        no_benefit,
        Every(),
        "in the flow one layer is the fastest: its modes converge exponentially, those of deep models as a power of time",
    ),
    Claim(
        "off distribution the loss is Eq 11",
        "Result 5, Eq 11",
        off_distribution,
        Small(1e-6, 1e-2),
        "exact for Γ = L Σ⁻¹, the end of training",
    ),
    Claim(
        "the solution is brittle: the loss grows with the rotation at every depth",
        "Result 5, Fig 3c",
        brittle,
        Every(chance=2.0 ** -(6 - 1)),
        "the error of one step is raised to the power L: once it is above 1, depth makes it worse",
    ),
]


def run_exponents(group: Group) -> np.ndarray:
    """The time exponent of each run."""
    times, losses = group.binned()
    inside = (times >= WINDOW[0]) & (times <= WINDOW[1])
    if inside.sum() < 4:  # a toy run is too short for the window
        inside = times >= times[-1] / 10
    return np.array([-np.polyfit(np.log(times[inside]), np.log(row[inside]), 1)[0] for row in losses])


def _group(depth: int, size: str, runs: Path) -> Group:
    d, steps = {"toy": (8, 60), "quick": (24, 1500), "paper": (64, 10_000)}[size]
    config = DepthConfig(
        data="fixed",
        dimension=d,
        depth=depth,
        context=0,
        tests=0,
        batch=48,
        learning_rate=0.4,
        capacity=CAPACITY,
        source=SOURCE,
    )
    return train_group(config, steps, size, runs)
