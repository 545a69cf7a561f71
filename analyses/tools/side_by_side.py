"""Many runs at once: one process per core, each run on one thread; whatever is already on disk is left alone.

A page lists its runs as `Job`s. Runs that are finished are only checked; the others are trained, several side by side,
and a run that was interrupted goes on where it stopped. The progress bar counts updates by the checkpoints that appear.

Whole groups of pages go `two_at_a_time`, each on half of the cores.
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from checkpoints import Run, open_run
from models.training import Experiment, train


@dataclass(frozen=True)
class Job:
    """One run: an experiment (something that can be pickled), a seed, and where it goes."""

    experiment: Callable[[Sequence[int]], Experiment]
    seed: int
    directory: Path
    name: str
    steps: int
    schedule: tuple[int, ...]

    def train(self) -> Path:
        """Train it, or finish what was begun."""
        return train(self.experiment, [self.seed], self.directory, self.name, self.steps, self.schedule, quiet=True)[0]

    def reached(self) -> int:
        """The last step on disk; 0 if there is none."""
        path = self.directory / f"{self.name}-seed{self.seed}"
        try:
            return max(open_run(path).steps, default=0)
        except (FileNotFoundError, ValueError):
            return 0


def train_all(jobs: Sequence[Job], workers: int | None = None) -> list[Run]:
    """Train what is not there yet, in this order, on `workers` processes (default: one per core this process may use).

    List long runs first, so that no core is left with one at the end.
    """
    waiting = [job for job in jobs if job.reached() < job.steps]
    count = min(len(waiting), workers or _cores())
    if count > 1:
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            _watch({pool.submit(job.train): job for job in waiting}, jobs)
    return [open_run(job.train()) for job in _with_bar(jobs, show=count == 1)]


def _watch(futures: dict, jobs: Sequence[Job]) -> None:
    """Wait for all of them, and show how far they are."""
    pending = set(futures)
    total, there = sum(job.steps for job in jobs), sum(job.reached() for job in jobs)
    with tqdm(total=total, initial=there, desc="training", unit="step", disable=None) as bar:
        while pending:
            done, pending = wait(
                pending, timeout=5, return_when=FIRST_COMPLETED
            )  # every look opens all runs: 3 ms each
            for future in done:
                try:
                    future.result()
                except BaseException:
                    for other in pending:
                        other.cancel()
                    raise
            bar.update(sum(job.reached() for job in jobs) - bar.n)


def _with_bar(jobs: Sequence[Job], *, show: bool) -> tqdm:
    return tqdm(jobs, desc="training", unit="run", disable=None if show else True)


def two_at_a_time(work: Callable[[str], None], names: Sequence[str]) -> None:
    """Call work (something that can be pickled) with every name, in this order, in two processes.

    Each process is bound to half of the cores for good, so that whatever counts cores there, `train_all` or joblib, finds
    as many as it may use. What fails there does not stop the others, is said at once, and is raised at the end. Where a
    process cannot be bound, or there is one core or one name, all is done here, up to what fails.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(names) < 2 or len(cores) < 2:
        for name in names:
            work(name)
        return
    context, failed = get_context("spawn"), []
    halves = context.Queue()
    for half in (cores[::2], cores[1::2]):
        halves.put(half)
    with ProcessPoolExecutor(2, context, initializer=_bind, initargs=(halves,)) as pool:
        futures = {pool.submit(work, name): name for name in names}
        for future in as_completed(futures):
            if error := future.exception():
                print(f"{futures[future]} failed: {error}", file=sys.stderr, flush=True)
                failed.append(error)
    if failed:
        raise failed[0]


def _bind(halves: Any) -> None:
    os.sched_setaffinity(0, halves.get())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
