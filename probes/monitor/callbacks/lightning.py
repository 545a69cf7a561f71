"""A monitor in the Trainer of Lightning: one more callback.

    from probes.monitor.callbacks.lightning import MonitorCallback

    lightning.Trainer(..., callbacks=[MonitorCallback(budget=0.01)])

Steps are the Trainer's `global_step`: updates, not batches, and a training that is resumed counts on. With manual
optimization every optimizer's update is one, so that several may be made in a batch. The loss that `training_step`
returns is recorded for every update, where gradients are accumulated as the mean over the batches of the update; what
a validation logs belongs to the weights that were validated, and the sanity check before training is left out.

What the monitor knows goes into Lightning's own checkpoints, and a training that is resumed from one goes on being
watched as if it had not stopped.

The end: the last weights are measured when training ends, so list this callback before others that replace them there
(StochasticWeightAveraging). Where training raises or is interrupted the weights may be halfway through an update: then
what is buffered is flushed and the sinks are closed, and no more is measured.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from probes.monitor.callbacks.shared import FirstValuePerStep, MonitorSettings
from probes.monitor.monitor import Monitor

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError("this callback is for Lightning: pip install 'checkpoint-probes[lightning]'") from error


class MonitorCallback(Callback):
    """Keyword arguments are those of `probes.Monitor`, all but model and step."""

    def __init__(self, **settings: Any) -> None:
        self.monitor: Monitor | None = None
        """The one of the training that goes on, or of the last."""
        self._settings = MonitorSettings(settings)
        self._losses: list[Tensor] = []
        self._resumed: dict[str, Any] = {}
        self._known: dict[str, Tensor] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the monitor, of the weights before the first update."""
        self.monitor = self._settings.begin(pl_module, trainer.global_step)
        if self._resumed.get("step") == trainer.global_step:
            self.monitor.load_state_dict(self._resumed)
        self._first_values = FirstValuePerStep(self.monitor)
        self._losses.clear()

    def state_dict(self) -> dict[str, Any]:
        """What the monitor knows, for Lightning's own checkpoints."""
        return self.monitor.state_dict() if self.monitor is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From a checkpoint, before there is a monitor."""
        self._resumed = state_dict

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the loss, and if an update was made log the mean: it is of the weights before the update."""
        if self.monitor is None:
            return
        divided_by = trainer.accumulate_grad_batches  # 1 with manual optimization: Lightning refuses more
        self._losses += [loss * divided_by for loss in _losses(outputs)]
        if trainer.global_step > self.monitor.done:
            if self._losses:
                self._first_values.log(self.monitor.done, {"loss": torch.stack(self._losses).mean()})
                self._losses.clear()
            self.monitor.step(step=trainer.global_step)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember what was logged before."""
        self._known = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record what the validation logged; a "loss" among it is not that of training."""
        if self.monitor is None:  # so it is in the sanity check
            return
        new = {
            "validation_loss" if name == "loss" else name: value
            for name, value in trainer.callback_metrics.items()
            if value is not self._known.get(name) and value.numel() == 1
        }
        self._first_values.log(trainer.global_step, new)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the monitor; the last weights are measured."""
        if self.monitor is not None:
            self.monitor.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Flush what is buffered; the weights may be halfway through an update and are left alone."""
        if self.monitor is not None:
            self.monitor.break_off()


def _losses(outputs: Any) -> list[Tensor]:
    """What `training_step` returned as its loss, if it did."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return [loss.detach().reshape(())] if isinstance(loss, Tensor) and loss.numel() == 1 else []
