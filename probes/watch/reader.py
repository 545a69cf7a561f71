"""Reading whatever is at a path, again and again, whatever happens to it: not there yet, there, gone, another."""

import os
import time
from dataclasses import replace
from pathlib import Path

from checkpoints.layout import RUN_FILE
from probes.watch.other_run import OtherRunReader
from probes.watch.run_directory import RunDirectoryReader
from probes.watch.snapshot import Snapshot


class Reader:
    """What is at a path. measures: whether to measure the newest checkpoint where no monitor does."""

    def __init__(self, path: str | Path, *, measures: bool = True) -> None:
        self.path, self.measures = Path(path), measures
        self._ours: RunDirectoryReader | None = None
        self._other: OtherRunReader | None = None
        self._last: Snapshot | None = None

    def poll(self, *, waits: bool = False) -> Snapshot:
        """What is known now; what went wrong is in it. waits: until the newest checkpoint has been measured."""
        try:
            found = self._read(waits)
        except FileNotFoundError:
            return self._absent()
        except (OSError, ValueError) as error:
            found = replace(self._last or self._nothing("not a run, as far as can be seen"), problems=(str(error),))
        self._last = found
        return found

    def _read(self, waits: bool) -> Snapshot:
        """Find out what is there, and let the reader of such a thing read it."""
        try:
            names = os.listdir(self.path)
        except NotADirectoryError:
            names = [self.path.name]  # one checkpoint
        if all(name.startswith(".") for name in names):
            return self._nothing("empty: waiting for a run")
        if RUN_FILE not in names:
            self._ours = None
            self._other = self._other or OtherRunReader(self.path, measures=self.measures)
            return self._other.poll(waits=waits)
        self._other = None
        found = self._ours.poll(names, waits=waits) if self._ours else None
        if found is None:
            self._ours = RunDirectoryReader(self.path, measures=self.measures)
            found = self._ours.poll(names, waits=waits)
        return found or self._nothing("is just being replaced by another run")

    def _absent(self) -> Snapshot:
        """Nothing is there: not yet, or not any more, and then what was read last is still shown."""
        if self._last is None or not self._last.name:
            return self._nothing("does not exist yet: waiting for it")
        return replace(self._last, state="gone: the directory was there and is not any more. What was read last:")

    def _nothing(self, state: str) -> Snapshot:
        """A snapshot that only says why there is nothing to show."""
        return Snapshot(source=str(self.path), state=state, read_at=time.monotonic())
