"""What a monitor has measured, in bounded memory."""

from collections import deque
from collections.abc import Iterable, Iterator

import pandas as pd

from probes.measuring.rows import CheckpointValues
from probes.monitor.live_measure import LiveMeasurement

KEPT_ROWS = 500_000
"""Of the table, the latest: its memory is bounded."""


class MeasuredTable:
    """Measurements as they come; the oldest go where there are too many."""

    def __init__(self) -> None:
        self._found: deque[CheckpointValues] = deque()
        self._rows = 0

    def add(self, found: CheckpointValues) -> None:
        """One more measurement."""
        self._found.append(found)
        self._rows += len(found.values)
        while len(self._found) > 1 and self._rows > KEPT_ROWS:
            self._rows -= len(self._found.popleft().values)

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._found)

    def __iter__(self) -> Iterator[CheckpointValues]:
        """Those that are kept, oldest first."""
        return iter(self._found)

    def replace(self, found: Iterable[CheckpointValues]) -> None:
        """Keep these instead."""
        self._found = deque(found)
        self._rows = sum(len(one.values) for one in self._found)

    def table(self, measurement: LiveMeasurement) -> pd.DataFrame:
        """All of them, as `measure` gives them."""
        return measurement.table(list(self._found))
