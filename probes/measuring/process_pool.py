"""A pool of processes with work stealing, in which each process works on neighbouring tasks.

Neighbours share work: a checkpoint is compared with one before it, and who has just measured that one still has its
Gram matrices. So tasks are not dealt out in turns. Each process has a queue of neighbours, and one that has come to its
end steals the later half of the longest queue that is left.

Each process is an executor of its own (of loky, which comes with joblib) with one task in hand: it is never in doubt
which task a process died of, and no other is lost with it. Processes live on for the next job, because starting one and
importing torch takes as long as measuring several checkpoints. What is common to all tasks is pickled by value where it
cannot be imported, so that functions defined in a notebook or a script go along.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import pairwise
from typing import Any

from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

_IDLE_SECONDS = 300
_PROCESSES: dict[int, ProcessPoolExecutor] = {}


def run_tasks(
    function: Callable[[Any, Any], Any], common: Any, tasks: Mapping[int, Any], count: int
) -> Iterator[tuple[int, Future]]:
    """The number of each task with function(common, task), as they come; the future says whether a process died."""
    queues = divided(list(tasks), count)
    running: dict[Future, tuple[int, int]] = {}

    def submit_next(worker: int) -> None:
        number = next_task(queues, worker)
        if number is not None:
            running[_submitted(worker, function, common, tasks[number])] = worker, number

    try:
        for worker in range(count):
            submit_next(worker)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                worker, number = running.pop(future)
                submit_next(worker)  # first, so that the process need not wait until the result is kept
                yield number, future
    finally:
        for worker, _ in running.values():  # nobody waits for these any more
            _PROCESSES.pop(worker).shutdown(kill_workers=True)


def divided(numbers: list[int], count: int) -> list[list[int]]:
    """Queues of neighbours, of about one length."""
    ends = [len(numbers) * worker // count for worker in range(count + 1)]
    return [numbers[start:stop] for start, stop in pairwise(ends)]


def next_task(queues: list[list[int]], worker: int) -> int | None:
    """The next of this worker's queue, or of what it steals from another; None when nothing is left."""
    if not queues[worker]:
        longest = max(queues, key=len)
        left = len(longest) // 2
        queues[worker], longest[left:] = longest[left:], []
    return queues[worker].pop(0) if queues[worker] else None


def _submitted(worker: int, *call: Any) -> Future:
    """A call to a worker's process, a new one where it died, of the task before or since."""
    try:
        return _PROCESSES[worker].submit(*call)
    except (KeyError, BrokenProcessPool):
        _PROCESSES[worker] = ProcessPoolExecutor(max_workers=1, timeout=_IDLE_SECONDS)
        return _PROCESSES[worker].submit(*call)
