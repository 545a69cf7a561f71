"""Read a series once, take every tensor's fingerprint, and judge step by step.

print(audit(run))            a verdict table
audit(run).condemned         steps whose weights cannot be theirs, with the reason
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from tqdm import tqdm

from checkpoints.audit.contents import faults_of_contents
from checkpoints.audit.equality import faults_of_equality, never_changes
from checkpoints.audit.fault import KINDS, Fault
from checkpoints.audit.fingerprint import Fingerprint, fingerprints
from checkpoints.audit.movement import Movement
from checkpoints.audit.path import faults_of_movement
from checkpoints.audit.spacing import gaps
from checkpoints.files.checkpoint import abridged
from checkpoints.heads import NoAttentionError
from checkpoints.notebook import rows_table, titled, told
from checkpoints.run import Entry, Run

Fingerprints = dict[str, Fingerprint]


@dataclass(frozen=True)
class Audit:
    """What was found: every step that was looked at, and every fault."""

    run: str
    steps: Sequence[int]
    faults: Sequence[Fault]

    @property
    def is_sound(self) -> bool:
        """Whether nothing at all was found."""
        return not self.faults

    @property
    def condemned(self) -> dict[int, str]:
        """By step: why its weights cannot be those of that step."""
        reasons: dict[int, str] = {}
        for fault in self.faults:
            if fault.verdict == "condemned":
                reasons.setdefault(fault.step, f"{fault.kind}: {fault.evidence}")
        return reasons

    @property
    def table(self) -> pd.DataFrame:
        """One row per fault, and one per sound step: step, verdict, fault, evidence."""
        by_step = {step: [fault for fault in self.faults if fault.step == step] for step in self.steps}
        rows = []
        for step, faults in by_step.items():
            rows += [(step, fault.verdict, fault.kind, fault.evidence) for fault in faults] or [(step, "sound", "", "")]
        return pd.DataFrame(rows, columns=["step", "verdict", "fault", "evidence"])

    @property
    def summary(self) -> str:
        """How many steps there are, and how many of them are condemned, suspect and sound."""
        suspect = {fault.step for fault in self.faults} - set(self.condemned)
        return (
            f"{self.run}: {len(self.steps)} steps, {len(self.condemned)} condemned, {len(suspect)} suspect, "
            f"{len(self.steps) - len(self.condemned) - len(suspect)} sound"
        )

    def to_json(self) -> str:
        """The whole audit as text, to be kept and read back with `from_json`."""
        faults = [[fault.step, fault.kind, fault.evidence] for fault in self.faults]
        return json.dumps({"run": self.run, "steps": list(self.steps), "faults": faults}, indent=2)

    @staticmethod
    def from_json(text: str) -> "Audit":
        """The audit that `to_json` wrote; raises ValueError where it is none."""
        try:
            content = json.loads(text)
            steps, faults = [*content["steps"]], [Fault(*fault) for fault in content["faults"]]
            numbers = [*steps, *(fault.step for fault in faults)]
            is_ours = all(type(number) is int for number in numbers) and all(fault.kind in KINDS for fault in faults)
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"this is no audit: {error}") from None
        if not is_ours:
            raise ValueError("this is no audit: its steps are no whole numbers, or its kinds of faults are unknown")
        return Audit(str(content["run"]), steps, faults)

    def __repr__(self) -> str:
        """The summary; `print` shows the faults too."""
        return f"Audit({told(lambda: self.summary)})"

    def _repr_html_(self) -> str:
        faults = [(fault.step, fault.verdict, fault.kind, fault.evidence) for fault in self.faults]
        return titled(self.summary, rows_table(("step", "verdict", "fault", "evidence"), faults) if faults else "")

    def __str__(self) -> str:
        """The faults, then the summary."""
        lines = [f"{f.step:>10}  {f.verdict:<9}  {f.kind:<15}  {f.evidence}" for f in self.faults]
        return "\n".join([*lines, self.summary])


def audit(run: Run, *, tensors: Literal["all", "attention"] | None = None, progress: bool = False) -> Audit:
    """Judge every step of a run. All tensors are read, or those of attention alone: the default for a remote run."""
    if tensors is None:
        tensors = "attention" if run.is_remote else "all"
    names = _of_attention(run) if tensors == "attention" else None
    faults: list[Fault] = [Fault(step, "gap", missing_before(count)) for step, count in gaps(run.steps)]
    series: dict[int, Fingerprints] = {}
    recorded: dict[int, int | None] = {}
    for step, entries in tqdm(
        run.by_step.items(), f"auditing {run.name}", unit="step", disable=None if progress else True
    ):
        if len(entries) > 1:
            faults.append(Fault(step, "duplicate", " and ".join(entry.label for entry in entries)))
            continue
        found = _read(entries[0], names)
        if isinstance(found, Fault):
            faults.append(found)
            continue
        within, series[step] = found
        before = step - entries[0].stage_step if entries[0].stage_step is not None else 0
        recorded[step] = None if within is None else within + before
    faults += _wrong_steps(recorded) if run.step_unit in ("step", "number") else []
    if tensors == "attention" and not run.is_remote and never_changes(series):
        return audit(run, tensors="all", progress=progress)  # frozen attention, or all the same? the rest tells
    return Audit(run.name, run.steps, sorted(faults + judge(series), key=lambda fault: fault.step))


def _of_attention(run: Run) -> list[str] | None:
    """The tensors of all heads; None, all there are, in a model without attention."""
    try:
        return [name for layer in run.heads.layers for name in run.heads.names(layer)]
    except NoAttentionError:
        return None


def _wrong_steps(recorded: dict[int, int | None]) -> list[Fault]:
    """Checkpoints that record another step than their names claim, unless the names simply count something else."""
    said = {step: other for step, other in recorded.items() if other is not None}
    wrong = [step for step, other in said.items() if other != step]
    in_order = list(said.values()) == sorted(set(said.values()))
    if len(wrong) > len(said) / 2 and in_order:
        return []
    return [Fault(step, "wrong_step", f"it records step {said[step]}") for step in wrong]


def judge(series: dict[int, Fingerprints]) -> list[Fault]:
    """The faults that the fingerprints of the readable steps show."""
    faults = [*_not_finite(series), *_shapes(series), *_dtypes(series)]
    clean = _without(series, faults)
    faults += faults_of_equality(clean, Movement(clean))
    faults += faults_of_contents(_without(clean, faults))
    return faults + faults_of_movement(_without(clean, faults))


def _without(series: dict[int, Fingerprints], faults: Sequence[Fault]) -> dict[int, Fingerprints]:
    condemned = {fault.step for fault in faults if fault.verdict == "condemned"}
    return {step: tensors for step, tensors in series.items() if step not in condemned}


def _read(entry: Entry, names: list[str] | None) -> Fault | tuple[int | None, Fingerprints]:
    try:
        checkpoint = entry.open()
        if names is not None:
            checkpoint.prefetch([name for name in names if name in checkpoint])
        elif not checkpoint.is_remote:
            checkpoint.verify()
        recorded = entry.recorded_step() if entry.recorded_step else checkpoint.recorded_step
        return recorded, fingerprints(checkpoint, names)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        return Fault(entry.step, "unreadable", f"{entry.label}: {error}")


def missing_before(count: int) -> str:
    """What is said of a step before which others should be."""
    return f"by the spacing around it {count} step{'s are' if count > 1 else ' is'} missing before this one"


def _not_finite(series: dict[int, Fingerprints]) -> list[Fault]:
    faults = []
    for step, tensors in series.items():
        bad = {name: f.not_finite for name, f in tensors.items() if f.not_finite}
        if bad:
            name = next(iter(bad))
            evidence = f"{sum(bad.values())} entries that are not finite in {len(bad)} tensors, the first {name}"
            faults.append(Fault(step, "not_finite", evidence))
    return faults


def _shapes(series: dict[int, Fingerprints]) -> list[Fault]:
    """Steps whose tensors are not those of most steps.

    A model may grow, and lose what it no longer needs: tensors that are there from some step on, or up to one, with one
    shape, are pointed at. What is missing in between, or of another shape, nobody trained.
    """
    if not series:
        return []
    tables = {step: {name: f.shape for name, f in tensors.items()} for step, tensors in series.items()}
    usual = dict(Counter(frozenset(table.items()) for table in tables.values()).most_common(1)[0][0])
    steps = list(tables)
    faults = []
    for step, table in tables.items():
        names = sorted(name for name in {*table, *usual} if table.get(name) != usual.get(name))
        if names:
            is_grown = len(steps) > 2 and all(_comes_or_goes([tables[s].get(name) for s in steps]) for name in names)
            has, should = (t.get(names[0], "none") for t in (table, usual))
            evidence = f"{abridged(names, 4)} differ; {names[0]} is {has}, in most steps {should}"
            faults.append(Fault(step, "grown" if is_grown else "shape", evidence))
    return faults


def _comes_or_goes(shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Whether a tensor has one shape, and is there from one step on or up to one; at two steps or more either way."""
    there = [shape is not None for shape in shapes]
    changes = [i for i in range(1, len(there)) if there[i] != there[i - 1]]
    return len({*shapes} - {None}) == 1 and len(changes) == 1 and 1 < changes[0] < len(there) - 1


def _dtypes(series: dict[int, Fingerprints]) -> list[Fault]:
    usual: dict[str, Counter] = {}
    for tensors in series.values():
        for name, f in tensors.items():
            usual.setdefault(name, Counter())[f.dtype] += 1
    faults = []
    for step, tensors in series.items():
        odd = [name for name, f in tensors.items() if f.dtype != usual[name].most_common(1)[0][0]]
        if odd:
            has, should = tensors[odd[0]].dtype, usual[odd[0]].most_common(1)[0][0]
            evidence = f"{len(odd)} tensors are {has}, in most steps {should}; the first is {odd[0]}"
            faults.append(Fault(step, "dtype", evidence.replace("torch.", "")))
    return faults
