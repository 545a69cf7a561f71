"""What is measured of the claims on attention-only transformers: one number per run, and per 1-layer control."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd
from scipy.stats import rankdata

import probes
from analyses.paper_000_exact_dynamics.icl_emergence_study import (
    CONTROL,
    HORIZONS,
    Emergence,
    Number,
    emergence,
    final_accuracy,
    layers,
    smooth,
)
from analyses.tools.claims import Measured
from analyses.tools.study import REMOVED, Curve, cliff, each, halfway_down, metric, nearest_peak, notch
from analyses.tools.verdicts import seen, spread

EARLIER, LATER = 0.7, 1.4  # of the step of emergence: where drift is compared with that at emergence
BUDGETS = range(5, 21)  # evaluations in a run


@dataclass(frozen=True)
class Seen:
    """The runs by depth, and the modes of each run by name of its group: the linear head and every depth."""

    studies: dict[int, list[Emergence]]
    modes: dict[str, list[pd.DataFrame]]

    @property
    def control(self) -> list[Emergence]:
        """One layer."""
        return self.studies[CONTROL]

    @cached_property
    def learned(self) -> list[Emergence]:
        """Two layers and more."""
        return [s for depth, group in self.studies.items() if depth != CONTROL for s in group]

    @property
    def groups(self) -> list[str]:
        """The names of the depths that learn."""
        return [layers(depth) for depth in self.studies if depth != CONTROL]

    def by_depth(self, compute: Number, digits: int = 2, scale: float = 1.0) -> str:
        """A number of every run, in one sentence."""
        return "; ".join(f"{layers(d)} {spread(scale * each(compute, g), digits)}" for d, g in self.studies.items())

    def measured(self, text: str, compute: Number) -> Measured:
        """Runs against controls."""
        return Measured(text, each(compute, self.learned), each(compute, self.control))


def ends_able(seen: Seen) -> Measured:
    """Accuracy at the end."""
    steps = "; ".join(
        f"{layers(d)} {', '.join(f'{s.anchor:.0f}' for s in group)}"
        for d, group in seen.studies.items()
        if d != CONTROL
    )
    text = f"final accuracy on repeated tokens: {seen.by_depth(lambda s: final_accuracy(s.run))}; half of it at steps {steps}"
    return seen.measured(text, lambda s: final_accuracy(s.run))


def width(seen: Seen) -> Measured:
    """How long emergence takes, against when it is."""
    widths = each(lambda s: (emergence(s.run, 0.9) - emergence(s.run, 0.1)) / s.anchor, seen.learned)
    return Measured(f"from a tenth to nine tenths within {spread(widths, 2)} of the step of half", widths)


def induction(seen: Seen) -> Measured:
    """What the best head attends to at the end, and when it began."""

    def half(score: str) -> str:
        times = each(
            lambda s: probes.half_time(s.best_score(score)[1], s.best_score(score)[0]) / s.anchor, seen.learned
        )
        return spread(times, 2)

    def last(study: Emergence) -> float:
        return float(study.best_score("prefix_matching")[1][-1])

    text = f"best prefix-matching score at the end: {seen.by_depth(last)}; its half-time / emergence {half('prefix_matching')}"
    return seen.measured(f"{text}, of the best previous-token score {half('previous_token')}", last)


def sighted(what: str, find: Callable[[Seen], Number]) -> Callable[[Seen], Measured]:
    """Whether something is seen near emergence (1), and where: find gives its step as a ratio, NaN if there is none."""

    def measure(evidence: Seen) -> Measured:
        number = cache(find(evidence))
        where = "; ".join(f"{layers(d)} {seen(each(number, group))}" for d, group in evidence.studies.items())
        return evidence.measured(f"{what}: {where}", lambda s: float(np.isfinite(number(s))))

    return measure


def cliff_of(_: Seen) -> Number:
    """The cliff of the loss over all tokens."""
    return lambda s: cliff(metric(s.run, "loss"), s.anchor)


def peak_of(values: Callable[[Emergence], Curve]) -> Callable[[Seen], Number]:
    """The peak nearest to emergence, on one scale for all runs."""

    def find(evidence: Seen) -> Number:
        scale = float(np.median([np.ptp(values(s)[1]) for s in evidence.learned]))
        return lambda s: nearest_peak(*values(s), s.anchor, scale)

    return find


def by_size(circuit: str, k: int) -> Callable[[Emergence], Curve]:
    """The rank without its k largest components."""
    return lambda s: s.rank(circuit, k)


def by_convergence(circuit: str) -> Callable[[Emergence], Curve]:
    """The rank without the modes that converged earliest."""
    return lambda s: s.rank_by_convergence(circuit)


def notched(rank: Callable[[Emergence], Curve]) -> Callable[[Seen], Measured]:
    """How deep the V of a rank is at emergence."""

    def measure(evidence: Seen) -> Measured:
        def depth(study: Emergence) -> float:
            return notch(*rank(study), study.anchor)[0]

        here, there = (100 * each(depth, group) for group in (evidence.learned, evidence.control))
        at = each(lambda s: notch(*rank(s), s.anchor)[1] / s.anchor, evidence.learned)
        text = (
            f"depth in %: {evidence.by_depth(depth, 1, 100)}; shallowest of those that learn {here.min():.1f}, deepest at 1 layer "
            f"{there.max():.1f}; lowest at {at.min():.2f} - {at.max():.2f} of emergence"
        )
        return Measured(text, here / 100, there / 100)

    return measure


def in_order(evidence: Seen) -> Measured:
    """Rank correlation of k with where the curve without k components has its V."""

    def correlation(study: Emergence) -> float:
        bottoms = [notch(*study.rank("qk", k), study.anchor)[1] for k in range(REMOVED + 1)]
        return float(np.corrcoef(np.arange(REMOVED + 1), rankdata(bottoms))[0, 1]) if np.ptp(bottoms) else 0.0

    text = "rank correlation of k = 0 .. 4 with where the QK curve is lowest near emergence: "
    return evidence.measured(text + evidence.by_depth(correlation), correlation)


def falls_back(evidence: Seen) -> Measured:
    """The largest fall of the OV rank from an earlier height, as a share of its range, in the 1-layer models."""

    def fall(study: Emergence) -> float:
        rank = study.rank("ov")[1]
        return float((np.maximum.accumulate(rank) - rank).max() / np.ptp(rank))

    def rises(study: Emergence) -> float:
        return float(np.mean(np.diff(study.rank("ov")[1]) > 0))

    text = f"largest fall / whole range: {evidence.by_depth(fall)}; share of checkpoints at which it rises: {evidence.by_depth(rises)}"
    return Measured(text, each(fall, evidence.control))


def settled(horizon: float) -> Number:
    """When the row spaces are halfway to those at the end chosen, against emergence."""
    return lambda s: halfway_down(*s.distance(horizon)) / s.anchor


def settles_by(end: str, when: Number, horizons: tuple[float, ...] = HORIZONS) -> Callable[[Seen], Measured]:
    """Whether subspaces are halfway no more than 5 % after a time, whatever is taken as the end of training."""

    def measure(evidence: Seen) -> Measured:
        told = "; ".join(f"{h:g} x: {evidence.by_depth(lambda s, h=h: settled(h)(s) / when(s))}" for h in horizons)
        right = [all(settled(h)(s) <= 1.05 * when(s) for h in horizons) for s in evidence.learned]
        text = f"half-time of the distance / {end}, by what is taken as the end of training: {told}"
        return Measured(text, np.array(right, dtype=float))

    return measure


def at_the_notch(study: Emergence) -> float:
    """Where the marginalized QK rank is lowest, against emergence."""
    return notch(*study.rank("qk", REMOVED), study.anchor)[1] / study.anchor


def earlier_if_deeper(evidence: Seen) -> Measured:
    """How early subspaces settle in 3 and 4 layers (runs) and in 2 (controls): minus the ratio to emergence."""
    ratio, two = settled(HORIZONS[-1]), evidence.studies.get(2, [])
    deep = [s for depth, group in evidence.studies.items() if depth > 2 for s in group]
    text = f"half-time of the distance / emergence, end at {HORIZONS[-1]:g} x: {evidence.by_depth(ratio)}"
    return Measured(text, -each(ratio, deep if two else []), -each(ratio, two))


def columns_settled(evidence: Seen) -> Measured:
    """The same of what heads write into."""

    def ratio(study: Emergence) -> float:
        return halfway_down(*study.column_distance(HORIZONS[-1])) / study.anchor

    text = f"half-time of its distance / emergence, end at {HORIZONS[-1]:g} x: {evidence.by_depth(ratio)}"
    return Measured(text, (each(ratio, evidence.learned) <= 1.05).astype(float))


def drift_ratio(when: float) -> Number:
    """Drift at emergence against drift at a multiple of it, each averaged over a tenth of that step around it."""

    def ratio(study: Emergence) -> float:
        at, speed = study.drift()
        here, there = (speed[np.abs(at / study.anchor / x - 1) < 0.1].mean() for x in (1.0, when))
        return float(here / there)

    return ratio


def drifts(evidence: Seen) -> Measured:
    """Before and after."""
    ratios = [drift_ratio(EARLIER), drift_ratio(LATER)]
    told = (f"at {x:g} of it: {evidence.by_depth(r)}" for x, r in zip((EARLIER, LATER), ratios, strict=True))
    runs, controls = (np.concatenate([each(r, g) for r in ratios]) for g in (evidence.learned, evidence.control))
    return Measured(
        f"drift at emergence / {'; / '.join(told)}",
        runs,
        controls,
        f"{len(evidence.learned)} against {len(evidence.control)}",
    )


def wait(steps: np.ndarray, values: np.ndarray, event: float) -> float:
    """How long after an event the next evaluation comes, if they are spread evenly over the movement of a curve.

    As a share of the event's step, mean over BUDGETS. In hindsight: the whole movement is known. NaN without an event.
    """
    if not np.isfinite(event):
        return np.nan
    moved = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(values)))))
    waits = []
    for budget in BUDGETS:
        at = np.interp(np.arange(1, budget + 1) / budget * moved[-1], moved, steps)
        waits.append(at[at >= event][0] - event)
    return float(np.mean(waits) / event)


def timed(evidence: Seen) -> Measured:
    """Evaluations spread over the movement of the rank, of the loss, and over steps."""

    def waits(study: Emergence) -> tuple[float, float, float]:
        loss = smooth(study.run, "loss")
        even = (study.steps, study.steps.astype(float))
        curves = (study.rank("qk", REMOVED), (loss.index.to_numpy(), loss.to_numpy()), even)
        rank, by_loss, evenly = (wait(*one, emergence(study.run)) for one in curves)
        return rank, by_loss, evenly

    found = np.array([waits(s) for s in evidence.learned])
    names = ("marginalized QK rank", "loss", "steps")
    told = "; ".join(f"the {name} {spread(column, 3)}" for name, column in zip(names, found.T, strict=True))
    text = f"wait for the next evaluation after emergence / its step, {BUDGETS[0]} - {BUDGETS[-1]} evaluations spread evenly over {told}"
    return Measured(text, (found[:, 0] < found[:, 1:].min(1)).astype(float))
