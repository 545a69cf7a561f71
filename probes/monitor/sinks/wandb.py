"""Weights & Biases: scalars under their names, the mean over the heads of each layer, events as points.

W&B's own step can only grow, and every row counts as one. What comes here may come in any order (a measurement after
the loss of a later step), so the step is a column of its own, called "step", and the x axis of everything logged here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from probes.monitor.sinks.sink import Sink
from probes.monitor.sinks.values import finite_scalars, means_by_tag
from probes.series.online import Event

if TYPE_CHECKING:
    import wandb


class WandB(Sink):
    """Logs to the run that is handed in, or is going on (`wandb.run`), or else to one that it begins and finishes.

    init goes to `wandb.init`, e.g. mode="offline", name=..., id=... and resume="must". To a run that is not its own it
    adds rows: there, log with a step column too (`run.log({"step": s, ...})`), not with `run.log(..., step=s)`, which
    W&B ignores when rows of others have already counted further than s.

    W&B's own service writes what is logged every 15 s and ends with a process that is killed, so that a kill may cost
    as much: a run that is taken up from a checkpoint older than that, under its id, has all of it.
    """

    def __init__(self, project: str | None = None, run: "wandb.Run | None" = None, **init: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError(f"pip install 'checkpoint-probes[wandb]' to log to it ({error})") from error
        going_on = run or wandb.run
        if going_on is not None and init:
            raise ValueError(f"{', '.join(init)}: a W&B run is going on ({going_on.name}), so none is begun with these")
        self.run = going_on or wandb.init(project=project, **init)
        self._is_own = going_on is None
        self._known: set[str] = set()
        self._events: list[str] = []

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """One row of history, with its step as a column; none if no number is finite."""
        finite = finite_scalars(scalars)
        for name in finite.keys() - self._known:
            self.run.define_metric(name, step_metric="step")
            self._known.add(name)
        if finite:
            self.run.log({**finite, "step": step})

    def rows(self, table: pd.DataFrame) -> None:
        """The means over heads, one row."""
        for step, means in means_by_tag(table).items():
            self.scalars(step, means)

    def event(self, event: Event) -> None:
        """A point where it was detected, as high as the step at which it happened; and a line in the summary."""
        self.scalars(event.detected_at, {f"events/{event.kind} of {event.metric}": event.step})
        self._events.append(str(event))
        self.run.summary["events"] = list(self._events)

    def close(self) -> None:
        """Finish the run if it was begun here."""
        if self._is_own:
            self.run.finish()
