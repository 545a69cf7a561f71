"""A run as one tidy table: `measure(run)`, every probe on every circuit of every checkpoint.

    table = measure(run)                                          ov and qk, all probes, distances to the last step
    measure(run, circuits=("ov", "qk_at_1"), probes=("effective_rank", "norm"))
    measure(run, references=("final", 5000, 0.5))                 several horizons in one pass
    measure(run, engine=Processes(8), resume_dir="results/parts")       resumes where a killed job stopped

Checkpoints are independent of each other: each is read layer by layer (`measuring.checkpoint`), on whichever engine
(`measuring.engines`), and kept as it comes. Steps that the audit condemns, and files that cannot be read, have rows
too: NaN with the reason.
"""

import difflib
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from checkpoints import Run
from checkpoints.audit import Audit
from checkpoints.audit import audit as audited
from checkpoints.run import Entry
from probes.circuits import Builder, HeadCircuit, circuits_of, default_circuits, head_counts
from probes.measuring.catalogue import PROBES
from probes.measuring.checkpoint import CheckpointTask, Plan, measure_checkpoint, missing_rows
from probes.measuring.engines import Engine, Serial
from probes.measuring.partial_results import PartialResults

Reference = str | int | float


def measure(
    run: Run,
    circuits: str | Sequence[str] | Mapping[str, Builder] | None = None,
    *,
    probes: Sequence[str] | None = None,
    removed: int = 4,
    references: Reference | Sequence[Reference] = "final",
    audit: Audit | bool = True,
    engine: Engine | None = None,
    resume_dir: str | Path | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Every probe on every circuit of every checkpoint, one row per number.

    circuits are names (see `probes.circuits`; ov and qk by default) or your own: names with functions from the
    tensors of a checkpoint to a matrix or `Factored` [layer, head, rows, columns], or with descriptions of such (see
    `checkpoints.circuits`). probes are names of the catalogue,
    all of them by default. removed is the largest k of the marginalized rank. references are what subspace distances
    are measured against: "final", a step, or a fraction of the last step (the checkpoint at or before it); all but
    "final" are named in the probe's name, as in subspace_distance@5000. audit is True (look at the weights first and
    leave condemned steps out), an `Audit` made before, or False. resume_dir is a folder for the results of each
    checkpoint; a second call with the same folder goes on where the first one stopped.
    """
    names = known_probes(probes)
    if removed < 0:
        raise ValueError(f"removed is {removed}: the number of components to take out cannot be negative")
    wanted = default_circuits(run) if circuits is None else circuits
    found = circuits_of(run, (wanted,) if isinstance(wanted, str) else wanted)
    identity = _identity(run)
    parts = PartialResults(resume_dir, identity)
    verdict = _audited(run, audit, all(isinstance(circuit, HeadCircuit) for circuit in found.values()), parts, progress)
    condemned = verdict.condemned if verdict else {}
    sound = [run.entry(step) for step in run.steps if step not in condemned]
    if not sound:
        raise ValueError(f"run {run.name!r}: the audit condemns every step. {verdict}")
    anchors = _references(run, sound, references)
    work = Plan(
        run=run.name,
        circuits=found,
        heads=head_counts(found, run.representative_checkpoint()),
        probes=names,
        components=removed + 1,
        references=anchors,
        token=secrets.token_hex(8),
    )
    attrs = {
        **provenance(run, work),
        "audit": verdict.summary if verdict else "not audited",
        "condemned": {str(step): reason for step, reason in verdict.condemned.items()} if verdict else {},
        "steps": run.steps,
    }
    parts.claim(attrs)
    for step in run.steps:
        if step in condemned:
            parts.add(step, missing_rows(work, step, f"condemned by the audit, {condemned[step]}"), None)
    before = [None, *sound]
    tasks = [CheckpointTask(now, earlier) for now, earlier in zip(sound, before, strict=False) if now.step not in parts]
    with tqdm(
        total=len(sound),
        initial=len(sound) - len(tasks),
        desc=f"measuring {run.name}",
        unit="checkpoint",
        disable=None if progress else True,
    ) as bar:
        for number, result, died in (engine or Serial()).run(measure_checkpoint, work, tasks):
            step = tasks[number].now.step
            rows, failure = result if died is None else (missing_rows(work, step, died), died)
            parts.add(step, rows, failure)
            bar.update()
    return parts.table(run.steps)


def _identity(run: Run) -> str:
    """Changes when the files, the config or the description of the heads change."""
    content = [run.source, dict(run.config), str(run.family_override), [entry.identity for entry in run.entries]]
    content += [run.circuits] if run.circuits else []
    return hashlib.sha256(json.dumps(content, default=str, sort_keys=True).encode()).hexdigest()


def known_probes(probes: Sequence[str] | None) -> tuple[str, ...]:
    """All probes, or those named; a name that is not known raises with the nearest that is."""
    if probes is None:
        return tuple(PROBES)
    names = (probes,) if isinstance(probes, str) else tuple(probes)
    for name in names:
        if name not in PROBES:
            near = difflib.get_close_matches(name, PROBES, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"no probe is called {name!r}: {hint}There are {', '.join(PROBES)}")
    return names


def _audited(run: Run, audit: Audit | bool, has_heads: bool, parts: PartialResults, progress: bool) -> Audit | None:
    if isinstance(audit, Audit):
        return audit
    if not audit or len(run.steps) < 2:
        return None
    found = parts.kept_audit()
    if found is None:
        found = audited(run, tensors="attention" if has_heads else "all", progress=progress)
        parts.keep_audit(found)
    return found


def _references(run: Run, sound: Sequence[Entry], references: Reference | Sequence[Reference]) -> dict[str, Entry]:
    by_step = {entry.step: entry for entry in sound}
    last, found = sound[-1].step, {}
    for reference in (references,) if isinstance(references, str | int | float) else references:
        if reference == "final":
            found[""] = by_step[last]
            continue
        if isinstance(reference, bool) or not isinstance(reference, int | float):
            raise ValueError(f"reference {reference!r}: 'final', a step or a fraction of the last step is expected")
        if isinstance(reference, float):
            if not 0 < reference <= 1:
                raise ValueError(f"reference {reference}: a fraction of the last step lies between 0 and 1")
            step = max((s for s in by_step if s <= reference * last * (1 + 1e-12)), default=sound[0].step)
        else:
            step = reference
        if step not in by_step:
            near = min(by_step, key=lambda s: abs(s - step))
            raise ValueError(f"reference {step}: run {run.name!r} has no sound checkpoint there; the nearest is {near}")
        found[f"@{step}"] = by_step[step]
    return found


def provenance(run: Run, work: Plan) -> dict[str, Any]:
    """What the numbers mean and what they were computed from."""
    definitions = {}
    for name in work.probes:
        for suffix in work.references if PROBES[name].reads == "now and reference" else ("",):
            entry = PROBES[name]
            definitions[name + suffix] = f"{entry.definition} [{entry.unit}] ({entry.citation})"
    folded = [name for name in work.circuits if name.endswith("_folded") or "_at_" in name]
    return {
        "definitions": definitions,
        "references": {f"reference{suffix}": entry.step for suffix, entry in work.references.items()},
        "source": run.source,
        "family": run.family if run.circuits else _layout_name(run),
        "circuits": list(work.circuits),
        "components": work.components,
        "weight_processing": f"raw weights, but {', '.join(folded)} as their names say"
        if folded
        else "none: raw weights",
        "versions": {name: _version(name) for name in ("checkpoint-probes", "torch", "numpy", "pandas")},
    }


def _layout_name(run: Run) -> str:
    try:
        return run.heads.family.name
    except ValueError:
        return run.family


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
