"""The scalars of a run as they come: kept in bounded memory, and watched for transitions."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from probes.measuring.catalogue import PROBES
from probes.series.online import Detector, OnlineAutocorrelation, Record


class TrackedScalars:
    """Every scalar is recorded; those whose names match a pattern ("*loss") are watched."""

    def __init__(self, patterns: str | Sequence[str], alpha: float, interventions: Sequence[float]) -> None:
        self.patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self.alpha, self.interventions = alpha, tuple(interventions)
        self.records: dict[str, Record] = {}
        self.detectors: dict[str, Detector] = {}
        self.autocorrelations: dict[str, OnlineAutocorrelation] = {}

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Scalars of the weights after `step` updates."""
        for name, value in scalars.items():
            if name not in self.records:
                self._begin(name)
            if name in self.detectors:
                self.detectors[name].add(step, value)
                self.autocorrelations[name].add(value)
            else:
                self.records[name].add(step, value)

    def ready(self) -> dict[str, Detector]:
        """The watched series that are long enough to be looked at."""
        return {name: found for name, found in self.detectors.items() if len(found.record) >= found.fewest}

    def _begin(self, name: str) -> None:
        if any(fnmatchcase(name, pattern) for pattern in self.patterns):
            kinds = ("cliff", "dip") if _is_a_probe(name) else ("cliff",)  # a loss that comes back has achieved nothing
            self.detectors[name] = Detector(name, self.alpha, kinds=kinds, interventions=self.interventions)
            self.autocorrelations[name] = OnlineAutocorrelation()
            self.records[name] = self.detectors[name].record
        else:
            self.records[name] = Record()


def _is_a_probe(name: str) -> bool:
    """Whether it is a mean over heads, such as "qk.effective_rank"."""
    _, dot, probe = name.partition(".")
    return bool(dot) and probe.split(".")[0] in PROBES
