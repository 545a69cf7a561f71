"""The step that a file, a folder or a revision claims in its name."""

import re

WORDS = ("step", "iteration", "iter", "checkpoint", "ckpt", "token", "epoch")
"""What a number may be called, in the order in which it is believed: `step1000-tokens4B` is step 1000."""


def step_in(name: str) -> int | None:
    """1000 from step1000, global_step_1000, model-step-1000.pt, epoch=2-step=1000.ckpt, checkpoint-1000; else None."""
    for word in WORDS:
        match = re.search(rf"(?<![a-z]){word}s?[-_=]?(\d+)(?!\d*[a-z])", name.lower())
        if match:
            return int(match[1])
    return None
