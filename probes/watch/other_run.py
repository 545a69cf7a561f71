"""Watching what other trainers write: a folder of steps, a Trainer's output, opened again at every poll.

Their metrics, where they have any, are read again only when there is a new checkpoint: that is when they are written.
"""

import time
import warnings
from pathlib import Path

from checkpoints import open_run
from probes.watch.measured import NewestCheckpoint
from probes.watch.metrics import Metrics
from probes.watch.snapshot import Snapshot


class OtherRunReader:
    """A run of any source on this disk, polled."""

    def __init__(self, path: Path, *, measures: bool) -> None:
        self.path, self.measures = path, measures
        self._metrics, self._newest = Metrics(), NewestCheckpoint()
        self._steps: list[int] = []
        self._grew: float | None = None
        self._said: tuple[str, ...] = ()

    def poll(self, *, waits: bool = False) -> Snapshot:
        """What is known now. waits: until the newest has been measured."""
        with warnings.catch_warnings(record=True) as said:  # on the screen they belong into the view
            warnings.simplefilter("always")
            run = open_run(self.path)
            if run.steps != self._steps:
                self._grew = time.monotonic() if self._steps else None
                self._steps, self._metrics = run.steps, Metrics()
                for step, scalars in run.metrics.to_dict("index").items():
                    self._metrics.add(step, {str(name): value for name, value in scalars.items()})
                self._said = tuple(dict.fromkeys(str(warning.message) for warning in said))
        if self.measures:
            self._newest.measure(run) if waits else self._newest.follow(run)
        metrics = self._metrics
        return Snapshot(
            source=str(self.path),
            name=run.name,
            family=run.family,
            state=self._state(),
            read_at=time.monotonic(),
            last_step=metrics.last_step,
            latest=dict(metrics.latest),
            main=metrics.main,
            curve=metrics.curves[metrics.main].points() if metrics.main else [],
            checkpoints=len(run.steps),
            last_checkpoint=run.steps[-1] if run.steps else None,
            table=self._newest.table,
            table_source="here",
            heads=tuple(self._newest.heads.courses()),
            events=tuple(metrics.events),
            events_source=metrics.events_source,
            problems=(*self._said, *([self._newest.problem] if self._newest.problem else [])),
        )

    def _state(self) -> str:
        """What is known of who is at work on it: others lock nothing, so only that it grew."""
        if self._grew is None:
            return "cannot be told of this kind of run; no new checkpoint while watching"
        return f"the last new checkpoint came {time.monotonic() - self._grew:.0f} s ago"
