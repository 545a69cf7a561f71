"""A campaign against one thing that writes: SIGKILL at random moments, then it goes on, and the result is compared.

The work is done in a forked process, so that a kill costs no start of an interpreter. It is a function of a folder that
begins there or goes on with what it finds; after a few kills it is left alone to end, and its result must be that of
the work that was never interrupted. Then it begins in a new folder.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

IN_A_ROW = 5
"""Kills of one piece of work at most, before it is left to end."""


@dataclass(frozen=True)
class Campaign:
    """What is killed: work done in a folder, what came of it, and what must hold after every kill."""

    work: Callable[[Path], Any]
    result: Callable[[Path], Any]
    after_a_kill: Callable[[Path], None] = lambda folder: None


@dataclass(frozen=True)
class Outcome:
    """How often it was killed at work, in how many pieces of work, and what was not as it should be."""

    kills: int
    finished: int
    wrong: tuple[str, ...]


def run(campaign: Campaign, folder: Path, kills: int, seed: int = 0) -> Outcome:
    """Kill it so many times."""
    rng = random.Random(seed)
    began = time.monotonic()
    _finish(campaign, folder / "whole")
    window = time.monotonic() - began
    whole = campaign.result(folder / "whole")
    killed, place, in_a_row, finished, wrong = 0, 0, 0, 0, []
    while killed < kills:
        here = folder / f"killed-{place}"
        here.mkdir(exist_ok=True)
        if in_a_row < IN_A_ROW and _killed(campaign, here, rng.uniform(0, window)):
            killed, in_a_row = killed + 1, in_a_row + 1
            campaign.after_a_kill(here)
            continue
        window = window if in_a_row else 0.8 * window  # it ended before it was killed: be quicker
        wrong += _compared(campaign, here, whole)
        place, in_a_row, finished = place + 1, 0, finished + 1
    wrong += _compared(campaign, folder / f"killed-{place}", whole)
    return Outcome(killed, finished + 1, tuple(wrong))


def _compared(campaign: Campaign, here: Path, whole: Any) -> list[str]:
    try:
        _finish(campaign, here)
        found = campaign.result(here)
    except Exception as error:  # whatever it is, it is what came of the kills
        return [f"{here}: {type(error).__name__}: {str(error)[:300]}"]
    return [] if found == whole else [f"{here}: {_difference(found, whole)}"]


def _difference(found: Any, whole: Any) -> str:
    if isinstance(found, dict) and isinstance(whole, dict):
        names = sorted(str(name) for name in {*found, *whole} if found.get(name) != whole.get(name))
        return f"other than the uninterrupted: {', '.join(names)[:300]}"
    return f"{str(found)[:200]} instead of {str(whole)[:200]}"


def _started(campaign: Campaign, folder: Path) -> Any:
    process = get_context("fork").Process(target=_quietly, args=(campaign.work, folder))
    process.start()
    return process


def _finish(campaign: Campaign, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    process = _started(campaign, folder)
    process.join()
    if process.exitcode:
        said = (folder.parent / f"{folder.name}.said").read_text(errors="replace")[-500:]
        raise RuntimeError(f"it ended with exit code {process.exitcode}: {said}")


def _killed(campaign: Campaign, folder: Path, after: float) -> bool:
    """Whether it was still at work when it was killed."""
    process = _started(campaign, folder)
    process.join(after)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


def _quietly(work: Callable[[Path], Any], folder: Path) -> None:
    """What it says goes to a file beside the folder: it is read if it fails."""
    descriptor = os.open(folder.parent / f"{folder.name}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    work(folder)


def files_in(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The content of all files but those whose names begin so."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(without))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
