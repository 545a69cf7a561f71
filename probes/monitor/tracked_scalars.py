"""The scalars of a run as they come: kept in bounded memory, and some of them searched for transitions.

The means of probes over all heads are among them, by names such as "qk.effective_rank".
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from probes.measuring.catalogue import PROBES
from probes.series.online import Detector, OnlineAutocorrelation, Record


class TrackedScalars:
    """Every scalar is recorded; in those whose names match a pattern ("*loss") transitions are detected."""

    def __init__(self, detect_in: str | Sequence[str], alpha: float, interventions: Sequence[float]) -> None:
        self.patterns = (detect_in,) if isinstance(detect_in, str) else tuple(detect_in)
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
        """The detectors of series that are long enough to be looked at."""
        return {name: found for name, found in self.detectors.items() if len(found.record) >= found.fewest}

    def _begin(self, name: str) -> None:
        """Make the record of a new scalar, and what detects transitions in it if it is to be searched."""
        if any(fnmatchcase(name, pattern) for pattern in self.patterns):
            kinds = ("cliff", "dip") if _is_a_probe(name) else ("cliff",)  # a loss that comes back has achieved nothing
            self.detectors[name] = Detector(name, self.alpha, kinds=kinds, interventions=self.interventions)
            self.autocorrelations[name] = OnlineAutocorrelation()
            self.records[name] = self.detectors[name].record
        else:
            self.records[name] = Record()


def means_over_heads(rows: pd.DataFrame) -> dict[str, float]:
    """The mean over all heads of each probe of each circuit, by a name such as "qk.effective_rank"."""
    found: dict[tuple[str, str, int | None], list[float]] = {}
    columns = (rows[name].tolist() for name in ("circuit", "probe", "component", "value"))
    for circuit, probe, component, value in zip(*columns, strict=True):  # ten times faster than grouping, if small
        if value == value:
            found.setdefault((circuit, probe, None if component is pd.NA else component), []).append(value)
    return {
        f"{circuit}.{probe}" + ("" if component is None else f".{component}"): float(np.mean(values))
        for (circuit, probe, component), values in found.items()
    }


def _is_a_probe(name: str) -> bool:
    """Whether it is a mean over heads, such as "qk.effective_rank"."""
    _, dot, probe = name.partition(".")
    return bool(dot) and probe.split(".")[0] in PROBES
