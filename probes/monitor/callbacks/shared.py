"""What the callbacks of all trainers share, because a trainer is not a loop of one's own in four ways.

MonitorSettings     the model is there later than the callback: what is asked for wrongly is refused at once
FirstValuePerStep   it may evaluate twice after the same update: a series has one value per step
tell_outlook        it logs as seldom as it likes: what can then be watched is said before training
EventPoll           it saves and evaluates in all processes together, though only the first may know of an event
"""

import inspect
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor

from probes.monitor.budget import Budget
from probes.monitor.distributed import ProcessGroup, SingleProcess
from probes.monitor.live_measure import live_probes
from probes.monitor.live_weights import Model
from probes.monitor.monitor import Monitor
from probes.monitor.sinks import checked_sinks
from probes.monitor.steps import LOOK_RATIO, Steps
from probes.series.online import BY_BLOCKS, FEWEST_ENTRIES, SHORT_RATIO, Detector

logger = logging.getLogger("probes.monitor")

_GIVEN_BY_THE_TRAINER = ("model", "step")


class MonitorSettings:
    """The keyword arguments of a `Monitor`, all but those that the trainer gives, checked as far as possible.

    Whether the model has the heads that are asked for is only seen when there is one, before the first update.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        known = inspect.signature(Monitor).parameters
        for name in settings:
            if name in _GIVEN_BY_THE_TRAINER:
                raise TypeError(f"{name} comes from the trainer: leave it out")
            if name not in known:
                names = ", ".join(other for other in known if other not in _GIVEN_BY_THE_TRAINER)
                raise TypeError(f"a monitor has no setting {name!r}; there are {names}")
        self._settings: dict[str, Any] = {name: _kept(value) for name, value in settings.items()}
        asked = {name: parameter.default for name, parameter in known.items()} | self._settings
        Budget(asked["budget"])
        Steps(asked["schedule"])
        Detector("loss", asked["alpha"])
        live_probes(asked["probes"], asked["removed"])
        checked_sinks(asked["sinks"])

    def begin(self, model: Model, step: int) -> Monitor:
        """The monitor of a model after `step` updates."""
        return Monitor(model, step=step, **self._settings)


def _kept(value: Any) -> Any:
    """An iterator as a list: it is read by the checks, and by every training."""
    return list(value) if isinstance(value, Iterator) else value


def tell_outlook(monitor: Monitor, steps: int, every: int, how: str) -> None:
    """Say, before training, how often what a trainer logs will be looked at, where that is never or seldom.

    steps is how many updates are to come, every the number of updates from one value to the next, how the setting that
    says so.
    """
    if not monitor.is_active or monitor.processes.rank != 0 or steps <= 0 or every <= 1:
        return
    values, looks, due = steps // every, 0, FEWEST_ENTRIES
    while due <= values:
        looks, due = looks + 1, math.ceil(SHORT_RATIO * due) if due < BY_BLOCKS else math.ceil(LOOK_RATIO * due)
    if looks == 0:
        logger.warning(
            "nothing can be watched in this training: %s, and %d updates give %d values, of which a first look takes "
            "%d. %s makes it possible",
            how,
            steps,
            values,
            FEWEST_ENTRIES,
            f"{how.split('=')[0]}={max(1, steps // (5 * FEWEST_ENTRIES))}",
        )
    else:
        logger.warning(
            "%s: %d updates give %d values, which are looked at %d times, first after %d updates. What happens within "
            "fewer than %d updates is not resolved",
            how,
            steps,
            values,
            looks,
            FEWEST_ENTRIES * every,
            2 * every,
        )


class FirstValuePerStep:
    """Passes scalars to a monitor: of each name, the first at a step."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._latest: dict[str, int] = {}

    def log(self, step: int, scalars: Mapping[str, float | Tensor]) -> None:
        """Scalars of the weights after `step` updates."""
        new = {name: value for name, value in scalars.items() if step > self._latest.get(name, -1)}
        if new:
            self._latest |= dict.fromkeys(new, step)
            self._monitor.log(step=step, **new)


class EventPoll:
    """Whether a monitor detected something at a step. To be asked after every update, in every process.

    If one process began to save or to evaluate alone, it would wait for the others for ever. So all ask the first one,
    at the steps at which it may have looked; these they know without asking.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor, self._known = monitor, 0
        self._looks = Steps(LOOK_RATIO)
        self._looks.go_on(monitor.done)
        self._looks.is_due(monitor.done)  # that look was made when monitoring began
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._processes = ProcessGroup() if several else SingleProcess()

    def at(self, step: int) -> bool:
        """Whether there is an event that was not there the last time."""
        if not self._looks.is_due(step):
            return False
        before, self._known = self._known, self._processes.first(len, self._monitor.detected)
        return self._known > before
