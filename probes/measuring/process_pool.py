"""Several processes, each walking a stretch of neighbouring tasks.

Neighbours share work: a checkpoint is "the step before" of the next, and who has just measured it still knows its Gram
matrices. So tasks are not dealt out in turns. Each process has a stretch of them, and one that has come to its end
takes over the later half of the longest stretch that is left.

Each process is an executor of its own (of loky, which comes with joblib) with one task in hand: it is never in doubt
which task a process died of, and no other is lost with it. Processes live on for the next walk, because starting one
and importing torch takes as long as measuring several checkpoints.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import pairwise
from typing import Any

from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

_IDLE_SECONDS = 300
_PROCESSES: dict[int, ProcessPoolExecutor] = {}


def walk(
    function: Callable[[Any, Any], Any], common: Any, tasks: Mapping[int, Any], count: int
) -> Iterator[tuple[int, Future]]:
    """The number of each task with function(common, task), as they come; the future says whether a process died."""
    stretches = divided(list(tasks), count)
    working: dict[Future, tuple[int, int]] = {}

    def go_on(lane: int) -> None:
        number = next_of(stretches, lane)
        if number is not None:
            working[_submitted(lane, function, common, tasks[number])] = lane, number

    try:
        for lane in range(count):
            go_on(lane)
        while working:
            for future in wait(working, return_when=FIRST_COMPLETED).done:
                lane, number = working.pop(future)
                go_on(lane)  # first, so that the process need not wait until the result is kept
                yield number, future
    finally:
        for lane, _ in working.values():  # nobody waits for these any more
            _PROCESSES.pop(lane).shutdown(kill_workers=True)


def divided(numbers: list[int], count: int) -> list[list[int]]:
    """Neighbours together, in stretches of about one length."""
    ends = [len(numbers) * lane // count for lane in range(count + 1)]
    return [numbers[start:stop] for start, stop in pairwise(ends)]


def next_of(stretches: list[list[int]], lane: int) -> int | None:
    """The next of this lane's stretch, or of what it takes over from another; None when nothing is left."""
    if not stretches[lane]:
        longest = max(stretches, key=len)
        kept = len(longest) // 2
        stretches[lane], longest[kept:] = longest[kept:], []
    return stretches[lane].pop(0) if stretches[lane] else None


def _submitted(lane: int, *call: Any) -> Future:
    """A call to a lane's process, a new one where it died, of the task before or since."""
    try:
        return _PROCESSES[lane].submit(*call)
    except (KeyError, BrokenProcessPool):
        _PROCESSES[lane] = ProcessPoolExecutor(max_workers=1, timeout=_IDLE_SECONDS)
        return _PROCESSES[lane].submit(*call)
