"""A run as one tidy table: `measure(run)`, every probe on every circuit of every checkpoint.

    table = measure(run)                                          ov and qk, all probes, distances to the last step
    measure("runs/mine", circuits=("ov", "qk_at_1"), probes=("effective_rank", "norm"))
    measure(run, probes=["norm", {"nuclear": lambda m: np.linalg.norm(m, "nuc")}])      a probe of one's own
    measure(run, references=("final", 5000, 0.5))                 several horizons in one pass
    measure(run, drift_over=("previous", 250))                    movement since the step before, and over 250 steps
    measure(run, engine="processes:8", resume_dir="results/parts")      goes on where a killed job stopped

Checkpoints are independent of each other: each is read layer by layer (`measuring.checkpoint`), on whichever engine
(`measuring.engines`), and kept as it comes. Steps that the audit condemns, and files that cannot be read, have rows
too: NaN with the reason.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from checkpoints import Run, open_run
from checkpoints.audit import Audit
from checkpoints.audit import audit as audited
from checkpoints.files.checkpoint import abridged
from checkpoints.matrices import not_measured
from checkpoints.run import Entry
from probes.circuits import (
    Builder,
    BuiltCircuit,
    HeadCircuit,
    MatrixCircuit,
    circuits_of,
    default_circuits,
    head_counts,
)
from probes.measuring.catalogue import PROBES, Wanted, as_probes
from probes.measuring.checkpoint import measure_checkpoint
from probes.measuring.engines import Engine, Serial, engine_named
from probes.measuring.fingerprint import fingerprint
from probes.measuring.partial_results import PartialResults
from probes.measuring.plan import Plan, layer_bytes, tasks_of
from probes.measuring.stretches import Stretch, check_stretch, since, suffix, usual_stretch

Reference = str | int | float


def measure(
    run: Run | str | Path,
    circuits: str | Sequence[str] | Mapping[str, Builder] | None = None,
    *,
    probes: Wanted | None = None,
    removed: int = 4,
    references: Reference | Sequence[Reference] = "final",
    drift_over: Stretch | Sequence[Stretch] | None = None,
    audit: Audit | bool = True,
    engine: Engine | str | None = None,
    resume_dir: str | Path | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Every probe on every circuit of every checkpoint, one row per number.

    run is a `Run`, or what `open_run` opens. circuits are names (see `probes.circuits`; ov and qk by default) or your
    own: names with functions from the tensors of a checkpoint to a matrix or `Factored` [layer, head, rows, columns],
    or with descriptions of such (see `checkpoints.circuits`). probes are names of the catalogue (all of them by
    default), `Probe`s, or {name: function of a matrix}. removed is the largest k of the marginalized rank.

    references are what subspace distances are measured against: "final", a step, or a fraction of the last step (the
    checkpoint at or before it); all but "final" are named in the probe's name, as in subspace_distance@5000. drift_over
    is the stretch of training that subspace drifts are measured over: "previous" (the checkpoint before), a number of
    steps, or a ratio, named as in subspace_drift@previous, @-250, @/1.2; by default one that fits the schedule, which
    `table.attrs["drift_over"]` states, and with no name added.

    audit is True (look at the weights first and leave condemned steps out), an `Audit` made before, or False. engine is
    where the work is done: "serial" (the default), "processes:4", "dask://host:port", or one of
    `probes.measuring.engines`. resume_dir is a folder for the results of each checkpoint; a second call with the same
    folder goes on where the first one stopped.
    """
    run = run if isinstance(run, Run) else open_run(run)
    where = engine_named(engine) if isinstance(engine, str) else engine or Serial()
    chosen = as_probes(probes, removed=removed)
    wanted = default_circuits(run) if circuits is None else circuits
    found = circuits_of(run, (wanted,) if isinstance(wanted, str) else wanted)
    files = identity(run)
    with closing(PartialResults(resume_dir, files)) as parts:
        verdict = _audited(
            run, audit, all(isinstance(circuit, HeadCircuit) for circuit in found.values()), parts, progress
        )
        condemned = verdict.condemned if verdict else {}
        sound = [run.entry(step) for step in run.steps if step not in condemned]
        if not sound:
            raise ValueError(f"run {run.name!r}: the audit condemns every step. {verdict}")
        usual = run.representative_checkpoint()
        plan = Plan(
            run=run.name,
            circuits=found,
            heads=head_counts(found, usual),
            layer_bytes=layer_bytes(found, usual),
            probes=chosen,
            references=_references(run, sound, references),
            stretches=_stretches([entry.step for entry in sound], drift_over),
            stages={entry.step: entry.stage for entry in run.entries}
            if any(entry.stage for entry in run.entries)
            else {},
        )
        attrs = {
            **provenance(run, plan),
            "audit": verdict.summary if verdict else "not audited",
            "condemned": {str(step): reason for step, reason in verdict.condemned.items()} if verdict else {},
            "steps": run.steps,
            "files": files,
        }
        grown = [fault for fault in verdict.faults if fault.kind == "grown"] if verdict else []
        if grown:
            which = abridged([fault.step for fault in grown])
            said = f"{run.step_unit} {which}: {grown[0].evidence}"
            attrs["notes"] = [*attrs.get("notes", []), said]
        parts.claim(attrs, plan.rows)
        for step in run.steps:
            if step in condemned:
                parts.add(plan.rows, plan.rows.nothing(step, f"condemned by the audit, {condemned[step]}"), None)
        tasks = [task for task in tasks_of(plan, sound) if task.current.step not in parts]
        with tqdm(
            total=len(sound),
            initial=len(sound) - len(tasks),
            desc=f"measuring {run.name}",
            unit="checkpoint",
            disable=None if progress else True,
        ) as bar:
            for number, result, died in where.run(measure_checkpoint, plan, tasks):
                step = tasks[number].current.step
                values, failure = result if died is None else (plan.rows.nothing(step, died), died)
                parts.add(plan.rows, values, failure)
                bar.update()
        return parts.table(plan.rows, run.steps)


def identity(run: Run) -> str:
    """Changes when the files, the config or the description of the heads change."""
    content = [run.source, dict(run.config), str(run.family_override), [entry.identity for entry in run.entries]]
    content += [run.circuits] if run.circuits else []
    return hashlib.sha256(json.dumps(content, default=str, sort_keys=True).encode()).hexdigest()


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


def _references(
    run: Run, sound: Sequence[Entry], references: Reference | Sequence[Reference]
) -> dict[str, Entry | str]:
    by_step: dict[int, Entry | str] = {entry.step: entry for entry in sound}
    last, found = sound[-1].step, {}
    if len(sound) == 1:
        by_step[last] = f"{run.step_unit} {last} is the only checkpoint: there is none to compare it with"
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


def _stretches(steps: Sequence[int], drift_over: Stretch | Sequence[Stretch] | None) -> dict[str, Stretch]:
    """By what is added to the names; nothing for what fits the schedule."""
    if drift_over is None:
        return {"": usual_stretch(steps)}
    several = [drift_over] if isinstance(drift_over, str | int | float) else list(drift_over)
    return {suffix(stretch): stretch for stretch in map(check_stretch, several)}


def provenance(run: Run, plan: Plan) -> dict[str, Any]:
    """What the numbers mean and what they were computed from."""
    definitions = {}
    for probe in plan.probes:
        for added in plan.suffixes(probe):
            over = f", {since(plan.stretches[added])}" if probe.reads == "current, previous" else ""
            definitions[probe.name + added] = probe.meaning + over
    folded = [name for name in plan.circuits if name.endswith("_folded") or "_at_" in name]
    folded += [name for name in plan.circuits if name.startswith("lora_")]
    own = {f"probe {one.name}": fingerprint(one.function) for one in plan.probes if one.name not in PROBES}
    built = {name: circuit.build for name, circuit in plan.circuits.items() if isinstance(circuit, BuiltCircuit)}
    own |= {f"circuit {name}": fingerprint(build) for name, build in built.items()}
    stored = {name: one.layout.as_stored for name, one in plan.circuits.items() if isinstance(one, MatrixCircuit)}
    return {
        "definitions": definitions,
        "references": {
            f"reference{suffix}": entry.step for suffix, entry in plan.references.items() if isinstance(entry, Entry)
        },
        "drift_over": {f"drift{added}": stretch for added, stretch in plan.stretches.items()},
        "source": run.source,
        "step_unit": run.step_unit,
        "family": run.family if run.circuits else _layout_name(run),
        **_said(run, plan),
        "circuits": list(plan.circuits),
        "removed": {probe.name: probe.count - 1 for probe in plan.probes}.get("marginalized_effective_rank"),
        "weight_processing": f"raw weights, but {', '.join(folded)} as their names say"
        if folded
        else "none: raw weights",
        "versions": {name: _version(name) for name in ("checkpoint-probes", "torch", "numpy", "pandas")},
        **({"functions": own} if own else {}),
        **({"matrices": stored} if stored else {}),
    }


def _said(run: Run, plan: Plan) -> dict[str, Any]:
    """What was found and not measured, and what one has to know of what was; nothing where all is plain."""
    said: dict[str, list[str]] = {"left_out": [], "notes": []}
    if any(isinstance(circuit, HeadCircuit) for circuit in plan.circuits.values()):
        said = {"left_out": list(run.heads.left_out), "notes": list(run.heads.notes)}
    quantised = not_measured(run.representative_checkpoint().stored)
    if quantised and any(isinstance(circuit, MatrixCircuit) for circuit in plan.circuits.values()):
        said["left_out"].append(f"{len(quantised)} tensors that are not floating point: {abridged(quantised, 4)}")
    last, usual = run.last_readable(), run.representative_checkpoint()
    new = sorted(set(last.stored) - set(usual.stored))
    if new:
        said["left_out"].append(f"{len(new)} tensors that only later steps have, not most: {abridged(new, 4)}")
    return {key: lines for key, lines in said.items() if lines}


def _layout_name(run: Run) -> str:
    try:
        return run.heads.name
    except ValueError:
        return run.family


def library_version() -> str:
    """That of this library, as tables state it."""
    return _version("checkpoint-probes")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
