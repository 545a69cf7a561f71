"""The results of a measurement as they come, kept so that a killed job goes on where it stopped."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from checkpoints.audit import Audit
from checkpoints.files.checkpoint import abridged
from checkpoints.layout import write_json, write_text
from probes.measuring.rows import CheckpointValues, RowIndex
from probes.measuring.tables import from_arrow, read_arrow, write_arrow


class PartialResults:
    """The rows of each checkpoint as they come: in memory, and in a folder if there is one.

    A step that failed is not kept in the folder: the next attempt tries it again. The folder is taken up only by the
    measurement that began it, on files that have not changed since.
    """

    def __init__(self, folder: str | Path | None, identity: str) -> None:
        self.folder, self.identity = Path(folder) if folder is not None else None, identity
        self.attrs: dict[str, Any] = {}
        self.failed: dict[int, str] = {}
        self._values: dict[int, CheckpointValues] = {}
        self._files: dict[int, Path] = {}
        if self.folder is not None:
            with writing(self.folder):
                write_text(self.folder / ".writable", "")
                (self.folder / ".writable").unlink()
            strangers = [file.name for file in self.folder.iterdir() if not _PART.fullmatch(file.name)]
            if strangers:
                raise ValueError(f"{self.folder} holds something else ({abridged(strangers)}): choose another folder")

    def claim(self, attrs: dict[str, Any]) -> None:
        """Say what is measured; take up what is there if it was begun by the same measurement."""
        self.attrs = attrs
        if self.folder is None:
            return
        description = self.folder / "measurement.json"
        mine = json.loads(json.dumps({"identity": self.identity, **attrs}, default=str))
        if not description.exists():
            write_json(description, mine)
        if json.loads(description.read_text()) != mine:
            raise ValueError(
                f"{self.folder} holds parts of another measurement (of another source, of files that have changed, "
                "of other probes, circuits, references or verdicts). Delete it, or choose another place"
            )
        for left_over in self.folder.glob(".*.partial"):
            left_over.unlink()
        self._files = {int(file.stem.removeprefix("step-")): file for file in self.folder.glob("step-*.parquet")}

    def kept_audit(self) -> Audit | None:
        """The audit of the job that is taken up here, if the files are the same."""
        file = self.folder / "audit.json" if self.folder is not None else None
        if file is None or not file.is_file():
            return None
        kept = json.loads(file.read_text())
        return Audit.from_json(kept["audit"]) if kept["identity"] == self.identity else None

    def keep_audit(self, audit: Audit) -> None:
        """Remember the audit for a later attempt."""
        if self.folder is not None:
            write_json(self.folder / "audit.json", {"identity": self.identity, "audit": audit.to_json()})

    def __contains__(self, step: int) -> bool:
        """Whether a step is done."""
        return step in self._values or step in self._files

    def add(self, rows: RowIndex, found: CheckpointValues, failure: str | None) -> None:
        """The numbers of a step, and why it failed if it did."""
        if failure is not None:
            self.failed[found.step] = failure
        if self.folder is None or failure is not None:
            self._values[found.step] = found
        else:
            self._files[found.step] = self.folder / f"step-{found.step:09d}.parquet"
            write_arrow(rows.arrow([found]), self._files[found.step], {})

    def table(self, rows: RowIndex, steps: Sequence[int]) -> pd.DataFrame:
        """All rows, in the order of the steps."""
        attrs = {**self.attrs, "failed": {str(step): reason for step, reason in sorted(self.failed.items())}}
        if not self._files:
            return rows.table([self._values[step] for step in steps], attrs)
        parts = [
            rows.arrow([self._values[step]]) if step in self._values else read_arrow(self._files[step])
            for step in steps
        ]
        return from_arrow(pa.concat_tables(parts), attrs)


_PART = re.compile(r"measurement\.json|audit\.json|step-\d+\.parquet|\..*\.partial")


def remove_partial_results(folder: Path) -> None:
    """Delete the parts of a measurement, and nothing else."""
    for file in folder.iterdir():
        if _PART.fullmatch(file.name):
            file.unlink()
    folder.rmdir()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make the folder; say so, before any work, where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise OSError(f"{folder} cannot be written: {error}. Nothing was measured") from error
