"""The scalars of a run as they come: kept in bounded memory, and some of them searched for transitions.

Which ones is said as soon as it is known, and why not the others: that nothing is announced must not be taken for
nothing having happened. The means of probes over all heads are among them, by names such as "qk.effective_rank"; these
are searched only where `detect_in` names them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from probes.monitor.roles import FEWEST, role, varies_like_a_loss
from probes.series.online import Detector, Event, OnlineAutocorrelation, Record

logger = logging.getLogger("probes.monitor")

_MOST_MEANS = 64
"""Measurements whose means over all heads wait to be worked out."""


class TrackedScalars:
    """Every scalar is recorded, and transitions are detected in some.

    detect_in   patterns of their names ("*loss"); None: losses and scores by their names (`roles`), and where there is
                none among the scalars, what varies like one
    """

    def __init__(self, detect_in: str | Sequence[str] | None, alpha: float, interventions: Sequence[float]) -> None:
        self.patterns = (detect_in,) if isinstance(detect_in, str) else None if detect_in is None else tuple(detect_in)
        self.alpha, self.interventions = alpha, tuple(interventions)
        self._records: dict[str, Record] = {}
        self._means: list[tuple[int, Callable[[], Mapping[str, float]]]] = []
        self._mean_step = -1
        self.detectors: dict[str, Detector] = {}
        self.autocorrelations: dict[str, OnlineAutocorrelation] = {}
        self._scalars: list[str] = []
        self._undecided: list[str] = []
        self._alarms: list[Event] = []
        self._told: set[str] = set()

    @property
    def records(self) -> dict[str, Record]:
        """Every scalar and every mean of a probe, by name."""
        means, self._means = self._means, []
        for step, of_probes in means:
            for name, value in of_probes().items():
                if name not in self._records:
                    self._begin(name, is_probe=True)
                if (self._records[name].last or -1) < step:  # else known from before a kill
                    self._records[name].add(step, value)
        return self._records

    def add_means(self, step: int, means: Callable[[], Mapping[str, float]]) -> None:
        """Means of probes over all heads: where none of them is watched, they are worked out when they are needed."""
        if self.patterns is not None or step <= self._mean_step:
            self.add(step, means(), are_probes=True)
            return
        self._mean_step = step
        self._means.append((step, means))
        if len(self._means) > _MOST_MEANS:
            _ = self.records

    def add(self, step: int, scalars: Mapping[str, float], *, are_probes: bool = False) -> None:
        """Scalars of the weights after `step` updates, or means of probes over all heads."""
        for name, value in scalars.items():
            if are_probes and name in self.records and name not in self.detectors:
                self._records[name].add(step, value)
            else:
                self.extend(name, [step], [value], is_probe=are_probes)
        if not are_probes:
            self.decide()

    def extend(self, name: str, steps: Sequence[int], values: Sequence[float], *, is_probe: bool = False) -> None:
        """One scalar at several steps; to be followed by `decide`."""
        if name not in self._records:
            self._begin(name, is_probe)
        if name in self.detectors:
            self._alarms += self.detectors[name].extend(steps, values)
            self.autocorrelations[name].extend(values)
        else:
            self._records[name].extend(steps, values)

    @property
    def has_alarms(self) -> bool:
        """Whether something waits to be announced that cannot wait for the next look."""
        return bool(self._alarms)

    def take_alarms(self) -> list[Event]:
        """What cannot wait for the next look, once."""
        taken, self._alarms = self._alarms, []
        return taken

    def clear(self) -> None:
        """Forget all of them."""
        for kept in (self._records, self.detectors, self.autocorrelations):
            kept.clear()
        for listed in (self._scalars, self._undecided, self._alarms, self._means):
            listed.clear()
        self._mean_step = -1

    def begin_again(self, name: str, is_probe: bool, *, watched: bool) -> None:
        """Make the record of a scalar that was there before a kill, and watch it if it was watched and still may be."""
        self._begin(name, is_probe)
        if watched and name not in self.detectors and self.patterns is None:
            self._undecided = [other for other in self._undecided if other != name]
            self._watch(name, diverges=False)

    def forget_alarms(self, announced: Sequence[Event]) -> None:
        """Of what waits to be announced, drop what was announced before a kill."""
        known = {(event.metric, event.kind, event.step) for event in announced}
        self._alarms = [one for one in self._alarms if (one.metric, one.kind, one.step) not in known]

    def ready(self, *, last: bool = False) -> dict[str, Detector]:
        """The detectors of series that are long enough to be looked at, those first that were looked at least.

        At the end all that have enough entries for a first look, and some that no look has seen.
        """
        ready = [(name, one) for name, one in self.detectors.items() if (one.has_news if last else one.is_ready)]
        return dict(sorted(ready, key=lambda pair: pair[1].looks))

    def ready_with(self, more: int) -> list[Detector]:
        """Those to look at once every series has so many more values."""
        return [one for one in self.detectors.values() if one.is_ready_with(more)]

    def tell(self) -> None:
        """Say what is watched and what is not, as far as it was not said before."""
        new = [name for name in dict.fromkeys([*self._scalars, *self.detectors]) if name not in self._told]
        if not new or any(name in self._undecided for name in new):
            return
        self._told.update(new)
        watched = [f"{name} ({self._reason(name)})" for name in new if name in self.detectors]
        others = [name for name in new if name not in self.detectors]
        said = [f"watching {', '.join(watched)} for transitions, alpha = {self.alpha:g} each"] if watched else []
        if not self.detectors:
            said.append("no scalar is watched for transitions")
        if others:
            why = "not called like a loss or a score" if self.patterns is None else "not named by detect_in"
            said.append(f"not watched: {', '.join(others)} ({why}; detect_in=[...] names others)")
        logger.warning("%s", "; ".join(said))

    def tell_end(self, done: int) -> None:
        """Say, at the end, where nothing could have been announced, and why."""
        self._undecided.clear()
        self.tell()
        if done and not self._scalars:
            logger.warning(
                "no scalar came in %d updates, so that no transition could be seen: monitor.step(loss=loss) hands one "
                "over",
                done,
            )
        short = [(name, one) for name, one in self.detectors.items() if one.looks == 0]
        if done and short:
            counts = ", ".join(f"{name} has {len(one.record)}" for name, one in short)
            logger.warning(
                "never looked at: %s; a first look takes %d values and time for it within the budget. That nothing was "
                "announced of these means nothing",
                counts,
                short[0][1].fewest,
            )

    def _begin(self, name: str, is_probe: bool) -> None:
        """Make the record of a new scalar, and what detects transitions in it if it is to be searched."""
        if not is_probe:
            self._scalars.append(name)
        self._records[name] = Record()
        if self.patterns is not None:
            is_watched = any(fnmatchcase(name, pattern) for pattern in self.patterns)
        else:
            is_watched = not is_probe and role(name) in ("loss", "score")
            if not is_probe and role(name) == "unknown":
                self._undecided.append(name)
        if is_watched:
            self._watch(name, diverges=not is_probe and role(name) != "score")

    def _watch(self, name: str, *, diverges: bool) -> None:
        """From now on, detect transitions in a scalar; what is recorded of it already counts."""
        before = self._records[name]
        detector = Detector(name, self.alpha, diverges=diverges, interventions=self.interventions)
        online = OnlineAutocorrelation()
        for step, value in zip(before.steps.tolist(), before.values.tolist(), strict=True):
            detector.add(step, value)
            online.add(value)
        self.detectors[name], self.autocorrelations[name], self._records[name] = detector, online, detector.record

    def decide(self) -> None:
        """Of scalars whose names say nothing, watch those that vary like a loss, unless one is called so."""
        if not self._undecided:
            return
        if self.detectors:
            self._undecided.clear()
            return
        ripe = [name for name in self._undecided if len(self._records[name]) >= FEWEST]
        for name in ripe:
            self._undecided.remove(name)
            if varies_like_a_loss(self._records[name].values):
                self._watch(name, diverges=False)

    def _reason(self, name: str) -> str:
        """Why a scalar is watched."""
        if self.patterns is not None:
            return "named by detect_in"
        found = role(name)
        return f"a {found} by its name" if found in ("loss", "score") else "it varies like one, and none is called so"
