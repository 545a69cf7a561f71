"""What a sink is: somewhere that the numbers of a monitored run go. The monitor calls it; it may fail."""

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
        """A transition was announced."""

    def close(self) -> None:
        """The run is over: write what is still held."""
