"""Fig 5 of paper 003: finite width and context, and the best shape of a model.

Compares the two-point deterministic equivalent with sampled matrices and with trained models, then uses it for the laws
of width and context and for the best depth at each width (about a minute and a half on one core at size quick). Expect:
agreement to a few percent at D = 64; width and context exponents that saturate at nu and 2 nu; a best shape below L ~ N^nu.
"""

from pathlib import Path

import numpy as np
import torch
from scipy.interpolate import RectBivariateSpline
from scipy.optimize import minimize_scalar

from analyses.paper_003_depth_and_context.runs import RUNS, THREE, Group, train_group
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.page import Page
from analyses.tools.verdicts import CANNOT, FAILS, HOLDS, IN_PART, Verdict, judge, percent
from models.depth_and_context import laws
from models.depth_and_context.deterministic_equivalent import (
    DeterministicEquivalent,
    PrintedEquivalent,
    context_bottleneck,
    printed_bottleneck,
    width_bottleneck,
)
from models.depth_and_context.model import DepthConfig
from models.depth_and_context.spectrum import Spectrum, power_law, spectrum_of
from models.depth_and_context.theory import RotatedFlow

CAPACITY = 1.5
SOURCES = (0.5, 0.7, 1.5, 2.5)
SHAPED = (0.7, 1.5)
SIZES = np.geomspace(256, 16384, 13)
WIDTHS = {"toy": np.geomspace(8, 64, 4), "quick": np.geomspace(8, 256, 8), "paper": np.geomspace(8, 1024, 11)}
DEPTHS = {"toy": 2 ** np.arange(4), "quick": 2 ** np.arange(9), "paper": 2 ** np.arange(12)}
TRAINED = (8, 16, 32)
# width, context, depth and gamma x largest eigenvalue / depth of the comparison with sampled matrices, at dimension 64
SAMPLED = ((32, 64, 8, 1.0), (64, 32, 8, 1.0), (16, 128, 4, 1.0), (32, 32, 16, 1.0), (16, 16, 2, 0.7))


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Compute, train or load, draw, judge."""
    draws = {"toy": 20, "quick": 300, "paper": 3000}[size]
    spectra = {"smooth": smooth_spectrum(), "power law": power_law(CAPACITY, 0.7, 64)}
    sampled = {name: np.array([compare(spectrum, *s, draws) for s in SAMPLED]) for name, spectrum in spectra.items()}
    groups = {n: _group(n, size, runs) for n in TRAINED[: 1 if size == "toy" else None]}
    grids = {b: loss_grid(b, WIDTHS[size], DEPTHS[size]) for b in SHAPED}
    shapes = {b: best_shapes(grids[b], WIDTHS[size], DEPTHS[size]) for b in SHAPED}
    return Page(
        "depth_width",
        "Finite width and context, and the best shape (Fig 5)",
        "The loss at finite width and context is a two-point deterministic equivalent. As printed it lacks the average over "
        "the context; corrected it agrees with sampled matrices and with trained models. Width alone or depth alone runs "
        "into a bottleneck. The printed exponents of width and context hold for hard tasks only, and so does the best shape.",
        f"RRS, ν = {CAPACITY:g}; sampled matrices: D = 64, {draws} draws; trained: D = 32, P = 64, L = 4, β = 0.7, widths "
        f"{', '.join(map(str, groups))}, {len(next(iter(groups.values())).runs)} seeds; shapes: 10⁶ modes, widths to "
        f"{WIDTHS[size][-1]:.0f}, depths to {DEPTHS[size][-1]}",
        draw(grids, shapes, size),
        "Left: best loss against width for several depths and against depth for several widths (β = 0.7); dashed lines are "
        "the bottlenecks, infinite depth on the left and infinite width on the right. Right: the best depth at each width "
        "when N²L is fixed, with the printed slope ν (dashed) and the corrected one (dotted); the laws of width and context "
        "with their printed slopes (dashed).",
        judgements(sampled, groups, grids[0.7], shapes, size),
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


def best_loss(spectrum: Spectrum, width: float, depth: int, context: float = np.inf) -> tuple[float, float]:
    """The smallest loss over gamma, and that gamma."""
    largest = 2.2 * depth / DeterministicEquivalent(spectrum, width, context, gamma_max=1.0).edge
    equivalent = DeterministicEquivalent(spectrum, width, context, gamma_max=largest)
    found = minimize_scalar(
        lambda x: equivalent.loss(float(np.exp(x)), depth),
        bounds=(np.log(0.05 * largest), np.log(largest)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    log_gamma = float(getattr(found, "x"))  # noqa: B009
    return equivalent.loss(float(np.exp(log_gamma)), depth), float(np.exp(log_gamma))


def loss_grid(source: float, widths: np.ndarray, depths: np.ndarray) -> np.ndarray:
    """Best loss [widths, depths] at infinite context."""
    spectrum = power_law(CAPACITY, source, 10**6, exact=100, per_decade=25)
    return np.array([[best_loss(spectrum, float(n), int(depth))[0] for depth in depths] for n in widths])


def best_shapes(grid: np.ndarray, widths: np.ndarray, depths: np.ndarray) -> np.ndarray:
    """[budgets, 2]: ln N and ln L that minimise the loss at fixed N^2 L, where the minimum is inside the grid."""
    surface = RectBivariateSpline(np.log(widths), np.log(depths), np.log(grid))
    n = np.linspace(np.log(widths[0]), np.log(widths[-1]), 2000)
    found = []
    for budget in np.linspace(2 * n[0], 2 * n[-1] + np.log(depths[-1]), 60):
        depth = budget - 2 * n
        inside = (depth > 0) & (depth < np.log(depths[-1]))
        if inside.sum() > 2:
            losses = surface(n[inside], depth[inside], grid=False)
            i = int(np.argmin(losses))
            if 0 < i < inside.sum() - 1:
                found.append((n[inside][i], depth[inside][i]))
    return np.array(found)


def local_slope(shapes: np.ndarray) -> Fit:
    """d ln L / d ln N over the wider half of the best shapes."""
    wide = shapes[len(shapes) // 2 :]
    return fit_exponent(np.exp(wide[:, 0]), np.exp(-wide[:, 1]))


def bottleneck_fits(loss, source: float) -> Fit:
    """The exponent of a law in the number of directions seen."""
    spectrum = power_law(CAPACITY, source, 10**8)
    return fit_exponent(SIZES, np.array([loss(spectrum, n) for n in SIZES]))


def draw(grids: dict[float, np.ndarray], shapes: dict[float, np.ndarray], size: str):
    """The loss against width, against depth, the best shape, and both bottlenecks."""
    figure, axes = panels(1, 4, height=4.2)
    widths, depths, grid = WIDTHS[size], DEPTHS[size], grids[0.7]
    spectrum = power_law(CAPACITY, 0.7, 10**6, exact=100, per_decade=25)
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
    for b, colour in zip(SHAPED, mode_colours(2), strict=True):
        n, depth = np.exp(shapes[b]).T
        axes[0, 2].plot(n, depth, color=colour, linewidth=2.2, label=f"β = {b:g}")
        axes[0, 2].plot(n, depth[-1] * (n / n[-1]) ** laws.printed_shape_exponent(CAPACITY, b), **PRINTED)
        axes[0, 2].plot(n, depth[-1] * (n / n[-1]) ** laws.shape_exponent(CAPACITY, b), ":", color=colour)
    axes[0, 2].set(xscale="log", yscale="log", xlabel="width N", ylabel="best depth L", title="best shape at fixed N²L")
    for b, colour in zip((0.7, 2.5), mode_colours(2), strict=True):
        spectrum = power_law(CAPACITY, b, 10**8)
        for loss, marker, name in ((width_bottleneck, "o", "width"), (context_bottleneck, "s", "context")):
            losses = np.array([loss(spectrum, n) for n in SIZES])
            axes[0, 3].plot(SIZES, losses, marker, color=colour, markersize=4, label=f"{name}, β = {b:g}")
            slope = laws.printed_bottleneck_exponent(CAPACITY, b)
            axes[0, 3].plot(SIZES, losses[0] * (SIZES / SIZES[0]) ** -slope, **PRINTED)
    axes[0, 3].set(xscale="log", yscale="log", xlabel="width N or context P", ylabel="loss", title="bottlenecks")
    for ax in axes[0]:
        ax.legend(fontsize=8)
    return figure


def judgements(
    sampled: dict[str, np.ndarray],
    groups: dict[int, Group],
    grid: np.ndarray,
    shapes: dict[float, np.ndarray],
    size: str,
) -> list[Verdict]:
    """The claims of Results 7 and 8."""
    widths, depths = WIDTHS[size], DEPTHS[size]
    wider, deeper = grid[-1, 1] / grid[-2, 1], grid[0, -1] / grid[0, -2]
    ratio = {name: (table[:, 0] / table[:, 2], table[:, 0] / table[:, 3]) for name, table in sampled.items()}
    error = max(float((table[:, 1] / table[:, 0]).max()) for table in sampled.values())
    trained = {n: trained_ratio(group, 100 if size == "toy" else 2000) for n, group in groups.items()}
    width = {b: bottleneck_fits(width_bottleneck, b) for b in SOURCES}
    context = {b: bottleneck_fits(context_bottleneck, b) for b in SOURCES}
    printed_113 = bottleneck_fits(printed_bottleneck, 1.5)
    slopes = {b: local_slope(s) for b, s in shapes.items()}

    def off(fits: dict[float, Fit], exponent) -> float:
        return max(abs(fit.off(exponent(CAPACITY, b))) for b, fit in fits.items())

    def up_to(fits: dict[float, Fit], source: float) -> str:
        """Whether the printed exponent holds for all source exponents, only for those below `source`, or for none."""
        if off(fits, laws.printed_bottleneck_exponent) < 0.05:
            return HOLDS
        below = {b: fit for b, fit in fits.items() if b < source}
        return IN_PART if off(below, laws.printed_bottleneck_exponent) < 0.05 else FAILS

    def listed(fits: dict[float, Fit]) -> str:
        return "; ".join(f"β = {b:g}: {fit}" for b, fit in fits.items())

    return [
        Verdict(
            "the loss is the two-point deterministic equivalent of Eqs 15, 16",
            "Result 7",
            "sampled / printed: "
            + "; ".join(f"{name}: {', '.join(f'{x:.2f}' for x in printed)}" for name, (_, printed) in ratio.items()),
            judge(max(float(np.abs(printed - 1).max()) for _, printed in ratio.values()), 0.05, 0.2),
            "Λ stands in the resolvents where the covariance of the context belongs: right only for P = ∞ (Eq 16 was taken with its signs put right)",
        ),
        Verdict(
            "(ours) it is that equivalent with the average over the context",
            "Result 7, corrected",
            "sampled / corrected: "
            + "; ".join(f"{name}: {', '.join(f'{x:.3f}' for x in right)}" for name, (right, _) in ratio.items())
            + f" (errors of the means up to {error:.1%})",
            judge(max(float(np.abs(right - 1).max()) for right, _ in ratio.values()), 0.05, 0.2),
            "what is left is of order 1/D, largest on the power law, where few directions carry the loss. Near divergence (γ λ/L well above 1 in deep models) rare contexts carry the sampled mean and nothing can be compared",
        ),
        Verdict(
            "(ours) trained narrow models have the loss of the equivalent at their γ",
            "Eq 14 with a projection",
            "measured / predicted: " + "; ".join(f"N = {n}: {percent(r)}" for n, r in trained.items()),
            judge(max(abs(float(r.mean()) - 1) for r in trained.values()), 0.05, 0.15),
            "fresh contexts, Γ averaged over the last third of training",
        ),
        Verdict(
            "width has the exponent νβ",
            "Eqs 18, 113",
            listed(width) + f"; printed νβ = {', '.join(f'{CAPACITY * b:g}' for b in SOURCES)}",
            up_to(width, 1.0),
            f"for β < 1 only: above it is ν, because learned directions leak through the projection (the first form of Eq 113 would give {printed_113} at β = 1.5)",
        ),
        Verdict(
            "(ours) width has the exponent ν min(β, 1)",
            "limit of Result 7",
            f"largest deviation over β = {', '.join(f'{b:g}' for b in SOURCES)}: {off(width, laws.width_exponent):.1%}",
            judge(off(width, laws.width_exponent), 0.03, 0.1),
            "κ Σ λω/(κ + λ) with Σ λ/(κ + λ) = N",
        ),
        Verdict(
            "context has the exponent νβ",
            "Eqs 18, 116",
            listed(context) + f"; printed νβ = {', '.join(f'{CAPACITY * b:g}' for b in SOURCES)}",
            up_to(context, 2.0),
            f"for β < 2 only: above it is 2ν (ν min(β, 2) is off by {off(context, laws.context_exponent):.1%} at most)",
        ),
        Verdict(
            "neither width nor depth alone is enough",
            "Fig 5a, b",
            f"β = 0.7: the last {widths[-1] / widths[-2]:.1f} x in width leave {wider:.2f} of the loss at L = {depths[1]}; the last "
            f"2 x in depth leave {deeper:.3f} of it at N = {widths[0]:.0f}",
            judge(1 - min(wider, deeper), 0.1, 0.3),
            "the loss tends to the bottleneck of what is held fixed",
        ),
        Verdict(
            "the best shape is L ~ N^ν",
            "Result 8",
            f"slope of the best depth over the wider half of the widths: {listed(slopes)}; printed {CAPACITY:g}",
            IN_PART if abs(slopes[0.7].off(CAPACITY)) < 0.25 else FAILS,
            f"for β ≤ 1 it is approached slowly from below; for β > 1 it is 1/(β - 1 + 1/ν) = {laws.shape_exponent(CAPACITY, 1.5):.3f} (β = 1.5)",
        ),
        Verdict(
            "(ours) for β > 1 the best shape is L ~ N^(1/(β - 1 + 1/ν))",
            "cross term N⁻¹ γ^-(1 - 1/ν)",
            f"β = 1.5: {slopes[1.5]}, expected {laws.shape_exponent(CAPACITY, 1.5):.3f}",
            CANNOT,
            "the slope has not settled where this table ends: on larger ones it rises above the limit and turns (models/depth_and_context/"
            "shapes.py has both computes), because N^-ν weighs more in the balance of width and depth than its size",
        ),
    ]


def trained_ratio(group: Group, fresh: int) -> np.ndarray:
    """Measured loss over the equivalent's at the measured gamma [seeds]."""
    config, gamma = group.config, group.late_gamma
    scale = torch.diagonal(gamma, dim1=-2, dim2=-1).mean((-1, -2)).numpy()
    spectrum = power_law(config.capacity, config.source, config.dimension)
    equivalent = DeterministicEquivalent(spectrum, config.width, config.context, gamma_max=float(1.1 * scale.max()))
    predicted = np.array([equivalent.loss(float(g), config.depth) for g in scale]) / config.dimension
    return group.fresh_loss(gamma, fresh) / predicted


def _group(width: int, size: str, runs: Path) -> Group:
    steps, batch = {"toy": (10, 8), "quick": (500, 32), "paper": (3000, 64)}[size]
    config = DepthConfig(
        data="rotated", dimension=32, depth=4, context=64, tests=0, batch=batch, learning_rate=1.0,
        capacity=CAPACITY, source=0.7, width=width,
    )  # fmt: skip
    return train_group(config, steps, size, runs, seeds=THREE[size])
