"""Measuring in a process of its own: training pays for a copy of the weights, and the worker does the rest.

The weights are copied into one of a ring of slots in memory that both processes have, and the worker is told; its
answers are picked up at later steps. Nothing here waits: what cannot be sent stays in a buffer, and where no slot is
free a measurement is left out and counted. At the end the worker is given time to finish.

A worker that dies is not started again: what lies in the slots is measured here, and so is everything from then on.
"""

import contextlib
import mmap
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from joblib.externals.loky.cloudpickle_wrapper import dumps as dumps_by_value

from checkpoints.files.in_memory import InMemory
from probes.monitor.live_measure import LiveMeasurement
from probes.monitor.slot_measurement import SlotMeasurement
from probes.monitor.weight_slots import WeightSlots
from probes.monitor.worker import HEADER, Forget, Look, Looked, Measure, Measured, SetUp, framed
from probes.series.online import Detector

_RING_BYTES = 2**27
_FEWEST, _MOST = 4, 64
"""Slots: one is measured, one was before and is compared with, one waits, one is filled."""
_PIPE_BYTES = 2**20
_START = "from probes.monitor.worker import main; main()"

Answer = Measured | Looked


class DiedError(RuntimeError):
    """The worker is gone."""


class Background:
    """A worker process and the slots that it shares with this one."""

    def __init__(self, measurement: LiveMeasurement) -> None:
        if os.name != "posix":
            raise ValueError("background=True shares memory as POSIX systems do: leave it out here")
        layout = measurement.layout
        count = max(_FEWEST, min(_MOST, _RING_BYTES // layout.nbytes))
        memory = _shared_memory(count * layout.nbytes)
        try:
            set_up = SetUp(measurement.plan, layout, count, memory, os.getpid())
            message = dumps_by_value(set_up)
        except Exception as error:
            os.close(memory)
            raise ValueError(
                f"background=True has to hand circuits and probes to another process, and cannot: {error}. Define them "
                "where they can be imported, or measure in this process"
            ) from error
        self.slots = WeightSlots(layout, count, mmap.mmap(memory, count * layout.nbytes))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[memory],
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the training
        )
        os.close(memory)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        for descriptor in (self._in, self._out):
            os.set_blocking(descriptor, False)
        _widen(self._in)
        self._owner = os.getpid()
        self._free, self._previous, self._previous_step = list(reversed(range(count))), -1, -1
        self._waiting: dict[int, int] = {}  # slot to step, oldest first
        self._looks: set[str] = set()
        self._sending, self._received = bytearray(framed(message)), bytearray()
        self.seconds = 0.0
        """Of processor time that the worker spent."""

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to send or to receive."""
        return bool(self._waiting or self._looks or self._sending)

    def measure(self, step: int, weights: InMemory) -> None:
        """Copy the weights and have them measured; only where there is room."""
        slot = self._free.pop()  # the one that was used last, whose memory is there already
        try:
            self.slots.fill(slot, weights)
        except Exception:
            self._free.append(slot)
            raise
        self._waiting[slot] = step
        self._send(Measure(step, slot))

    def forget(self, reason: str) -> None:
        """The next measurement has nothing before it to compare with."""
        self._send(Forget(reason))

    def look(self, step: int, detectors: Mapping[str, Detector]) -> int:
        """Have those series looked at, as they are now, at which the last look is finished; how many these are."""
        some = {name: one for name, one in detectors.items() if name not in self._looks}
        self._looks.update(some)
        if some:
            self._send(Look(step, some))
        return len(some)

    def answers(self) -> Iterator[Answer]:
        """What has come since the last time. Raises DiedError where the worker is gone, after what it still said."""
        if self.is_waiting:
            is_alive = self._exchange()
            yield from self._answered()
            if not is_alive:
                raise DiedError(f"the worker ended with {_how(self.process.wait())}")

    def finish(self, seconds: float) -> Iterator[Answer]:
        """All answers that are still to come, and then the worker ends; raises DiedError where it does not give them.

        seconds are the patience with one answer.
        """
        last = time.monotonic()
        while self._waiting or self._looks:
            select.select([self._out], [self._in] if self._sending else [], [], 0.1)
            is_alive = self._exchange()
            for answer in self._answered():
                last = time.monotonic()
                yield answer
            if not is_alive:
                raise DiedError(f"the worker ended with {_how(self.process.wait())}")
            if time.monotonic() - last > seconds:
                raise DiedError(f"the worker did not answer for {seconds:g} s")

    def unfinished(self, measurement: SlotMeasurement) -> Iterator[Measured]:
        """What the worker left undone, measured here, oldest first."""
        if self._previous >= 0:
            measurement.measure(self._previous_step, self._previous)  # for what is compared with it
        for slot, step in self._waiting.items():
            began = time.process_time()
            found, failure = measurement.measure(step, slot)
            yield Measured(step, slot, found, failure, time.process_time() - began)
        self._waiting.clear()
        self._looks.clear()

    def end(self) -> None:
        """Let the worker go, at once; it is waited for, so that none is left behind."""
        if self._owner != os.getpid():
            return  # a fork's copy
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        try:
            self.process.wait(0.5)  # at the end of its input it ends by itself
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _send(self, message: Measure | Look | Forget) -> None:
        self._sending += framed(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        self._write()

    def _write(self) -> None:
        """Send as much as goes without waiting."""
        try:
            while self._sending:
                del self._sending[: os.write(self._in, self._sending)]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more; what was answered before is still there
            self._sending.clear()

    def _exchange(self) -> bool:
        """Send and receive as much as goes without waiting; whether the worker is there."""
        self._write()
        try:
            while some := os.read(self._out, 2**20):
                self._received += some
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _answered(self) -> Iterator[Answer]:
        """The whole answers among what was received."""
        while len(self._received) >= HEADER.size:
            end = HEADER.size + HEADER.unpack(self._received[: HEADER.size])[0]
            if len(self._received) < end:
                return
            answer: Any = pickle.loads(self._received[HEADER.size : end])  # from the process that was started here
            del self._received[:end]
            self.seconds += answer.seconds
            if isinstance(answer, Measured):
                del self._waiting[answer.slot]
                if self._previous >= 0:
                    self._free.append(self._previous)
                self._previous, self._previous_step = answer.slot, answer.step
            else:
                self._looks.difference_update(answer.found)
            yield answer


def _shared_memory(size: int) -> int:
    """A descriptor of memory without a name, which is gone when nobody has it any more."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("probes-monitor")
    else:
        with tempfile.TemporaryFile() as file:
            memory = os.dup(file.fileno())
    os.ftruncate(memory, size)
    return memory


def _widen(pipe: int) -> None:
    """Room for all series of a look at once, where the system gives it: what has no room waits for the next update."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _environment() -> dict[str, str]:
    """The worker finds the same modules, uses one thread and no accelerator."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    return {**os.environ, **threads, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}


def _how(code: int) -> str:
    """How a process ended, in words."""
    with contextlib.suppress(ValueError):
        if code < 0:
            return signal.Signals(-code).name
    return f"exit status {code}"
