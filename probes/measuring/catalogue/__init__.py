"""The catalogue of probes: what `measure`, the command line and the monitor know by name.

A new probe is a function and a `Probe` in one of the files here, one line in PROBES, and one test. Probes of one's own
need none of this: hand a `Probe` to `measure`.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probes.measuring.catalogue import spectral, subspaces
from probes.measuring.catalogue.probe import Probe, ProbeValues

PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        spectral.NORM,
        spectral.EFFECTIVE_RANK,
        spectral.STABLE_RANK,
        spectral.PARTICIPATION_RATIO,
        spectral.MARGINALIZED_EFFECTIVE_RANK,
        subspaces.SUBSPACE_DISTANCE,
        subspaces.COLUMN_SUBSPACE_DISTANCE,
        subspaces.SUBSPACE_DRIFT,
        subspaces.SUBSPACE_DRIFT_PER_STEP,
    )
}

Wanted = str | Probe | Sequence[str | Probe | Mapping[str, Callable[..., Any]]] | Mapping[str, Callable[..., Any]]
"""Names, probes, or {name: function of a matrix}, alone or several."""


def as_probes(wanted: Wanted | None, *, removed: int = 4) -> tuple[Probe, ...]:
    """What was asked for as probes: all of the catalogue by default. removed is the largest k of the marginalized rank.

    Raises ValueError where a name is not known, with the nearest that is, or stands for two probes.
    """
    known = {**PROBES, "marginalized_effective_rank": spectral.marginalized(removed)}
    if wanted is None:
        return tuple(known.values())
    several = [wanted] if isinstance(wanted, str | Probe | Mapping) else list(wanted)
    found: list[Probe] = []
    for one in several:
        if isinstance(one, Probe):
            found.append(one)
        elif isinstance(one, Mapping):
            found += [Probe.of_matrix(name, function) for name, function in one.items()]
        elif isinstance(one, str):
            found.append(_named(one, known))
        else:
            raise ValueError(
                f"{one!r} is not a probe: a name, a probes.Probe or {{name: function of a matrix}} is expected"
            )
    if not found:
        raise ValueError("no probe is asked for: name at least one, or leave `probes` out for all")
    for name in [probe.name for probe in found]:
        if sum(probe.name == name for probe in found) > 1:
            raise ValueError(f"two probes are called {name!r}: their numbers could not be told apart")
        if any(probe.name == name and name in known and probe != known[name] for probe in found):
            raise ValueError(f"{name!r} is a probe of the catalogue: call yours something else")
    return tuple(found)


def _named(name: str, known: Mapping[str, Probe]) -> Probe:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no probe is called {name!r}: {hint}There are {', '.join(known)}")
    return known[name]


__all__ = ["PROBES", "Probe", "ProbeValues", "Wanted", "as_probes"]
