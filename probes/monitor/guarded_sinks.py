"""Sinks that may fail: a full disk or a lost connection costs their rows, not the run."""

import logging
from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from probes.monitor.sinks import Sink
from probes.series.online import Event

logger = logging.getLogger("probes.monitor")


class GuardedSinks:
    """Calls every sink; what one raises is reported once, counted, and it is tried again the next time."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self.lost: dict[Sink, int] = {}
        """How many calls of each failed."""

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Give every sink the scalars of the weights after `step` updates."""
        self._each(lambda sink: sink.scalars(step, scalars))

    def rows(self, table: pd.DataFrame) -> None:
        """Give every sink the rows of one measurement."""
        self._each(lambda sink: sink.rows(table))

    def event(self, event: Event) -> None:
        """Tell every sink of a transition that was detected."""
        self._each(lambda sink: sink.event(event))

    def flush(self) -> None:
        """Let all of them write what they hold: training is about to save what it goes on from."""
        self._each(lambda sink: sink.flush())

    def close(self) -> None:
        """Close all of them, and say what was lost."""
        self._each(lambda sink: sink.close())
        for sink, lost in self.lost.items():
            logger.warning("%s: %d calls were lost in all", type(sink).__name__, lost)

    def _each(self, call: Callable[[Sink], None]) -> None:
        """Call each sink, whatever happened to those before it."""
        for sink in self.sinks:
            try:
                call(sink)
            except Exception as error:
                if sink not in self.lost:
                    logger.warning(
                        "the sink %s failed: %s: %s. What it was given is lost; training goes on, and later numbers "
                        "are offered to it again",
                        type(sink).__name__,
                        type(error).__name__,
                        error,
                    )
                self.lost[sink] = self.lost.get(sink, 0) + 1
