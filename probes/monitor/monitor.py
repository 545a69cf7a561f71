"""A training run measured while it goes on: two lines in the training script.

    with probes.Monitor(model) as monitor:
        for batch in data:
            loss = update(model, batch)          # forward, backward, optimizer.step()
            monitor.step(loss=loss)

The weights after k updates are step k, and the loss of an update belongs to the weights before it, as everywhere here.
The probes are those of `measure`, to the same numbers. Nothing of the training changes: weights are read where they
are, no random generator is touched, and an error in here is reported and never raised. The time it takes is bounded
(`probes.monitor.budget`), its memory too.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from checkpoints import Family, RunWriter
from probes.circuits import Builder
from probes.measuring.catalogue import Wanted
from probes.measuring.rows import CheckpointValues
from probes.monitor import exits
from probes.monitor.adaptive import AdaptiveCheckpoints
from probes.monitor.background import Answer
from probes.monitor.budget import UPDATES_TO_KNOW, Budget
from probes.monitor.distributed import ProcessGroup, SingleProcess, is_bystander
from probes.monitor.evaluation import Evaluation, evaluated
from probes.monitor.guard import Guard
from probes.monitor.guarded_sinks import GuardedSinks
from probes.monitor.home import Home
from probes.monitor.live_measure import LiveMeasurement
from probes.monitor.live_weights import LiveWeights, Model
from probes.monitor.measured_table import MeasuredTable
from probes.monitor.measuring import RESUMED, Measuring
from probes.monitor.quiet_steps import QuietSteps
from probes.monitor.readings import Readings
from probes.monitor.resting import Resting
from probes.monitor.scalar_log import ScalarLog
from probes.monitor.sinks import Sinks, checked_sinks, made_sinks
from probes.monitor.spending_notes import say_what_the_least_costs, sum_up
from probes.monitor.steps import LOOK_RATIO, StepNumber, Steps
from probes.monitor.tracked_scalars import TrackedScalars
from probes.monitor.worker import Measured
from probes.series.online import Event
from probes.series.online.state import apply_look

logger = logging.getLogger("probes.monitor")


class Monitor(Readings):
    """Measures a model in training and announces transitions.

    model          a module, or a function that gives names and tensors; heads are found as in files
    circuits, probes, removed   as for `measure`; distances to the final weights are not among the probes
    config, family              as for `open_run`, where what is found by itself is not right
    schedule       when to measure: a ratio (log-spaced, the default), an interval in steps, or steps
    budget         the largest share of training time to take; less is measured where that would be exceeded
    detect_in      names of the scalars in which transitions are looked for, as patterns; probes have names such as
                   "qk.effective_rank" (mean over all heads) and "ov.marginalized_effective_rank.4". By default what is
                   called like a loss or a score; which those are is said as soon as they come
    alpha          chance of a false announcement in one such series, over the whole run
    interventions  steps at which a drop is your own doing, such as of the learning rate
    on_event       called with every `Event`; evaluate is called too, and the scalars that it returns are recorded
    run            a folder for everything: scalars, measurements, events and checkpoints around events, which `probes
                   watch`, `measure`, `events` and `report` read; without it all stays in memory
    sinks          where else numbers go: names ("csv", "tensorboard", "wandb", "trackio", "parquet") or objects of
                   `probes.monitor.sinks`, one or several
    checkpoints    what is written around events, see `AdaptiveCheckpoints`; False: none, also where there is a run
    background     measure in a process of its own, which training does not wait for
    step           updates done before, in a run that is taken up again: with `run`, what was known then is known again
                   (or see `load_state_dict`)

    Training in several processes: every rank makes a Monitor and calls it alike; the scalars, such as the loss, are
    those of the first rank. Where each holds the whole model (DistributedDataParallel) the first one monitors and the
    others do nothing: on_event and evaluate are called there alone, so evaluate has to call the module inside the
    wrapper. Where the model is sharded (FSDP2) the ranks share the work: the first has the table, the series and the
    sinks, all have the events and call on_event and evaluate. What fails in here on one rank is then given up by all.
    An error of the training that leaves `with` on one of them ends monitoring there and then, waiting for nobody.
    """

    def __init__(
        self,
        model: Model,
        *,
        circuits: str | Sequence[str] | Mapping[str, Builder] | None = None,
        probes: Wanted | None = None,
        removed: int = 4,
        config: Mapping[str, Any] | None = None,
        family: Family | str | None = None,
        name: str = "live",
        schedule: float | int | Iterable[int] = 1.1,
        budget: float | Budget = 0.01,
        detect_in: str | Sequence[str] | None = None,
        alpha: float = 0.01,
        interventions: Sequence[float] = (),
        on_event: Callable[[Event], None] | None = None,
        evaluate: Evaluation | None = None,
        run: str | Path | RunWriter | None = None,
        sinks: Sinks = (),
        checkpoints: AdaptiveCheckpoints | Literal[False] | None = None,
        background: bool = False,
        step: int = 0,
    ) -> None:
        self.weights = LiveWeights(model)
        self.processes = ProcessGroup() if self.weights.is_sharded else SingleProcess()
        self.is_active = isinstance(self.processes, ProcessGroup) or not is_bystander()
        self.budget = budget if isinstance(budget, Budget) else Budget(budget)
        self.tracked = TrackedScalars(detect_in, alpha, interventions)
        self.on_event, self.evaluate = on_event, evaluate
        self.checkpoints = checkpoints or (AdaptiveCheckpoints(None) if run and checkpoints is None else None)
        given = checked_sinks(sinks)
        self.sinks = GuardedSinks(made_sinks(given, name) if self.is_active and self.processes.rank == 0 else ())
        self.detected: list[Event] = []
        """What was announced, in this order; `events` is the table of it."""
        self.done = step
        """Updates done so far."""
        self.measured = -1
        """The step of the last measurement."""
        self.home: Home | None = None
        """Where everything is written, on the first rank."""
        self._schedule, self._looks, self._number = Steps(schedule), Steps(LOOK_RATIO), StepNumber()
        self._guarded, self._measured = Guard(), MeasuredTable()
        self._scalars = ScalarLog(self.tracked, self.sinks, self._guarded, keep=self.processes.rank == 0)
        self._began = self._guarded.step = step
        self._known = Steps([step + UPDATES_TO_KNOW])  # how long an update takes
        self._resting = Resting(self.budget, self._scalars, self.tracked, self._schedule, self._looks)
        self._quiet = QuietSteps(self.budget, self._scalars, self.checkpoints, self._resting, self._known)
        if not self.is_active:
            return
        self._measurement = self.processes.everywhere(
            LiveMeasurement, self.weights, name, circuits, probes, removed, config, family, self.processes
        )
        self.processes.everywhere(self.weights.must_have, self.processes.first(self.weights.names))
        if step > 0:
            self._measurement.forget(RESUMED)
        self._measuring = Measuring(self._measurement, self.processes, self.budget)
        self.processes.first(self._move_in, run, step)
        self._schedule.start(step)
        self._looks.go_on(step)  # as if training had never stopped
        if self.checkpoints:
            writer = self.home.writer if self.home else None
            self.checkpoints.start(step, self._measurement.run, self.weights, self.processes, writer)
        self.processes.first(self._measuring.start, step, background)
        exits.remember(self)
        with self._working():
            self._guarded(self._weights_changed, step)
        self.budget.start()

    def _move_in(self, run: str | Path | RunWriter | None, step: int) -> None:
        """Open the run that everything is written to; where it is gone on with, know again what was known."""
        if run is not None:
            self.home = Home(run, step, self._measurement.run)
            self._scalars.write_through(self.home.sink)
            self.detected += self.home.restore(step, self.tracked, self._measurement.rows, self._measured)

    def step(self, step: Any = None, *unnamed: Any, **scalars: float | Tensor) -> None:
        """One update was made. The scalars, such as the loss, were computed with the weights before it.

        step is the number of updates made so far; without it calls are counted. What has no name is taken for it if it
        is a whole number; else it is said that scalars have names, once, and nothing is raised.
        """
        number = self.done + 1 if step is None else step
        if not unnamed and self._quiet.takes(number, scalars):
            self.done = number
            return
        self.done = self._number.of(step, self.done + 1, unnamed)
        if not self.is_active:
            return
        with self._working():
            if scalars:
                self._guarded(self._scalars.add, self.done - 1, scalars)
            self._guarded(self._weights_changed, self.done)
            if self.processes.count == 1:
                self._quiet.wait(self.done, self._measuring)

    def log(self, step: Any = None, *unnamed: Any, **scalars: float | Tensor) -> None:
        """Scalars of the weights after `step` updates (those done so far): an evaluation, for instance."""
        if self.is_active:
            with self._working():
                self._guarded(self._scalars.add, self._number.of(step, self.done, unnamed), scalars)

    def close(self) -> None:
        """Measure the last weights, look once more, and close the sinks. What follows is not monitored.

        Of a sharded model all ranks have to close their monitors.
        """
        if not self.is_active:
            return
        self._guarded.step = self.done
        with self.budget.spending():
            self._resting.wake(self.done)
            self._guarded(self._scalars.flush)
            if self.measured != self.done:
                self._guarded(self._measure, self.done, True)
            self._guarded(self._collect, True)
            self._guarded(self._look, self.done, True)
            self._guarded(self._collect, True)
            if self.processes.rank == 0:
                self._guarded(self.tracked.tell_end, self.done)
            if self.checkpoints:
                with self.budget.on_account_of(self.checkpoints.budget):
                    self._guarded(self.checkpoints.close, self.done, self.weights, self.processes)
            self._end()

    def break_off(self) -> None:
        """Flush what is buffered and close the sinks, without another look at the weights: they are no longer certain.

        For a training that raised, perhaps halfway through an update and in one process only: this waits for nobody.
        """
        if self.is_active:
            self._guarded(self._scalars.flush)
            self._guarded(self._collect, True)
            if self.processes.count == 1:
                self._guarded(self._announce_alarms)  # perhaps why it raised
            if self.checkpoints:
                self._guarded(self.checkpoints.abandon)
            self._end()

    def _end(self) -> None:
        """Nothing more comes."""
        self.is_active, self._quiet.until = False, 0
        self._guarded(self._measuring.end)
        self.sinks.close()
        if self.home:
            self._guarded(self.home.close)
        exits.forget(self)
        if self.processes.rank == 0:
            written = self.checkpoints and self.checkpoints.budget
            sum_up(self.budget, self.done - self._began, self._measuring.worker_seconds, written)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Counts the time; a process that is told to end meanwhile does so afterwards."""
        self._guarded.step = self.done
        with self.budget.spending():
            yield
        if not self.is_busy:
            exits.act_on_termination()

    def __enter__(self) -> "Monitor":
        """The monitor itself, which measured the first weights when it was made."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """Close; where training went wrong on one rank, without the others, which may not know it."""
        if error is None or self.processes.count == 1:
            self.close()
        else:
            self.break_off()

    def _weights_changed(self, step: int) -> None:
        """Write, look and measure, whatever is due now."""
        self._resting.wake(step)
        if self._measuring.background:
            self._guarded(self._collect)
        if self.checkpoints:
            with self.budget.on_account_of(self.checkpoints.budget):
                self._guarded(self.checkpoints.step, step, self.weights, self.processes)
        if self._known.is_due(step) and self.processes.rank == 0:
            self._guarded(say_what_the_least_costs, self.budget, self._measuring.kind, self._measuring.floors)
        if self._looks.is_due(step):
            self._guarded(self._look, step)
        elif self.processes.count == 1 and self.tracked.has_alarms:  # several processes act together, at looks
            self._guarded(self._announce_alarms)
        if self._schedule.is_due(step) and self.processes.first(self._measuring.is_affordable, step):
            self._guarded(self._measure, step)

    def _measure(self, step: int, last: bool = False) -> None:
        """Measure on all ranks; the first takes in what they found, now or when a worker says so."""
        self.measured = step
        for answer in self._measuring.measure(step, all_probes=last):
            self.processes.first(self._answered, answer)

    def _flush(self) -> None:
        """Bring what is buffered to the records and the sinks, and to the disk where there is a run."""
        self._guarded(self._scalars.flush)
        self._guarded(self._collect)
        if self.home:
            self.home.flush()

    def _collect(self, last: bool = False) -> None:
        """Take in what a worker has answered."""
        for answer in self._measuring.answers(last=last):
            self._guarded(self._answered, answer)

    def _answered(self, answer: Answer) -> None:
        """What a measurement or a look has found."""
        if isinstance(answer, Measured):
            self._take_in(answer.found, answer.failure)
            return
        for name, (events, state) in answer.found.items():
            apply_look(self.tracked.detectors[name], state, events)
            self._guarded(self._looked_at, name, answer.step)
            for event in events:
                self._announce(replace(event, detected_at=max(self.done, event.detected_at)))

    def _take_in(self, found: CheckpointValues, failure: str | None) -> None:
        """Bring a measurement to the table, the records and the sinks, and then raise what it could not do."""
        self._measured.add(found)
        self.tracked.add_means(found.step, partial(self._measurement.rows.means, found))
        if self.sinks.sinks:
            self.sinks.rows(self._measurement.table([found]))
        if failure:
            raise RuntimeError(failure)

    def _look(self, step: int, last: bool = False) -> None:
        """Look for transitions; the first rank does, and all act on what it finds."""
        for event in self.processes.first(self._found, step, last):
            self._announce(event)

    def _found(self, step: int, last: bool) -> list[Event]:
        """What is new in the series that there is time to look at (the last time, in all); a worker says so later."""
        is_time = last or self._measuring.may_look(step, self.tracked, len(self._scalars.buffer))
        if is_time:
            self._guarded(self._scalars.flush)
        found = self.tracked.take_alarms()
        for name, events in self._measuring.look(step, self.tracked.ready(last=last), last=last) if is_time else ():
            found += events
            self._guarded(self._looked_at, name, step)
        return found

    def _announce_alarms(self) -> None:
        """Tell of what cannot wait for a look."""
        for event in self.tracked.take_alarms():
            self._announce(event)

    def _looked_at(self, name: str, step: int) -> None:
        """Write down what a look has learned, for whoever goes on with this run."""
        if self.home:
            self.home.looked_at(name, step, self.tracked.detectors[name])

    def _announce(self, event: Event) -> None:
        """Tell everybody who asked to be told. What they do with it does not count as the monitor's time."""
        self.detected.append(event)
        if self.processes.rank == 0:
            logger.warning("%s", event)
            self.sinks.event(event)
        with self.budget.not_ours():
            if self.checkpoints:
                self._guarded(self.checkpoints.event, event, self.processes)
            if self.on_event:
                self._guarded(self.on_event, event)
            if evaluate := self.evaluate:
                self._guarded(lambda: self._scalars.add(self.done, evaluated(evaluate, self.weights.model)))
