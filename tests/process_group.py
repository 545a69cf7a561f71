"""Real processes that train together: a function called on every rank of a gloo group, within a time limit.

A server that has imported everything once forks them, so that a group is there in a fraction of a second.
"""

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

LIMIT = 60.0
"""Seconds after which ranks that have not come back count as waiting for each other; they need a few."""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.test_sharded", "torch._dynamo", "scipy.optimize", "scipy.special"])


class StillWaitingError(AssertionError):
    pass


def on_ranks(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function` returned on each rank. Raises what one raised, and `StillWaitingError` if one never came back."""
    results = outcomes_on_ranks(count, folder, function, *arguments)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def outcomes_on_ranks(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The same, with what a rank raised as its result."""
    place = folder / f"ranks-{len(list(folder.glob('ranks-*')))}"
    place.mkdir()
    ranks = [
        _processes.Process(target=_rank, args=(rank, count, place, function, arguments), daemon=True)
        for rank in range(count)
    ]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + LIMIT
    for rank in ranks:
        rank.join(max(0.0, deadline - time.monotonic()))
    waiting = [number for number, rank in enumerate(ranks) if rank.is_alive()]
    for rank in ranks:
        rank.kill()
        rank.join()
    if waiting:
        raise StillWaitingError(f"{function.__name__}: ranks {waiting} did not come back within {LIMIT:g} s")
    return [_result(place / str(number), rank.exitcode) for number, rank in enumerate(ranks)]


def _result(file: Path, code: int | None) -> Any:
    return pickle.loads(file.read_bytes()) if file.exists() else RuntimeError(f"a rank died with exit code {code}")


def _rank(rank: int, count: int, place: Path, function: Callable[..., Any], arguments: tuple) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=count)
    try:
        result = function(rank, *arguments)
    except BaseException as error:  # pytest's own failures too
        traceback.print_exc()
        result = RuntimeError(f"rank {rank}: {type(error).__name__}: {error}")
    (place / str(rank)).write_bytes(pickle.dumps(result))
    os._exit(0)  # at once, as a rank that dies does: no goodbyes to the group
