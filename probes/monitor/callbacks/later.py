"""A monitor that is made later, when a trainer has its model: what is asked for wrongly is refused now."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from probes.monitor.budget import Budget
from probes.monitor.live_measure import live_probes
from probes.monitor.live_weights import Model
from probes.monitor.monitor import Monitor
from probes.monitor.steps import Steps
from probes.series.online import Detector

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
        live_probes(asked["probes"])

    def begin(self, model: Model, step: int) -> Monitor:
        """The monitor of a model after `step` updates."""
        return Monitor(model, step=step, **self._settings)


def _kept(value: Any) -> Any:
    """An iterator as a list: it is read by the checks, and by every training."""
    return list(value) if isinstance(value, Iterator) else value
