"""A sink that goes on where an earlier process stopped.

A run that is resumed goes back to some step and comes again from there. The first step that a sink is told is that
step: what it holds from there on belongs to a past that did not happen, and is dropped.
"""

import pandas as pd

from probes.monitor.sinks.sink import Sink


class Resumable(Sink):
    """Calls `begin` once, with the first step that comes; again if that failed."""

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
    """The step of a measurement."""
    return int(table["step"].to_numpy().min())
