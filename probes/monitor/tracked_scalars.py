"""The scalars of a run as they come: kept in bounded memory, and some of them searched for transitions.

The means of probes over all heads are among them, by names such as "qk.effective_rank".
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from probes.series.online import Detector, OnlineAutocorrelation, Record


class TrackedScalars:
    """Every scalar is recorded; in those whose names match a pattern ("*loss") transitions are detected."""

    def __init__(self, detect_in: str | Sequence[str], alpha: float, interventions: Sequence[float]) -> None:
        self.patterns = (detect_in,) if isinstance(detect_in, str) else tuple(detect_in)
        self.alpha, self.interventions = alpha, tuple(interventions)
        self.records: dict[str, Record] = {}
        self.detectors: dict[str, Detector] = {}
        self.autocorrelations: dict[str, OnlineAutocorrelation] = {}

    def add(self, step: int, scalars: Mapping[str, float], *, kinds: Sequence[str] = ("cliff", "stage")) -> None:
        """Scalars of the weights after `step` updates, and the kinds of transitions to be detected in them.

        Of a loss that is cliffs and stages: what comes back has achieved nothing. Probes have dips that matter.
        """
        for name, value in scalars.items():
            if name not in self.records:
                self._begin(name, kinds)
            if name in self.detectors:
                self.detectors[name].add(step, value)
                self.autocorrelations[name].add(value)
            else:
                self.records[name].add(step, value)

    def ready(self) -> dict[str, Detector]:
        """The detectors of series that are long enough to be looked at."""
        return {name: found for name, found in self.detectors.items() if len(found.record) >= found.fewest}

    def _begin(self, name: str, kinds: Sequence[str]) -> None:
        """Make the record of a new scalar, and what detects transitions in it if it is to be searched."""
        if any(fnmatchcase(name, pattern) for pattern in self.patterns):
            self.detectors[name] = Detector(name, self.alpha, kinds=kinds, interventions=self.interventions)
            self.autocorrelations[name] = OnlineAutocorrelation()
            self.records[name] = self.detectors[name].record
        else:
            self.records[name] = Record()
