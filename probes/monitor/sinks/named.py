"""Sinks by name or as objects, one or several: what `Monitor(sinks=...)` takes, and where a named one writes.

    sinks="csv"                               one, by its name
    sinks=["tensorboard", "wandb", "trackio"] several
    sinks=CSV("logs")                         one, made as you like it
    sinks=[CSV("logs"), "tensorboard"]        both

A named sink that writes files writes them into the run directory of the monitor (`run=`), or else into a new folder
monitor/NAME-TIME. What is neither a known name nor a sink is refused when the monitor is made, before any training.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from probes.monitor.sinks.csv import CSV
from probes.monitor.sinks.parquet import Parquet
from probes.monitor.sinks.sink import Sink
from probes.monitor.sinks.tensorboard import TensorBoard
from probes.monitor.sinks.trackio import Trackio
from probes.monitor.sinks.wandb import WandB

Sinks = Any
"""Sink | str | Iterable[Sink | str]: what else may come is refused in words, not by a type."""

BY_NAME: Mapping[str, Callable[[Path, bool, str], Sink]] = {
    "csv": lambda home, resume, _: CSV(home / "csv", resume=resume),
    "parquet": lambda home, resume, _: Parquet(home / "table.parquet", resume=resume),
    "tensorboard": lambda home, resume, _: TensorBoard(home / "tensorboard", resume=resume),
    "trackio": lambda _, __, name: Trackio(name),
    "wandb": lambda _, __, name: WandB(name),
}
"""What makes each, from the folder to write to, whether it may hold an earlier part of this run, and a project."""


def checked_sinks(given: Any) -> list[Sink | str]:
    """Names and sinks as a list; what is neither is refused with what is possible. Nothing is made yet."""
    several = [given] if isinstance(given, str | Path | Sink) else given
    if not isinstance(several, Iterable):
        raise TypeError(f"sinks is {_shown(given)}: {_POSSIBLE}")
    found: list[Any] = list(several)
    for one in found:
        if isinstance(one, str) and one not in BY_NAME:
            raise ValueError(f"sinks: {one!r} is no sink: {_POSSIBLE}")
        if not isinstance(one, str) and not isinstance(one, Sink):
            raise TypeError(f"sinks: {_shown(one)} is no sink: {_POSSIBLE}")
    return found


def made_sinks(given: Any, name: str, home: Path | None = None) -> list[Sink]:
    """The sinks themselves; named ones are made. home: the run directory, where an earlier process may have written."""
    checked = checked_sinks(given)
    folder = home or Path("monitor") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    return [BY_NAME[one](folder, home is not None, name) if isinstance(one, str) else one for one in checked]


def _shown(one: Any) -> str:
    """What it is, in few words."""
    if isinstance(one, type):
        return f"the class {one.__name__} (make one: {one.__name__}(...))"
    return f"{one!r:.60} (a {type(one).__name__})"


_POSSIBLE = (
    f"a name ({', '.join(BY_NAME)}), a sink such as CSV(folder), RunDirectory(path) or one of your own "
    "(a class under probes.monitor.Sink), or a list of these is expected"
)
