"""A monitor that is made later, when a trainer has its model: what is asked for wrongly is refused now."""

import inspect
from collections.abc import Mapping
from typing import Any

from probes.monitor.budget import Budget
from probes.monitor.live_measure import live_probes
from probes.monitor.live_weights import Model
from probes.monitor.monitor import Monitor
from probes.monitor.steps import Steps
from probes.online import Detector

_GIVEN_BY_THE_TRAINER = ("model", "step")


class LaterMonitor:
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
        self._settings = {
            name: value if name not in ("schedule", "sinks") or isinstance(value, int | float) else list(value)
            for name, value in settings.items()  # an iterator would be used up by the checks
        }
        _check(**{name: known[name].default for name in ("budget", "schedule", "alpha", "probes")} | self._settings)

    def begin(self, model: Model, step: int) -> Monitor:
        """The monitor of a model after `step` updates."""
        return Monitor(model, step=step, **self._settings)


def _check(*, budget: float, schedule: Any, alpha: float, probes: Any, **_others: Any) -> None:
    Budget(budget)
    Steps(schedule)
    Detector("loss", alpha)
    live_probes(probes)
