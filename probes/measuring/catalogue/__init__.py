"""The catalogue of probes: what `measure`, the command line, the monitor and the report know.

A new probe is one file here, one line in PROBES and one test.
"""

from probes.measuring.catalogue import (
    column_subspace_distance,
    effective_rank,
    marginalized_effective_rank,
    norm,
    participation_ratio,
    stable_rank,
    subspace_distance,
    subspace_drift,
)
from probes.measuring.catalogue.probe import Probe, ProbeValues

PROBES: dict[str, Probe] = {
    entry.name: entry
    for entry in (
        norm.PROBE,
        effective_rank.PROBE,
        stable_rank.PROBE,
        participation_ratio.PROBE,
        marginalized_effective_rank.PROBE,
        subspace_distance.PROBE,
        column_subspace_distance.PROBE,
        subspace_drift.PROBE,
    )
}

__all__ = ["PROBES", "Probe", "ProbeValues"]
