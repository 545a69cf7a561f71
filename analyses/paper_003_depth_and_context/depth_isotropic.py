"""Figs 1 and 2 of paper 003: isotropic data, where depth helps as far as the context is short.

Trains depths 1-4 at four context lengths (six seeds of each, a minute and a half on one core at size
quick). Expect: one layer ends at
1 / (1 + alpha), not at its printed square; every depth within a few percent of the optimum of its dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from analyses.paper_003_depth_and_context.depth_isotropic_figure import RATIOS, TRAINED, draw
from analyses.paper_003_depth_and_context.runs import RUNS, Group, scale_of, train_group
from analyses.tools.claims import Claim, Measured, by_group, judged
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Close, Every, Small, Together
from analyses.tools.verdicts import percent, spread
from models.depth_and_context.model import DepthConfig
from models.depth_and_context.theory import IsoFlow, printed_iso_final_loss

RATES = {1: 0.05, 2: 0.1, 4: 0.2}
STEPS = {1: 400, 2: 400, 4: 700}  # until the flow is at its end
NOISE = 0.5


@dataclass(frozen=True)
class Seen:
    """Runs by context ratio and depth, the same with label noise, and the losses of all on fresh contexts [seeds]."""

    groups: dict[tuple[float, int], Group]
    noisy: Group
    final: dict[tuple[float, int], np.ndarray]


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    groups = {(a, n): _group(a, n, size, runs) for a in RATIOS for n in TRAINED}
    fresh = 100 if size == "toy" else 2000
    final = {key: group.fresh_loss(group.late_gamma, fresh) for key, group in groups.items()}
    seen = Seen(groups, _group(1.0, 4, size, runs, noise=NOISE), final)
    config = groups[1.0, 4].config
    return Page(
        "depth_isotropic",
        "Isotropic data: depth against context (Figs 1, 2)",
        "A model of depth L takes L steps of gradient descent in its context, and training finds the best step. One layer "
        "ends at a loss of 1/(1 + α); the printed (1 + α)⁻² is the distance of Γ from the identity. More layers help "
        "most where the context is about as long as the inputs have dimensions.",
        f"ISO, D = {config.dimension}, batch {config.batch} contexts with {config.tests} tests each, learning rate up to "
        f"{max(g.config.learning_rate for g in groups.values()):g}, {len(groups[1.0, 4].runs)} seeds; final losses of Γ averaged over "
        "the last third of a run, on 2000 fresh contexts",
        draw(groups, seen.noisy, final, fresh),
        "Top: losses during training (colour) and gradient flow (black; Eq 7 with the Marchenko-Pastur law) for context "
        "ratios α = P/D at depth 4, for depths at α = 1, and final losses: points are seeds, lines Eq 8, the dashed line "
        "(1 + α)⁻² as printed for L = 1. Bottom: the loss at Γ = γ I for depths, context ratios and label noise; dots are "
        "its minima, crosses what SGD found.",
        judged(CLAIMS, seen),
    )


@cache
def finite_optimum(config: DepthConfig, draws: int = 500) -> float:
    """The smallest loss of any gamma I at this very dimension, from sampled covariances."""
    from scipy.optimize import minimize_scalar

    rng = np.random.default_rng(0)
    x = rng.standard_normal((draws, config.context, config.dimension))
    lam = np.linalg.eigvalsh(np.swapaxes(x, 1, 2) @ x / config.context).ravel()

    def loss(gamma: float) -> float:
        return float(((1 - gamma * lam / config.depth) ** (2 * config.depth)).mean())

    best = IsoFlow(config.depth, config.context / config.dimension).best_gamma
    return loss(float(getattr(minimize_scalar(loss, bounds=(0.5 * best, 1.5 * best), method="bounded"), "x")))  # noqa: B009


def off_identity(seen: Seen) -> Measured:
    """The largest entry of each run's late Gamma beside gamma I, over gamma; that of the mean over seeds is told."""
    found, mean = {}, []
    for n in TRAINED:
        matrices = seen.groups[1.0, n].late_gamma[:, 0].numpy()
        found[f"L = {n}"] = np.array([_off_identity(m) for m in matrices])
        mean.append(f"{_off_identity(matrices.mean(0)):.3f}")
    text = (
        f"largest deviation of Γ from γ I, over γ: {by_group(found, spread)}; of the mean over seeds {', '.join(mean)}"
    )
    return Measured(text, np.concatenate([*found.values()]))


def along_training(seen: Seen) -> Measured:
    """The largest deviation of each run's loss from Eq 7, over times of at least 6 steps, at depth 4."""
    worst, told = [], []
    for a in RATIOS:
        times, losses = seen.groups[a, 4].binned(0.3, least=6)
        ratio = losses / IsoFlow(4, a).loss(times)
        told.append(f"α = {a:g}: {ratio.mean(0).min():.2f} - {ratio.mean(0).max():.2f}")
        worst.append(np.abs(ratio.mean(0) - 1).max())
    text = f"L = 4, mean over seeds, measured / predicted loss along training: {'; '.join(told)}"
    return Measured(
        text, np.array(worst), n=f"{len(RATIOS)} context ratios, mean over {len(seen.noisy.runs)} runs each"
    )


def gain_at_one(seen: Seen) -> Measured:
    """What three more layers take from the loss at alpha = 1, beside what they take at the other ratios."""
    gain = {a: seen.final[a, 1] - seen.final[a, 4] for a in RATIOS}
    text = "loss at L = 1 less that at L = 4: " + by_group({f"α = {a:g}": v for a, v in gain.items()}, spread)
    return Measured(text, gain[1.0], np.concatenate([v for a, v in gain.items() if a != 1.0]))


def gain_of_endless_depth(_: Seen) -> Measured:
    """The same from one layer to 2048, by Eq 8: whether it is largest at alpha = 1."""
    gain = {a: IsoFlow(1, a).final_loss - IsoFlow(2048, a).final_loss for a in RATIOS}
    text = "Eq 8 at L = 1 less that at L = 2048: " + "; ".join(f"α = {a:g}: {x:.3f}" for a, x in gain.items())
    larger = [float(gain[1.0] > x) for a, x in gain.items() if a != 1.0]
    return Measured(text, np.array(larger), n=f"{len(larger)} other context ratios, by Eq 8")


def depth_improves(seen: Seen) -> Measured:
    """Whether the loss falls at every doubling of the depth, by context ratio and run."""
    falls = [(seen.final[a, 1] > seen.final[a, 2]) & (seen.final[a, 2] > seen.final[a, 4]) for a in RATIOS]
    told = {f"α = {a:g}": [seen.final[a, n].mean() for n in TRAINED] for a in RATIOS}
    text = f"loss at L = {', '.join(map(str, TRAINED))}: " + "; ".join(
        f"{name}: {', '.join(f'{x:.3f}' for x in values)}" for name, values in told.items()
    )
    return Measured(text, np.concatenate(falls).astype(float))


def at_the_end(law: Callable[[tuple[float, int], Seen], float]) -> Callable[[Seen], Measured]:
    """Final losses over a law, one number per setting: the mean over its runs."""

    def measure(seen: Seen) -> Measured:
        ratios = {key: values / law(key, seen) for key, values in seen.final.items()}
        told = {f"L = {n}": np.array([ratios[a, n].mean() for a in RATIOS]) for n in TRAINED}
        text = f"measured / predicted at α = {', '.join(f'{a:g}' for a in RATIOS)}: " + by_group(
            told, lambda v: ", ".join(f"{x:.3f}" for x in v)
        )
        n = f"{len(ratios)} settings, mean over {len(seen.noisy.runs)} runs each"
        return Measured(text, np.array([v.mean() for v in ratios.values()]), n=n)

    return measure


def one_layer(law: Callable[[float], float]) -> Callable[[Seen], Measured]:
    """Final losses of one layer over a law, by context ratio."""

    def measure(seen: Seen) -> Measured:
        ratios = {f"α = {a:g}": seen.final[a, 1] / law(a) for a in RATIOS}
        return Measured("measured / predicted: " + by_group(ratios, percent), np.concatenate([*ratios.values()]))

    return measure


def endless_depth(_: Seen) -> Measured:
    """Eq 8 at depth 2048 above [1 - alpha]+."""
    deep = {a: IsoFlow(2048, a).final_loss for a in (0.5, 0.8, 2.0)}
    text = "Eq 8 at L = 2048: " + "; ".join(f"α = {a:g}: {x:.4f}" for a, x in deep.items())
    return Measured(text, np.array([x - max(0.0, 1 - a) for a, x in deep.items()]), n="3 context ratios, by Eq 8")


def endless_context(_: Seen) -> Measured:
    """Eq 8 of one layer at growing context, which should vanish; two layers are told."""
    long = {a: [IsoFlow(n, a).final_loss for n in (1, 2)] for a in (10.0, 100.0, 1000.0)}
    text = "Eq 8 at L = 1 and 2: " + "; ".join(f"α = {a:g}: {x:.1e}, {y:.1e}" for a, (x, y) in long.items())
    return Measured(text, np.array([long[1000.0][0]]), n="one context ratio, 1000, by Eq 8")


def where_the_minimum_is(which: str) -> Callable[[Seen], Measured]:
    """gamma that SGD finds over the best one, by depth at alpha = 1 or by context ratio at depth 4."""

    def measure(seen: Seen) -> Measured:
        keys = [(1.0, n) for n in TRAINED] if which == "depth" else [(a, 4) for a in RATIOS]
        names = [f"L = {n}" if which == "depth" else f"α = {a:g}" for a, n in keys]
        ratios = [scale_of(seen.groups[a, n]) / IsoFlow(n, a).best_gamma for a, n in keys]
        text = "γ of SGD / minimum of the landscape: " + by_group(dict(zip(names, ratios, strict=True)), percent)
        best = ", ".join(f"{IsoFlow(n, a).best_gamma:.2f}" for a, n in keys)
        return Measured(text + f"; the minima are at γ = {best}", np.concatenate(ratios))

    return measure


def noise_shrinks(seen: Seen) -> Measured:
    """-gamma with label noise, above -gamma without."""
    with_noise, without = scale_of(seen.noisy), scale_of(seen.groups[1.0, 4])
    text = (
        f"γ at σ² = {NOISE}: {spread(with_noise)}, predicted {IsoFlow(4, 1.0, NOISE).best_gamma:.3f}; without noise "
        f"{spread(without)}, predicted {IsoFlow(4, 1.0).best_gamma:.3f}"
    )
    return Measured(text, -with_noise, -without)


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "training keeps Γ a multiple of the identity",
        "Result 1, Eq 6",
        off_identity,
        Together([Small(0.1, 0.3)] * len(TRAINED), [f"L = {n}" for n in TRAINED]),
        "SGD moves each entry by noise of its own, which the mean over seeds has less of; the flow has none",
    ),
    Claim(
        "γ(t) and the loss follow Eq 7",
        "Eq 7, Fig 1a",
        along_training,
        Together([Small(0.06, 0.2)] * len(RATIOS), [f"α = {a:g}" for a in RATIOS]),
        "the law is that of infinite dimension and of flow; finite dimension and the noise of SGD add to the loss",
    ),
    Claim(
        "depth can improve predictions",
        "Fig 1b",
        depth_improves,
        Every(chance=0.25),
        "judged at every context ratio; a loss that depth leaves alone falls twice in a quarter of cases",
    ),
    Claim(
        "especially for α ≈ 1: four layers",
        "Fig 1b",
        gain_at_one,
        AboveControls(),
        "one layer leaves 1/(1 + α), L layers about α⁻ᴸ: where their difference is largest depends on L",
        set_before=False,  # judged by the factor at first, not by the difference
    ),
    Claim(
        "especially for α ≈ 1: endless depth",
        "Fig 1b",
        gain_of_endless_depth,
        Every(),
        "one layer leaves 1/(1 + α), endless depth [1 - α]₊",
        set_before=False,
    ),
    Claim(
        "the final loss is that of L optimal steps, Eq 8",
        "Eq 8, Fig 1c",
        at_the_end(lambda key, _: IsoFlow(key[1], key[0]).final_loss),
        Together(
            [Close(0.06, 0.2)] * len(RATIOS) * len(TRAINED), [f"α = {a:g}, L = {n}" for a in RATIOS for n in TRAINED]
        ),
        "Eq 8 is the limit of infinite dimension; covariances of so few dimensions fluctuate more (next row)",
    ),
    Claim(
        "(ours) it is that of L optimal steps at this dimension",
        "Eq 8 with sampled covariances",
        at_the_end(lambda key, seen: finite_optimum(seen.groups[key].config)),
        Together(
            [Close(0.03, 0.1)] * len(RATIOS) * len(TRAINED), [f"α = {a:g}, L = {n}" for a in RATIOS for n in TRAINED]
        ),
        "the smallest loss of any γ I over 500 covariances of the very P and D; a Γ that is not γ I may do better",
    ),
    Claim(
        "for L = 1 the loss saturates at (1 + α)⁻²",
        "below Eq 8",
        one_layer(printed_iso_final_loss),
        Together([Close(0.06, 0.2)] * len(RATIOS), [f"α = {a:g}" for a in RATIOS]),
        "(1 + α)⁻² is ||Γ - I||²/D at the optimum Γ = I/(1 + 1/α); the loss also has the noise of the context",
    ),
    Claim(
        "(ours) for L = 1 it saturates at 1/(1 + α)",
        "integral of Eq 8",
        one_layer(lambda a: 1 / (1 + a)),
        Together([Close(0.06, 0.2)] * len(RATIOS), [f"α = {a:g}" for a in RATIOS]),
        "at finite dimension the optimum is (D + 1)/(P + D + 1), up to 3 % higher at D = 24",
    ),
    Claim(
        "infinite depth reaches [1 - α]₊",
        "below Eq 8",
        endless_depth,
        Together([Small(0.01, 0.05)] * 3, ["α = 0.5", "α = 0.8", "α = 2"]),
        "exactly what the context does not span; approached slowly near α = 1",
    ),
    Claim(
        "with long contexts depth is unnecessary: L = 1 reaches the least loss",
        "Result 2",
        endless_context,
        Small(0.01, 0.1),
        "in the limit; at any finite α depth helps, and by a larger factor the longer the context: the loss falls as α⁻ᴸ",
    ),
    Claim(
        "training finds the best step size in context: the landscape by depth",
        "Fig 2a",
        where_the_minimum_is("depth"),
        Together([Close(0.08, 0.2)] * len(TRAINED), [f"L = {n}" for n in TRAINED]),
        "the minimum is flat in γ, so that finite dimension and the noise of SGD move it more than they move the loss",
    ),
    Claim(
        "the landscape by context length",
        "Fig 2b",
        where_the_minimum_is("context"),
        Together([Close(0.08, 0.2)] * len(RATIOS), [f"α = {a:g}" for a in RATIOS]),
        "the minimum is at γ = L α/(1 + α) for every depth; flat as in the row above",
    ),
    Claim(
        "label noise makes the best γ smaller",
        "Fig 2c, Appendix C.2",
        noise_shrinks,
        AboveControls(),
        "runs and controls are -γ with and without noise; fewer effective steps, as early stopping does",
    ),
    Claim(
        "(ours) and it is the γ of Eq 83",
        "Eq 83",
        lambda seen: Measured(
            f"γ / predicted: {percent(scale_of(seen.noisy) / IsoFlow(4, 1.0, NOISE).best_gamma)}",
            scale_of(seen.noisy) / IsoFlow(4, 1.0, NOISE).best_gamma,
        ),
        Close(0.06, 0.2),
        "SGD noise pushes γ along the flat minimum, so these runs have a small learning rate / batch",
    ),
]


def _off_identity(matrix: np.ndarray) -> float:
    """The largest entry beside a multiple of the identity, over that multiple."""
    scale = np.trace(matrix) / len(matrix)
    return float(np.abs(matrix - scale * np.eye(len(matrix))).max() / scale)


def _group(ratio: float, depth: int, size: str, runs: Path, noise: float = 0.0) -> Group:
    d = {"toy": 8, "quick": 24, "paper": 32}[size]
    # short contexts have large eigenvalues, which diverge first; their flow is also the quickest
    rate = RATES[depth] * min(1.0, ratio) ** 2 / {"toy": 4, "quick": 1, "paper": 2}[size]
    steps = {"toy": 20, "quick": STEPS[depth], "paper": 2 * STEPS[depth]}[size]
    config = DepthConfig(dimension=d, depth=depth, context=int(ratio * d), tests=d, batch=d, learning_rate=rate)
    if noise:  # the minimum is flat, and SGD noise moves far along it
        config = replace(config, noise=noise, batch=4 * d, learning_rate=rate / 2)
    return train_group(config, steps, size, runs)
