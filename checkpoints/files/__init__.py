"""Files that hold tensors, one kind per file; all of them are read lazily and none of them is ever run."""

from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError

__all__ = ["Checkpoint", "Stored", "WeightsError"]
