"""A small run to watch, and what the view of it says."""

import io
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.console import Console

from checkpoints import RunWriter
from models.linear_icl.model import CIRCUITS
from probes.watch import view

FORK = get_context("fork")


def shown(snapshot, **options) -> str:
    console = Console(width=100, file=io.StringIO(), highlight=False)
    console.print(view(snapshot, **options))
    return words(console.file.getvalue())  # type: ignore[attr-defined]


def words(text: str) -> str:
    """What is said, wherever it stands."""
    return " ".join(text.split())


def write_small(path: Path, steps: range, **options) -> Path:
    """A run of a solvable model: the loss of step s is 100 - s; weights at every tenth step are diag(1, s + 1)."""
    with RunWriter(path, family="linear-icl", circuits=CIRCUITS, **options) as writer:
        for step in steps:
            writer.log(step, loss=100.0 - step, accuracy=step / 100)
            if step % 10 == 0:
                writer.save(step, {name: torch.diag(torch.tensor([1.0, step + 1])) for name in ("p2", "q1")})
    return path
