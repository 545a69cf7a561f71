"""Figs 4 and 8 of paper 003: covariances rotated anew in every context, where time and depth have power laws.

Trains the reduced model at three depths, tied and untied, without and with label noise (six seeds each, half a minute on
one core at size quick). Expect: Eq 13 to a few percent; exponents beta/(2 + beta) and beta; the best gamma near
2 L / lambda_1; untied layers that stay equal, with label noise as far as the noise of small batches lets them; Eq 122
right for long contexts only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from analyses.paper_003_depth_and_context.runs import RUNS, Group, path_ratios, scale_of, train_group
from analyses.tools.claims import Claim, Measured, by_group, judged
from analyses.tools.draw import EXACT, PRINTED, band, mode_colours, panels
from analyses.tools.exponents import Fit, fit_exponent
from analyses.tools.page import Page
from analyses.tools.rules import Close, Small, Together
from analyses.tools.verdicts import percent, spread
from models.depth_and_context import laws
from models.depth_and_context.model import DepthConfig, draw_batch, loss_and_gradient
from models.depth_and_context.spectrum import power_law
from models.depth_and_context.task import spectrum_for
from models.depth_and_context.theory import RotatedFlow

CAPACITY, SOURCE = 1.5, 1.0
PAIRS = ((1.5, 0.5), (1.5, 1.0), (1.5, 1.5), (1.0, 1.0))  # (nu, beta) of the laws
DEPTHS = (1, 4, 16)
MANY = 10**9  # modes for the power laws: cutting the spectrum short bends them
LATE = np.geomspace(1e6, 1e10, 25)
DEEP = 2 ** np.arange(1, 13)
NOISE = 0.5
LENGTHS = (1, 4, 16)  # context ratios at which the noise of Eq 122 is compared
UNEVEN = (0.4, 0.8, 1.2, 1.6)  # gamma of each layer there: different ones, as the formula allows


@dataclass(frozen=True)
class Seen:
    """Runs by depth; untied ones; tied and untied ones with label noise (isotropic); and how many contexts to draw."""

    groups: dict[int, Group]
    untied: Group
    noisy: Group
    noisy_untied: Group
    draws: int


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    groups = {n: _reduced(n, size, runs) for n in DEPTHS}
    seen = Seen(
        groups,
        _reduced(4, size, runs, untied=True),
        _noisy(size, runs),
        _noisy(size, runs, untied=True),
        100 if size == "toy" else 4000,
    )
    config = groups[4].config
    return Page(
        "depth_time",
        "Rotated covariances: the laws of time and depth (Figs 4, 8)",
        "When the covariance is rotated in every context Γ stays a multiple of the identity and the model can only learn "
        "gradient descent. Its time and depth exponents hold; the best γ tends to 2 L/λ₁, twice the printed value. Untied "
        "layers stay equal; with label noise the flow keeps them equal too, and SGD with small batches does so in part.",
        f"RRS, ν = {CAPACITY:g}, β = {SOURCE:g}, D = {config.dimension}, infinite context and tests, batch {config.batch}, "
        f"{len(groups[4].runs)} seeds; with noise ISO, D = P = {seen.noisy.config.dimension}, σ² = {NOISE}; power laws from the "
        "theory with 10⁹ modes",
        draw(seen),
        "Loss against time at infinite depth for three source exponents, with the slope β/(2 + β) (dashed); the loss at "
        "Γ = γ I against γ/L, with its minima (dots) and the printed γ = L/λ₁ (dashed); the best loss against depth with the "
        "slope β (dashed); trained reduced models (colour; untied layers dotted) and Eq 13 (black).",
        judged(CLAIMS, seen),
    )


@cache
def time_curve(capacity: float, source: float) -> tuple[np.ndarray, Fit]:
    """Losses at infinite depth, and the fitted exponent."""
    losses = RotatedFlow(power_law(capacity, source, MANY), np.inf, per_direction=False).loss(LATE)
    return losses, fit_exponent(LATE, losses)


@cache
def depth_losses(capacity: float, source: float) -> np.ndarray:
    """The best loss of each depth."""
    spectrum = power_law(capacity, source, MANY)
    return np.array([RotatedFlow(spectrum, int(n), per_direction=False).final_loss for n in DEEP])


def draw(seen: Seen):
    """Fig 4, and trained models."""
    figure, axes = panels(1, 4, height=4.0)
    rotated = [pair for pair in PAIRS if pair[0] == CAPACITY]
    for (nu, b), colour in zip(rotated, mode_colours(3), strict=True):
        losses, _ = time_curve(nu, b)
        axes[0, 0].plot(LATE, losses, color=colour, linewidth=2.2, label=f"β = {b:g}")
        axes[0, 0].plot(LATE, 1.5 * losses[0] * (LATE / LATE[0]) ** -laws.time_exponent(nu, b), **PRINTED)
        losses = depth_losses(nu, b)
        axes[0, 2].plot(DEEP, losses, "o-", color=colour, label=f"β = {b:g}")
        axes[0, 2].plot(DEEP, losses[-1] * (DEEP / DEEP[-1]) ** -b, **PRINTED)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="time t", ylabel="loss", title="time law")
    axes[0, 2].set(xscale="log", yscale="log", xlabel="depth L", ylabel="best loss", title="depth law")
    ax = axes[0, 1]
    for n, colour in zip((1, 4, 16, 64), mode_colours(4), strict=True):
        flow = RotatedFlow(power_law(CAPACITY, SOURCE, MANY), n, per_direction=False)
        gamma = np.linspace(0.02, 2.2, 150)
        ax.plot(gamma, [flow.loss_of(float(g) * n) for g in gamma], color=colour, label=f"L = {n}")
        ax.plot(flow.best_gamma / n, flow.final_loss, "o", color=colour)
    ax.axvline(1, **PRINTED)
    ax.set(yscale="log", ylim=(1e-3, 4), xlabel="γ λ₁ / L", ylabel="loss", title="landscape")
    ax = axes[0, 3]
    for (n, group), colour in zip(seen.groups.items(), mode_colours(len(seen.groups)), strict=True):
        times, losses = group.binned()
        band(ax, times, losses, colour, f"L = {n}")
        ax.plot(times, group.flow.loss(times), **EXACT)
    times, losses = seen.untied.binned()
    ax.plot(times, losses.mean(0), ":", color="#d1603d", linewidth=2, label="L = 4, untied")
    ax.set(xscale="log", yscale="log", xlabel="time t", ylabel="loss", title="trained")
    for ax in axes[0]:
        ax.legend(fontsize=8)
    axes[0, 1].legend(fontsize=8, loc="lower left")
    return figure


def off_identity(seen: Seen) -> Measured:
    """The largest entry of each run's late Gamma beside gamma I, over gamma, by depth."""
    found = {}
    for n, group in seen.groups.items():
        matrices, scale = group.late_gamma.mean(1).numpy(), scale_of(group)
        found[f"L = {n}"] = np.abs(matrices - scale[:, None, None] * np.eye(matrices.shape[-1])).max((1, 2)) / scale
    return Measured(
        "largest deviation of Γ from γ I, over γ: " + by_group(found, spread), np.concatenate([*found.values()])
    )


def gamma_late(seen: Seen) -> Measured:
    """gamma late in training over Eq 13, by depth; the loss along training is told."""
    ratios = {f"L = {n}": scale_of(g) / g.flow.gamma([0.85 * g.times[-1]])[0] for n, g in seen.groups.items()}
    paths = {f"L = {n}": path_ratios(group, group.flow) for n, group in seen.groups.items()}
    text = (
        f"γ late in training, measured / predicted: {by_group(ratios, percent)}; loss along training, mean over seeds: "
    )
    text += by_group(paths, lambda v: f"{v.min():.2f} - {v.max():.2f}")
    return Measured(text, np.concatenate([*ratios.values()]))


def law_over(fit: Callable[[float, float], Fit], law: Callable[[float, float], float]) -> Callable[[Seen], Measured]:
    """Fitted exponents over a law, by (nu, beta)."""

    def measure(_: Seen) -> Measured:
        fits = {pair: fit(*pair) for pair in PAIRS}
        told = [f"ν = {nu:g}, β = {b:g}: {found}, expected {law(nu, b):.3f}" for (nu, b), found in fits.items()]
        ratios = np.array([found.exponent / law(*pair) for pair, found in fits.items()])
        return Measured("; ".join(told), ratios, n=f"{len(PAIRS)} pairs (ν, β), by the theory with 10⁹ modes")

    return measure


def best_gamma_over(limit: float) -> Callable[[Seen], Measured]:
    """The best gamma lambda_1 / L at growing depth, over its limit."""

    def measure(_: Seen) -> Measured:
        spectrum = power_law(CAPACITY, SOURCE, MANY)
        best = {n: RotatedFlow(spectrum, n).best_gamma / n for n in (4, 64, 1024)}
        text = "best γ λ₁ / L: " + "; ".join(f"L = {n}: {x:.3f}" for n, x in best.items())
        return Measured(text, np.array([best[1024] / limit]), n="one depth, 1024, by the theory")

    return measure


def layers_of(group: Group) -> np.ndarray:
    """gamma of every layer late in training [seeds, layers]."""
    return torch.diagonal(group.late_gamma, dim1=-2, dim2=-1).mean(-1).numpy()


def balanced(which: str) -> Callable[[Seen], Measured]:
    """How far the layers of a run differ: standard deviation over mean."""

    def measure(seen: Seen) -> Measured:
        layers = layers_of(getattr(seen, which))
        off = layers.std(1) / layers.mean(1)
        return Measured(f"standard deviation of γ over layers / mean: {spread(off, 4)}", off)

    return measure


def like_tied(which: str, other: str) -> Callable[[Seen], Measured]:
    """gamma of untied layers over that of tied ones, seed by seed on the same contexts."""

    def measure(seen: Seen) -> Measured:
        tied = seen.groups[4] if other == "groups" else getattr(seen, other)
        ratio = layers_of(getattr(seen, which)).mean(1) / scale_of(tied)
        return Measured(f"γ of untied / of tied layers: {percent(ratio, 2)}", ratio)

    return measure


def noise_over(printed: bool) -> Callable[[Seen], Measured]:
    """What label noise adds to the loss of the model, over the second term of Eq 122, by context ratio."""

    def measure(seen: Seen) -> Measured:
        told = {f"α = {a}": noise_ratio(a, seen.draws, printed=printed) for a in LENGTHS}
        text = "what noise adds to the loss, measured / predicted: " + ", ".join(
            f"{k}: {v:.3f}" for k, v in told.items()
        )
        n = f"{len(LENGTHS)} context ratios, {seen.draws} contexts each"
        return Measured(text, np.array([*told.values()]), n=n)

    return measure


def noise_ratio(ratio: int, draws: int, *, printed: bool, dimension: int = 16) -> float:
    """The model with unequal layers on contexts with and without label noise, over the formula for these contexts.

    The noise of a context has the covariance of that context, sigma^2/(alpha L^2) Sigma_hat; Eq 122 has Lambda there.
    """
    depth = len(UNEVEN)
    config = DepthConfig(
        data="fixed", dimension=dimension, depth=depth, context=ratio * dimension, tests=0, batch=draws, noise=NOISE,
        capacity=1.0, source=1.0, untied=True,
    )  # fmt: skip
    spectrum = spectrum_for(config.data, dimension, config.capacity, config.source)
    contexts = draw_batch(config, spectrum, [torch.Generator().manual_seed(0)])
    eye = torch.eye(dimension, dtype=torch.float64)
    gamma = torch.stack([scale * eye for scale in UNEVEN])[None]
    signs = [replace(contexts, noise=sign * contexts.noise) for sign in (1, -1, 0)]
    plus, minus, quiet = (loss_and_gradient(gamma, one, depth)[0].item() for one in signs)
    added = (plus + minus) / 2 - quiet  # what is odd in the noise averages out
    seen = contexts.inputs[0].mT @ contexts.inputs[0] / config.context
    population = torch.diag(torch.as_tensor(spectrum.eigenvalues))
    total = torch.zeros_like(seen)
    for scale in UNEVEN:  # sum over l of gamma_l times the product of the later steps
        total = (eye - scale / depth * seen) @ total + scale * eye
    middle = population if printed else seen
    formula = (population @ total @ middle @ total.mT).diagonal(dim1=-2, dim2=-1).sum(-1).mean()
    return added / float(NOISE / (depth**2 * ratio * dimension) * formula)


_EACH_DEPTH = [f"L = {n}" for n in DEPTHS]
_EACH_PAIR = [f"ν = {nu:g}, β = {b:g}" for nu, b in PAIRS]
_EACH_LENGTH = [f"α = {a}" for a in LENGTHS]

CLAIMS: list[Claim[Seen]] = [
    Claim(
        "gradient flow keeps Γ = γ I",
        "Result 6",
        off_identity,
        Together([Small(0.05, 0.2)] * len(DEPTHS), _EACH_DEPTH),
        "SGD moves each entry by noise of its own",
    ),
    Claim(
        "γ(t) follows Eq 13",
        "Result 6, Eq 13, Fig 4c",
        gamma_late,
        Together([Close(0.04, 0.15)] * len(DEPTHS), _EACH_DEPTH),
        "tr is the mean over directions",
    ),
    Claim(
        "the loss falls as t^(-β/(2 + β))",
        "Eqs 18, 97, Figs 4a, c",
        law_over(lambda nu, b: time_curve(nu, b)[1], laws.time_exponent),
        Together([Close(0.01, 0.05)] * len(PAIRS), _EACH_PAIR),
        "at infinite depth, width and context, while the spectrum goes on; ν = 1 has the law too",
    ),
    Claim(
        "the best loss falls with depth as L^(-β)",
        "Eqs 18, 100, Fig 4c",
        law_over(lambda nu, b: fit_exponent(DEEP[-5:], depth_losses(nu, b)[-5:]), laws.depth_exponent),
        Together([Close(0.02, 0.1)] * len(PAIRS), _EACH_PAIR),
        f"fitted at L = {DEEP[-5]} - {DEEP[-1]}: the law is approached from above",
    ),
    Claim(
        "the best γ is about L/λ₁",
        "Eq 99, Fig 4b",
        best_gamma_over(1.0),
        Close(0.1, 0.3),
        "L/λ₁ leaves the top direction no error at all, which is not asked for: it may overshoot while it does not diverge",
    ),
    Claim(
        "(ours) the best γ tends to 2 L/λ₁",
        "minimum of Eq 98",
        best_gamma_over(2.0),
        Close(0.02, 0.1),
        "where the top direction is about to diverge; the exponent of depth is the same",
    ),
    Claim(
        "untied layers stay balanced",
        "section 5.1, Eq 118, Fig 8b",
        balanced("untied"),
        Small(0.02, 0.1),
        "the loss does not change if layers are exchanged; SGD's noise is what differs between them",
    ),
    Claim(
        "and learn like tied ones",
        "section 5.1, Fig 8a",
        like_tied("untied", "groups"),
        Close(0.02, 0.1),
        "with the learning rate multiplied by L; the same contexts in both",
    ),
    Claim(
        "with label noise the loss of untied layers is Eq 122",
        "G.1.2, Eq 122",
        noise_over(printed=True),
        Together([Close(0.05, 0.2)] * len(LENGTHS), _EACH_LENGTH),
        "Λ stands where the covariance of the context belongs: the two meet as the context grows",
    ),
    Claim(
        "(ours) it is Eq 122 with the covariance of the context in place of the second Λ",
        "Eq 122, corrected",
        noise_over(printed=False),
        Together([Close(0.05, 0.2)] * len(LENGTHS), _EACH_LENGTH),
        "the model itself on drawn contexts, against the formula for those contexts",
    ),
    Claim(
        "(ours) with label noise, too, untied layers stay balanced",
        "from Eq 122",
        balanced("noisy_untied"),
        Small(0.02, 0.1),
        "the noise term telescopes to [1 - product of all steps] M⁻¹ b, which does not change if layers are exchanged: so the flow "
        "keeps them equal, while SGD in small batches makes earlier layers larger, about as one over the batch",
    ),
    Claim(
        "(ours) and learn like tied ones",
        "from Eq 122",
        like_tied("noisy_untied", "noisy"),
        Close(0.02, 0.1),
        "with the learning rate multiplied by L; the same contexts in both",
    ),
]


def _reduced(depth: int, size: str, runs: Path, *, untied: bool = False) -> Group:
    d, steps, batch = {"toy": (6, 20, 8), "quick": (16, 700, 32), "paper": (32, 4000, 64)}[size]
    config = DepthConfig(
        data="rotated", dimension=d, depth=depth, context=0, tests=0, batch=batch, learning_rate=0.5,
        capacity=CAPACITY, source=SOURCE, untied=untied,
    )  # fmt: skip
    return train_group(config, steps, size, runs)


def _noisy(size: str, runs: Path, *, untied: bool = False) -> Group:
    d, steps = {"toy": (6, 20), "quick": (12, 200), "paper": (24, 2000)}[size]
    config = DepthConfig(
        dimension=d, depth=4, context=d, tests=d, batch=2 * d, learning_rate=0.1, noise=NOISE, untied=untied
    )
    return train_group(config, steps, size, runs)
