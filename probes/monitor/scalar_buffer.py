"""Scalars on their way to becoming numbers, in batches: asking an accelerator for a number makes it wait."""

import time
from collections.abc import Mapping

from torch import Tensor

from checkpoints.files.in_memory import gathered

_MOST = 64
_SECONDS = 1.0


class ScalarBuffer:
    """Scalars by step, as they were when they came."""

    def __init__(self) -> None:
        self._scalars: list[tuple[int, dict[str, float | Tensor]]] = []
        self._since = time.monotonic()

    def add(self, step: int, scalars: Mapping[str, float | Tensor], *, keep: bool) -> None:
        """Buffer them, if they are to be kept; what is spread over several processes is gathered by all of them."""
        whole: dict[str, float | Tensor] = {
            name: gathered(value).clone() if isinstance(value, Tensor) else value for name, value in scalars.items()
        }
        if keep:
            self._scalars.append((step, whole))

    @property
    def is_due(self) -> bool:
        """Whether it is time to flush: there are many of them, or the last time was more than a second ago."""
        return len(self._scalars) >= _MOST or time.monotonic() - self._since > _SECONDS

    def flush(self) -> list[tuple[int, dict[str, float | Tensor]]]:
        """All of them, oldest first; the buffer is empty then."""
        scalars, self._scalars, self._since = self._scalars, [], time.monotonic()
        return scalars
