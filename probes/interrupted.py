"""Ctrl-C while a command still imports what it needs ends with a sentence, not with a traceback through the imports.

From there on the commands answer it themselves, and say what is kept.
"""

import sys
from types import TracebackType

_other = sys.excepthook


def say_stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say it of an interruption; of anything else, what would have been said."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("stopped before anything was done\n")
    else:
        _other(kind, error, trace)


sys.excepthook = say_stopped
