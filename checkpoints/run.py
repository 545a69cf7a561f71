"""A run: its description, its metrics as a table, and its checkpoints by step, whoever wrote it and wherever it is.

A source (see `checkpoints.sources`) finds the entries; nothing of the weights is read until it is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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


def no_metrics() -> pd.DataFrame:
    """The table of a run that logged nothing."""
    return pd.DataFrame(index=pd.Index([], name="step", dtype="int64"), dtype="float64")


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
    packages: Mapping[str, str] = field(default_factory=dict)
    read_metrics: Callable[[], pd.DataFrame] = no_metrics
    described_heads: Family | None = None
    """How the attention weights are stored, where the caller had to say so."""

    @property
    def steps(self) -> list[int]:
        """Steps with weights, ascending."""
        return list(self._by_step)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Scalars by step: one row per step, one column per scalar."""
        return self.read_metrics()

    def checkpoint(self, step: int) -> Checkpoint:
        """The weights after `step` updates, read lazily."""
        if step not in self._by_step:
            raise KeyError(f"run {self.name!r} has no weights at step {step}; it has {abridged(self.steps)}")
        entries = self._by_step[step]
        if len(entries) > 1:
            places = " and ".join(entry.label for entry in entries)
            raise ValueError(f"run {self.name!r} has step {step} more than once, in {places}: keep one of them")
        return entries[0].open()

    @cached_property
    def heads(self) -> HeadLayout:
        """Where the attention heads are, found from the names in the first checkpoint that can be read."""
        checkpoint = self.first_readable()
        return find_heads(checkpoint.stored, self.config, label=checkpoint.label, family=self.described_heads)

    def first_readable(self) -> Checkpoint:
        """The first checkpoint whose table of contents can be read; raises what is wrong with the first if none can."""
        if not self.steps:
            raise ValueError(f"run {self.name!r} has no checkpoints")
        failures: list[Exception] = []
        for step in self.steps:
            try:
                checkpoint = self.checkpoint(step)
                _ = checkpoint.stored
                return checkpoint
            except (OSError, ValueError) as error:
                failures.append(error)
        raise failures[0]

    def __repr__(self) -> str:
        """Name, family and the steps there are."""
        return f"Run({self.name!r}, {self.family}, {len(self.steps)} checkpoints: {abridged(self.steps)})"

    @cached_property
    def _by_step(self) -> dict[int, list[Entry]]:
        found: dict[int, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.step, []).append(entry)
        return dict(sorted(found.items()))
