"""What a monitor can be asked while training goes on, or after: the table, the events, one series."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from probes.monitor.budget import Budget
from probes.monitor.distributed import SingleProcess
from probes.monitor.guard import Guard
from probes.monitor.guarded_sinks import GuardedSinks
from probes.monitor.live_measure import LiveMeasurement
from probes.monitor.measured_table import MeasuredTable
from probes.monitor.scalar_log import ScalarLog
from probes.monitor.state import restore, state_of
from probes.monitor.tracked_scalars import TrackedScalars
from probes.series.derivatives import norm_curvature
from probes.series.online import Event
from probes.series.transitions.transition import transitions_table


class Readings:
    """The part of a `Monitor` that only reads what the rest of it keeps."""

    budget: Budget
    sinks: GuardedSinks
    tracked: TrackedScalars
    detected: list[Event]
    done: int
    is_active: bool
    processes: SingleProcess
    _guarded: Guard
    _scalars: ScalarLog
    _measured: MeasuredTable
    _measurement: LiveMeasurement  # where the monitor is active

    @property
    def is_busy(self) -> bool:
        """Whether it is in the middle of something."""
        return self.budget.is_running

    @property
    def failure(self) -> Exception | None:
        """The first error in here, if there was one."""
        return self._guarded.failure

    @property
    def table(self) -> pd.DataFrame:
        """What was measured, as `measure` gives it; beyond half a million rows, the latest ones."""
        return self._measured.table(self._measurement) if self._measured else pd.DataFrame()

    @property
    def events(self) -> pd.DataFrame:
        """What was detected, ordered by step: the columns of `find_transitions`, then metric and detected_at.

        detected_at is the number of updates made when it was announced.
        """
        return transitions_table(self.detected, Event)

    def series(self, name: str) -> pd.Series:
        """A scalar or a probe's mean over heads ("ov.norm"), by step; long ones averaged over short stretches."""
        self._guarded(self._scalars.flush)
        if name not in self.tracked.records:
            raise KeyError(f"no scalar is called {name!r}; there are {', '.join(self.tracked.records) or 'none yet'}")
        record = self.tracked.records[name]
        return pd.Series(record.values, index=pd.Index(record.steps, name="step"), name=name)

    def autocorrelation_curvature(self, name: str = "loss") -> pd.DataFrame:
        """Of a scalar that `detect_in` names, so far: lag and curvature, see `loss_autocorrelation_curvature`."""
        self._guarded(self._scalars.flush)
        if name not in self.tracked.autocorrelations:
            known = ", ".join(self.tracked.autocorrelations) or "none yet"
            raise KeyError(f"{name!r} is no scalar in which transitions are looked for (detect_in); there are {known}")
        return self.tracked.autocorrelations[name].curvature()

    def norm_curvature(self, circuit: str = "ov") -> pd.Series:
        """Of the mean norm of a circuit over all heads, by step."""
        norms = self.series(f"{circuit}.norm").loc[1:]  # step 0 has no logarithm
        return pd.Series(norm_curvature(norms, norms.index), index=norms.index)

    def state_dict(self, *, table: bool = True) -> dict[str, Any]:
        """All that is known so far, as lists, numbers and strings, to be kept beside a checkpoint of the training.

        What is buffered is written first, by all sinks, so that nothing is missing where training goes on from here.
        Without the table of what was measured it is smaller.
        """
        if self.is_active:
            self._guarded(self._flush)
            self.sinks.flush()
        return state_of(self.done, self.tracked, self.detected, self._measured, table=table)

    def load_state_dict(self, known: Mapping[str, Any]) -> None:
        """Go on from a state, in a monitor newly made with step= the updates made then. Raises where it is another's.

        Of several processes the first one knows, and the others need not be told.
        """
        if self.is_active and self.processes.rank == 0:
            self.detected = restore(known, self.done, self.tracked, self._measured, self._measurement.rows)

    def _flush(self) -> None:
        """Bring what is buffered to where it belongs."""
        raise NotImplementedError
