"""What trainers log beside their checkpoints, as scalars by step."""
