"""A run: its description, its metrics as a table, and its checkpoints by step, whoever wrote it and wherever it is.

A source (see `checkpoints.sources`) finds the entries; nothing of the weights is read until it is asked for.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, SupportsIndex

import pandas as pd

from checkpoints.files import Checkpoint
from checkpoints.files.checkpoint import abridged, is_text
from checkpoints.heads.find import HeadLayout, find_heads
from checkpoints.heads.layout import Family
from checkpoints.matrices import MatrixLayout, find_matrices
from checkpoints.notebook import facts_table, titled, told


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a run: the step that its name claims, and how to open it."""

    step: int
    label: str
    open: Callable[[], Checkpoint]
    recorded_step: Callable[[], int | None] | None = None
    """The step that a file beside the weights records, where there is one."""
    version: str | Callable[[], str] = ""
    """What tells this content from another under the same name, where the source knows it (a commit) or can ask."""
    content: Callable[[], Mapping[str, str]] | None = None
    """By file of weights, the hash of its content, where a server lists it."""
    stage: str | None = None
    """Of which stage of training it is, where there are several (`stage2-ingredient1`)."""
    stage_step: int | None = None
    """The step within its stage, as its name says it; `step` goes on from one stage to the next."""
    tokens: int | None = None
    """Tokens seen since the beginning, over all stages, where the names say it."""

    @property
    def identity(self) -> str:
        """Changes when the files change."""
        path = Path(self.label)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
        version = self.version() if callable(self.version) else self.version
        return f"{self.label} {version} {stats}"


MOST_COLUMNS, SMALL_TABLE, SPARSEST = 20_000, 10_000_000, 64
"""Names that metrics may have; fields of a table that is never too large; fields for each number that is there."""


def require_dense(rows: int, columns: int, numbers: int, label: str) -> None:
    """Refuse a table of next to nothing: a name of its own in every row makes gigabytes of a small file."""
    if columns > MOST_COLUMNS or rows * columns > SMALL_TABLE + SPARSEST * numbers:
        raise ValueError(
            f"{label}: {rows} rows of {columns} names, and {numbers} numbers in all: this is no table of metrics. "
            "Does something that changes stand in the names?"
        )


def require_text(names: Iterable[str], label: str) -> None:
    """Refuse names that no table can have: JSON can say half a character."""
    for name in names:
        if not is_text(name):
            raise ValueError(f"{label}: {name[:40]!a} is no name of a metric: it is not text (UTF-8)")


def metrics_table(logged: Iterable[tuple[int, Mapping[str, float]]] = (), label: object = "metrics") -> pd.DataFrame:
    """Scalars by step, one row per step. A step may be logged in several calls; the last word counts."""
    rows: dict[int, dict[str, float]] = {}
    for step, scalars in logged:
        rows.setdefault(step, {}).update(scalars)
    names = {name for row in rows.values() for name in row}
    require_dense(len(rows), len(names), sum(map(len, rows.values())), str(label))
    require_text(names, str(label))
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
    family_override: Family | str | None = None
    """How the attention weights are stored, where the caller had to say so: a description, or the name of a family."""
    step_unit: str = "step"
    """What the steps count: "step" (updates), "epoch", "token", or "number" where the names do not say it."""
    notices: tuple[str, ...] = ()
    """What a reader must know of how the run was found: what was left out, joined or taken among several."""

    @property
    def path(self) -> Path:
        """Where it is on this disk."""
        if self.is_remote:
            raise ValueError(f"{self.source} is not on this disk: it has no path here")
        return Path(self.source)

    @property
    def is_remote(self) -> bool:
        """Whether it lies on a hub or in a store, and reading it costs requests."""
        return self.source.startswith("hub:") or "://" in self.source

    @property
    def steps(self) -> list[int]:
        """Steps with weights, ascending."""
        return list(self.by_step)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Scalars by step: one row per step, one column per scalar."""
        return self.read_metrics()

    @property
    def axis(self) -> pd.DataFrame:
        """One row per checkpoint: its step, its stage, the step within the stage, tokens seen, and where it is."""
        columns = ("step", "stage", "stage_step", "tokens", "label")
        rows = [[getattr(entry, name) for name in columns] for entries in self.by_step.values() for entry in entries]
        table = pd.DataFrame(rows, columns=columns)
        return table.astype({"step": "int64", "stage_step": "Int64", "tokens": "Int64"})

    def checkpoint(self, step: int) -> Checkpoint:
        """The weights after `step` updates, read lazily."""
        return self.entry(step).open()

    def __getitem__(self, step: SupportsIndex) -> Checkpoint:
        """The weights after `step` updates: `run[1000]`. Steps are no positions: the last is run[run.steps[-1]]."""
        try:
            number = operator.index(step)
        except TypeError:
            raise TypeError(f"run[{step!r}]: a step is expected, a whole number; run.steps lists them") from None
        if number < 0:
            raise KeyError(f"run[{number}]: a step is expected and no position; the last one is run[run.steps[-1]]")
        return self.checkpoint(number)

    def __iter__(self) -> Iterator[int]:
        """Steps with weights, ascending: `for step in run` goes with run[step], as in a mapping."""
        return iter(self.by_step)

    def __reversed__(self) -> Iterator[int]:
        """The same steps, the last first."""
        return reversed(self.by_step)

    def __len__(self) -> int:
        """How many steps have weights."""
        return len(self.by_step)

    def __bool__(self) -> bool:
        """A run is something, whether or not it has weights yet."""
        return True

    def __contains__(self, step: object) -> bool:
        """Whether there are weights at a step."""
        return step in self.by_step

    def entry(self, step: int) -> Entry:
        """The entry of a step; one that several files claim refuses to be opened."""
        if step not in self.by_step:
            raise KeyError(f"run {self.name!r} has no weights at step {step}; it has {abridged(self.steps)}")
        entries = self.by_step[step]
        if len(entries) == 1:
            return entries[0]
        places = " and ".join(entry.label for entry in entries)
        how = f'open_run("{self.source}", steps={{{step}: "{entries[0].label}", ...}})'
        how = "a narrower revisions=" if self.source.startswith("hub:") else how
        reason = f"run {self.name!r} has {self.step_unit} {step} more than once, in {places}: say which one with {how}"
        return Entry(step, places, partial(_refuse, reason))

    @cached_property
    def heads(self) -> HeadLayout:
        """Where the attention heads are, found from the names in a typical checkpoint."""
        checkpoint = self.representative_checkpoint()
        return find_heads(checkpoint.stored, self.config, label=checkpoint.label, family=self.family_override)

    @cached_property
    def matrices(self) -> dict[str, MatrixLayout]:
        """Every kind of matrix there is, attention or not, by name (see `checkpoints.matrices`)."""
        return find_matrices(self.representative_checkpoint().stored, self.config)

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

    def last_readable(self) -> Checkpoint:
        """The last checkpoint whose table of contents can be read; raises where there is none."""
        failures: list[Exception] = []
        found = next(self._readable(reversed(self.steps), failures), None)
        if found is None:
            raise failures[0] if failures else ValueError(f"run {self.name!r} has no checkpoints")
        return found

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
        return f"Run({self.name!r}, {self.family}, {told(self._extent)})"

    def _repr_html_(self) -> str:
        facts = {
            "family": lambda: self.family,
            "source": lambda: self.source,
            "checkpoints": self._extent,
            "circuits" if self.circuits else "heads": self._inside,
            "last metrics": self._last_metrics,
            "to draw it": lambda: "probes.plot.loss(run), probes.plot.heads(run), probes.plot.spectrum(run, head)",
        }
        return titled(f"Run {self.name}", facts_table(facts))

    def _extent(self) -> str:
        """How many checkpoints, from where to where."""
        if len(self) < 2:
            return f"1 checkpoint, {self.step_unit} {self.steps[0]}" if len(self) else "no checkpoints"
        return f"{len(self)} checkpoints, {self.step_unit}s {self.steps[0]} to {self.steps[-1]}{self._stages()}"

    def _stages(self) -> str:
        names = list(dict.fromkeys(entry.stage for entry in self.entries if entry.stage))
        return f" ({', '.join(names)})" if names else ""

    def _inside(self) -> str:
        """What can be measured, as far as that is known or can be told from tables of contents."""
        if self.circuits:
            return ", ".join(self.circuits)
        is_cheap = "heads" in self.__dict__ or (len(self) > 0 and self._lists_cheaply())
        return f"{self.heads} ({self.heads.name})" if is_cheap else "not looked for yet: run.heads"

    def _lists_cheaply(self) -> bool:
        return not self.is_remote and self.checkpoint(self.steps[-1]).lists_cheaply

    def _last_metrics(self) -> str:
        """The last value of every metric; what is read for that is not kept, since more may come."""
        metrics = self.__dict__["metrics"] if "metrics" in self.__dict__ else self.read_metrics()
        known = {name: values.dropna() for name, values in metrics.items()}
        return abridged([f"{name} {v.iloc[-1]:.6g} at {v.index[-1]}" for name, v in known.items() if len(v)])

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
