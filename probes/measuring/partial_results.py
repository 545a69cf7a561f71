"""The results of a measurement as they come, kept so that a killed job goes on where it stopped.

One job at a time works on a folder, where files can be locked. What is found damaged there (a disk that was full, a
file cut short by a crash) is set aside under another name, said, and computed again.
"""

import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoints.audit import Audit
from checkpoints.files.checkpoint import abridged
from checkpoints.layout import write_json, write_text
from probes.measuring.rows import CheckpointValues, RowIndex
from probes.measuring.tables import from_arrow, read_arrow, write_arrow

_LOCK_FILE = ".lock"


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
        self._lock: TextIO | None = None
        if self.folder is not None:
            with writing(self.folder):
                write_text(self.folder / ".writable", "")
                (self.folder / ".writable").unlink()
            strangers = [file.name for file in self.folder.iterdir() if not _PART.fullmatch(file.name)]
            if strangers:
                raise ValueError(f"{self.folder} holds something else ({abridged(strangers)}): choose another folder")
            self._lock = _locked(self.folder)

    def claim(self, attrs: dict[str, Any], rows: RowIndex) -> None:
        """Say what is measured; take up what is there if it was begun by the same measurement."""
        self.attrs = attrs
        if self.folder is None:
            return
        description = self.folder / "measurement.json"
        mine = json.loads(json.dumps({"identity": self.identity, **attrs}, default=str))
        if description.exists() and (there := _read_json(description)) != mine:
            if there is not None:
                raise ValueError(
                    f"{self.folder} holds parts of another measurement (of another source, of files that have changed, "
                    "of other probes, circuits, references or verdicts). Delete it, or choose another place"
                )
            for part in self.folder.glob("step-*.parquet"):  # nobody knows any more what they are parts of
                os.replace(part, _damaged(part))
        if not description.exists():
            write_json(description, mine)
        for left_over in self.folder.glob(".*.partial"):
            left_over.unlink()
        for file in self.folder.glob("step-*.parquet"):
            if problem := _problem(file, len(rows)):
                _set_aside(file, problem)
            else:
                self._files[int(file.stem.removeprefix("step-"))] = file

    def kept_audit(self) -> Audit | None:
        """The audit of the job that is taken up here, if the files are the same."""
        file = self.folder / "audit.json" if self.folder is not None else None
        if file is None or not file.is_file():
            return None
        kept = _read_json(file)
        if kept is None:
            return None
        try:
            return Audit.from_json(kept["audit"]) if kept["identity"] == self.identity else None
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            _set_aside(file, f"it is no audit ({error!r})")
            return None

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
            table = rows.table([self._values[step] for step in steps], attrs)
        else:
            parts = [rows.arrow([self._values[step]]) if step in self._values else self._part(step) for step in steps]
            table = from_arrow(pa.concat_tables(parts), attrs)
        return table

    def close(self) -> None:
        """Let go of the folder: another job may work on it."""
        if self._lock is not None:
            self._lock.close()

    def _part(self, step: int) -> pa.Table:
        try:
            return read_arrow(self._files[step])
        except (OSError, ValueError) as error:
            _set_aside(self._files[step], str(error))
            raise ValueError(
                f"step {step}: {self._files[step]} is damaged and was set aside. All else is kept: the same call again "
                "measures this step anew"
            ) from error


_PART = re.compile(r"measurement\.json|audit\.json|step-\d+\.parquet|.+\.damaged|\..*\.partial|\.lock")


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


def _locked(folder: Path) -> TextIO:
    """The lock of a folder, held until it is closed or the process ends."""
    lock = open(folder / _LOCK_FILE, "a", encoding="utf-8")  # noqa: SIM115 (held as long as the job)
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass  # Windows: seeing to it that there is one job is left to whoever starts them
    except OSError:
        lock.close()
        raise ValueError(
            f"{folder} is being written by another measurement: wait for it, or choose another place"
        ) from None
    return lock


def _read_json(file: Path) -> Any:
    """What a file of ours holds; None, and the file is set aside, where it is not whole."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        _set_aside(file, f"it is not JSON ({type(error).__name__})")
        return None


def _problem(part: Path, rows: int) -> str | None:
    """What is wrong with a part, as far as its table of contents tells."""
    try:
        found = pq.read_metadata(part).num_rows
    except (pa.ArrowException, OSError) as error:
        return f"it is no parquet file ({error})"
    return None if found == rows else f"it has {found} rows, a checkpoint has {rows}"


def _set_aside(file: Path, problem: str) -> None:
    """Out of the way, under a name that says so; what it held is computed again."""
    os.replace(file, _damaged(file))
    warnings.warn(f"{file} is damaged: {problem}. It was set aside as {_damaged(file).name}", stacklevel=4)


def _damaged(file: Path) -> Path:
    return file.with_name(f"{file.name}.damaged")
