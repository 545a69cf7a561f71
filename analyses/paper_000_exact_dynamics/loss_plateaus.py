"""Fig 3A of paper 000: the loss falls in steps, a plateau before each mode and a cliff when it is learned.

Trains a setting with modes far apart (5 seeds, about 25 s) and uses the short context of `fixed_point`. Expect: one
cliff per mode found in every seed, at the predicted half-drop within 5 %.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyses.paper_000_exact_dynamics.linear_runs import RUNS, Group, far_apart, three_modes
from analyses.tools.claims import Claim, Measured, judged
from analyses.tools.draw import EXACT, MEASURED, PRINTED, band, panels
from analyses.tools.page import Page
from analyses.tools.rules import Every, Small, Together
from analyses.tools.study import drops
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART
from models.linear_icl.model import exact_theory
from models.linear_icl.theory import ExactTheory
from probes import find_transitions, half_time

SHORT = 8


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    apart, short = far_apart(size, runs), three_modes(SHORT, size, runs)
    found = [cliffs_of(run, apart.config.learning_rate) for run in apart.runs]
    return Page(
        "loss_plateaus",
        "Loss plateaus and cliffs (Fig 3A)",
        "The training loss is a staircase, one cliff per mode. Eq 14 draws it well for long contexts; for short ones it "
        "is early and ends too high. The cliffs can be found in the noisy loss alone, without knowing the theory.",
        apart.facts + f"; right panel: {short.facts}",
        draw(apart, short, found),
        "Training loss, mean and standard deviation over seeds (blue), Eq 14 (dashes), exact flow (black). Left: modes far "
        "apart; the red bars are the cliffs that find_transitions reports for the first seed, with their intervals, and "
        "the dotted lines the half-drops that the exact flow predicts. Right: a short context.",
        judged(CLAIMS, Seen(apart, short, found)),
    )


def cliffs_of(run, pace: float):
    """Cliffs of one run's loss, in theory time."""
    found = find_transitions(run.metrics["loss"].to_numpy(), run.metrics.index.to_numpy() * pace)
    return drops(found)


def half_drops(theory: ExactTheory) -> np.ndarray:
    """When each mode has brought half of its loss, by the exact flow."""
    times = np.geomspace(theory.half_times[0] / 20, theory.half_times[-1] * 3, 4000)
    loss = theory.loss(times)
    # between two modes the loss is on a plateau; half of the way from one plateau to the next is the half-drop
    edges = [times[0], *np.sqrt(theory.half_times[:-1] * theory.half_times[1:]), times[-1]]
    return np.array(
        [
            half_time(loss[inside], times[inside])
            for low, high in itertools.pairwise(edges)
            if (inside := (times >= low) & (times <= high)).any()
        ]
    )


def explained(group: Group) -> dict[str, float]:
    """R² of the loss averaged over seeds and in bins of ln(time) with at least 8 steps, for both theories."""
    times, loss = group.loss(width=0.1)
    steps = np.diff(times, prepend=0) / group.config.learning_rate
    times, measured = times[steps >= 8], loss.mean(0)[steps >= 8]
    spread = ((measured - measured.mean()) ** 2).sum()
    theories = {"printed": group.printed, "exact": group.exact}
    return {name: 1 - ((measured - t.loss(times)) ** 2).sum() / spread for name, t in theories.items()}


def draw(apart: Group, short: Group, found: list):
    """Two losses on a logarithmic time axis."""
    figure, axes = panels(1, 2, height=4.4)
    for ax, group, title in ((axes[0, 0], apart, "modes far apart"), (axes[0, 1], short, "short context")):
        times, loss = group.loss()
        fine = np.geomspace(max(times[0], 0.5), times[-1], 400)
        band(ax, times, loss, MEASURED, "trained")
        ax.plot(fine, group.printed.loss(fine), **PRINTED, label="printed, Eq 14")
        ax.plot(fine, group.exact.loss(fine), **EXACT, label="exact flow")
        ax.set(xscale="log", xlim=(fine[0], fine[-1]), xlabel="time (learning rate x step)", ylabel="loss")
        ax.set_title(f"{title}, N = {group.config.context}")
    ax = axes[0, 0]
    for at in half_drops(apart.exact):
        ax.axvline(at, color="#444", linestyle=":", linewidth=1)
    if len(found[0]):
        row = found[0]
        heights = np.full(len(row), ax.get_ylim()[1] * 0.97)
        bars = [row["step"] - row["low"], row["high"] - row["step"]]
        ax.errorbar(row["step"], heights, xerr=bars, fmt="v", color="#c22", capsize=3, label="cliffs found, seed 0")
    axes[0, 0].legend()
    return figure


@dataclass(frozen=True)
class Seen:
    """The two groups, and the drops found in the loss of each run of the first."""

    apart: Group
    short: Group
    found: list


def unexplained(theory: str) -> Callable[[Seen], Measured]:
    """1 - R^2 of the mean over seeds, for modes far apart and for a short context."""

    def measure(seen: Seen) -> Measured:
        fits = {f"N = {g.config.context}": explained(g)[theory] for g in (seen.apart, seen.short)}
        told = "; ".join(f"{name}: {fit:.4f}" for name, fit in fits.items())
        runs = f"{len(seen.apart.runs)} and {len(seen.short.runs)} runs, averaged"
        return Measured(f"R² of the mean over seeds, {told}", 1 - np.array([*fits.values()]), n=runs)

    return measure


def one_per_mode(seen: Seen) -> Measured:
    """Whether there are as many cliffs as modes."""
    modes = len(seen.apart.config.eigenvalues)
    right = np.array([len(row) == modes for row in seen.found], dtype=float)
    counts = ", ".join(str(len(row)) for row in seen.found)
    return Measured(f"find_transitions reports {counts} falls, where {modes} are learned", right)


def on_time(seen: Seen) -> Measured:
    """The largest error of a cliff in each run that has all of them, against half of the drop by the exact flow."""
    modes, errors = len(seen.apart.config.eigenvalues), []
    for run, row in zip(seen.apart.runs, seen.found, strict=True):
        if len(row) == modes:
            truth = half_drops(exact_theory(run.config, run.theory or {}))
            errors.append(np.abs(row["step"].to_numpy() / truth - 1).max())
    told = f"largest error over modes, in the {len(errors)} runs with every cliff: "
    return Measured(told + (f"{100 * np.mean(errors):.1f} %" if errors else "none"), np.array(errors or [np.nan]))


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "Eq 14 precisely captures the loss curve",
        "Eqs 14, A110, Fig 3A",
        unexplained("printed"),
        Together([Small(0.01, 0.02), Small(0.01, 0.02)], ["modes far apart", "short context"]),
        {
            HOLDS: "for long and short contexts",
            IN_PART: "for long contexts; for short ones the later cliff is early and the end too high",
            FAILS: "its times and its end are off",
        },
    ),
    Claim(
        "(ours) the exact flow",
        "expected loss at finite N and P",
        unexplained("exact"),
        Together([Small(0.01, 0.05), Small(0.01, 0.05)], ["modes far apart", "short context"]),
        "the noise of the batches is part of what is missing from 1",
    ),
    Claim(
        "plateaus followed by cliffs, one per mode",
        "section 3, Fig 3A",
        one_per_mode,
        Every(in_part=0.5, chance=0.5),
        "judged by what find_transitions sees in the noisy loss of a single run",
    ),
    Claim(
        "cliffs occur when the slower modes are learned",
        "section 3",
        on_time,
        Small(0.06, 0.15),
        "against the time of half of the drop, not of half of the amplitude (12 % later)",
    ),
]
