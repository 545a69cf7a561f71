"""Runs that lie deeper than the folder that was named: `run/ckpts/`, `lightning_logs/version_0/checkpoints/`.

One run below is the run. Of the versions that Lightning numbers the latest is taken and the others are said; several
other runs are refused, each with the call that opens it.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from checkpoints.files.checkpoint import abridged
from checkpoints.remote_path import Place, path_below
from checkpoints.run import Run
from checkpoints.sources.folder import config_beside

_VERSION = re.compile(r"version_(\d+)")
_DEPTH = 3
_MOST = 2000
_NOT_RUNS = ("wandb", "__pycache__", "node_modules", "src", "data")


def find_below(path: Place, find: Callable[[Place], Run | None]) -> Run | None:
    """The run in a folder below this one, None if there is none; raises where there are several."""
    found, failures = _runs_below(path, find)
    if not found:
        if failures:
            raise ValueError(f"{path} holds no run that can be opened. {' '.join(failures[:3])}")
        return None
    taken, others = _latest_version(found)
    if taken is None:
        calls = [f'open_run("{place}")' for place in found]
        raise ValueError(f"{path} holds {len(found)} runs, in {_named(path, list(found))}. Open one: {_listed(calls)}")
    return _as_of(path, taken, found[taken], others, failures)


def _runs_below(path: Place, find: Callable[[Place], Run | None]) -> tuple[dict[Place, Run], list[str]]:
    """The runs below by where they are, and what is wrong with places that almost are one."""
    found: dict[Place, Run] = {}
    failures: list[str] = []
    pending, looked_at = [(path, 0)], 0
    while pending:
        folder, depth = pending.pop(0)
        for place in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
            looked_at += 1
            if place.name.startswith(".") or place.name in _NOT_RUNS or looked_at > _MOST:
                continue
            try:
                run = find(place)
            except ValueError as error:
                failures.append(str(error))
                continue
            if run is not None:
                found[place] = run
            elif depth + 1 < _DEPTH:
                pending.append((place, depth + 1))
    if looked_at > _MOST:
        failures.append(
            f"{path} has more than {_MOST} folders below it, only the first were looked at: name a deeper one."
        )
    return found, failures


def _latest_version(found: dict[Place, Run]) -> tuple[Place | None, list[Place]]:
    """The one run, or the highest version where all of them are versions of one thing; and the others."""
    if len(found) == 1:
        return next(iter(found)), []
    families: dict[str, list[tuple[int, Place]]] = {}
    for place in found:
        numbers = _VERSION.findall(str(place))
        if not numbers:
            return None, []
        families.setdefault(_VERSION.sub("version_*", str(place)), []).append((int(numbers[-1]), place))
    if len(families) > 1:
        return None, []
    versions = sorted(next(iter(families.values())))
    return versions[-1][1], [place for _, place in versions[:-1]]


def _as_of(path: Place, place: Place, run: Run, others: list[Place], failures: list[str]) -> Run:
    """The run under the name of the folder that was opened, with a config that lies between."""
    notices = list(run.notices)
    if others:
        calls = [f'open_run("{other}")' for other in others]
        notices.append(f"{path_below(place, path)} is opened, the latest version; to open another: {_listed(calls)}")
    if failures:
        notices.append(f"not opened: {' '.join(failures[:3])}")
    between = [folder for folder in place.parents if folder == path or path in folder.parents]
    config = run.config or config_beside(*between)
    family = config.get("model_type", run.family) if not run.config else run.family
    return replace(run, name=path.resolve().name, config=config, family=family, notices=tuple(notices))


def _named(path: Place, places: list[Place]) -> str:
    return abridged([path_below(place, path) for place in places])


def _listed(calls: list[str]) -> str:
    return " or ".join(calls[:5]) + (f" or one of {len(calls) - 5} more" if len(calls) > 5 else "")
