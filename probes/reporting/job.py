"""The job behind a page: audit, measure, spectra, events; each kept, so that a killed command goes on where it stopped.

In the folder `tables`, by the name of the run:

    NAME.audit.json         the verdicts on its checkpoints
    NAME.parquet            its table, the same that `probes events` keeps and uses
    NAME.spectra.parquet    leading singular values and modes (`modes`)
    *.parquet.parts/        results of single checkpoints, while a table is being made

Each is used again as long as the files of the run are the same.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from checkpoints import Run
from checkpoints.audit import Audit
from checkpoints.audit import audit as audited
from checkpoints.layout import write_json
from probes.circuits import HeadCircuit, circuits_of, default_circuits
from probes.measuring.measure import identity, measure
from probes.measuring.partial_results import remove_partial_results
from probes.measuring.tables import read_table, write_table
from probes.reporting.modes import SPECTRA

Say = Callable[[str], None]

_LONGEST_NAME = 200
"""Bytes; file systems allow 255, of which endings need some."""


@dataclass(frozen=True, eq=False)
class Looked:
    """What is known of one run before events are searched; what is None could not be had, and `problems` says why."""

    name: str
    run: Run | None
    audit: Audit | None
    table: pd.DataFrame | None
    spectra: pd.DataFrame | None
    metrics: pd.DataFrame | None
    problems: Sequence[str] = field(default_factory=tuple)


def silent(text: str) -> None:
    """Say nothing."""


def look_at(
    run: Run,
    *,
    table: pd.DataFrame | None = None,
    tables: Path | None = None,
    spectra: bool = True,
    say: Say = silent,
    progress: bool = False,
) -> Looked:
    """Audit a run and measure it; what was given, or kept from before, is not done again.

    What cannot be done is no reason to give up the rest: it is said in `problems`.
    """
    problems: list[str] = list(run.notices)
    if tables is not None:
        tables.mkdir(parents=True, exist_ok=True)
    kept = tables / _file_name(run) if tables is not None else None
    with _warnings_into(problems):
        return _looked(run, table, kept, spectra, problems, say, progress)


def _looked(
    run: Run,
    table: pd.DataFrame | None,
    kept: Path | None,
    spectra: bool,
    problems: list[str],
    say: Say,
    progress: bool,
) -> Looked:
    audit = _audited(run, kept, problems, say, progress)
    condemned = audit.condemned if audit else {}
    if run.steps and all(step in condemned for step in run.steps):
        problems.append("The audit condemns every checkpoint: no weights were measured.")
        return Looked(run.name, run, audit, table, None, _logged(run, problems), problems)
    made = table
    if made is None:
        made = _made(run, audit, kept, ".parquet", None, problems, say, progress)
    more = None
    if spectra and made is not None:
        more = _made(run, audit, kept, ".spectra.parquet", SPECTRA, problems, say, progress)
    return Looked(run.name, run, audit, made, more, _logged(run, problems), problems)


def _file_name(run: Run) -> str:
    """The name of the run as `probes events` uses it, shortened where no file could be called so."""
    name = run.name.replace("/", "-")
    if len(name.encode("utf-8")) <= _LONGEST_NAME:
        return name
    return f"{name[:40]}-{hashlib.sha256(name.encode('utf-8')).hexdigest()[:16]}"


@contextmanager
def _warnings_into(problems: list[str]) -> Iterator[None]:
    """What is warned of on the way stands on the page too, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        yield
    for one in caught:
        text = str(one.message)
        if not issubclass(one.category, UserWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        elif text not in problems:
            problems.append(text)
            warnings.warn(text, one.category, stacklevel=3)


def _audited(run: Run, kept: Path | None, problems: list[str], say: Say, progress: bool) -> Audit | None:
    tensors = "attention" if _has_heads(run) else "all"  # asked first: it warns where there is no attention
    if len(run.steps) < 2:
        problems.append("One checkpoint alone cannot be audited: there is none to compare it with.")
        return None
    file = kept.with_name(f"{kept.name}.audit.json") if kept is not None else None
    files = identity(run)
    if file is not None and file.is_file():
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["files"] == files:
                return Audit.from_json(content["audit"])
        except (ValueError, KeyError, TypeError):
            say(f"{file} is damaged and is made anew")
    say(f"{run.name}: is every checkpoint what it claims to be?")
    found = audited(run, tensors=tensors, progress=progress)
    if file is not None:
        write_json(file, {"files": files, "audit": found.to_json()})
    return found


def _has_heads(run: Run) -> bool:
    try:
        wanted = default_circuits(run)
        return all(isinstance(one, HeadCircuit) for one in circuits_of(run, wanted).values())
    except (OSError, ValueError):
        return False


def _made(
    run: Run,
    audit: Audit | None,
    kept: Path | None,
    ending: str,
    probes: Sequence | None,
    problems: list[str],
    say: Say,
    progress: bool,
) -> pd.DataFrame | None:
    """A table of the run: kept from before, or measured now."""
    file = kept.with_name(kept.name + ending) if kept is not None else None
    what = "the probes" if probes is None else "spectra and modes"
    try:
        if file is not None and file.is_file():
            table = read_table(file)
            if table.attrs.get("source") == run.source and table.attrs.get("files") == identity(run):
                return table
        say(f"{run.name}: measuring {what}")
        parts = file.with_name(f"{file.name}.parts") if file is not None else None
        table = measure(run, probes=probes, audit=audit or False, resume_dir=parts, progress=progress)
        if file is not None and parts is not None:
            write_table(table, file)
            if not table.attrs["failed"]:
                remove_partial_results(parts)
        return table
    except (OSError, ValueError) as error:
        problems.append(f"Could not measure {what}: {error}")
        return None


def _logged(run: Run, problems: list[str]) -> pd.DataFrame | None:
    try:
        metrics = run.metrics
    except (OSError, ValueError) as error:
        problems.append(f"What was logged cannot be read: {error}")
        return None
    if metrics is None or metrics.empty:
        problems.append(
            "No metrics were found beside the checkpoints: no loss is shown, and no event can be tied to behaviour. "
            "--metrics FILE says where they are."
        )
        return None
    return metrics
