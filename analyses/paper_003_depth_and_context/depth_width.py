"""Result 7 and Figs 5a, b of paper 003: finite width and context.

Compares the two-point deterministic equivalent with sampled matrices and with trained models, then uses it for the laws
of width and context (a minute on one core at size quick). Expect: agreement to a few percent at D = 64; width and
context exponents that saturate at nu and 2 nu.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from analyses.paper_003_depth_and_context.runs import RUNS, Group, scale_of, train_group
from analyses.tools.claims import Claim, Measured, by_group, judged
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.page import Page
from analyses.tools.rules import Close, Small, Together
from analyses.tools.verdicts import percent
from models.depth_and_context import laws
from models.depth_and_context.deterministic_equivalent import (
    DeterministicEquivalent,
    PrintedEquivalent,
    context_bottleneck,
    printed_bottleneck,
    width_bottleneck,
)
from models.depth_and_context.model import DepthConfig
from models.depth_and_context.shapes import best_losses
from models.depth_and_context.spectrum import Spectrum, power_law, spectrum_of
from models.depth_and_context.theory import RotatedFlow

CAPACITY = 1.5
SOURCES = (0.5, 0.7, 1.5, 2.5)
SHOWN = 0.7  # the source exponent of the figure
SIZES = np.geomspace(256, 16384, 13)
WIDTHS = {"toy": np.geomspace(8, 64, 4), "quick": np.geomspace(8, 256, 8), "paper": np.geomspace(8, 1024, 11)}
DEPTHS = {"toy": 2 ** np.arange(4), "quick": 2 ** np.arange(9), "paper": 2 ** np.arange(12)}
TRAINED = (8, 32)
# width, context, depth and gamma x largest eigenvalue / depth of the comparison with sampled matrices, at dimension 64
SAMPLED = ((32, 64, 8, 1.0), (64, 32, 8, 1.0), (16, 128, 4, 1.0), (32, 32, 16, 1.0), (16, 16, 2, 0.7))


@dataclass(frozen=True)
class Seen:
    """Sampled losses, their errors and both equivalents by spectrum [settings, 4]; trained runs by width; best losses."""

    sampled: dict[str, np.ndarray]
    groups: dict[int, Group]
    grid: np.ndarray
    size: str


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Compute, train or load, draw, judge."""
    draws = {"toy": 20, "quick": 300, "paper": 3000}[size]
    spectra = {"smooth": smooth_spectrum(), "power law": power_law(CAPACITY, SHOWN, 64)}
    sampled = {name: np.array([compare(spectrum, *s, draws) for s in SAMPLED]) for name, spectrum in spectra.items()}
    groups = {n: _group(n, size, runs) for n in TRAINED[: 1 if size == "toy" else None]}
    seen = Seen(sampled, groups, best_losses(_many(), WIDTHS[size], DEPTHS[size]), size)
    return Page(
        "depth_width",
        "Finite width and context (Result 7, Figs 5a, b)",
        "The loss at finite width and context is a two-point deterministic equivalent. As printed it lacks the average over "
        "the context; corrected it agrees with sampled matrices and with trained models. Width alone or depth alone runs "
        "into a bottleneck. The printed exponents of width and context hold for hard tasks only.",
        f"RRS, ν = {CAPACITY:g}; sampled matrices: D = 64, {draws} draws; trained: D = 32, P = 64, L = 4, β = {SHOWN}, widths "
        f"{', '.join(map(str, groups))}, {len(next(iter(groups.values())).runs)} seeds; 10⁶ modes in the figure, widths to "
        f"{WIDTHS[size][-1]:.0f}, depths to {DEPTHS[size][-1]}",
        draw(seen),
        "Best loss against width for several depths and against depth for several widths (β = 0.7); dashed lines are the "
        "bottlenecks, infinite depth on the left and infinite width on the right. Right: the laws of width and context with "
        "their printed slopes (dashed).",
        judged(CLAIMS, seen),
    )


def smooth_spectrum() -> Spectrum:
    """Eigenvalues between 1/2 and 3/2."""
    return spectrum_of(np.linspace(1.5, 0.5, 64), np.linspace(2.0, 0.5, 64) / 64)


def compare(
    spectrum: Spectrum, width: int, context: int, depth: int, reach: float, draws: int
) -> tuple[float, float, float, float]:
    """Loss over sampled matrices, its error, and the corrected and the printed equivalent."""
    rng = np.random.default_rng(0)
    lam, d = spectrum.eigenvalues, len(spectrum.eigenvalues)
    edge = DeterministicEquivalent(spectrum, width, context, gamma_max=1.0).edge
    gamma = reach * depth / edge
    losses = []
    for _ in range(draws):
        x = rng.standard_normal((context, d)) * np.sqrt(lam)
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :width]
        step = np.eye(d) - gamma / depth * basis @ (basis.T @ (x.T @ x)) / context
        losses.append((lam[:, None] * np.linalg.matrix_power(step, depth) ** 2 * spectrum.task_power).sum())
    right, printed = (
        kind(spectrum, width, context, gamma_max=gamma).loss(gamma, depth)
        for kind in (DeterministicEquivalent, PrintedEquivalent)
    )
    return float(np.mean(losses)), float(np.std(losses) / np.sqrt(draws)), right, printed


@cache
def _many() -> Spectrum:
    return power_law(CAPACITY, SHOWN, 10**6, exact=100, per_decade=25)


@cache
def bottleneck_fit(loss: Callable[[Spectrum, float], float], source: float) -> Fit:
    """The exponent of a law in the number of directions seen."""
    spectrum = power_law(CAPACITY, source, 10**8)
    return fit_exponent(SIZES, np.array([loss(spectrum, n) for n in SIZES]))


def draw(seen: Seen):
    """The loss against width, against depth, and both bottlenecks."""
    figure, axes = panels(1, 3, height=4.2)
    widths, depths, grid, spectrum = WIDTHS[seen.size], DEPTHS[seen.size], seen.grid, _many()
    chosen = np.unique(np.linspace(0, len(depths) - 1, 4).astype(int))
    for j, colour in zip(chosen, mode_colours(len(chosen)), strict=True):
        axes[0, 0].plot(widths, grid[:, j], "o-", color=colour, label=f"L = {depths[j]}")
    axes[0, 0].plot(widths, [width_bottleneck(spectrum, n) for n in widths], **PRINTED, label="L = ∞")
    axes[0, 0].set(xscale="log", yscale="log", xlabel="width N", ylabel="best loss", title="only width")
    chosen = np.unique(np.linspace(0, len(widths) - 1, 4).astype(int))
    for i, colour in zip(chosen, mode_colours(len(chosen)), strict=True):
        axes[0, 1].plot(depths, grid[i], "o-", color=colour, label=f"N = {widths[i]:.0f}")
    plain = [RotatedFlow(spectrum, int(depth), per_direction=False).final_loss for depth in depths]
    axes[0, 1].plot(depths, plain, **PRINTED, label="N = ∞")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="depth L", ylabel="best loss", title="only depth")
    for b, colour in zip((0.7, 2.5), mode_colours(2), strict=True):
        spectrum = power_law(CAPACITY, b, 10**8)
        for loss, marker, name in ((width_bottleneck, "o", "width"), (context_bottleneck, "s", "context")):
            losses = np.array([loss(spectrum, n) for n in SIZES])
            axes[0, 2].plot(SIZES, losses, marker, color=colour, markersize=4, label=f"{name}, β = {b:g}")
            slope = laws.printed_bottleneck_exponent(CAPACITY, b)
            axes[0, 2].plot(SIZES, losses[0] * (SIZES / SIZES[0]) ** -slope, **PRINTED)
    axes[0, 2].set(xscale="log", yscale="log", xlabel="width N or context P", ylabel="loss", title="bottlenecks")
    for ax in axes[0]:
        ax.legend(fontsize=8)
    return figure


def sampled_over(column: int) -> Callable[[Seen], Measured]:
    """Sampled losses over an equivalent, by spectrum and setting."""

    def measure(seen: Seen) -> Measured:
        ratios = {name: table[:, 0] / table[:, column] for name, table in seen.sampled.items()}
        error = max(float((table[:, 1] / table[:, 0]).max()) for table in seen.sampled.values())
        text = "sampled / predicted: " + by_group(ratios, lambda v: ", ".join(f"{x:.3f}" for x in v))
        text += f" (errors of the means up to {error:.1%})"
        worst = np.abs(np.concatenate([*ratios.values()]) - 1).max()
        return Measured(text, np.array([worst]), n=f"the worst of {len(SAMPLED)} settings of {len(ratios)} spectra")

    return measure


def trained_over(seen: Seen) -> Measured:
    """Losses of trained models over the equivalent at their gamma; of the width that is furthest off."""
    ratios = {f"N = {n}": trained_ratio(group, 100 if seen.size == "toy" else 2000) for n, group in seen.groups.items()}
    worst = max(ratios.values(), key=lambda v: abs(v.mean() - 1))
    return Measured("measured / predicted: " + by_group(ratios, percent), worst)


def exponents_over(
    loss: Callable[[Spectrum, float], float], law: Callable[[float, float], float]
) -> Callable[[Seen], Measured]:
    """Exponents of a bottleneck over a law, by source exponent."""

    def measure(_: Seen) -> Measured:
        fits = {b: bottleneck_fit(loss, b) for b in SOURCES}
        text = "; ".join(f"β = {b:g}: {fit}, expected {law(CAPACITY, b):.3f}" for b, fit in fits.items())
        ratios = np.array([fit.exponent / law(CAPACITY, b) for b, fit in fits.items()])
        return Measured(text, ratios, n=f"{len(SOURCES)} source exponents, by the theory with 10⁸ modes")

    return measure


def first_form(_: Seen) -> Measured:
    """The first form of Eq 113 over the width bottleneck, at two widths."""
    spectrum = power_law(CAPACITY, 1.5, 10**8)
    ratios = {n: printed_bottleneck(spectrum, n) / width_bottleneck(spectrum, n) for n in (256, 4096)}
    text = "first form of Eq 113 / corrected, β = 1.5: " + "; ".join(f"N = {n}: {x:.3f}" for n, x in ratios.items())
    return Measured(text, np.array([*ratios.values()]), n="2 widths, by the theory")


def stalls(axis: str) -> Callable[[Seen], Measured]:
    """What the last doubling of one resource gains while the other is held at its smallest."""

    def measure(seen: Seen) -> Measured:
        grid, widths, depths = seen.grid, WIDTHS[seen.size], DEPTHS[seen.size]
        if axis == "width":
            left, held, step = grid[-1, 0] / grid[-2, 0], f"L = {depths[0]}", widths[-1] / widths[-2]
        else:
            left, held, step = grid[0, -1] / grid[0, -2], f"N = {widths[0]:.0f}", depths[-1] / depths[-2]
        text = f"β = {SHOWN}: the last {step:.1f} x in {axis} leave {left:.4f} of the loss at {held}"
        return Measured(text, np.array([1 - left]), n="one setting, by the equivalent")

    return measure


_EACH_SOURCE = [f"β = {b:g}" for b in SOURCES]

CLAIMS: list[Claim[Seen]] = [
    Claim(
        "the loss is the two-point deterministic equivalent of Eqs 15, 16",
        "Result 7, Eqs 15, 16",
        sampled_over(3),
        Small(0.05, 0.2),
        "Λ stands in the resolvents where the covariance of the context belongs: right only for P = ∞ (Eq 16 was taken with its signs put right)",
    ),
    Claim(
        "(ours) it is that equivalent with the average over the context",
        "Result 7, corrected",
        sampled_over(2),
        Small(0.05, 0.2),
        "exact up to order 1/D, more on a power law, where few directions carry the loss. Near divergence (γ λ/L well above 1 in deep models) rare contexts carry the sampled mean and nothing can be compared",
    ),
    Claim(
        "(ours) trained narrow models have the loss of the equivalent at their γ",
        "Eq 14 with a projection",
        trained_over,
        Close(0.05, 0.15),
        "fresh contexts, Γ averaged over the last third of training; judged by the width that is furthest off",
    ),
    Claim(
        "width has the exponent νβ",
        "Eqs 18, 113",
        exponents_over(width_bottleneck, laws.printed_bottleneck_exponent),
        Together([Close(0.05, 0.15)] * len(SOURCES), _EACH_SOURCE),
        "directions already learned leak through a random projection, at order κ ~ N^-ν: that is more than νβ leaves once β is above 1",
    ),
    Claim(
        "the loss at width N is κ² Σ λω/(κ + λ)²",
        "Eq 113, first form",
        first_form,
        Together([Close(0.05, 0.3)] * 2, ["N = 256", "N = 4096"]),
        "κ Σ λω/(κ + λ) is the limit of Result 7; the printed sum leaves the leak out",
    ),
    Claim(
        "(ours) width has the exponent ν min(β, 1)",
        "limit of Result 7",
        exponents_over(width_bottleneck, laws.width_exponent),
        Together([Close(0.03, 0.1)] * len(SOURCES), _EACH_SOURCE),
        "κ Σ λω/(κ + λ) with Σ λ/(κ + λ) = N",
    ),
    Claim(
        "context has the exponent νβ",
        "Eqs 18, 116",
        exponents_over(context_bottleneck, laws.printed_bottleneck_exponent),
        Together([Close(0.05, 0.15)] * len(SOURCES), _EACH_SOURCE),
        "learned directions leave an error of order κ² ~ P^-2ν: that is more than νβ leaves once β is above 2",
    ),
    Claim(
        "(ours) context has the exponent ν min(β, 2)",
        "limit of Result 7",
        exponents_over(context_bottleneck, laws.context_exponent),
        Together([Close(0.03, 0.1)] * len(SOURCES), _EACH_SOURCE),
        "κ² Σ λω/(κ + λ)² / (1 - df₂/P) with Σ λ/(κ + λ) = P",
    ),
    Claim(
        "scaling width alone runs into a depth bottleneck",
        "Fig 5a",
        stalls("width"),
        Small(0.03, 0.2),
        "the loss tends to that of infinite width at the depth that is held",
    ),
    Claim(
        "scaling depth alone runs into a width bottleneck",
        "Fig 5b",
        stalls("depth"),
        Small(0.03, 0.2),
        "the loss tends to that of infinite depth at the width that is held",
    ),
]


def trained_ratio(group: Group, fresh: int) -> np.ndarray:
    """Measured loss over the equivalent's at the measured gamma [seeds]."""
    config, gamma = group.config, group.late_gamma
    scale = scale_of(group)
    spectrum = power_law(config.capacity, config.source, config.dimension)
    equivalent = DeterministicEquivalent(spectrum, config.width, config.context, gamma_max=float(1.1 * scale.max()))
    predicted = np.array([equivalent.loss(float(g), config.depth) for g in scale]) / config.dimension
    return group.fresh_loss(gamma, fresh) / predicted


def _group(width: int, size: str, runs: Path) -> Group:
    steps, batch = {"toy": (10, 8), "quick": (200, 16), "paper": (3000, 64)}[size]
    config = DepthConfig(
        data="rotated", dimension=32, depth=4, context=64, tests=0, batch=batch, learning_rate=1.0,
        capacity=CAPACITY, source=0.7, width=width,
    )  # fmt: skip
    return train_group(config, steps, size, runs)
