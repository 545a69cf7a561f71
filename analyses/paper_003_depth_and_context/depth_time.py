"""Figs 4 and 6 of paper 003: covariances rotated anew in every context, where time and depth have power laws.

Trains the reduced model at three depths, tied and untied, and the full attention block (about a minute on one core at
size quick). Expect: Eq 13 to a few percent; exponents beta/(2 + beta), 5 beta/(5 beta + 2) and beta; the best gamma near
2 L / lambda_1; Eq 21 only with its missing factors.
"""

from pathlib import Path

import numpy as np
import torch

from analyses.paper_003_depth_and_context.runs import RUNS, THREE, Group, train_group
from analyses.tools.draw import EXACT, PRINTED, band, mode_colours, panels
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.page import Page
from analyses.tools.verdicts import HOLDS, IN_PART, Verdict, judge, percent
from models.depth_and_context import laws
from models.depth_and_context.attention import AttentionConfig
from models.depth_and_context.attention_theory import FullAttentionFlow, PrintedFullAttentionFlow
from models.depth_and_context.model import DepthConfig
from models.depth_and_context.spectrum import power_law
from models.depth_and_context.theory import RotatedFlow

CAPACITY, SOURCE = 1.5, 1.0
SOURCES = (0.5, 1.0, 1.5)
DEPTHS = (1, 4, 16)
MANY = 10**9  # modes for the power laws: cutting the spectrum short bends them
LATE = np.geomspace(1e6, 1e10, 25)
DEEP = 2 ** np.arange(1, 13)


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    groups = {n: _reduced(n, size, runs) for n in DEPTHS}
    untied = _reduced(4, size, runs, untied=True)
    attention = {n: _attention(n, size, runs) for n in (1, 4)}
    config = groups[4].config
    return Page(
        "depth_time",
        "Rotated covariances: the laws of time and depth (Figs 4, 6)",
        "When the covariance is rotated in every context Γ stays a multiple of the identity and the model can only learn "
        "gradient descent. Its time and depth exponents hold; the best γ lies near 2 L/λ₁, twice the printed value, and the "
        "flow of full attention needs the 1/L and the factor 2 that Eq 21 leaves out.",
        f"RRS, ν = {CAPACITY:g}, β = {SOURCE:g}, D = {config.dimension}, infinite context and tests, batch {config.batch}, "
        f"{len(groups[4].runs)} seeds; power laws from the theory with 10⁹ modes",
        draw(groups, attention),
        "Top: loss against time at infinite depth for three source exponents, with the slope β/(2 + β) (dashed); the loss at "
        "Γ = γ I against γ/L, with its minima (dots) and the printed γ = L/λ₁ (dashed); the best loss against depth with the "
        "slope β (dashed). Bottom: trained reduced models (colour) and Eq 13 (black); the full attention block and its "
        "corrected flow (black) and Eq 21 as printed (dashed); time laws of the full block with slope 5β/(5β + 2) (dashed).",
        judgements(groups, untied, attention),
    )


def time_fits(flow_of) -> dict[float, tuple[np.ndarray, Fit]]:
    """Loss curve and fitted exponent, by source exponent."""
    curves = {b: flow_of(power_law(CAPACITY, b, MANY)).loss(LATE) for b in SOURCES}
    return {b: (losses, fit_exponent(LATE, losses)) for b, losses in curves.items()}


def reduced_flow(spectrum):
    """Rotated covariances at infinite depth, losses summed over directions."""
    return RotatedFlow(spectrum, np.inf, per_direction=False)


def attention_flow(spectrum):
    """The same for the full block."""
    return FullAttentionFlow(spectrum, np.inf, 0.3, per_direction=False)


def depth_losses(source: float) -> np.ndarray:
    """The best loss of each depth."""
    return np.array(
        [RotatedFlow(power_law(CAPACITY, source, MANY), int(n), per_direction=False).final_loss for n in DEEP]
    )


def gammas_of(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Tr Gamma / D [seeds], and the largest deviation of the seed-averaged Gamma from that times the identity."""
    matrices = group.late_gamma.mean(1).numpy()
    scale = np.trace(matrices, axis1=1, axis2=2) / matrices.shape[-1]
    mean = matrices.mean(0)
    return scale, np.abs(mean - scale.mean() * np.eye(len(mean))).max() / scale.mean()


def draw(groups: dict[int, Group], attention: dict[int, Group]):
    """Two rows: Fig 4 and Fig 6."""
    figure, axes = panels(2, 3, height=4.0)
    for ax, flow, exponent, title in (
        (axes[0, 0], reduced_flow, laws.time_exponent, "time law, reduced model"),
        (axes[1, 2], attention_flow, laws.attention_time_exponent, "time law, full attention"),
    ):
        for (b, (losses, _)), colour in zip(time_fits(flow).items(), mode_colours(3), strict=True):
            ax.plot(LATE, losses, color=colour, linewidth=2.2, label=f"β = {b:g}")
            ax.plot(LATE, 1.5 * losses[0] * (LATE / LATE[0]) ** -exponent(CAPACITY, b), **PRINTED)
        ax.set(xscale="log", yscale="log", xlabel="time t", ylabel="loss", title=title)
        ax.legend()
    ax = axes[0, 1]
    for n, colour in zip((1, 4, 16, 64), mode_colours(4), strict=True):
        flow = RotatedFlow(power_law(CAPACITY, SOURCE, MANY), n, per_direction=False)
        gamma = np.linspace(0.02, 2.2, 150)
        losses = np.array([flow.loss_of(float(g) * n) for g in gamma])
        ax.plot(gamma, losses, color=colour, label=f"L = {n}")
        ax.plot(flow.best_gamma / n, flow.final_loss, "o", color=colour)
    ax.axvline(1, **PRINTED)
    ax.set(yscale="log", ylim=(1e-3, 4), xlabel="γ λ₁ / L", ylabel="loss", title="landscape")
    ax.legend(loc="lower left")
    ax = axes[0, 2]
    for b, colour in zip(SOURCES, mode_colours(3), strict=True):
        losses = depth_losses(b)
        ax.plot(DEEP, losses, "o-", color=colour, label=f"β = {b:g}")
        ax.plot(DEEP, losses[-1] * (DEEP / DEEP[-1]) ** -b, **PRINTED)
    ax.set(xscale="log", yscale="log", xlabel="depth L", ylabel="best loss", title="depth law")
    ax.legend()
    for ax, chosen, title in (
        (axes[1, 0], groups, "reduced model, trained"),
        (axes[1, 1], attention, "full attention, trained"),
    ):
        for (n, group), colour in zip(chosen.items(), mode_colours(len(chosen)), strict=True):
            times, losses = group.binned()
            band(ax, times, losses, colour, f"L = {n}")
            fine = np.geomspace(times[0], times[-1], 60)
            ax.plot(fine, group.flow.loss(fine), **EXACT)
            if isinstance(group.config, AttentionConfig):
                ax.plot(fine, printed_of(group).loss(fine), **PRINTED)
        ax.set(xscale="log", yscale="log", xlabel="time t", ylabel="loss", title=title)
        ax.legend()
    return figure


def printed_of(group: Group) -> PrintedFullAttentionFlow:
    """Eq 21 for a trained block."""
    assert isinstance(group.config, AttentionConfig)
    return PrintedFullAttentionFlow(group.flow.spectrum, group.config.depth, group.config.init)


def judgements(groups: dict[int, Group], untied: Group, attention: dict[int, Group]) -> list[Verdict]:
    """The claims of Results 6, 8 and 9 on time and depth."""
    scales = {n: gammas_of(group) for n, group in groups.items()}
    predicted = {n: group.flow.gamma([0.85 * group.times[-1]])[0] for n, group in groups.items()}
    paths = {n: _path(group, group.flow) for n, group in groups.items()}
    time_law, attention_law = time_fits(reduced_flow), time_fits(attention_flow)
    depth_law = {b: fit_exponent(DEEP[-5:], depth_losses(b)[-5:]) for b in SOURCES}
    best = {n: RotatedFlow(power_law(CAPACITY, SOURCE, MANY), n).best_gamma / n for n in (4, 64, 1024)}
    layers = torch.diagonal(untied.late_gamma, dim1=-2, dim2=-1).mean(-1).numpy()
    tied = scales[4][0]
    full = {n: _path(group, group.flow) for n, group in attention.items()}
    printed = {n: _path(group, printed_of(group)) for n, group in attention.items()}

    def worst(fits: dict[float, Fit], exponent) -> float:
        return max(abs(fit.off(exponent(CAPACITY, b))) for b, fit in fits.items())

    def listed(fits: dict[float, Fit], exponent) -> str:
        return "; ".join(f"β = {b:g}: {fit}, expected {exponent(CAPACITY, b):.3f}" for b, fit in fits.items())

    times = {b: fit for b, (_, fit) in time_law.items()}
    attention_times = {b: fit for b, (_, fit) in attention_law.items()}
    return [
        Verdict(
            "gradient flow keeps Γ = γ I",
            "Result 6",
            "largest deviation of the seed-averaged Γ, over γ: "
            + "; ".join(f"L = {n}: {off:.3f}" for n, (_, off) in scales.items()),
            judge(max(float(off) for _, off in scales.values()), 0.05, 0.2),
            "what is left is the noise of SGD",
        ),
        Verdict(
            "γ(t) follows Eq 13",
            "Result 6, Eq 13, Fig 4c",
            "γ late in training, measured / predicted: "
            + "; ".join(f"L = {n}: {percent(scale / predicted[n])}" for n, (scale, _) in scales.items())
            + "; loss along training, measured / predicted: "
            + "; ".join(f"L = {n}: {low:.2f} - {high:.2f}" for n, (low, high) in paths.items()),
            judge(max(abs(float(scale.mean()) / predicted[n] - 1) for n, (scale, _) in scales.items()), 0.04, 0.15),
            "tr is the mean over directions",
        ),
        Verdict(
            "the loss falls as t^(-β/(2 + β))",
            "Eqs 18, 97, Fig 4a",
            listed(times, laws.time_exponent),
            judge(worst(times, laws.time_exponent), 0.01, 0.05),
            "at infinite depth, width and context; needs the spectrum to go on: 10⁹ modes here",
        ),
        Verdict(
            "the best loss falls with depth as L^(-β)",
            "Eqs 18, 100, Fig 4c",
            listed(depth_law, laws.depth_exponent) + f" (L = {DEEP[-5]} - {DEEP[-1]})",
            judge(worst(depth_law, laws.depth_exponent), 0.02, 0.1),
            "approached from above: shallower models gain a little more per layer",
        ),
        Verdict(
            "the best γ is about L/λ₁",
            "Eq 99, Fig 4b",
            "best γ λ₁ / L: " + "; ".join(f"L = {n}: {x:.3f}" for n, x in best.items()),
            judge(best[1024] - 1, 0.1, 0.3),
            "it tends to 2: the top direction may overshoot as long as it does not diverge, which L/λ₁ leaves unused; the exponent is the same",
        ),
        Verdict(
            "untied layers stay balanced and learn like tied ones",
            "section 5.1, Eq 118, Fig 8",
            f"spread of γ over layers / mean: {layers.std(1).mean() / layers.mean():.4f}; mean over layers, untied / tied: "
            f"{percent(layers.mean(1) / tied)}",
            HOLDS
            if layers.std(1).mean() / layers.mean() < 0.02 and abs(layers.mean() / tied.mean() - 1) < 0.02
            else IN_PART,
            "with the learning rate multiplied by L",
        ),
        Verdict(
            "full attention follows Eq 21",
            "Result 9, Eq 21, Fig 6",
            "loss along training, measured / Eq 21: "
            + "; ".join(f"L = {n}: {low:.2f} - {high:.2f}" for n, (low, high) in printed.items()),
            judge(max(max(abs(low - 1), abs(high - 1)) for low, high in printed.values()), 0.1, 0.3),
            "1/L is missing inside the power, and with W_x starting √2 larger γ is 2 w⁵",
        ),
        Verdict(
            "(ours) full attention follows dw/dt = 2 w⁴ tr Λ²Ω (1 - 2 w⁵ Λ/L)^(2L - 1)",
            "Eq 21, corrected",
            "loss along training, measured / predicted: "
            + "; ".join(f"L = {n}: {low:.2f} - {high:.2f}" for n, (low, high) in full.items()),
            judge(max(max(abs(low - 1), abs(high - 1)) for low, high in full.values()), 0.1, 0.3),
            "from aligned, balanced weights, all of them trained freely; the learning rate of W_v is divided by D",
        ),
        Verdict(
            "full attention learns as t^(-5β/(5β + 2))",
            "Eq 22",
            listed(attention_times, laws.attention_time_exponent),
            judge(worst(attention_times, laws.attention_time_exponent), 0.02, 0.1),
            "five factors make γ accelerate",
        ),
    ]


def _path(group: Group, flow) -> tuple[float, float]:
    """Smallest and largest measured / predicted loss along training, averaged over seeds and at least 6 steps."""
    times, losses = group.binned(0.3, least=6)
    ratio = losses.mean(0) / flow.loss(times)
    return float(ratio.min()), float(ratio.max())


def _reduced(depth: int, size: str, runs: Path, *, untied: bool = False) -> Group:
    d, steps, batch = {"toy": (6, 20, 8), "quick": (16, 700, 32), "paper": (32, 4000, 64)}[size]
    config = DepthConfig(
        data="rotated", dimension=d, depth=depth, context=0, tests=0, batch=batch, learning_rate=0.5,
        capacity=CAPACITY, source=SOURCE, untied=untied,
    )  # fmt: skip
    return train_group(config, steps, size, runs, seeds=THREE[size])


def _attention(depth: int, size: str, runs: Path) -> Group:
    d, steps, batch = {"toy": (6, 20, 8), "quick": (16, 700, 48), "paper": (24, 3000, 64)}[size]
    config = AttentionConfig(
        data="rotated", dimension=d, depth=depth, context=0, tests=0, batch=batch, learning_rate=0.05,
        capacity=CAPACITY, source=SOURCE, init=0.6,
    )  # fmt: skip
    return train_group(config, steps, size, runs, seeds=2)
