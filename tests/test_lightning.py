"""A monitor as a callback of Lightning's Trainer: the steps, losses and numbers of a loop of one's own."""

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.callbacks import ModelCheckpoint

import probes
from checkpoints import RunWriter, open_run
from probes.monitor import AdaptiveCheckpoints
from probes.monitor.callbacks import lightning
from probes.monitor.live_measure import LiveMeasurement
from tests import small_gpt2
from tests.other_trainers import MARKS, TOKENS, Kept, Stop, assert_same_numbers, assert_same_weights, losses_of

pytestmark = MARKS


class Module(LightningModule):
    """Logs its losses in training and in validation, as people do."""

    def __init__(self):
        super().__init__()
        self.model = small_gpt2.model()

    def training_step(self, batch, batch_idx):
        loss = self.model(batch, labels=batch).loss
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.model(batch, labels=batch).loss)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def fit(module: LightningModule, *callbacks: Callback, validate: bool = False, ckpt_path=None, **arguments) -> None:
    """Five batches in an epoch."""
    torch.manual_seed(3)  # of dropout
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    training, validation = (torch.utils.data.DataLoader(rows, batch_size=4) for rows in (TOKENS[:20], TOKENS[20:28]))
    LightningTrainer(
        accelerator="cpu",
        logger=False,
        callbacks=list(callbacks),
        enable_checkpointing=saves,
        enable_model_summary=False,
        enable_progress_bar=False,
        **{"max_steps": 12} | arguments,
    ).fit(module, training, validation if validate else None, ckpt_path=ckpt_path)


def test_in_lightning_the_numbers_are_those_of_measure_on_checkpoints_of_the_same_steps(tmp_path):
    with RunWriter(tmp_path / "run", small_gpt2.CONFIG.to_dict()) as writer:
        callback = lightning.MonitorCallback(
            budget=1.0, schedule=5, checkpoints=AdaptiveCheckpoints(writer, schedule=5)
        )
        fit(Module(), callback, max_steps=20)
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 5, 10, 15, 20]
    assert_same_numbers(callback.monitor.table, probes.measure(run, audit=False, drift_over="previous"), run.steps)


def test_lightning_gives_the_same_weights_with_and_without_a_monitor(tmp_path):
    alone, monitored = Module(), Module()
    fit(alone, validate=True)
    fit(monitored, lightning.MonitorCallback(budget=1.0), validate=True)
    assert_same_weights(alone, monitored)


def test_lightning_counts_updates_and_averages_their_batches():
    callback, module = lightning.MonitorCallback(), Module()
    losses = losses_of(module.model)
    fit(module, callback, max_steps=-1, max_epochs=2, accumulate_grad_batches=2)
    assert callback.monitor.done == 6
    first, second = np.reshape(losses, (2, 5))  # an epoch's last update has one batch
    expected = [np.mean(batches) for epoch in (first, second) for batches in (epoch[:2], epoch[2:4], epoch[4:])]
    series = callback.monitor.series("loss")
    assert series.index.tolist() == [0, 1, 2, 3, 4, 5]
    assert series.tolist() == pytest.approx(expected, rel=1e-5)


def test_a_validation_belongs_to_the_weights_validated_and_the_sanity_check_does_not_count():
    callback = lightning.MonitorCallback()
    fit(Module(), callback, validate=True)
    assert callback.monitor.series("val_loss").index.tolist() == [5, 10]
    assert "train_loss" not in callback.monitor.tracked.records  # logged in training: it is there as loss


def test_a_second_validation_of_the_same_weights_costs_nothing_else():
    callback = lightning.MonitorCallback()
    fit(Module(), callback, validate=True, max_steps=6, accumulate_grad_batches=2, val_check_interval=1)
    assert callback.monitor.failure is None
    assert callback.monitor.series("val_loss").index.tolist() == [0, 1, 2, 3, 4, 5, 6]  # 0: after the first batch


def test_a_loss_of_validation_is_not_mixed_with_that_of_training():
    class Careless(Module):
        def validation_step(self, batch, batch_idx):
            self.log("loss", self.model(batch, labels=batch).loss)

    callback = lightning.MonitorCallback()
    fit(Careless(), callback, validate=True)
    assert callback.monitor.series("loss").index.tolist() == list(range(12))
    assert callback.monitor.series("validation_loss").index.tolist() == [5, 10]


def test_a_resumed_lightning_training_goes_on_with_what_its_checkpoint_knows(tmp_path):
    whole, callback = lightning.MonitorCallback(budget=1.0), lightning.MonitorCallback(budget=1.0)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=5, save_top_k=-1, filename="{step}")
    fit(Module(), saving, whole, max_steps=10)
    fit(Module(), callback, max_steps=10, ckpt_path=tmp_path / "step=5.ckpt")
    assert callback.monitor.series("loss").index.tolist() == list(range(10))
    assert sorted(callback.monitor.table["step"].unique()) == list(range(11))
    assert_same_numbers(callback.monitor.table, whole.monitor.table, [5])


def test_several_updates_in_a_batch_are_counted_each():
    class TwoOptimizers(Module):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                loss = self.model(batch, labels=batch).loss
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def configure_optimizers(self):
            layers = self.model.transformer.h
            return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers]

    callback, module = lightning.MonitorCallback(budget=1.0), TwoOptimizers()
    losses = losses_of(module.model)
    fit(module, callback, max_steps=8)
    assert callback.monitor.failure is None
    assert callback.monitor.series("loss").index.tolist() == [0, 2, 4, 6]
    assert callback.monitor.series("loss").tolist() == pytest.approx(losses[1::2], rel=1e-5)
    assert sorted(callback.monitor.table["step"].unique()) == [0, 2, 4, 6, 8]


def test_an_error_in_the_monitor_does_not_stop_lightning(monkeypatch):
    monkeypatch.setattr(LiveMeasurement, "measure", lambda self, step, only: 1 / 0)
    callback = lightning.MonitorCallback()
    fit(Module(), callback)
    assert callback.monitor.done == 12
    assert isinstance(callback.monitor.failure, ZeroDivisionError)


def test_where_lightning_raises_the_sinks_get_everything_and_nothing_more_is_measured():
    kept = Kept()
    callback = lightning.MonitorCallback(budget=1.0, schedule=4, sinks=[kept])
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(Module(), callback, Stop())
    assert kept.steps == [0, 1, 2, 3, 4]
    assert kept.closed == 1
    assert sorted(callback.monitor.table["step"].unique()) == [0, 4]
