"""A monitor in the Trainer of Transformers: one more callback.

    from probes.monitor.callbacks.huggingface import MonitorCallback

    Trainer(model, TrainingArguments(..., logging_steps=1), ..., callbacks=[MonitorCallback(budget=0.01)])

Steps are the Trainer's `global_step`: updates, not micro-batches, and a training that is resumed counts on. Set
logging_steps=1 to have the loss of every update. What the Trainer logs as loss is the mean over the updates since it
last logged, so with larger logging_steps each value is put in the middle of those, and less is seen in it: how often it
can be looked at, if at all, is said before training (the default, 500, leaves nothing of trainings under 20,000 steps).

Besides the loss, everything that is logged is recorded: evaluations ("eval_loss") belong to the weights that were
evaluated, the norm of the gradient and the learning rate to the weights before the last update. Times, memory and
progress are left out, and so is the summary at the end. A loss of exactly 0 is taken as missing unless
logging_nan_inf_filter=False: with it, the Trainer's default, that is what is logged where the loss is not a number.

What the monitor knows, all but the table, goes into the Trainer's own checkpoints (trainer_state.json), and a training
that is resumed from one goes on being watched as if it had not stopped.

The end: where training raises, the Trainer tells nobody. Scalars still buffered (a second's worth) are then flushed,
and the sinks closed, when the callback is no longer used or Python ends; the weights, which may be halfway through an
update, are not measured again. Nor are they where the Trainer has put the best ones in their place
(load_best_model_at_end). A second `train()` with the same callback has a new monitor and the same sinks, closed.
"""

import math
import weakref
from collections import defaultdict
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

from torch import Tensor

from probes.monitor.callbacks.shared import EventPoll, FirstValuePerStep, MonitorSettings, logger, tell_outlook
from probes.monitor.monitor import Monitor

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError(
        "this callback is for the Trainer of Transformers: pip install 'checkpoint-probes[huggingface]'"
    ) from error

_BOOKKEEPING = ("epoch", "step", "num_input_tokens_seen", "*_runtime", "*_per_second", "*_mem_*")
_SUMMARY = "total_flos"  # is logged once, at the end, with means over the whole training
_STATE = "probes.Monitor"  # in trainer_state.json
_OF_THE_LAST_UPDATE = ("grad_norm", "learning_rate")


class MonitorCallback(TrainerCallback):
    """Keyword arguments are those of `probes.Monitor`, all but model and step.

    save_on_event      let the Trainer write a checkpoint of its own, from which it can resume, at every event;
                       save_total_limit counts it as any other
    evaluate_on_event  let it evaluate there too
    """

    def __init__(self, *, save_on_event: bool = False, evaluate_on_event: bool = False, **settings: Any) -> None:
        self.save_on_event, self.evaluate_on_event = save_on_event, evaluate_on_event
        self.monitor: Monitor | None = None
        """The one of the training that goes on, or of the last."""
        self._settings = MonitorSettings(settings)
        self._break_off_at_exit: weakref.finalize | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Make the monitor, of the weights before the first update."""
        if self.evaluate_on_event and args.eval_strategy == "no":
            raise ValueError(
                "evaluate_on_event needs an eval_dataset, and with eval_strategy='no' the Trainer may have none: "
                "pass eval_strategy='steps', and a large eval_steps to evaluate at events only"
            )
        if self._break_off_at_exit:
            self._break_off_at_exit.detach()  # the training before raised and is begun again: its sinks are needed
        self.monitor = self._settings.begin(kwargs["model"], state.global_step)
        kept: Any = state.stateful_callbacks  # by name, whatever its annotation says
        known = kept.get(_STATE) if isinstance(kept, dict) else None
        if known and known.get("step") == state.global_step:
            self.monitor.load_state_dict(known)
        self._break_off_at_exit = weakref.finalize(self, self.monitor.break_off)
        self._event_poll, self._first_values = EventPoll(self.monitor), FirstValuePerStep(self.monitor)
        self._logged = state.global_step
        self._tell_outlook(args, state)

    def _tell_outlook(self, args: TrainingArguments, state: TrainerState) -> None:
        """Say what the Trainer's logging leaves to be watched."""
        assert self.monitor is not None
        strategy = getattr(args.logging_strategy, "value", args.logging_strategy)
        if strategy == "no":
            logger.warning(
                "nothing can be watched in this training: logging_strategy is 'no'; 'steps' with "
                "logging_steps=1 hands over every loss"
            )
            return
        to_come = state.max_steps - state.global_step
        if strategy == "epoch":
            epochs = max(1, math.ceil(args.num_train_epochs))
            tell_outlook(self.monitor, to_come, max(1, state.max_steps // epochs), "logging_strategy='epoch'")
            return
        every = state.logging_steps or args.logging_steps
        tell_outlook(self.monitor, to_come, int(every), f"logging_steps={every:g}")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """After an update and before the Trainer logs, evaluates and saves."""
        if self.monitor is None:
            return
        self.monitor.step(step=state.global_step)
        if (self.save_on_event or self.evaluate_on_event) and self._event_poll.at(state.global_step):
            control.should_save |= self.save_on_event
            control.should_evaluate |= self.evaluate_on_event
        if control.should_save:
            self._keep(state)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The Trainer may be about to save."""
        if control.should_save:
            self._keep(state)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The Trainer may be about to save what is the best so far."""
        if args.save_strategy == "best":
            self._keep(state)

    def _keep(self, state: TrainerState) -> None:
        """Put what the monitor knows into the state of the Trainer, which goes into its checkpoint."""
        kept: Any = state.stateful_callbacks  # by name, whatever its annotation says
        if self.monitor is not None and self.monitor.is_active and isinstance(kept, dict):
            kept[_STATE] = self.monitor.state_dict(table=False)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record what is logged, at the step that it belongs to."""
        if self.monitor is None or logs is None or _SUMMARY in logs:
            return
        numbers = {name: value for name, value in logs.items() if _is_measured(name, value)}
        if args.logging_nan_inf_filter and numbers.get("loss") == 0:
            numbers["loss"] = float("nan")
        for step, scalars in _by_step(numbers, self._logged, state.global_step).items():
            self._first_values.log(step, scalars)
        if "loss" in numbers:
            self._logged = state.global_step
        if control.should_save:  # that comes after logging
            self._keep(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close; the last weights are measured if they are still there."""
        if self.monitor is None or self._break_off_at_exit is None:
            return
        self._break_off_at_exit.detach()
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self.monitor.break_off()
        else:
            self.monitor.close()


def _is_measured(name: str, value: Any) -> bool:
    """Whether it is a number, and about the weights."""
    is_number = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    return is_number and not any(fnmatchcase(name, pattern) for pattern in _BOOKKEEPING)


def _by_step(numbers: dict[str, Any], logged: int, now: int) -> dict[int, dict[str, Any]]:
    """Numbers by the step they belong to. Those logged with a loss are of the updates since `logged`."""
    if "loss" not in numbers:
        return {now: numbers}
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for name, value in numbers.items():
        found[now - 1 if name in _OF_THE_LAST_UPDATE else (logged + now - 1) // 2][name] = value
    return found
