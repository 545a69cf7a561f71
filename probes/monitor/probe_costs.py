"""Cheap probes first: what each costs is measured, and the dear ones are left out where there is no time for them.

Probes of the catalogue that read the same share most of their work (one spectrum, one comparison with the weights
before) and are in or out together; a probe of somebody's own stands for itself. Of these groups the one that is
cheapest per probe belongs to every measurement. Each other one has an account of its own: it is measured where the
budget affords it too, the cheaper ones first, and whatever the budget once per factor DEAR_FLOOR in steps. Rows that
are left out say so.
"""

from collections.abc import Iterator, Mapping, Sequence

from probes.measuring.catalogue import PROBES, Probe
from probes.monitor.budget import DEAR_FLOOR, Budget
from probes.monitor.spending_notes import affords


class ProbeCosts:
    """Which probes belong to every measurement, and what the others cost."""

    def __init__(self, probes: Sequence[Probe], budget: Budget) -> None:
        self.budget = budget
        self._groups: dict[str, list[str]] = {}
        for probe in probes:
            shared = probe.reads if probe.name in PROBES else probe.name
            self._groups.setdefault(shared, []).append(probe.name)
        self.base: str | None = None
        """The group that is always measured, as soon as it is known which is the cheapest."""

    @property
    def floors(self) -> dict[str, float]:
        """Of the groups that have accounts of their own."""
        return {} if self.base is None else {self.kind(group): DEAR_FLOOR for group in self._extra()}

    def kind(self, group: str) -> str:
        """What a group is called in the account."""
        return f"measurement of {', '.join(self._groups[group])}"

    def chosen(self, step: int, besides: float) -> set[str] | None:
        """The names of the probes that are measured at a step; None: all, as long as it is not known what they cost.

        besides is what the measurement costs without any that can be left out.
        """
        if self.base is None:
            return None
        found = set(self._groups[self.base])
        for group in self._extra():
            kind = self.kind(group)
            if affords(self.budget, kind, step, DEAR_FLOOR, besides=besides):
                found.update(self._groups[group])
                besides += self.budget.cost_of(kind)
        return found

    def note(self, step: int, cost: Mapping[str, float], measured: set[str] | None, per_second: float) -> float:
        """Take in what the probes cost this time; the seconds of the groups that have accounts of their own.

        cost is processor time; per_second are seconds of the budget's clock for each of it.
        """
        if self.base is None:
            per_probe = {
                group: sum(cost[name] for name in names) / len(names)
                for group, names in self._groups.items()
                if all(name in cost for name in names)
            }
            if len(per_probe) < len(self._groups):
                return 0.0
            self.base = min(per_probe, key=lambda group: per_probe[group])
        seconds = 0.0
        for group in self._groups:
            if group != self.base and (measured is None or measured.issuperset(self._groups[group])):
                spent = per_second * sum(cost.get(name, 0.0) for name in self._groups[group])
                self.budget.note(self.kind(group), spent, step)
                seconds += spent
        return seconds

    def _extra(self) -> Iterator[str]:
        """The other groups, the cheapest first."""
        return iter(
            sorted(
                (group for group in self._groups if group != self.base),
                key=lambda group: self.budget.cost_of(self.kind(group)) / len(self._groups[group]),
            )
        )
