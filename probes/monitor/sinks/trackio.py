"""Trackio: scalars under their names, the mean over the heads of each layer, events as points and as alerts.

Trackio keeps runs in a database on this machine (`trackio show` opens its dashboard) or sends them to a Space. Its
steps may come in any order, so the step of each number is Trackio's own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from probes.monitor.sinks.sink import Sink
from probes.monitor.sinks.values import finite_scalars, means_by_tag
from probes.series.online import ALARMS, Event

if TYPE_CHECKING:
    from trackio.run import Run


class Trackio(Sink):
    """Logs to the run that is handed in, or is going on, or else to one that it begins and finishes.

    init goes to `trackio.init`, e.g. name=..., space_id=... or resume="must"; without auto_log_cpu and auto_log_gpu
    it measures no processors, which would be threads beside your training. alerts: whether events are alerts as well.
    """

    def __init__(
        self, project: str | None = None, run: "Run | None" = None, *, alerts: bool = True, **init: Any
    ) -> None:
        try:
            import trackio
            from trackio import context_vars
        except ImportError as error:
            raise ImportError(f"pip install 'checkpoint-probes[trackio]' to log to it ({error})") from error
        going_on = run or context_vars.current_run.get()
        if going_on is not None and init:
            raise ValueError(
                f"{', '.join(init)}: a Trackio run is going on ({going_on.name}), so none is begun with these"
            )
        quiet: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self.run = going_on or trackio.init(project=project or "checkpoint-probes", **{**quiet, **init})
        self.alerts, self._is_own, self._levels = alerts, going_on is None, trackio.AlertLevel

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """One row at its step; none if no number is finite."""
        finite = finite_scalars(scalars)
        if finite:
            self.run.log(finite, step=step)

    def rows(self, table: pd.DataFrame) -> None:
        """The means over heads, one row."""
        for step, means in means_by_tag(table).items():
            self.scalars(step, means)

    def event(self, event: Event) -> None:
        """A point where it was detected, as high as the step at which it happened; and an alert."""
        self.scalars(event.detected_at, {f"events/{event.kind} of {event.metric}": event.step})
        if self.alerts:
            level = self._levels.ERROR if event.kind in ALARMS else self._levels.WARN
            self.run.alert(title=f"{event.kind} of {event.metric}", text=str(event), level=level)

    def close(self) -> None:
        """Finish the run if it was begun here."""
        if self._is_own:
            self.run.finish()
