"""Acting on an announcement in every process, although only the first may know of it.

Saving and evaluating are done by all processes together: if one began alone, it would wait for the others for ever. So
all ask the first one, at the steps at which it may have looked; these they know without asking.
"""

import torch.distributed as dist

from probes.monitor.distributed import ProcessGroup, SingleProcess
from probes.monitor.monitor import LOOK_RATIO, Monitor
from probes.monitor.steps import Steps


class EventPoll:
    """Whether a monitor announced something at a step. To be asked after every update, in every process."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor, self._known = monitor, 0
        self._looks = Steps(LOOK_RATIO)
        self._looks.start(monitor.done)
        self._looks.is_due(monitor.done)  # that look was made when monitoring began
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._ranks = ProcessGroup() if several else SingleProcess()

    def at(self, step: int) -> bool:
        """Whether there is an event that was not there the last time."""
        if not self._looks.is_due(step):
            return False
        before, self._known = self._known, self._ranks.first(len, self._monitor.events)
        return self._known > before
