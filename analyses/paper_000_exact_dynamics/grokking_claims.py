"""What section 4 of paper 000 claims of grokking, each with runs that only learn by heart as controls.

Controls are random labels, and where weight decay is not itself what is asked, weight decay 0. They are read off at the
mean times of the runs that grok.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd

import probes
from analyses.paper_000_exact_dynamics.grokking_study import Grokking, autocorrelation, from_top, understood
from analyses.paper_000_exact_dynamics.mode_reach import reach_claims
from analyses.tools.claims import Claim, Measured
from analyses.tools.rules import AboveControls, Apart, Close, Every, Together
from analyses.tools.study import REMOVED, cliff, each, halfway_down, metric, nearest_peak, notch
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, seen, spread

Number = Callable[[Grokking], float]
RANDOM, UNDECAYED = "random labels", "weight decay 0"
ENDS = ("1.1 x", "1.3 x", "run's end")


@dataclass(frozen=True)
class Seen:
    """The runs by kind, and the modes of each run by name of its group."""

    studies: dict[str, list[Grokking]]
    modes: dict[str, list[pd.DataFrame]]

    @property
    def grokking(self) -> list[Grokking]:
        """The runs."""
        return self.studies["grokking"]

    @property
    def controls(self) -> list[Grokking]:
        """Those that only learn by heart."""
        return self.studies[RANDOM] + self.studies[UNDECAYED]

    @property
    def groups(self) -> list[str]:
        """The name of the runs that learn."""
        return ["grokking"]

    @cached_property
    def drop(self) -> float:
        """When the test loss drops, against 99 % test accuracy, mean over runs: where controls are read off."""
        return float(np.mean(each(lambda s: s.test_drop / s.anchor, self.grokking)))

    def dropped(self, study: Grokking) -> float:
        """The step of the test drop; of a control, the usual one."""
        return study.test_drop if study in self.grokking else self.drop * study.anchor

    def by_kind(self, compute: Number, digits: int = 2, scale: float = 1.0) -> str:
        """A number of every run, in one sentence."""
        return "; ".join(f"{name} {spread(scale * each(compute, g), digits)}" for name, g in self.studies.items())

    def against(self, text: str, compute: Number, controls: list[Grokking]) -> Measured:
        """Runs against controls."""
        return Measured(text, each(compute, self.grokking), each(compute, controls))


def delay(evidence: Seen) -> Measured:
    """How much later test accuracy comes than training accuracy; a control never has it."""

    def ratio(study: Grokking) -> float:
        return understood(study.run) / study.learned

    def best(study: Grokking) -> float:
        return 100 * float(metric(study.run, "test_accuracy").max())

    ratios = each(ratio, evidence.grokking)
    text = (
        f"step of 99 % test accuracy / of 99 % training accuracy: {spread(ratios, 1)} (smallest {np.nanmin(ratios):.1f}); best test accuracy "
        f"in %: {evidence.by_kind(best, 1)}"
    )
    return evidence.against(text, ratio, evidence.controls)


def sighted(what: str, find: Callable[[Seen], Number]) -> Callable[[Seen], Measured]:
    """Whether something is seen near the transition (1), and where: find gives its step as a ratio, NaN if none."""

    def measure(evidence: Seen) -> Measured:
        number = cache(find(evidence))
        where = "; ".join(f"{name} {seen(each(number, group))}" for name, group in evidence.studies.items())
        return evidence.against(f"{what}: {where}", lambda s: float(np.isfinite(number(s))), evidence.controls)

    return measure


def cliff_of(evidence: Seen) -> Number:
    """A cliff of the test loss."""
    return lambda s: cliff(s.test_loss, evidence.drop * s.anchor)


def bend_of(evidence: Seen) -> Number:
    """A peak of the norm curvature, on one scale for all."""
    scale = float(np.median([np.ptp(s.norm_curvature()[1]) for s in evidence.grokking]))
    return lambda s: nearest_peak(*s.norm_curvature(), s.anchor, scale)


def correlation_of(loss: Callable[[Grokking], pd.Series]) -> Callable[[Seen], Number]:
    """A peak of the curvature of a loss's autocorrelation."""
    return lambda e: lambda s: nearest_peak(*autocorrelation(loss(s)), e.drop * s.anchor, scale=1.0)


def rank_falls(evidence: Seen) -> Measured:
    """The OV rank at the test drop and at the end, below that of random labels: minus the rank."""

    def at_drop(study: Grokking) -> float:
        return study.at(study.rank("ov")[1], evidence.dropped(study))

    def at_end(study: Grokking) -> float:
        return float(study.rank("ov")[1][-1])

    text = f"at the test drop: {evidence.by_kind(at_drop)}; at the end: {evidence.by_kind(at_end)}"
    runs, controls = (
        -np.concatenate([each(at_drop, group), each(at_end, group)])
        for group in (evidence.grokking, evidence.studies[RANDOM])
    )
    return Measured(text, runs, controls, _n(evidence))


def halfway(end: str) -> Number:
    """When the OV subspace is halfway to that at the end chosen."""
    return lambda s: halfway_down(*s.distance(end))


def settles_late(evidence: Seen) -> Measured:
    """Against the step of 99 % training accuracy, by what is taken as the end."""

    def late(end: str) -> Number:
        return lambda s: halfway(end)(s) / s.learned

    told = "; ".join(f"{end}: {evidence.by_kind(late(end), 1)}" for end in ENDS)
    runs, controls = (
        np.concatenate([each(late(end), group) for end in ENDS])
        for group in (evidence.grokking, evidence.studies[RANDOM])
    )
    text = f"half-time of the distance / step of 99 % training accuracy, by what is taken as the end: {told}"
    return Measured(text, runs, controls, _n(evidence))


def settles_then(evidence: Seen) -> Measured:
    """Against the test drop, by what is taken as the end."""
    ratios = {end: each(lambda s, end=end: halfway(end)(s) / s.test_drop, evidence.grokking) for end in ENDS}
    told = "; ".join(f"{end}: {spread(values, 2)}" for end, values in ratios.items())
    text = f"half-time of the distance / half-drop of the test loss, by what is taken as the end: {told}"
    return Measured(text, np.concatenate([*ratios.values()]))


def still_moving(evidence: Seen) -> Measured:
    """Drift at the transition against drift halfway to it."""

    def slowing(study: Grokking) -> float:
        steps, drift = study.drift()
        before, during = (np.interp(x * study.anchor, steps, drift) for x in (0.5, 1.0))
        return float(during / before)

    text = f"drift at the step of 99 % test accuracy / at half of it: {evidence.by_kind(slowing)}"
    return evidence.against(text, slowing, evidence.controls)


def magnitudes_after(evidence: Seen) -> Measured:
    """Whether the norm of OV falls after its subspace has settled."""

    def after(study: Grokking) -> float:
        norm = study.norm("ov")
        top = int(norm.argmax())
        if top >= len(norm) - 2:
            return np.nan
        return probes.half_time(norm[top:], study.steps[top:]) / halfway("run's end")(study)

    ratios = each(after, evidence.grokking)
    return Measured(
        f"half-time of the fall of ||OV|| / of the subspace distance: {spread(ratios, 2)}", (ratios > 1).astype(float)
    )


def deepest_notch(evidence: Seen) -> Measured:
    """The sharpest V of the OV rank at the test drop, of k = 0 .. 4."""

    def depth(study: Grokking) -> float:
        return max(notch(*study.rank("ov", k), evidence.dropped(study))[0] for k in range(REMOVED + 1))

    text = f"deepest of k = 0 .. {REMOVED} at the test drop, in %: {evidence.by_kind(depth, 1, 100)}"
    return evidence.against(text, depth, evidence.controls)


def fourier(evidence: Seen) -> Measured:
    """Whether what the key frequencies alone compute is right before the test loss drops."""

    def ratio(study: Grokking) -> float:
        return probes.half_time(from_top(pd.Series(study.progress["restricted_loss"]))) / study.test_drop

    def frequencies(study: Grokking) -> float:
        return float(study.progress["frequencies"].iloc[-1])

    ratios = each(ratio, evidence.grokking)
    keys = ", ".join(str(len(s.progress.attrs["key_frequencies"])) for s in evidence.grokking)
    text = (
        f"half-drop of the restricted loss / of the test loss: {spread(ratios, 2)}; frequencies in the embedding at the end "
        f"{evidence.by_kind(frequencies, 1)}; key frequencies by seed {keys}"
    )
    return Measured(text, (ratios < 1).astype(float))


def _n(evidence: Seen) -> str:
    return f"{len(evidence.grokking)} against {len(evidence.studies[RANDOM])}"


_SEEN = Apart(sightings=True)

CLAIMS: list[Claim[Seen]] = [
    Claim(
        "training loss drops early, test loss late",
        "Figs 3B, 7A",
        delay,
        Apart(5.0),
        "a control that never generalises counts as not delayed",
    ),
    Claim(
        "the loss has plateaus and cliffs like the linear model's",
        "Fig 3B",
        sighted("find_transitions reports a cliff of the test loss within 30 % of its half-drop", cliff_of),
        _SEEN,
        "of the test loss: the training loss is over long before. A slide is not a cliff",
    ),
    Claim(
        "OV effective rank shows the delayed phase",
        "Fig 7B",
        rank_falls,
        Together([AboveControls(), AboveControls()], ["at the test drop", "at the end"]),
        "below random labels, whose rank falls under weight decay as well; judged by minus the rank",
    ),
    Claim(
        "the OV subspace settles long after the training loss",
        "Fig 7C",
        settles_late,
        Together([AboveControls()] * len(ENDS), [f"end {end}" for end in ENDS]),
        "later than with random labels, whatever is taken as the end",
    ),
    Claim(
        "it settles when the test loss drops",
        "Fig 7C",
        settles_then,
        Together([Close(0.15, 0.3)] * len(ENDS), [f"end {end}" for end in ENDS]),
        "the half-time moves with where training is stopped",
    ),
    Claim(
        "(ours) the OV row space is still moving when the test loss drops",
        "beside Fig 7C",
        still_moving,
        AboveControls(),
        "needs no end",
    ),
    Claim(
        "directions first, magnitudes after",
        "section 4",
        magnitudes_after,
        Every(),
        {
            HOLDS: "the norm is the later of the two in every run",
            IN_PART: "the norm is the later of the two in some runs",
            FAILS: "the norm has fallen before the subspace is halfway to where it ends",
        },
    ),
    Claim(
        "peaks of the norm curvature mark the transition",
        "section 4, Fig 4B",
        sighted("a peak within a factor 1.5 of 99 % test accuracy", bend_of),
        _SEEN,
        "only a peak that the controls lack is a sign",
    ),
    Claim(
        "peaks of the loss autocorrelation's curvature mark the transition",
        "section 4, Fig 4A",
        sighted("a peak within a factor 1.5 of the test drop", correlation_of(lambda s: metric(s.run, "loss"))),
        _SEEN,
        "of the training loss, which is what a trainer has; it is over by then",
    ),
    Claim(
        "(ours) those of the test loss do",
        "beside Fig 4A",
        sighted("a peak within a factor 1.5 of the test drop", correlation_of(lambda s: s.test_loss)),
        _SEEN,
        "a test loss that only rises has a peak of its own, at a lag set by the length of the run",
    ),
    Claim(
        "dips of the marginalized OV rank mark the transition",
        "section 4",
        deepest_notch,
        Apart(0.05, " %", 100),
        "by the rule that is used for attention-only models",
    ),
    Claim(
        "(ours) the Fourier circuit is there before the test loss shows it",
        "Nanda et al. 2023",
        fourier,
        Every(),
        "by what the network computes with nothing but the waves of its key frequencies",
    ),
    *reach_claims(),
]
