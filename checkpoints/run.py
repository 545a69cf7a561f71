"""A run: its description, its metrics as a table, and its checkpoints by step, whoever wrote it and wherever it is.

A source (see `checkpoints.sources`) finds the entries; nothing of the weights is read until it is asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd

from checkpoints.files import Checkpoint
from checkpoints.files.checkpoint import abridged
from checkpoints.heads.find import HeadLayout, find_heads
from checkpoints.heads.layout import Family


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a run: the step that its name claims, and how to open it."""

    step: int
    label: str
    open: Callable[[], Checkpoint]
    recorded_step: Callable[[], int | None] | None = None
    """The step that a file beside the weights records, where there is one."""
    version: str = ""
    """What tells this content from another under the same name, where the source knows it (a commit)."""

    @property
    def identity(self) -> str:
        """Changes when the files change."""
        path = Path(self.label)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
        return f"{self.label} {self.version} {stats}"


def metrics_table(logged: Iterable[tuple[int, Mapping[str, float]]] = ()) -> pd.DataFrame:
    """Scalars by step, one row per step. A step may be logged in several calls; the last word counts."""
    rows: dict[int, dict[str, float]] = {}
    for step, scalars in logged:
        rows.setdefault(step, {}).update(scalars)
    index = pd.Index(rows.keys(), name="step", dtype="int64")
    return pd.DataFrame(list(rows.values()), index=index, dtype="float64").sort_index()


@dataclass(eq=False)
class Run:
    """A sequence of checkpoints. `source` is what was opened, `entries` all that was found there."""

    source: str
    name: str
    entries: Sequence[Entry]
    family: str = "unknown"
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    theory: Mapping[str, Any] | None = None
    circuits: Mapping[str, Any] | None = None
    """By name, how circuits are made of tensors that are not those of attention heads (see `checkpoints.circuits`)."""
    packages: Mapping[str, str] = field(default_factory=dict)
    read_metrics: Callable[[], pd.DataFrame] = metrics_table
    family_override: Family | None = None
    """How the attention weights are stored, where the caller had to say so."""

    @property
    def path(self) -> Path:
        """Where it is on this disk."""
        if self.source.startswith("hub:"):
            raise ValueError(f"{self.source} is on a hub: it has no path here")
        return Path(self.source)

    @property
    def steps(self) -> list[int]:
        """Steps with weights, ascending."""
        return list(self.by_step)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Scalars by step: one row per step, one column per scalar."""
        return self.read_metrics()

    def checkpoint(self, step: int) -> Checkpoint:
        """The weights after `step` updates, read lazily."""
        return self.entry(step).open()

    def entry(self, step: int) -> Entry:
        """The entry of a step; one that several files claim refuses to be opened."""
        if step not in self.by_step:
            raise KeyError(f"run {self.name!r} has no weights at step {step}; it has {abridged(self.steps)}")
        entries = self.by_step[step]
        if len(entries) == 1:
            return entries[0]
        places = " and ".join(entry.label for entry in entries)
        reason = f"run {self.name!r} has step {step} more than once, in {places}: keep one of them"
        return Entry(step, places, partial(_refuse, reason))

    @cached_property
    def heads(self) -> HeadLayout:
        """Where the attention heads are, found from the names in a typical checkpoint."""
        checkpoint = self.representative_checkpoint()
        return find_heads(checkpoint.stored, self.config, label=checkpoint.label, family=self.family_override)

    def representative_checkpoint(self) -> Checkpoint:
        """A checkpoint with the tensors that most have; raises what is wrong with the first if none can be read.

        The first and the last that can be read are compared; only where they differ are all of them looked at.
        """
        if not self.steps:
            raise ValueError(f"run {self.name!r} has no checkpoints")
        failures: list[Exception] = []
        readable = self._readable(self.steps, failures)
        first = next(readable, None)
        if first is None:
            raise failures[0]
        last = next(self._readable(reversed(self.steps), failures))
        if _contents(first) == _contents(last):
            return first
        found = [first, *readable]
        usual = Counter(_contents(checkpoint) for checkpoint in found).most_common(1)[0][0]
        return next(checkpoint for checkpoint in found if _contents(checkpoint) == usual)

    def _readable(self, steps: Iterable[int], failures: list[Exception]) -> Iterator[Checkpoint]:
        for step in steps:
            try:
                checkpoint = self.checkpoint(step)
                _ = checkpoint.stored
            except (OSError, ValueError) as error:
                failures.append(error)
            else:
                yield checkpoint

    def __repr__(self) -> str:
        """Name, family and the steps there are."""
        return f"Run({self.name!r}, {self.family}, {len(self.steps)} checkpoints: {abridged(self.steps)})"

    @cached_property
    def by_step(self) -> dict[int, list[Entry]]:
        """What was found for each step, ascending; several entries where several files claim it."""
        found: dict[int, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.step, []).append(entry)
        return dict(sorted(found.items()))


def _refuse(reason: str) -> Checkpoint:
    raise ValueError(reason)


def _contents(checkpoint: Checkpoint) -> frozenset:
    return frozenset((name, stored.shape) for name, stored in checkpoint.stored.items())
