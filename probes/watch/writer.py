"""Whether somebody is writing a run: the writer holds a lock on run.json, which the system frees when it dies."""

import os
from pathlib import Path


def is_locked(run_file: Path) -> tuple[bool | None, os.stat_result]:
    """True or False, or None where the file system cannot say; and what the file itself looks like.

    Asking takes the lock for an instant, shared with others who ask; a writer that begins just then tries again.
    """
    with open(run_file, "rb") as file:
        stat = os.fstat(file.fileno())
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, stat
        except (ImportError, OSError):
            return None, stat
        return False, stat
