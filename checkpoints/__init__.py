"""What a run leaves on disk, and how to read it."""

from checkpoints import schedules
from checkpoints.run import Checkpoint, Run, open_run
from checkpoints.writer import RunWriter

__all__ = ["Checkpoint", "Run", "RunWriter", "open_run", "schedules"]
