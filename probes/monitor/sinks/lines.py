"""A text file that grows by whole lines while somebody reads it, and outlives a full disk and a kill.

Lines are buffered for about a second and appended in one write, so that a call costs microseconds. What cannot be
written stays in the buffer, is tried again a second later and complained about each time; what is still there at the
end of the process is written then. A kill costs the last second, and at most leaves half a line, which the next writer
drops.
"""

import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from checkpoints.layout import append, append_at_exit, remove_left_overs, write_text

_SECONDS = 1.0
_MOST_BYTES = 2**24  # in the buffer: hours of scalars, and nothing beside a model


class Lines:
    """The file, opened for each write and closed again: other machines see what is written when it is closed.

    step_of says of which step a line is; header is the first line, if there is one.
    """

    def __init__(self, path: Path, step_of: Callable[[str], int], header: str = "") -> None:
        self.path, self.step_of, self.header = path, step_of, header
        self._buffer = bytearray()
        self._tried = time.monotonic()
        self._at_exit = weakref.finalize(self, append_at_exit, path, self._buffer, os.getpid())

    def begin(self, step: int) -> None:
        """Keep what an earlier process wrote of the steps before this one: the rest comes again."""
        try:
            there = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path} is damaged, it is not text ({error}). Move it away") from None
        lines = [f"{line}\n" for line in there.split("\n")[:-1]]  # what follows the last end is half a line
        if self.header and lines and lines.pop(0) != self.header:
            raise ValueError(f"{self.path} is not ours: its first line should be {self.header.strip()!r}. Move it away")
        kept = self.header + "".join(line for line in lines if self._step_of(line) < step)
        remove_left_overs(self.path)
        if kept != there:
            write_text(self.path, kept)

    def add(self, text: str) -> None:
        """One or several whole lines, written within about a second if more come."""
        if len(self._buffer) > _MOST_BYTES:
            self._flush_if_due()
            raise OSError(
                f"{self.path}: {_MOST_BYTES >> 20} MB could not be written and are held; this is lost: {text}"
            )
        self._buffer += text.encode()
        self._flush_if_due()

    def flush(self) -> None:
        """Write what is in the buffer."""
        self._tried = time.monotonic()
        append(self.path, self._buffer)

    def _flush_if_due(self) -> None:
        """Write if the last try was more than a second ago, whether or not it worked."""
        if time.monotonic() - self._tried > _SECONDS:
            self.flush()

    def _step_of(self, line: str) -> int:
        """The step of a line; one that has none is damage, and the file is named."""
        try:
            step = self.step_of(line)
            if type(step) is not int:
                raise ValueError(f"its step is {str(step)[:40]!r}")
            return step
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise ValueError(f"{self.path} is damaged at {line[:200]!r} ({error}). Move it away") from None
