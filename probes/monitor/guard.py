"""What goes wrong in a monitor is nobody else's business: it is said once, and training goes on."""

import logging
from collections.abc import Callable
from typing import Any

from probes.monitor.distributed import ElsewhereError

logger = logging.getLogger("probes.monitor")


class Guard:
    """Calls functions. The first error is kept and reported with the step that was set last; none is raised."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.step = 0

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call; what it returns is dropped."""
        try:
            function(*arguments)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Report an error, if it is the first."""
        if self.failure is None:
            logger.log(
                logging.DEBUG if isinstance(error, ElsewhereError) else logging.WARNING,
                "the monitor failed at step %d, and training goes on: %s: %s. Numbers may be missing from here on; "
                "call monitor.close() to turn it off. This is said once",
                self.step,
                type(error).__name__,
                error,
                exc_info=logger.isEnabledFor(logging.DEBUG) and error,
            )
            self.failure = error
