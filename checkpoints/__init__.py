"""What a run leaves on disk, and how to read anybody's."""

from checkpoints import schedules
from checkpoints.files import Checkpoint, WeightsError
from checkpoints.files.checkpoint import Tensors
from checkpoints.heads import Family, Heads, NoAttentionError, Weight
from checkpoints.open import open_run
from checkpoints.run import Run
from checkpoints.writer import RunWriter

__all__ = [
    "Checkpoint",
    "Family",
    "Heads",
    "NoAttentionError",
    "Run",
    "RunWriter",
    "Tensors",
    "Weight",
    "WeightsError",
    "open_run",
    "schedules",
]
