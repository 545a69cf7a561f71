"""Where the work is done: here, in several processes of this machine, or on a Dask cluster.

An engine takes a function and tasks and gives back, in any order, the number of each task with its result or with the
reason why there is none. A worker that dies costs the task that it died of, not the job.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from distributed import Client

Result = tuple[int, Any, str | None]
"""Number of the task, what came out, and why nothing did."""


@runtime_checkable
class Engine(Protocol):
    """Something that does work."""

    def run(self, function: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]) -> Iterator[Result]:
        """function(common, task) of every task, as they come."""
        ...


@dataclass(frozen=True)
class Serial:
    """In this process, one after the other."""

    def run(self, function: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]) -> Iterator[Result]:
        """function(common, task) of every task, in order."""
        for number, task in enumerate(tasks):
            yield number, function(common, task), None


@dataclass(frozen=True)
class Processes:
    """In several processes of this machine (see `measuring.process_pool`)."""

    count: int

    def run(self, function: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]) -> Iterator[Result]:
        """function(common, task) of every task, as they come."""
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        from probes.measuring.process_pool import run_tasks

        died = []
        for number, future in run_tasks(function, common, dict(enumerate(tasks)), self.count):
            if isinstance(future.exception(), TerminatedWorkerError):
                died.append(number)
            else:
                yield number, *_result(future)
        for number in died:  # once more, with nothing beside it that takes memory: what dies now is the culprit
            for _, future in run_tasks(function, common, {number: tasks[number]}, 1):
                if isinstance(future.exception(), TerminatedWorkerError):
                    yield number, None, "the process that worked on it died (out of memory?)"
                else:
                    yield number, *_result(future)


def _result(future: Future) -> tuple[Any, str | None]:
    """What came out, or why nothing did: a result that cannot be sent back costs itself and no other."""
    error = future.exception()
    if error is None:
        return future.result(), None
    return None, f"nothing came back from the process that worked on it: {type(error).__name__}: {_first_line(error)}"


@dataclass(frozen=True)
class Dask:
    """On a Dask cluster: an address such as tcp://host:8786, or a `distributed.Client` that exists already.

    The scheduler deals the tasks one by one, to whichever worker is free: a worker that did not do the step before
    computes its Gram matrices again. That is the price of leaving workers free to come and go.
    """

    client: "str | Client"
    retries: int = 3

    def run(self, function: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]) -> Iterator[Result]:
        """function(common, task) of every task, as they come."""
        try:
            from distributed import Client, as_completed
        except ImportError:
            raise ImportError("the dask engine needs dask: pip install 'checkpoint-probes[dask]'") from None
        mine = isinstance(self.client, str)
        client: Any = Client(self.client, timeout="10s") if mine else self.client
        try:
            shared = client.scatter(common, broadcast=True)
            numbers = {
                client.submit(function, shared, task, pure=False, retries=self.retries): number
                for number, task in enumerate(tasks)
            }
            for future in as_completed(list(numbers)):
                if future.status == "finished":
                    yield numbers[future], future.result(), None
                else:
                    yield numbers[future], None, f"the cluster gave it up: {_first_line(future.exception())}"
                future.release()
        finally:
            if mine:
                client.close()


def engine_named(text: str) -> Engine:
    """ "serial", "processes", "processes:4", or "dask://host:port"."""
    kind, _, rest = text.partition(":")
    if text == "serial":
        return Serial()
    if kind == "processes" and (not rest or (rest.isdecimal() and int(rest) > 0)):
        return Processes(int(rest) if rest else os.cpu_count() or 1)
    if kind == "dask" and rest.startswith("//") and ":" in rest:
        return Dask(f"tcp:{rest}")
    raise ValueError(f"engine {text!r}: 'serial', 'processes', 'processes:4' or 'dask://host:port' is expected")


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
