"""Many runs at once: one process per core, each run on one thread; whatever is already on disk is left alone.

A page lists its runs as `Job`s. Runs that are finished are only checked; the others are trained, several side by side,
and a run that was interrupted goes on where it stopped. The progress bar counts updates by the checkpoints that appear.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

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
            done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
