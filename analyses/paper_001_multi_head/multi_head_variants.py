"""Figs 3, 4 and 5 of paper 001: softmax attention, larger and smaller starts, and the next-token loss.

Trains softmax heads (six seeds, about 15 s on one core) and the next-token loss (20 s), as many fresh seeds, and
integrates the flow from 8 starts of five sizes (15 s). Expect: two to five drops with softmax; escape times that go as
1 / start and no plateau from a large one; plateaus of the next-token loss within 1.5 % of Eq 12.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from analyses.paper_001_multi_head.plateau_measures import by_plateau, falls, plateaus, worst
from analyses.paper_001_multi_head.runs import (
    FIGURE_1,
    NAMES,
    RUNS,
    Group,
    next_token,
    softmax,
    starts,
    starts_of,
    which_seeds,
)
from analyses.tools.claims import Claim, Measured, Unjudged, by_group, judged, judged_again
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Close, Every, Small
from analyses.tools.source import Source
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, percent, spread
from checkpoints import Run
from models.multi_head.model import WEIGHTS
from models.multi_head.softmax import softmax_loss_and_gradient
from models.multi_head.task import Tokens, draw_tokens
from models.multi_head.theory import PopulationFlow, fixed_point, plateau_losses, second_moment

INITS = (0.03, 0.1, 0.3, 1.0, 3.0)
SMALL = (0.03, 0.1, 0.3)  # of these the time of every drop is compared
TIMES = np.geomspace(0.03, 6e4, 600)
FRESH = {"toy": 200, "quick": 2000, "paper": 8000}  # prompts on which softmax heads are judged
DRAWS = {"toy": 2000, "quick": 60000, "paper": 400000}  # of contexts, for the mean of squared covariances


@dataclass(frozen=True)
class Seen:
    """Softmax runs with their loss on fresh prompts, flows by the size of the start, and next-token runs."""

    source: Source
    soft: list[Run]
    curves: list[tuple[np.ndarray, np.ndarray]]
    flows: dict[float, list[PopulationFlow]]
    losses: dict[float, np.ndarray]
    lengths: Group


def gather(source: Source) -> Seen:
    """Train or load, and integrate."""
    soft = softmax(source)
    curves = [fresh_loss(run, FRESH[source.size]) for run in soft]
    flows = {init: flows_from_size(init, starts(source, 6)) for init in INITS}
    losses = {init: np.stack([flow.loss(TIMES) for flow in each]) for init, each in flows.items()}
    return Seen(source, soft, curves, flows, losses, next_token(source))


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    soft = seen.soft[0]
    return Page(
        "multi_head_variants",
        "Softmax, initialisation and next-token loss (Figs 3, 4, 5)",
        "The staircase is not special to linear attention on whole prompts: softmax heads fall in steps too, and with the "
        "next-token loss the plateaus move to Eq 12. It is special to small starts: the time on a plateau goes as one over "
        "the start, and from a large one the loss decays at once.",
        f"{seen.lengths.facts}. Softmax: w_init = {soft.config['init']:g}, batch {soft.config['batch']}, "
        f"{soft.steps[-1]} steps. Starts: population flow from {len(seen.losses[INITS[0]])} random starts for each of "
        f"w_init = {', '.join(f'{i:g}' for i in INITS)}. {which_seeds(source)}",
        draw(seen),
        "Left: loss of softmax heads on fresh prompts, the same for all checkpoints; grey: plateaus of linear attention, "
        "for comparison. Middle: loss along the population flow from starts of different size. Right: expected next-token "
        "loss, with Eq 12 (dashes) and, dotted, what Eq 5 would say for N = 31.",
        judged_again(CLAIMS, seen, gather(source.fresh), NAMES) if source.fresh else judged(CLAIMS, seen),
    )


def fresh_loss(run: Run, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the loss of softmax heads on `count` prompts that are the same for all checkpoints."""
    s = torch.tensor(run.config["eigenvalues"], dtype=torch.float64)
    tokens = draw_tokens(s, run.config["context"], count, torch.Generator().manual_seed(10**6))
    basis = torch.tensor((run.theory or {})["mode_basis"], dtype=torch.float64)
    prompts = Tokens((tokens.x @ basis.T)[None], tokens.y[None])  # in the model's own coordinates
    steps = [step for step in run.steps if step > 0]
    parts = [run.checkpoint(step) for step in steps]
    losses = [softmax_loss_and_gradient({n: part[n][None] for n in WEIGHTS}, prompts)[0].item() for part in parts]
    return np.array(steps, dtype=float), np.array(losses)


def flows_from_size(init: float, seeds: range) -> list[PopulationFlow]:
    """The flow of Fig 1 from random starts of this size; the same directions for every size."""
    every = zip(*starts_of(replace(FIGURE_1, init=init), seeds), strict=True)
    return [PopulationFlow(FIGURE_1.eigenvalues, FIGURE_1.inverse_context, *start) for start in every]


def draw(seen: Seen):
    """One panel per variant."""
    figure, axes = panels(1, 3, height=4.4)
    lengths = seen.lengths
    levels = plateau_losses(FIGURE_1.eigenvalues, FIGURE_1.inverse_context)
    pace = (seen.soft[0].theory or {})["time_per_step"]
    ax = axes[0, 0]
    for steps, loss in seen.curves:
        ax.plot(pace * steps, loss, linewidth=1.1, color="#1f6fb4", alpha=0.85)
    for level in levels:
        ax.axhline(level, color="#ddd", linewidth=1, zorder=0)
    ax.set(xscale="log", xlim=(5, None), xlabel="time (learning rate x step)", ylabel="loss on fresh prompts")
    ax.set_title("(A) softmax attention")
    ax = axes[0, 1]
    for (init, each), colour in zip(seen.losses.items(), mode_colours(len(INITS)), strict=True):
        for seed, loss in enumerate(each):
            ax.plot(TIMES, loss, color=colour, linewidth=0.9, label=f"w_init = {init:g}" if seed == 0 else None)
    ax.set(xscale="log", xlim=(TIMES[0], TIMES[-1]), ylim=(0, 1.6), xlabel="time", ylabel="expected loss")
    ax.set_title("(B) size of the start, population flow")
    ax.legend(fontsize=8, loc="upper right")
    ax = axes[0, 2]
    for loss in lengths.loss:
        ax.plot(lengths.times[1:], loss[1:], color="#1f6fb4", linewidth=0.8, alpha=0.85)
    for m, (level, other) in enumerate(zip(lengths.levels, levels, strict=True)):
        ax.axhline(level, **PRINTED, label="Eq 12" if m == 0 else None)
        ax.axhline(other, color="#aaa", linestyle=":", linewidth=1, label="Eq 5, N = 31" if m == 0 else None)
    ax.set(xscale="log", xlim=(5, lengths.times[-1]), xlabel="time (learning rate x step)", ylabel="expected loss")
    ax.set_title("(C) next-token loss")
    ax.legend(fontsize=8, loc="upper right")
    return figure


def softmax_drops(seen: Seen) -> Measured:
    """Whether each softmax run falls at least twice, on fresh prompts."""
    count = [falls(steps[steps > 10], loss[steps > 10]) for steps, loss in seen.curves]
    end, linear = np.array([loss[-5:].mean() for _, loss in seen.curves]), plateau_losses(FIGURE_1.eigenvalues, 1 / 31)
    text = f"drops by seed: {', '.join(map(str, count))}; final loss {spread(end)} (linear attention: {linear[-1]:.3f})"
    return Measured(text, (np.array(count) >= 2).astype(float))


def slopes(seen: Seen) -> np.ndarray:
    """Of ln(half-time) against ln(w_init), for each start and mode."""
    half = {init: np.stack([flow.half_times for flow in seen.flows[init]]) for init in SMALL}
    starts = range(len(seen.flows[SMALL[0]]))
    return np.stack([np.polyfit(np.log(SMALL), np.log([half[i][k] for i in SMALL]), 1)[0] for k in starts])


def shorter(seen: Seen) -> Measured:
    """Whether a larger start brings every drop forward."""
    found = slopes(seen)
    text = "slope of ln(half-time) against ln(w_init) from .03 to .3, by mode: " + "; ".join(
        spread(x, 2) for x in found.T
    )
    return Measured(text, (found < 0).all(1).astype(float))


def inverse_to_the_start(seen: Seen) -> Measured:
    """The slope of the first mode, against -1."""
    found = -slopes(seen)[:, 0]
    return Measured(f"slope of ln(half-time) against ln(w_init), first mode: {spread(-found)}", found)


def exponential(seen: Seen) -> Measured:
    """Whether the loss only ever slows down: from the largest start, and from the smallest as the control."""
    slowing = {init: np.array([_always_slower(x) for x in each], float) for init, each in seen.losses.items()}
    told = "; ".join(f"w_init = {init:g}: {v.sum():.0f} of {len(v)}" for init, v in slowing.items())
    return Measured(f"the descent only ever slows down, {told}", slowing[INITS[-1]], slowing[INITS[0]])


def stairs(seen: Seen) -> Measured:
    """How many falls there are from starts of each size: small ones have at least three."""
    count = {init: np.array([falls(TIMES, x) for x in each]) for init, each in seen.losses.items()}
    told = "; ".join(f"w_init = {init:g}: {np.mean(v):.1f}" for init, v in count.items())
    return Measured(f"mean number of falls in ln(time), {told}", (count[INITS[0]] >= 3).astype(float))


def at_eq_12(seen: Seen) -> Measured:
    """The clear plateaus of every run, by the one furthest off."""
    found = plateaus(seen.lengths)
    text = f"{sum(map(len, found))} clear plateaus, measured / Eq 12: {by_group(by_plateau(found), percent)}"
    return Measured(text, worst(found))


def at_eq_11(seen: Seen) -> Measured:
    """What the heads write along each eigenvector at the end, by Eq 11, of the mode furthest off."""
    ends = fixed_point(FIGURE_1.eigenvalues, seen.lengths.config.inverse_context)
    ratio = np.stack([a.modes["measured_end"].to_numpy() for a in seen.lengths.alignments]) / ends
    text = "measured / Eq 11, by mode: " + "; ".join(percent(column) for column in ratio.T)
    return Measured(text, ratio[:, int(np.abs(ratio.mean(0) - 1).argmax())])


def two_laws_of_lengths(seen: Seen) -> Measured:
    """The mean of squared covariances, drawn example by example, by Eq 16: two laws of lengths with one E(1/N)."""
    s, longest, mean = np.array(FIGURE_1.eigenvalues), 31, seen.lengths.config.inverse_context
    share = (mean - 1 / longest) / (1 / 5 - 1 / longest)  # of prompts with 5 examples, the others with 31
    laws = {"uniform on 1 .. 31": np.full(longest, 1 / longest), "5 or 31": np.zeros(longest)}
    laws["5 or 31"][[4, longest - 1]] = share, 1 - share
    expected, ratios = second_moment(s, mean), {}
    for k, (name, law) in enumerate(laws.items()):
        rng = np.random.default_rng((starts(seen.source)[0], k))
        counts = rng.multinomial(DRAWS[seen.source.size], law)
        total = sum(_squares(s, n + 1, int(c), rng) for n, c in enumerate(counts) if c)
        ratios[name] = total / counts.sum() / expected
    told = "; ".join(f"{name} {', '.join(f'{r:.3f}' for r in v)}" for name, v in ratios.items())
    text = f"sampled E[cov²] / Eq 16 by mode, E(1/N) = {mean:.4f}: {told}; with 1/31 instead Eq 16 would be {second_moment(s, 1 / 31)[-1] / expected[-1]:.2f} of it in the last mode"
    return Measured(text, np.concatenate([*ratios.values()]), n="two laws, four modes")


def _squares(s: np.ndarray, length: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sum over `count` contexts of the diagonal of the squared empirical covariance."""
    x = rng.standard_normal((count, length, len(s))) * np.sqrt(s)
    covariance = x.swapaxes(1, 2) @ x / length
    return (covariance**2).sum((0, 2))


def _always_slower(loss: np.ndarray) -> bool:
    """Whether the rate of descent in linear time only ever falls, up to 1 % of its largest."""
    rate = -np.diff(loss) / np.diff(TIMES)
    return bool((np.diff(rate) < 0.01 * rate.max()).all() and rate.argmax() == 0)


CLAIMS: list[Claim[Seen] | Unjudged[Seen]] = [
    Claim(
        "softmax attention undergoes multiple loss drops, separated by slower phases",
        "Appendix B.1, Fig 3",
        softmax_drops,
        Every(5 / 6, 0.5),
        "a drop is a peak of -dL / d ln t on prompts that no run has seen",
    ),
    Claim(
        "a larger start shortens all plateaus",
        "Appendix B.2, Fig 4",
        shorter,
        Every(0.5, 1 / 16),
        "of every mode; which head leaves a plateau can change with the size of the start",
    ),
    Claim(
        "(ours) a plateau lasts as 1 / w_init",
        "Appendix B.2, by homogeneity",
        inverse_to_the_start,
        Close(0.05, 0.2),
        "Eq 31 is homogeneous: a vanishing start made k times smaller takes k times as long",
    ),
    Claim(
        "small starts give abrupt sigmoid-shaped drops",
        "Appendix B.2, Fig 4",
        stairs,
        Every(5 / 6, 0.5),
        "at least three falls from the smallest start; neighbours can merge",
    ),
    Claim(
        "the largest start gives an exponential-shaped decay",
        "Appendix B.2, Fig 4",
        exponential,
        AboveControls(),
        {
            HOLDS: "it slows down from the first moment on, which no small start does",
            IN_PART: "from most of the largest starts it slows down from the first moment on",
            FAILS: "from few of the largest starts it slows down from the first moment on",
        },
    ),
    Unjudged(
        "an intermediate start seems like a mix of the two shapes, as is often seen in practice",
        "Appendix B.2, Fig 4",
        "no number settles what seems like a mix; the rows above give both ends, and the figure what is between",
    ),
    Claim(
        "with the next-token loss the plateaus are at Eq 12",
        "Eqs 9, 12, Fig 5",
        at_eq_12,
        Small(0.025, 0.05),
        "judged by the plateau furthest off in each run; the noise of SGD, larger for short contexts, lifts the later ones",
    ),
    Claim(
        "the converged model does Eq 11",
        "Eqs 10, 11",
        at_eq_11,
        Close(0.05, 0.2),
        "trained with the next-token loss, by the mode furthest off",
    ),
    Claim(
        "lengths enter only through E(1/N)",
        "Appendix B.3, Eqs 11, 13-19",
        two_laws_of_lengths,
        Close(0.02, 0.1),
        "the flow knows prompts by Λ and E[Λ̂²] alone, and that depends on lengths through E(1/N). (The second line of Eq 16 counts its "
        "terms twice, by weights before sums that run over them; the result is right)",
    ),
]
