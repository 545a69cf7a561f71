"""A cliff planted into a loss, all settings left as they are: every kind of loop is told what is watched, and of it."""

import itertools

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer

import probes
from probes.monitor.callbacks import huggingface, lightning
from tests import small_gpt2
from tests.other_trainers import MARKS, TOKENS, trainer

pytestmark = MARKS
CLIFF, STEPS = 110, 260


class Planted(torch.nn.Module):
    """GPT-2 whose loss is higher by 2 in the first updates; the gradients are those of the loss without it."""

    def __init__(self):
        super().__init__()
        self.model, self.calls = small_gpt2.model(), 0
        self.config = self.model.config

    def forward(self, **batch):
        out = self.model(**batch)
        self.calls += self.training
        out.loss = out.loss + 2.0 * (self.calls <= CLIFF)
        return out


def expect(monitor: probes.Monitor, said: list[str]) -> None:
    assert monitor.failure is None
    assert [(event.metric, event.direction) for event in monitor.detected] == [("loss", "fall")]
    assert monitor.detected[0].step == pytest.approx(CLIFF, abs=10)
    assert any(line.startswith("watching loss (a loss by its name)") for line in said)


def lines(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "probes.monitor"]


def batch(step: int) -> dict[str, torch.Tensor]:
    tokens = TOKENS[4 * (step % 20) : 4 * (step % 20) + 4]
    return {"input_ids": tokens, "labels": tokens}


def test_in_a_loop_of_ones_own(caplog):
    model = Planted()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with probes.Monitor(model.model) as monitor:
        for step in range(STEPS):
            loss = model(**batch(step)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss=loss)
    expect(monitor, lines(caplog))


def test_with_accelerate(caplog):
    from accelerate import Accelerator

    accelerator, planted = Accelerator(cpu=True), Planted()
    model, optimizer = accelerator.prepare(planted, torch.optim.AdamW(planted.parameters(), lr=1e-3))
    with probes.Monitor(accelerator.unwrap_model(model).model) as monitor:
        for step in range(STEPS):
            loss = model(**batch(step)).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(loss=loss)
    expect(monitor, lines(caplog))


def test_in_the_trainer_of_transformers(tmp_path, caplog):
    model = small_gpt2.model()
    calls = itertools.count(1)
    model.register_forward_hook(
        lambda _, __, output: setattr(output, "loss", output.loss + 2.0 * (next(calls) <= CLIFF))
    )
    callback = huggingface.MonitorCallback()
    trainer(tmp_path, callback, model=model, max_steps=STEPS, learning_rate=1e-3).train()
    expect(callback.monitor, lines(caplog))


def test_in_lightning(caplog):
    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.planted = Planted()

        def training_step(self, given, batch_idx):
            return self.planted(input_ids=given, labels=given).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    callback = lightning.MonitorCallback(config=small_gpt2.CONFIG.to_dict())
    LightningTrainer(
        accelerator="cpu",
        logger=False,
        callbacks=[callback],
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        max_steps=STEPS,
    ).fit(Module(), torch.utils.data.DataLoader(TOKENS, batch_size=4))
    expect(callback.monitor, lines(caplog))
