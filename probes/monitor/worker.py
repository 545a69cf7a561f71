"""The process beside a training that measures and looks: `python -c "from probes.monitor.worker import main; main()"`.

It is handed messages on its standard input and answers on its standard output; each is a length and a pickle, from the
process that started it and to it alone. The weights come through memory that both have (see `weight_slots`). It ends
when its input ends or its parent is gone, whichever way that went: there is nobody to work for. What a probe prints
goes to standard error.
"""

import os
import pickle
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

from probes.measuring.plan import Plan
from probes.measuring.rows import CheckpointValues
from probes.monitor.slot_measurement import SlotMeasurement
from probes.monitor.weight_slots import SlotLayout, WeightSlots
from probes.series.online import Detector, Event
from probes.series.online.state import look_state

HEADER = struct.Struct("<Q")
_SECONDS = 2.0


@dataclass(frozen=True)
class SetUp:
    """What is the same for all measurements: the plan, and the shared memory by its descriptor."""

    plan: Plan
    layout: SlotLayout
    slots: int
    memory: int
    parent: int


@dataclass(frozen=True)
class Measure:
    """What lies in a slot is the model at a step."""

    step: int
    slot: int


@dataclass(frozen=True)
class Look:
    """Some series as they were at a step."""

    step: int
    detectors: dict[str, Detector]


@dataclass(frozen=True)
class Forget:
    """The next measurement has nothing before it to compare with."""

    reason: str


@dataclass(frozen=True)
class Measured:
    """The answer to `Measure`, with the seconds that it took."""

    step: int
    slot: int
    found: CheckpointValues
    failure: str | None
    seconds: float


@dataclass(frozen=True)
class Looked:
    """The answer to `Look`: of every series what is new, and what its detector knows now."""

    step: int
    found: dict[str, tuple[list[Event], dict[str, Any]]]
    seconds: float


def framed(message: bytes) -> bytes:
    """A pickle with its length in front."""
    return HEADER.pack(len(message)) + message


def main() -> None:
    """Answer until there is nothing more to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the training's to answer
    answers = os.dup(1)
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    measurement: SlotMeasurement | None = None
    parent = os.getppid()
    while (message := _next(parent)) is not None:
        if isinstance(message, SetUp):
            import mmap

            memory = mmap.mmap(message.memory, message.slots * message.layout.nbytes)
            measurement = SlotMeasurement(message.plan, WeightSlots(message.layout, message.slots, memory))
            parent = message.parent
        elif measurement is not None:
            answer = _answer(measurement, message)
            if answer is not None:
                _write(answers, framed(pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)))


def _answer(measurement: SlotMeasurement, message: Measure | Look | Forget) -> Measured | Looked | None:
    """Do what is asked for; what goes wrong is part of the answer."""
    began = time.process_time()
    if isinstance(message, Measure):
        found, failure = measurement.measure(message.step, message.slot)
        return Measured(message.step, message.slot, found, failure, time.process_time() - began)
    if isinstance(message, Look):
        found = {name: (one.look(message.step), look_state(one)) for name, one in message.detectors.items()}
        return Looked(message.step, found, time.process_time() - began)
    measurement.forget(message.reason)
    return None


def _next(parent: int) -> Any:
    """The next message; None when there will be none."""
    header = _read(HEADER.size, parent)
    if header is None:
        return None
    message = _read(HEADER.unpack(header)[0], parent)
    return None if message is None else pickle.loads(message)  # from the process that started this one


def _read(size: int, parent: int) -> bytes | None:
    """So many bytes of the input, or None at its end. A copy of its other end may outlive the parent, in a fork."""
    found = bytearray()
    while len(found) < size:
        if not select.select([0], [], [], _SECONDS)[0]:
            if os.getppid() != parent:
                return None
            continue
        some = os.read(0, size - len(found))
        if not some:
            return None
        found += some
    return bytes(found)


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        sys.exit(0)
