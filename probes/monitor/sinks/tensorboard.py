"""TensorBoard: scalars under their names, the mean over the heads of each layer, events as text.

An event file that could not be written once is dead, by TensorBoard's design; a new one is begun a minute later, and
TensorBoard shows the files of a folder as one run.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from probes.monitor.sinks.sink import Resumable
from probes.monitor.sinks.values import finite_scalars, means_by_tag
from probes.series.online import Event

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

_FLUSH_SECONDS = 2  # TensorBoard's own two minutes are long for a view of something live
_REST_SECONDS = 60.0


class TensorBoard(Resumable):
    """One more event file in a folder, which may hold others.

    With resume=True TensorBoard is told to hide what the folder has from the first step on that comes.
    """

    def __init__(self, folder: str | Path, *, resume: bool = False) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ImportError(f"pip install 'checkpoint-probes[tensorboard]' to write for it ({error})") from error
        self.folder, self.resume = Path(folder), resume
        self._open = partial(SummaryWriter, str(folder), max_queue=1000, flush_secs=_FLUSH_SECONDS)
        self._writer: SummaryWriter | None = None
        self._rests_until = 0.0
        if not resume:
            with self._writing():
                pass  # say now that the folder cannot be written

    def begin(self, step: int) -> None:
        """Hide what is there of this step and later ones."""
        if self.resume:
            with self._writing(purge_step=step):
                pass

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """A point each, under its name; what is not finite leaves a gap."""
        self.at(step)
        with self._writing() as writer:
            for name, value in finite_scalars(scalars).items():
                writer.add_scalar(name, value, step)

    def rows(self, table: pd.DataFrame) -> None:
        """The mean over the heads of each layer, a point each."""
        for step, means in means_by_tag(table).items():
            self.scalars(step, means)

    def event(self, event: Event) -> None:
        """One line of text at the step at which it was detected."""
        self.at(event.detected_at)
        with self._writing() as writer:
            writer.add_text(f"events/{event.metric}", str(event), event.detected_at)
            writer.flush()

    def flush(self) -> None:
        """Write what is still buffered."""
        if self._writer is not None:
            with self._writing() as writer:
                writer.flush()

    def close(self) -> None:
        """Write what is still buffered, and close the event file."""
        if self._writer is not None:
            with self._writing() as writer:
                writer.close()
        self._writer = None

    @contextmanager
    def _writing(self, purge_step: int | None = None) -> "Iterator[SummaryWriter]":
        """The event file; one that cannot be written is given up, and no other is begun for a minute."""
        if time.monotonic() < self._rests_until:
            raise OSError(f"{self.folder} could not be written less than a minute ago: this is lost")
        try:
            if self._writer is None:
                self._writer = self._open(purge_step=purge_step)
            yield self._writer
        except OSError as error:
            self._writer, self._rests_until = None, time.monotonic() + _REST_SECONDS
            raise OSError(
                f"{self.folder}: the event file could not be written: {error}. Another is tried in a minute"
            ) from error
