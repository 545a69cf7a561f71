"""A monitor as a callback of somebody's trainer: the steps, losses and numbers of a training loop of one's own."""

import gc
import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.callbacks import ModelCheckpoint

import probes
from checkpoints import RunWriter, open_run
from probes.monitor import AdaptiveCheckpoints, Monitor, Sink
from probes.monitor.hooks import huggingface, lightning
from probes.monitor.live_measure import LiveMeasurement
from tests import small_gpt2

ROOT = Path(__file__).parents[1]
KEYS = ["step", "layer", "head", "circuit", "probe", "component"]
TOKENS = torch.randint(20, (80, 8), generator=torch.Generator().manual_seed(7))
EVENT = probes.Event("loss", "cliff", 6, 5, 7, 7, 0.5, 1e-6)

pytestmark = [
    pytest.mark.slow,  # importing both trainers takes longer than the tests, so
    pytest.mark.xdist_group("hooks"),  # one worker does it
    # Lightning on a newer torch, and what it says of how it is used here
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]


def example(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Nothing predicts the first token. Without the mask the Trainer counts it, and its losses are 7/8 of the mean."""
    return {"input_ids": tokens, "labels": torch.cat((torch.tensor([-100]), tokens[1:]))}


EXAMPLES = [example(tokens) for tokens in TOKENS]


def losses_of(model: torch.nn.Module) -> list[float]:
    """A list that grows by the mean loss of every training batch, computed here from the logits."""
    losses: list[float] = []

    def record(module, inputs, given, output):
        if module.training:
            logits, labels = output.logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten()
            losses.append(torch.nn.functional.cross_entropy(logits, labels).item())

    model.register_forward_hook(record, with_kwargs=True)
    return losses


def assert_same_numbers(live: pd.DataFrame, written: pd.DataFrame, steps: list[int]) -> None:
    """At these steps, to rounding. Drift is from the measurement before: at the first of them not the same one."""
    live, written = (table[table["step"].isin(steps) & table["probe"].isin(live["probe"])] for table in (live, written))
    both = live.merge(written, on=KEYS, suffixes=("_live", ""), how="outer", indicator=True)
    assert sorted(both["step"].unique()) == steps
    both = both[(both["probe"] != "subspace_drift") | (both["step"] > steps[0])]
    assert (both["_merge"] == "both").all()
    assert both["value"].notna().all()
    np.testing.assert_allclose(both["value_live"], both["value"], rtol=1e-6, atol=1e-9)


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


def announce_at(step: int, monkeypatch) -> None:
    monkeypatch.setattr(Monitor, "_found", lambda self, now: [EVENT] if now == step else [])


class Kept(Sink):
    def __init__(self):
        self.steps, self.closed = [], 0

    def scalars(self, step, scalars):
        self.steps.append(step)

    def close(self):
        self.closed += 1


# The Trainer of Transformers


def trainer(folder: Path, *callbacks, model=None, **arguments) -> transformers.Trainer:
    chosen = {"max_steps": 12, "learning_rate": 3e-3, "logging_steps": 1, "save_strategy": "no"} | arguments
    return transformers.Trainer(
        model or small_gpt2.model(),
        transformers.TrainingArguments(
            str(folder), use_cpu=True, report_to=[], disable_tqdm=True, per_device_train_batch_size=4, **chosen
        ),
        train_dataset=EXAMPLES,  # type: ignore[arg-type]
        eval_dataset=EXAMPLES[:8],  # type: ignore[arg-type]
        callbacks=list(callbacks),
    )


def test_the_numbers_are_those_of_measure_on_the_checkpoints_that_the_trainer_writes(tmp_path):
    callback = huggingface.MonitorCallback(budget=1.0, schedule=5)
    trainer(tmp_path, callback, max_steps=20, save_strategy="steps", save_steps=5).train()
    run = open_run(tmp_path)
    assert run.steps == [5, 10, 15, 20]  # the Trainer does not save step 0
    assert set(callback.monitor.table["step"]) == {0, *run.steps}
    assert_same_numbers(callback.monitor.table, probes.measure(run, audit=False), run.steps)


def test_the_trainer_gives_the_same_weights_with_and_without_a_monitor(tmp_path):
    alone = trainer(tmp_path / "alone")
    alone.train()
    watched = trainer(
        tmp_path / "watched",
        huggingface.MonitorCallback(
            budget=1.0, checkpoints=AdaptiveCheckpoints(RunWriter(tmp_path / "run", small_gpt2.CONFIG.to_dict()))
        ),
    )
    watched.train()
    assert_same_weights(alone.model, watched.model)


def test_the_trainer_counts_updates_and_averages_their_micro_batches(tmp_path):
    callback, model = huggingface.MonitorCallback(), small_gpt2.model()
    losses = losses_of(model)
    trainer(tmp_path, callback, model=model, gradient_accumulation_steps=2).train()
    assert callback.monitor.done == 12
    series = callback.monitor.series("loss")
    assert series.index.tolist() == list(range(12))  # of the weights before each update
    assert series.tolist() == pytest.approx(np.reshape(losses, (12, 2)).mean(axis=1), rel=1e-5)


def test_a_mean_over_several_updates_is_put_in_their_middle(tmp_path):
    callback, model = huggingface.MonitorCallback(), small_gpt2.model()
    losses = losses_of(model)
    trainer(tmp_path, callback, model=model, logging_steps=5, logging_first_step=True).train()
    series = callback.monitor.series("loss")  # of the updates 0, 1-4 and 5-9; the last two are never logged
    assert series.index.tolist() == [0, 2, 7]
    assert series.tolist() == pytest.approx([losses[0], np.mean(losses[1:5]), np.mean(losses[5:10])], rel=1e-5)
    assert callback.monitor.series("grad_norm").index.tolist() == [0, 4, 9]


def test_an_evaluation_belongs_to_the_weights_evaluated_and_times_are_not_recorded(tmp_path):
    callback = huggingface.MonitorCallback()
    trainer(tmp_path, callback, eval_strategy="steps", eval_steps=4, eval_on_start=True).train()
    assert callback.monitor.series("eval_loss").index.tolist() == [0, 4, 8, 12]
    scalars = [name for name in callback.monitor.watched.records if "." not in name]  # the others are probes
    assert sorted(scalars) == ["eval_loss", "grad_norm", "learning_rate", "loss"]
    assert callback.monitor.failure is None


def test_a_second_evaluation_of_the_same_weights_costs_nothing_else(tmp_path):
    class Again(transformers.TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            callback.on_log(args, state, control, logs=metrics)

    callback = huggingface.MonitorCallback()
    trainer(tmp_path, callback, Again(), eval_strategy="steps", eval_steps=4).train()
    assert callback.monitor.failure is None
    assert callback.monitor.series("eval_loss").index.tolist() == [4, 8, 12]


def test_a_loss_that_the_trainer_calls_0_because_it_was_no_number_is_missing(tmp_path):
    class Spoilt(transformers.Trainer):
        def training_step(self, *arguments, **more):
            loss = super().training_step(*arguments, **more)
            return loss * float("nan") if self.state.global_step == 3 else loss

    callback, plain = huggingface.MonitorCallback(), trainer(tmp_path, max_steps=6)
    Spoilt(plain.model, plain.args, train_dataset=EXAMPLES, callbacks=[callback]).train()
    assert callback.monitor.series("loss").index.tolist() == [0, 1, 2, 4, 5]


def test_a_resumed_trainer_counts_on(tmp_path):
    whole = trainer(tmp_path, huggingface.MonitorCallback(), save_strategy="steps", save_steps=6)
    whole.train()
    callback = huggingface.MonitorCallback(budget=1.0)
    resumed = trainer(tmp_path, callback)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert callback.monitor.series("loss").index.tolist() == [6, 7, 8, 9, 10, 11]
    assert sorted(callback.monitor.table["step"].unique()) == [6, 7, 8, 9, 10, 11, 12]
    assert_same_numbers(callback.monitor.table, probes.measure(open_run(tmp_path), audit=False), [6])
    assert_same_weights(whole.model, resumed.model)


def test_an_error_in_the_monitor_does_not_stop_the_trainer(tmp_path, monkeypatch):
    monkeypatch.setattr(LiveMeasurement, "measure", lambda self, step: 1 / 0)
    callback = huggingface.MonitorCallback()
    assert trainer(tmp_path, callback).train().global_step == 12
    assert isinstance(callback.monitor.failure, ZeroDivisionError)


def test_an_announcement_makes_the_trainer_save_and_evaluate_there(tmp_path, monkeypatch):
    announce_at(7, monkeypatch)
    callback = huggingface.MonitorCallback(budget=1.0, save_on_event=True, evaluate_on_event=True)
    trainer(tmp_path, callback, eval_strategy="steps", eval_steps=1000, eval_delay=1000).train()
    assert [folder.name for folder in tmp_path.iterdir()] == ["checkpoint-7"]
    assert callback.monitor.series("eval_loss").index.tolist() == [7]
    step_7 = probes.measure(open_run(tmp_path), audit=False)
    assert_same_numbers(callback.monitor.table, step_7, [7])


def test_several_processes_save_and_evaluate_together_though_one_knows_of_the_event(tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with subprocess.Popen([*launch, "-m", "tests.trainer_process", str(tmp_path)], cwd=ROOT) as launched:
        try:
            assert launched.wait(timeout=150) == 0
        finally:
            launched.terminate()  # ends the processes too, if they wait for each other; killing it would not
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == {"saved": [7], "evaluated": [7], "events": 1, "processes": 2}
    assert second == first | {"events": 0}


def test_an_evaluation_that_may_be_impossible_is_refused_before_training(tmp_path):
    callback = huggingface.MonitorCallback(evaluate_on_event=True)
    with pytest.raises(ValueError, match="eval_strategy='steps'"):
        trainer(tmp_path, callback).train()


class Stop(transformers.TrainerCallback, Callback):
    """Raises after the fifth update, in either trainer."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            raise RuntimeError("out of memory")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == 5:
            raise RuntimeError("out of memory")


def test_where_the_trainer_raises_the_sinks_get_everything_once_it_is_gone(tmp_path):
    kept = Kept()
    broken = trainer(tmp_path, huggingface.MonitorCallback(sinks=[kept]), Stop())
    with pytest.raises(RuntimeError, match="out of memory"):
        broken.train()
    assert kept.closed == 0
    del broken
    gc.collect()
    assert kept.steps == [0, 1, 2, 3]  # the fifth update raised before it was logged
    assert kept.closed == 1


def test_the_best_weights_are_not_taken_for_the_last(tmp_path):
    kept = Kept()
    callback = huggingface.MonitorCallback(budget=1.0, schedule=5, sinks=[kept])
    strategy = {"eval_strategy": "steps", "eval_steps": 6, "save_strategy": "steps", "save_steps": 6}
    trainer(tmp_path, callback, load_best_model_at_end=True, **strategy).train()
    assert sorted(callback.monitor.table["step"].unique()) == [0, 5, 10]
    assert kept.steps[-1] == 12  # its evaluation
    assert kept.closed == 1


# The Trainer of Lightning


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
    assert_same_numbers(callback.monitor.table, probes.measure(run, audit=False), run.steps)


def test_lightning_gives_the_same_weights_with_and_without_a_monitor(tmp_path):
    alone, watched = Module(), Module()
    fit(alone, validate=True)
    fit(watched, lightning.MonitorCallback(budget=1.0), validate=True)
    assert_same_weights(alone, watched)


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
    assert "train_loss" not in callback.monitor.watched.records  # logged in training: it is there as loss


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


def test_a_resumed_lightning_training_counts_on(tmp_path):
    whole, callback = lightning.MonitorCallback(budget=1.0), lightning.MonitorCallback(budget=1.0)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=5, save_top_k=-1, filename="{step}")
    fit(Module(), saving, whole, max_steps=10)
    fit(Module(), callback, max_steps=10, ckpt_path=tmp_path / "step=5.ckpt")
    assert callback.monitor.series("loss").index.tolist() == [5, 6, 7, 8, 9]
    assert sorted(callback.monitor.table["step"].unique()) == [5, 6, 7, 8, 9, 10]
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
    monkeypatch.setattr(LiveMeasurement, "measure", lambda self, step: 1 / 0)
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


# Both


@pytest.mark.parametrize("hook", [huggingface, lightning])
@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"budgets": 0.1}, TypeError, "no setting 'budgets'; there are circuits"),
        ({"step": 3}, TypeError, "step comes from the trainer"),
        ({"budget": 2}, ValueError, "budget is 2"),
        ({"schedule": 0.5}, ValueError, "schedule is 0.5"),
        ({"alpha": 1}, ValueError, "alpha is 1"),
        ({"probes": ["subspace_distance"]}, ValueError, "final weights"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused_when_the_callback_is_made(hook, settings, error, said):
    with pytest.raises(error, match=said):
        hook.MonitorCallback(**settings)


def test_settings_that_describe_the_heads_reach_the_monitor(tmp_path):
    callback = huggingface.MonitorCallback(config={"n_head": 4}, schedule=iter([0, 3]), name="mine", budget=1.0)
    trainer(tmp_path, callback, max_steps=4).train()
    assert sorted(callback.monitor.table["head"].unique()) == [0, 1, 2, 3]  # the model says two
    assert sorted(callback.monitor.table["step"].unique()) == [0, 3, 4]
    assert set(callback.monitor.table["run"]) == {"mine"}


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_a_library_that_is_not_there_is_named_with_its_extra(library, monkeypatch):
    hook = {"transformers": "huggingface"}.get(library, library)
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"probes.monitor.hooks.{hook}")
    with pytest.raises(ImportError, match=rf"pip install 'checkpoint-probes\[{hook}\]'"):
        importlib.import_module(f"probes.monitor.hooks.{hook}")
