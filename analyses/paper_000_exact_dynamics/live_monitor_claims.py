"""What is asked of a monitor at its default budget: to tell of what happens, where, in time, and of nothing else.

The rules were fixed on runs with the budget lifted (every look was made, on a machine of any speed): 15 of 15 modes at
1.2 to 2.4 t*, 3 of 3 test losses at 1.6 to 1.7 of their half-time. They are put here to runs at the default budget of
1 %, where most looks are left out for a model this small.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

import probes
from analyses.tools.claims import Claim, Measured
from analyses.tools.rules import Apart, AtMost, Close, Every
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART

NEAR = 1.5
"""An announcement belongs to what happened within this factor of its step."""
LINEAR, ATTENTION, ONE_LAYER = "linear head", "attention-only", "one layer"
MODULAR, RANDOM = "modular addition", "random labels"
WATCHED = {LINEAR: "loss", ATTENTION: "accuracy_repeated", MODULAR: "test_loss"}
LATEST = {LINEAR: 2.5, ATTENTION: 2.0, MODULAR: 2.0}
"""By when it has to be announced, over the step at which it happened."""
_PLACE = "section 5"


@dataclass(frozen=True)
class Watched:
    """One run, and what was announced while it was trained."""

    losses: dict[str, pd.Series]
    events: list[probes.Event]
    true: dict[str, list[float]]
    """By series, the steps at which something really happened."""
    failure: str | None

    def told(self, series: str) -> list[probes.Event]:
        """What was announced of one series in the direction of learning; a test loss also climbs, which is no stage."""
        direction = "rise" if "accuracy" in series else "fall"
        return [event for event in self.events if event.metric == series and event.direction == direction]

    def near(self, series: str, step: float) -> probes.Event | None:
        """The announcement nearest to a step, if there is one within a factor of NEAR."""
        close = [event for event in self.told(series) if abs(np.log(event.step / step)) < np.log(NEAR)]
        return min(close, key=lambda event: abs(np.log(event.step / step)), default=None)

    def pairs(self, series: str) -> list[tuple[float, probes.Event | None]]:
        """Each true step with the announcement nearest to it."""
        return [(true, self.near(series, true)) for true in self.true.get(series, [])]


Runs = Mapping[str, list[Watched]]


def _pairs(runs: Runs, kind: str) -> list[tuple[float, probes.Event | None]]:
    return [pair for one in runs[kind] for pair in one.pairs(WATCHED[kind])]


def _counted(runs: Runs, kind: str, what: str) -> str:
    return f"{len(_pairs(runs, kind))} {what} of {len(runs[kind])} runs"


def modes_told(runs: Runs) -> Measured:
    """Whether each mode of the linear head was announced."""
    told = np.array([float(event is not None) for _, event in _pairs(runs, LINEAR)])
    return Measured(f"{told.sum():.0f} of {len(told)} announced", told, n=_counted(runs, LINEAR, "modes"))


def in_order(runs: Runs) -> Measured:
    """Whether what was announced of a run came in the order in which it happened."""
    when = [[event.detected_at for _, event in one.pairs("loss") if event] for one in runs[LINEAR]]
    right = np.array([float(steps == sorted(steps)) for steps in when])
    return Measured(f"in {right.sum():.0f} of {len(right)} runs", right)


def besides(runs: Runs) -> Measured:
    """How many announcements of the linear head's loss belong to nothing that happened."""
    extra = [len(one.told("loss")) - sum(event is not None for _, event in one.pairs("loss")) for one in runs[LINEAR]]
    return Measured(f"announcements besides: {sum(extra)} in {len(extra)} runs", np.array(extra, dtype=float))


def places(runs: Runs) -> Measured:
    """Where t* is by the announcement, over where it is."""
    ratios = [(e.step + 1.1 * e.width) / true for true, e in _pairs(runs, LINEAR) if e]
    return Measured(f"half-drop + 1.1 widths at {_spread(ratios)} of t*", np.array(ratios or [np.nan]))


def lateness(kind: str, of: str) -> Callable[[Runs], Measured]:
    """When everything that happened was announced, over when it happened; what was not, never."""

    def measure(runs: Runs) -> Measured:
        late = np.array([event.detected_at / true if event else np.inf for true, event in _pairs(runs, kind)])
        known = late[np.isfinite(late)].tolist()
        missed = f", {len(late) - len(known)} not announced" if len(known) < len(late) else ""
        return Measured(f"announced at {_spread(known)} of {of}{missed}", late, n=_counted(runs, kind, "times"))

    return measure


def told_of(kind: str, control: str) -> Callable[[Runs], Measured]:
    """Whether it was announced in every run; in a control, whether anything was at the usual step of the runs."""

    def measure(runs: Runs) -> Measured:
        series, usual = WATCHED[kind], float(np.median([true for true, _ in _pairs(runs, kind)]))
        here = np.array([float(event is not None) for _, event in _pairs(runs, kind)])
        there = np.array([float(one.near(series, usual) is not None) for one in runs[control]])
        text = f"announced in {here.sum():.0f} of {len(here)} runs, in {there.sum():.0f} of {len(there)} controls ({control})"
        return Measured(text, here, there)

    return measure


def said_in_controls(runs: Runs) -> Measured:
    """How many drops of the test loss were announced where the labels are random, at any step."""
    said = np.array([float(len(one.told("test_loss"))) for one in runs[RANDOM]])
    return Measured(f"{said.sum():.0f} announced in {len(said)} runs", said)


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} - {max(values):.2f})" if values else "(none)"


_IN_TIME = {
    HOLDS: "it is announced when it is over, and the step has then grown by half or so",
    IN_PART: "some are announced late or never: at this budget most looks at a model so small are left out",
    FAILS: "at this budget the looks come too late",
}
_TOLD = {
    HOLDS: "alpha is .01 a series and run",
    IN_PART: "what was not announced was not looked at in time, or not sure enough at alpha .01",
    FAILS: "it is missed, or announced as often where nothing happens",
}

CLAIMS = (
    Claim(
        "(ours) every t* of the linear head is announced",
        _PLACE,
        modes_told,
        Every(in_part=0.5, chance=0.35),  # three announcements strewn over ln t, one within NEAR of a given time
        {**_TOLD, HOLDS: "the loss is half down at about .88 t*"},
    ),
    Claim("(ours) in the order in which they come", _PLACE, in_order, Every(), "a later stage is never told first"),
    Claim("(ours) and nothing else is", _PLACE, besides, AtMost(0.0), "alpha is .01 a run"),
    Claim(
        "(ours) half-drop + 1.1 widths is t*",
        _PLACE,
        places,
        Close(0.05, 0.1),
        "by the announcement alone, which does not see the rest of the run",
    ),
    Claim("(ours) by 2.5 t*", _PLACE, lateness(LINEAR, "t*"), AtMost(LATEST[LINEAR]), _IN_TIME),
    Claim(
        "(ours) the rise of the accuracy is announced when an attention-only model begins to learn in context",
        _PLACE,
        told_of(ATTENTION, ONE_LAYER),
        Apart(sightings=True),
        _TOLD,
    ),
    Claim(
        "(ours) by twice the step at which the accuracy on repeated tokens is half up",
        _PLACE,
        lateness(ATTENTION, "its half-time"),
        AtMost(LATEST[ATTENTION]),
        _IN_TIME,
    ),
    Claim(
        "(ours) the drop of the test loss is announced when modular addition groks",
        _PLACE,
        told_of(MODULAR, RANDOM),
        Apart(sightings=True),
        _TOLD,
    ),
    Claim(
        "(ours) by twice its half-time",
        _PLACE,
        lateness(MODULAR, "its half-time"),
        AtMost(LATEST[MODULAR]),
        _IN_TIME,
    ),
    Claim(
        "(ours) with random labels no drop of the test loss is announced at any step",
        _PLACE,
        said_in_controls,
        AtMost(0.0),
        "the control: it is learned by heart and never understood",
    ),
)
