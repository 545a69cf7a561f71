"""What trainers leave behind: transformers, Lightning, accelerate, run for a few steps."""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
import transformers
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from tests import small_gpt2
from tests.layouts.layout import Layout, State, config_into, weights

TOKENS = torch.arange(8).expand(8, 8)


def without_head(model: torch.nn.Module) -> State:
    """The weights as they are now, without the copy of the embedding."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}


class Kept(transformers.TrainerCallback):
    """The weights at every save, as the truth."""

    def __init__(self) -> None:
        self.truth: dict[int, State] = {}

    def on_save(self, args, state, control, model=None, **kwargs):
        assert model is not None
        self.truth[state.global_step] = without_head(model)


def trainer_output(folder: Path, **arguments) -> Mapping[int, State]:
    settings = {"max_steps": 4, "save_steps": 2} | arguments
    kept = Kept()
    trainer = transformers.Trainer(
        model=small_gpt2.model(),
        args=transformers.TrainingArguments(
            output_dir=str(folder), report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=0.01, **settings
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in TOKENS],
        callbacks=[kept],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return kept.truth


def trainer_output_with_its_end(folder: Path) -> Mapping[int, State]:
    truth = trainer_output(folder)
    small_gpt2.model(3).save_pretrained(folder)
    return truth


def pretrained(folder: Path, **settings) -> Mapping[int, State]:
    for step in (1, 1000):
        small_gpt2.model(step).save_pretrained(folder / f"step{step}", **settings)
    return {step: weights(step) for step in (1, 1000)}


class Module(LightningModule):
    """As people write it: the model is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.model = small_gpt2.model()
        self.truth: dict[int, State] = {}

    def training_step(self, batch, batch_idx):
        return self.model(batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class KeptByEpoch(Callback):
    """The weights after every epoch, as the truth."""

    def on_train_epoch_end(self, trainer, pl_module):
        pl_module.truth[trainer.current_epoch] = without_head(pl_module.model)


def fit(folder: Path, **saving) -> Module:
    """Two epochs of two steps."""
    module = Module()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Trainer(
            accelerator="cpu", max_epochs=2, default_root_dir=folder, enable_progress_bar=False, logger=True,
            enable_model_summary=False, callbacks=[ModelCheckpoint(save_top_k=-1, **saving), KeptByEpoch()],
        ).fit(module, torch.utils.data.DataLoader(TOKENS, batch_size=4))  # fmt: skip
    return module


def lightning(folder: Path) -> Mapping[int, State]:
    truth = fit(folder).truth
    return {2 * (epoch + 1): state for epoch, state in truth.items()}


def lightning_epochs(folder: Path) -> Mapping[int, State]:
    return fit(folder, dirpath=folder / "saved", filename="{epoch}", save_last=True).truth


def accelerate_states(folder: Path) -> Mapping[int, State]:
    settings = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=settings)
    model = accelerator.prepare(small_gpt2.model())
    truth = {}
    for number in (0, 1):
        model.load_state_dict(small_gpt2.model(number).state_dict())
        accelerator.save_state()
        truth[number] = weights(number)
    accelerator.free_memory()
    return truth


def accelerate_models(folder: Path) -> Mapping[int, State]:
    accelerator = Accelerator(cpu=True)
    for step in (10, 20):
        accelerator.save_model(small_gpt2.model(step), folder / f"step_{step}", max_shard_size="8KB")
        config_into(folder / f"step_{step}")
    return {step: weights(step) for step in (10, 20)}


TRAINER, LIGHTNING, ACCELERATE = "transformers.Trainer", "lightning", "accelerate"
ALONE = {"config": {}}
"""Opened without a word of ours on the number of heads."""

LAYOUTS = [
    Layout("checkpoint-2/ with trainer_state.json", TRAINER, trainer_output, opening=ALONE),
    Layout(
        "checkpoint-2/ of save_only_model",
        TRAINER,
        lambda folder: trainer_output(folder, save_only_model=True),
        opening=ALONE,
    ),
    Layout(
        "checkpoint-2/ beside model.safetensors",
        TRAINER,
        trainer_output_with_its_end,
        says="model.safetensors",
        opening=ALONE,
    ),
    Layout("step1/model.safetensors", "transformers' save_pretrained", pretrained, opening=ALONE),
    Layout(
        "step1/model-00001-of-00004.safetensors",
        "transformers' save_pretrained",
        lambda folder: pretrained(folder, max_shard_size="10KB"),
        opening=ALONE,
    ),
    Layout("lightning_logs/version_0/checkpoints/epoch=0-step=2.ckpt", LIGHTNING, lightning),
    Layout("saved/epoch=0.ckpt beside last.ckpt", LIGHTNING, lightning_epochs, "epoch", "last.ckpt"),
    Layout("checkpoints/checkpoint_0/ of save_state", ACCELERATE, accelerate_states, "number"),
    Layout("step_10/ of save_model, sharded", ACCELERATE, accelerate_models, opening=ALONE),
]
