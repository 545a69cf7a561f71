"""What was found out about a run, kept in a folder and used again: its audit and its tables.

    NAME.audit.json         the verdicts on its checkpoints
    NAME.parquet            its table
    NAME.parquet.parts/     results of single checkpoints, while a table is being made: a killed command goes on

`probes events` and `probes report` keep the same files, so that whichever comes second measures nothing. Each is used
again as long as the files of the run are the same, nothing failed, and it holds what is asked for; what is damaged is
made anew, and that is said.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from checkpoints import Run
from checkpoints.audit import Audit
from checkpoints.audit import audit as audited
from checkpoints.layout import write_json
from probes.circuits import HeadCircuit, circuits_of
from probes.measuring.catalogue import Wanted, as_probes
from probes.measuring.measure import identity, library_version, measure
from probes.measuring.partial_results import remove_partial_results
from probes.measuring.tables import read_table, write_table

Say = Callable[[str], None]

_LONGEST_NAME = 200
"""Bytes; file systems allow 255, of which endings need some."""


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class KeptTables:
    """The audit and the tables of one run; without a folder nothing is kept."""

    run: Run
    folder: Path | None
    say: Say = silent
    progress: bool = False

    def audit(self, circuits: Sequence[str]) -> Audit | None:
        """What `measure` would find out about the checkpoints first; None where there is none to compare with."""
        if len(self.run.steps) < 2:
            return None
        found = circuits_of(self.run, circuits).values() if circuits else []
        tensors = "attention" if found and all(isinstance(one, HeadCircuit) for one in found) else "all"
        key = {"files": identity(self.run), "tensors": tensors, "version": library_version()}
        file = self._file(".audit.json")
        if file is not None and file.is_file():
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                if all(content[name] == value for name, value in key.items()):
                    return Audit.from_json(content["audit"])
            except (ValueError, KeyError, TypeError, RecursionError):
                warnings.warn(f"{file} is damaged and is made anew", stacklevel=2)
        self.say(f"{self.run.name}: is every checkpoint what it claims to be?")
        verdict = audited(self.run, tensors=tensors, progress=self.progress)
        if file is not None:
            write_json(file, {**key, "audit": verdict.to_json()})
        return verdict

    def table(
        self,
        circuits: Sequence[str],
        audit: Audit | None,
        *,
        probes: Wanted | None = None,
        ending: str = ".parquet",
        called: str = "the probes",
    ) -> pd.DataFrame:
        """As `measure` makes it; `called` is what is said to be measured."""
        file = self._file(ending)
        if file is not None and file.is_file():
            try:
                table = read_table(file)
                if self._is_same(table, circuits, probes):
                    return table
            except (ValueError, KeyError, OSError) as error:
                warnings.warn(f"{file} cannot be read and is made anew: {error}", stacklevel=2)
        self.say(f"{self.run.name}: measuring {called}")
        parts = file.with_name(f"{file.name}.parts") if file is not None else None
        table = measure(
            self.run, circuits, probes=probes, audit=audit or False, resume_dir=parts, progress=self.progress
        )
        if file is not None and parts is not None:
            write_table(table, file)
            if not table.attrs["failed"]:
                remove_partial_results(parts)
        return table

    def _is_same(self, table: pd.DataFrame, circuits: Sequence[str], probes: Wanted | None) -> bool:
        attrs = table.attrs
        return (
            attrs.get("source") == self.run.source
            and attrs.get("files") == identity(self.run)
            and list(attrs.get("circuits", [])) == list(circuits)
            and {one.name for one in as_probes(probes)} <= set(attrs.get("definitions", {}))
            and attrs.get("versions", {}).get("checkpoint-probes") == library_version()
            and not attrs.get("failed")
        )

    def _file(self, ending: str) -> Path | None:
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self.run.name.replace("/", "-")
        if len(name.encode("utf-8")) > _LONGEST_NAME:
            name = f"{name[:40]}-{hashlib.sha256(name.encode('utf-8')).hexdigest()[:16]}"
        return self.folder / (name + ending)
