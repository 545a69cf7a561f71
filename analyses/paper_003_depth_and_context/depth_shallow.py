"""Result 10 and Fig 7 of paper 003: SGD on one layer with isotropic data, where context, tests and batch grow with D.

Trains 96 seeds of seven settings at once (ten seconds on one core at size quick). Expect: the exact recursion within the
error of the mean; Eqs 78, 79 ten percent low or more at D = 16, less in larger dimensions; the distance from the identity,
which is called the loss there, well below the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from analyses.tools.claims import Claim, Measured, by_group, judged
from analyses.tools.draw import EXACT, MEASURED, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AtMost, Close, Every, Together
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART
from models.depth_and_context.model import DepthConfig, ReducedGamma
from models.depth_and_context.shallow_sgd import ShallowSGD, printed_losses

DIMENSION, RATE, STEPS = 16, 0.1, 40  # B t = 40 D contexts in all
SWEEPS = {"τ": (0.5, 1.0, 2.0), "α": (0.5, 1.0, 2.0), "κ": (0.5, 1.0, 2.0)}  # batch, context and tests over dimension
GROWING = (16, 64, 256, 1024)  # dimensions of the exact recursion

Setting = tuple[float, float, float]  # alpha, kappa, tau


@dataclass(frozen=True)
class Course:
    """||Gamma - I||^2 / D [seeds, steps] and the in-context loss at the end [seeds], of one setting."""

    distances: np.ndarray
    losses: np.ndarray


Seen = dict[Setting, Course]


def run(size: str = "quick", runs: Path | None = None) -> Page:
    """Train, draw, judge. Nothing is kept: it is trained again in seconds."""
    seeds = {"toy": 6, "quick": 96, "paper": 2000}[size]
    seen = {setting: train(setting, seeds) for setting in dict.fromkeys(s for name in SWEEPS for s in sweep(name))}
    return Page(
        "depth_shallow",
        "One layer under SGD, with few contexts (Result 10, Fig 7)",
        "When batch, context and tests grow with the dimension, one layer learns in a number of steps that does not. The "
        "printed course keeps the leading order in D and is low in small dimensions; two numbers close the course exactly in "
        "any. What the paper calls the loss there is the distance of Γ from the identity, not the error on new prompts.",
        f"ISO, D = {DIMENSION}, L = 1, learning rate {RATE:g}, {STEPS} steps, {seeds} seeds of each setting; α = κ = τ = 1 where "
        "nothing else is said",
        draw(seen),
        "||Γ - I||²/D along training for three batch, context and test ratios: mean over seeds (colour), the exact recursion "
        "(black) and Eqs 78, 79 (dashed). Right: the end at growing dimension, exact over printed.",
        judged(CLAIMS, seen),
    )


def sweep(name: str) -> list[Setting]:
    """The settings in which one ratio is varied."""
    place = ("α", "κ", "τ").index(name)
    return [tuple(value if i == place else 1.0 for i in range(3)) for value in SWEEPS[name]]  # pyright: ignore


def train(setting: Setting, seeds: int) -> Course:
    """One layer from Gamma = 0, all seeds at once."""
    context, tests, batch = (round(ratio * DIMENSION) for ratio in setting)
    model = ReducedGamma(
        DepthConfig(dimension=DIMENSION, depth=1, context=context, tests=tests, batch=batch, learning_rate=RATE),
        range(seeds),
    )
    eye = torch.eye(DIMENSION, dtype=torch.float64)
    distances = []
    for step in range(STEPS + 1):
        distances.append((model.gamma[:, 0] - eye).square().sum((-1, -2)) / DIMENSION)
        if step < STEPS:
            model.update()
    gamma = model.gamma[:, 0]
    g1, g2 = torch.diagonal(gamma, dim1=-2, dim2=-1).mean(-1), gamma.square().sum((-1, -2)) / DIMENSION
    rho = 1 + (DIMENSION + 1) / context
    return Course(torch.stack(distances, 1).numpy(), (1 - 2 * g1 + rho * g2).numpy())


def exact(setting: Setting, dimension: int = DIMENSION) -> ShallowSGD:
    """The exact recursion of a setting."""
    context, tests, batch = (round(ratio * dimension) for ratio in setting)
    return ShallowSGD(dimension, context, tests, batch, RATE)


def printed(setting: Setting, start: float = 1.0) -> np.ndarray:
    """Eqs 78, 79."""
    return printed_losses(*setting, RATE, STEPS, start=start)


def draw(seen: Seen):
    """Fig 7, and growing dimensions."""
    figure, axes = panels(1, 4, height=4.0)
    steps = np.arange(STEPS + 1)
    for ax, name in zip(axes[0], SWEEPS, strict=False):
        for setting, value, colour in zip(sweep(name), SWEEPS[name], mode_colours(3), strict=True):
            ax.plot(
                steps,
                seen[setting].distances.mean(0),
                color=colour,
                linewidth=2.4,
                alpha=0.8,
                label=f"{name} = {value:g}",
            )
            ax.plot(steps, exact(setting).distances(STEPS), **EXACT)
            ax.plot(steps, printed(setting), **PRINTED)
        ax.set(yscale="log", xlabel="step", ylabel="||Γ - I||²/D", title=f"varying {name}")
        ax.legend(fontsize=8)
    ax = axes[0, 3]
    setting = (1.0, 1.0, 1.0)
    ends = [exact(setting, d).distances(STEPS)[-1] / printed(setting)[-1] for d in GROWING]
    ax.plot(GROWING, ends, "o-", color=MEASURED)
    ax.axhline(1, **PRINTED)
    ax.set(xscale="log", xlabel="dimension D", ylabel="exact / printed at the end", title="growing dimension")
    return figure


def end_over(theory: Callable[[Setting], np.ndarray], name: str) -> Callable[[Seen], Measured]:
    """The distance at the end over a theory, by the ratio that is varied."""

    def measure(seen: Seen) -> Measured:
        ratios = {
            f"{name} = {s}": seen[key].distances[:, -1] / theory(key)[-1]
            for key, s in zip(sweep(name), SWEEPS[name], strict=True)
        }
        text = "||Γ - I||²/D at the end, measured / predicted: "
        return Measured(text + by_group(ratios, lambda v: f"{v.mean():.3f}"), np.concatenate([*ratios.values()]))

    return measure


def each_improves(seen: Seen) -> Measured:
    """Whether the mean distance at the end falls with each of the three ratios."""
    falls, told = [], []
    for name in SWEEPS:
        ends = [seen[setting].distances[:, -1].mean() for setting in sweep(name)]
        falls += (np.diff(ends) < 0).tolist()
        told.append(f"{name} = {', '.join(f'{x:g}' for x in SWEEPS[name])}: {', '.join(f'{x:.3f}' for x in ends)}")
    n = f"{len(falls)} steps from one setting to the next, means over {len(seen[1.0, 1.0, 1.0].losses)} runs"
    return Measured("; ".join(told), np.array(falls, dtype=float), n=n)


def is_the_loss(seen: Seen) -> Measured:
    """The in-context loss over the distance, at the end, by context ratio."""
    ratios = {f"α = {s[0]:g}": seen[s].losses / seen[s].distances[:, -1] for s in sweep("α")}
    text = "in-context loss / ||Γ - I||²/D at the end: " + by_group(ratios, lambda v: f"{v.mean():.2f}")
    return Measured(text, np.concatenate([*ratios.values()]))


def enough_tokens(_: Seen) -> Measured:
    """The distance after these steps at growing dimension, over that at the first: it should not rise."""
    ends = np.array([exact((1.0, 1.0, 1.0), d).distances(STEPS)[-1] for d in GROWING])
    text = (
        f"||Γ - I||²/D after {STEPS} steps at D = {', '.join(map(str, GROWING))}: {', '.join(f'{x:.3f}' for x in ends)}"
    )
    return Measured(
        text, ends[1:] / ends[0], n=f"{len(GROWING) - 1} dimensions against the smallest, by the exact recursion"
    )


def in_the_limit(_: Seen) -> Measured:
    """The exact end at the largest dimension over the printed one, with C(0) as printed and as defined."""
    end = exact((1.0, 1.0, 1.0), GROWING[-1]).distances(STEPS)[-1]
    star = (1 / (1 + 1.0)) ** 2
    other = printed((1.0, 1.0, 1.0), start=star)[-1]
    text = f"D = {GROWING[-1]}: exact / printed {end / printed((1.0, 1.0, 1.0))[-1]:.4f}; with C(0) = Γ*² {end / other:.4f}"
    return Measured(text, np.array([end / printed((1.0, 1.0, 1.0))[-1]]), n="one dimension, by the exact recursion")


def start_as_printed(_: Seen) -> Measured:
    """Eq 78 at t = 0 over the distance of Gamma = 0, which is 1, by context ratio."""
    starts = {s[0]: printed(s)[0] for s in sweep("α")}
    text = (
        "Eqs 78, 79 at t = 0: "
        + "; ".join(f"α = {a:g}: {x:.2f}" for a, x in starts.items())
        + "; the start is Γ = 0, which is at 1"
    )
    return Measured(text, np.array([*starts.values()]), n=f"{len(starts)} context ratios, by the formula")


_LEADING = "Eqs 78, 79 keep the leading order in D, which is small here; the exact recursion (below) keeps all"


def _each(name: str) -> list[str]:
    return [f"{name} = {value:g}" for value in SWEEPS[name]]


CLAIMS: list[Claim[Seen]] = [
    *(
        Claim(
            f"SGD follows Eqs 78, 79, {what} varied",
            f"Result 10, Fig 7{panel}",
            end_over(printed, name),
            Together([Close(0.05, 0.2)] * 3, _each(name)),
            _LEADING,
        )
        for name, what, panel in (("τ", "batch", "a"), ("α", "context", "b"), ("κ", "tests", "c"))
    ),
    *(
        Claim(
            f"(ours) SGD follows the exact recursion, {what} varied",
            "Result 10 at finite D",
            end_over(lambda s: exact(s).distances(STEPS), name),
            Together([Close(0.03, 0.1)] * 3, _each(name)),
            "closed in Tr Γ and Tr ΓᵀΓ, with exact Wishart moments; no parameter",
        )
        for name, what in (("τ", "batch"), ("α", "context"), ("κ", "tests"))
    ),
    Claim(
        "the end is that of Eqs 78, 79 in large dimensions",
        "Result 10",
        in_the_limit,
        Close(0.02, 0.1),
        "by the exact recursion; after so many steps the start, next row, is forgotten",
    ),
    Claim(
        "Eqs 78, 79 start at Γ = 0",
        "Eqs 78, 79",
        start_as_printed,
        Together([Close(0.01, 0.1)] * 3, _each("α")),
        "C(0) is |Γ*|²/D by its definition, Eq 73; Eq 79 has 1",
    ),
    Claim(
        "||Γ - I||²/D is the in-context loss",
        "Eq 64, Result 10",
        is_the_loss,
        Together([Close(0.05, 0.3)] * 3, _each("α")),
        "the loss is 1 - 2 g₁ + (1 + (D + 1)/P) g₂: it also has the noise of the context",
    ),
    Claim(
        "it improves with batch, context and tests",
        "Fig 7",
        each_improves,
        Every(),
        "means over many seeds; more of each is less noise, and a longer context also a lower optimum",
    ),
    Claim(
        "B t of order D contexts of order D tokens are enough",
        "section 3.1, C.1",
        enough_tokens,
        AtMost(1.0),
        {
            HOLDS: "at fixed B/D, P/D, K/D and number of steps the distance does not rise with D",
            IN_PART: "at fixed B/D, P/D, K/D and number of steps the distance rises with D somewhere",
            FAILS: "at fixed B/D, P/D, K/D and number of steps the distance rises with D",
        },
    ),
]
