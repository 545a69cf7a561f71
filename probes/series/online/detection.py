"""Being told of a transition soon after it happens, and seldom of one that does not.

A series is kept in a `Record` and looked at now and then, at steps that grow by a constant ratio. Each look runs the
searches of `find_transitions`, falling and rising, and announces the cliffs, stages, dips and spikes that are new:
below 300 entries the likelihood ratio on the entries themselves, from there on the means over blocks of the recent
part. What cannot wait for a look, a value that is not finite and a loss that diverges, is announced at once
(`alarms.py`).

*False alarms.* alpha is the chance of any false announcement in this series, however long the run. Look k may use up
the share m / ((k + m - 1)(k + m)) of it, m = 30: these shares add up to 1 over endlessly many looks, hardly fall over
the first thirty and then fall as 1 / k^2. The p-value of an event counts the looks in the same way, so that an event
has p < alpha.

*What is recent.* A cliff at step c is judged by what surrounds it, from c / 4 to 2.5 c at most. So after step t nothing
new is learned about cliffs before t / 2.5, and the search needs no entry before t / 10. These are brought to blocks of
one length, because the noise of a mean and its correlation depend on it: 500 to 900 entries whatever the length of the
run. Strengths are fractions of the range of the whole run so far, and drops under 1 % of it are not announced.

What began before the first of them is seen in part, and what is left of a decay looks like a cliff of its own: nothing
before twice the step of the first of them is announced, unless the whole record begins there.

*When it is over.* A transition is announced when its interval and two widths have passed: before that, a drop cannot be
told from the bend of a decay.

*A cliff leads where the series has not been.* What only comes back from a bump, however long, is none: where a test
loss first rises and then falls a little, nothing has been understood.

*What is new.* Later looks see more of a transition and put it elsewhere, or see that it was two. Of what a look finds,
the row nearest to an announced event is that event, and the event is from then on known to be there. Any other row is
the same event if it is within a fifth of its step or within two widths of it, seen from either, and otherwise new.
The kind does not matter: a drop that comes back is announced as a cliff or as a dip, whichever was seen first.

Measured by `python -m benchmarks.online --seeds judging --runs 30`, on seeds used for nothing else, with the defaults
(alpha = .01, 9 kinds of quiet runs, 30 of each):

    nothing happens, every step logged (1000 or 3000)   5 of 270 runs, all of them slow random walks, of which 30 are
    every tenth step of 2000 (200 entries)              none of 270
    120 log-spaced steps of 5000                        none of 270

So the level is kept over all, 5 of 810 (1 and 3 of 810 on the seeds before, which judged earlier searches), but not for
slow random walks under noise: of the tuning seeds 2 of 40 raised an alarm. Before changes in few values were judged by
the noise around them (`local_noise.py`) it was 11 of 810 on the tuning seeds and 15 on others: noise in proportion, and
random walks seen at log-spaced steps. With fewer than 40 entries nothing is looked for. Delays on the same seeds:

    a fall or a rise by 1, noise .02, at 60 to 2000     all announced, after .25 to .28 of the step, nine in ten by .39
    a fall, every tenth step                            30 of 30, after .54 of the step, nine in ten within 3.7
    NaN; a loss that explodes                           all announced: after .001 and .02 of the step
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from probes.series.online.alarms import Alarm, Alarms
from probes.series.online.local_noise import judged_where_it_is
from probes.series.online.record import Entries, Record
from probes.series.online.screen import search_if_promising
from probes.series.transitions.constants import FEWEST, SHORTEST, SMALLEST_DROP
from probes.series.transitions.find import without_spikes
from probes.series.transitions.short import search_values
from probes.series.transitions.transition import Transition
from probes.threads import one_thread

Merged = Float64[np.ndarray, " merged"]

KINDS = ("cliff", "stage", "dip", "spike")
"""What a look can announce."""
ALARMS = ("divergence", "not finite")
"""What is announced without a look."""

FEWEST_ENTRIES = 40
"""Before the first look; see the measured rates above for why not fewer."""

BY_BLOCKS = 300
"""Entries from which on a look is by blocks: with 251 to 299 of them blocks raised an alarm in 3 of 20 kinks."""

SHORT_RATIO = 1.25
"""Of the entries between two looks at a record shorter than that: each is dear, and sees a fifth more."""

MOST_TESTED = 125
"""Entries of a short record: the time that the test takes grows with their square."""

_LEVEL_LOOKS = 30
_RECENT = 0.1  # of the last step
_BEFORE = 2.0  # the earliest transition over the first step that the search sees
_CLOSE = 0.2
_WIDTHS = 2.0


@dataclass(frozen=True, kw_only=True)
class Event(Transition):
    """A transition of `metric`, found while the run was still going on.

    step, low and high say where it happened as far as was known when it was announced, after `detected_at` updates;
    width how long it took, in steps (see `find_transitions`, which also says what half-drop + 1.1 width is).
    """

    metric: str
    detected_at: int

    @property
    def delay(self) -> float:
        """Updates between the transition and its announcement."""
        return self.detected_at - self.step

    def __str__(self) -> str:
        """One line for a log: kind, metric, place with its interval, when it was known, p-value."""
        if self.kind in ALARMS:
            what = "is not finite" if self.kind == "not finite" else "diverges"
            return f"{self.metric} {what} from step {self.step:.0f} on, detected at {self.detected_at}"
        kind = f"{self.kind} (rise)" if self.direction == "rise" and self.kind != "spike" else self.kind
        return (
            f"{kind} of {self.metric} at step {self.step:.0f} [{self.low:.0f}, {self.high:.0f}], "
            f"detected at {self.detected_at}, p = {self.p_value:.1g}"
        )


class Detector:
    """Announces the transitions of one growing series: `add` every value, and `look` wherever `is_due` says so.

    What `add` returns is announced at once: see `alarms.py`.

    metric         name of the series, which its events carry
    alpha          chance of any false announcement in this series, however long the run
    look_ratio     looks are at steps that grow by this
    fewest         entries of the record before the first look
    kinds          what looks announce: some of KINDS; all of them count in alpha, whichever are asked for
    diverges       whether leaving upwards for good is announced too: of a loss, it is the end of it
    interventions  steps at which something is changed by hand, so that a drop there is no news; see `expect`

    `events` holds what was announced so far, `record` the series.
    """

    def __init__(
        self,
        metric: str,
        alpha: float = 0.01,
        look_ratio: float = 1.1,
        *,
        fewest: int = FEWEST_ENTRIES,
        kinds: Sequence[str] = KINDS,
        diverges: bool = True,
        interventions: Sequence[float] = (),
    ) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}: a false-alarm rate between 0 and 1 is expected")
        if not look_ratio > 1:
            raise ValueError(f"look_ratio is {look_ratio}: steps of looks grow by it, so it must be above 1")
        if not kinds or set(kinds) - set(KINDS):
            raise ValueError(f"kinds is {tuple(kinds)}: some of {', '.join(KINDS)} are expected")
        if fewest < FEWEST:
            raise ValueError(f"fewest is {fewest}: below {FEWEST} entries the noise cannot be told from the curve")
        self.metric, self.alpha, self.look_ratio, self.fewest = metric, alpha, look_ratio, fewest
        self.kinds = tuple(kinds)
        self.record = Record()
        self.alarms = Alarms(diverges=diverges)
        self.events: list[Event] = []
        self._interventions = list(interventions)
        self._known: list[Transition] = []
        self._looks, self._next, self._next_entries, self._seen = 0, -np.inf, fewest, 0
        self._lowest, self._highest = np.inf, -np.inf

    def add(self, step: float, value: float) -> Event | None:
        """Take in the value at a later step than the last, and say if it is one that cannot wait for a look.

        One that is not finite is counted and left out.
        """
        self.record.add(step, value)
        alarm = self.alarms.add(step, value)
        return None if alarm is None else self._raised(alarm, step)

    def extend(self, steps: Sequence[float], values: Sequence[float]) -> list[Event]:
        """Take in several, one after the other; what cannot wait for a look."""
        self.record.extend(steps, values)
        return [self._raised(alarm, step) for alarm, step in self.alarms.extend(steps, values)]

    def _raised(self, alarm: Alarm, step: float) -> Event:
        """The event of an alarm that came with the value at a step."""
        at, p_value = float(alarm.step), 0.0 if alarm.kind == "not finite" else float("nan")
        row = Transition(at, at, float(step), alarm.kind, alarm.direction, float("nan"), p_value, 0.0)
        if alarm.kind == "divergence":
            self._known.append(row)  # a look would find the climb as a cliff
        event = self._event(row, int(step) + 1)
        self.events.append(event)
        return event

    def expect(self, step: float) -> None:
        """From now on, do not announce a transition at this step: you are about to change the learning rate, say."""
        self._interventions.append(step)

    @property
    def looks(self) -> int:
        """How many looks were made so far."""
        return self._looks

    @property
    def is_ready(self) -> bool:
        """Whether there are enough entries for another look: of a short record, a quarter more than at the last."""
        return self.is_ready_with(0)

    def is_ready_with(self, more: int) -> bool:
        """The same once it has so many more entries."""
        return len(self.record) + more >= min(BY_BLOCKS, self._next_entries)

    @property
    def has_news(self) -> bool:
        """Whether there are enough entries for a look at all, and some since the last."""
        return len(self.record) >= max(self.fewest, self._seen + 1)

    @property
    def is_short(self) -> bool:
        """Whether a look now would test the entries one by one, for want of many recent ones."""
        return self.is_short_with(0)

    def is_short_with(self, more: int) -> bool:
        """The same once it has so many more entries."""
        return min(len(self.record), self.record.count_of_recent(_RECENT)) + more < BY_BLOCKS

    def is_due(self, step: float) -> bool:
        """Whether it is time for a look: enough entries, and the step has grown by look_ratio since the last."""
        return step >= self._next and self.is_ready

    def look(self, step: int) -> list[Event]:
        """What is there now and was not announced before, ordered by step."""
        self._next = step * self.look_ratio
        self._seen = len(self.record)
        self._next_entries = max(self.fewest, int(np.ceil(SHORT_RATIO * self._seen)))
        steps, values, is_short = self._searched()
        if len(steps) < FEWEST or steps[-1] < SHORTEST * steps[0]:
            return []
        self._looks += 1
        calm = without_spikes(values)
        low, high = float(calm.min()), float(calm.max())
        self._lowest, self._highest = min(low, self._lowest), max(high, self._highest)
        if low == high:
            return []
        share = share_of_alpha(self._looks)
        earliest = _BEFORE * steps[0] if steps[0] > self.record.steps[0] else 0.0
        with one_thread():  # beside training, which uses all cores
            found = self._search(values if is_short else calm, steps, self.alpha * share, is_short)
        of_range = (high - low) / (self._highest - self._lowest)
        rows = [
            replace(row, strength=row.strength * of_range, p_value=min(1.0, row.p_value / share))
            for row in found
            if row.kind in self.kinds
            and row.strength * of_range > SMALLEST_DROP
            and row.step >= earliest
            and _extent(row)[1] <= steps[-1]
            and (row.kind in ("dip", "spike") or self._leads_somewhere_new(row))
        ]
        new = [self._event(row, step) for row in self._unknown(rows) if not self._is_expected(row)]
        self.events += new
        return new

    def _searched(self) -> tuple[Entries, Entries, bool]:
        """Steps and values in which this look searches, and whether they are so few that each is tested by itself."""
        if len(self.record) < BY_BLOCKS:
            return self.record.steps, self.record.values, True
        steps, values = self.record.recent(_RECENT)
        if len(steps) >= BY_BLOCKS:
            return steps, values, False
        return self.record.steps[-BY_BLOCKS:], self.record.values[-BY_BLOCKS:], True  # log-spaced: few are recent

    def _search(self, values: Entries, steps: Entries, alpha: float, is_short: bool) -> list[Transition]:
        """What `find_transitions` would find in these entries."""
        if is_short:
            tested = _merged(values, steps)
            with np.errstate(over="ignore"):  # of a wild value: p = 1
                rows = search_values(*tested, alpha, is_quick=True).rows
            judged = (judged_where_it_is(row, _extent(row), *tested) for row in rows)
            return [row for row in judged if row.p_value < alpha]
        known = [row for row in self._known if row.kind not in ALARMS]
        return search_if_promising(values, steps, alpha, known)

    def _unknown(self, rows: list[Transition]) -> list[Transition]:
        """What is not a known transition; both are known from then on, where they were found now."""
        rest = list(rows)
        for i, place in enumerate(self._known):
            same = [row for row in rest if _is_same(row, place)]
            if same:
                self._known[i] = min(same, key=lambda row: abs(row.step - place.step))
                rest.remove(self._known[i])
        new: list[Transition] = []
        for row in rest:
            if not any(_is_same(row, place) for place in self._known):
                new.append(row)
                self._known.append(row)
        return new

    def _leads_somewhere_new(self, row: Transition) -> bool:
        """Whether the mean since a fall lies below that of every stretch of (about) as many entries before it.

        Since a rise, above.
        """
        steps, values = self.record.steps, self.record.values
        values = values if row.direction == "fall" else -values
        low, high = _extent(row)
        before, after = values[steps < low], values[steps > high]
        if not len(before) or not len(after):
            return True
        stretches = np.array_split(before, -(-len(before) // len(after)))
        return bool(after.mean() < min(stretch.mean() for stretch in stretches))

    def _is_expected(self, row: Transition) -> bool:
        return any(_within(step, row) for step in self._interventions)

    def _event(self, row: Transition, step: int) -> Event:
        numbers = {name: float(getattr(row, name)) for name in ("step", "low", "high", "strength", "p_value", "width")}
        return Event(kind=row.kind, direction=row.direction, metric=self.metric, detected_at=step, **numbers)


def _merged(values: Entries, steps: Entries) -> tuple[Merged, Merged]:
    """At most so many entries as can be tested quickly: means of two or three neighbours where there are more."""
    size = -(-len(steps) // MOST_TESTED)
    first = len(steps) % size  # the oldest few go, so that no mean is over fewer than the others
    means = [of[first:].reshape(-1, size).mean(1) for of in (values, steps)]
    return means[0], means[1]


def share_of_alpha(look: int) -> float:
    """What look 1, 2, 3 ... may use up of the chance of a false alarm; all of them together, 1."""
    return _LEVEL_LOOKS / ((look + _LEVEL_LOOKS - 1) * (look + _LEVEL_LOOKS))


def _is_same(row: Transition, other: Transition) -> bool:
    close = abs(row.step - other.step) < _CLOSE * min(row.step, other.step)
    return bool(close or _within(row.step, other) or _within(other.step, row))


def _within(step: float, row: Transition) -> bool:
    low, high = _extent(row)
    return bool(low <= step <= high)


def _extent(row: Transition) -> tuple[float, float]:
    """Where a transition takes place: its interval, and two widths either side of its middle."""
    reach = _WIDTHS * row.width
    return float(min(row.low, row.step - reach)), float(max(row.high, row.step + reach))
