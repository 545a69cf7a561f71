"""Trainers may evaluate twice after the same update; a series has one value per step."""

from collections.abc import Mapping

from torch import Tensor

from probes.monitor.monitor import Monitor


class FirstValuePerStep:
    """Hands scalars on to a monitor: of each name, the first at a step."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._latest: dict[str, int] = {}

    def log(self, step: int, scalars: Mapping[str, float | Tensor]) -> None:
        """Scalars of the weights after `step` updates."""
        new = {name: value for name, value in scalars.items() if step > self._latest.get(name, -1)}
        if new:
            self._latest |= dict.fromkeys(new, step)
            self._monitor.log(step=step, **new)
