"""What a sink is: somewhere that the numbers of a monitored run go. The monitor calls it; it may fail.

A run that is resumed goes back to some step and comes again from there. The first step that a sink is told is that
step: what it has from there on belongs to a past that did not happen, and a `Resumable` sink drops it.
"""

from collections.abc import Mapping

import pandas as pd

from probes.series.online import Event


class Sink:
    """Takes what it is interested in. Any exception costs what it was given, never the training."""

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Metrics of the weights after `step` updates: at every step, so this has to be quick."""

    def rows(self, table: pd.DataFrame) -> None:
        """One measurement: all rows of one step, in the columns of `probes.measuring.tables`."""

    def event(self, event: Event) -> None:
        """A transition was detected, and is announced once."""

    def flush(self) -> None:
        """Write what is buffered. To be called before training saves what it goes on from after a kill."""

    def close(self) -> None:
        """The run is over: write what is not yet written."""


class Resumable(Sink):
    """A sink that goes on where an earlier process stopped.

    Calls `begin` once, with the first step that comes; again if that failed.
    """

    _has_begun = False

    def begin(self, step: int) -> None:
        """Drop what is there of this step and later ones."""
        raise NotImplementedError

    def at(self, step: int) -> None:
        """To be called with the step of whatever comes."""
        if not self._has_begun:
            self.begin(step)
            self._has_begun = True


def first_step(table: pd.DataFrame) -> int:
    """The step of a measurement, or the first of several."""
    return int(table["step"].to_numpy().min())
