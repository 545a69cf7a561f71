"""One parquet file of all measurements, which `probes.read_table` reads. Scalars and events are not kept.

While the run goes on, each measurement is a file in PATH.parts/, whole or not at all, so that a killed run keeps what
was measured: `resume=True` takes it up, and `read_table` reads a part by itself. At the end they become one.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from checkpoints.layout import remove_left_overs
from probes.measuring.partial_results import remove_partial_results
from probes.measuring.tables import joined, read_table, write_table
from probes.monitor.sinks.sink import Resumable, first_step
from probes.monitor.sinks.values import finite_rows
from probes.series.online import Event


class Parquet(Resumable):
    """A file that is not there yet; with resume=True, what an earlier process left, and more."""

    def __init__(self, path: str | Path, *, resume: bool = False) -> None:
        self.path = Path(path)
        self.parts = self.path.with_name(self.path.name + ".parts")
        if self.path.suffix != ".parquet":
            raise ValueError(f"{self.path}: the name of a .parquet file is expected")
        for there in (self.path, self.parts):
            if there.exists() and not resume:
                raise FileExistsError(f"{there} exists: choose another name, or pass resume=True to add to it")
        self.parts.mkdir(parents=True, exist_ok=True)

    def begin(self, step: int) -> None:
        """Drop what is there of this step and later ones; what was joined is a part again."""
        if self.path.exists():
            table = read_table(self.path)
            for other in table["step"].unique():
                write_table(table.loc[table["step"] == other], self._part(int(other)))
            self.path.unlink()
        for other, part in self._parts().items():
            if other >= step:
                part.unlink()

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Not kept; the step says where the run goes on."""
        self.at(step)

    def event(self, event: Event) -> None:
        """Not kept; the step says where the run goes on."""
        self.at(event.detected_at)

    def rows(self, table: pd.DataFrame) -> None:
        """One measurement as one part."""
        if len(table):
            step = first_step(table)
            self.at(step)
            write_table(finite_rows(table), self._part(step))

    def close(self) -> None:
        """All parts as one file, and the parts removed."""
        if not self.parts.exists():
            return
        parts = [read_table(part) for part in self._parts().values()]
        remove_left_overs(self.path)
        if parts and not self.path.exists():  # where it exists, a kill in the middle of this left the parts behind
            write_table(joined(parts, {str(name): value for name, value in parts[-1].attrs.items()}), self.path)
        remove_partial_results(self.parts)

    def _part(self, step: int) -> Path:
        """Where the measurement of a step is."""
        return self.parts / f"step-{step:09d}.parquet"

    def _parts(self) -> dict[int, Path]:
        """Those that are there, by step, ascending."""
        found = {int(part.stem.removeprefix("step-")): part for part in self.parts.glob("step-*.parquet")}
        return dict(sorted(found.items()))
