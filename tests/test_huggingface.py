"""A monitor as a callback of the Trainer of Transformers: the steps, losses and numbers of a loop of one's own."""

import gc
import json
import subprocess
import sys

import numpy as np
import pytest
import transformers

import probes
from checkpoints import RunWriter, open_run
from probes.monitor import AdaptiveCheckpoints
from probes.monitor.callbacks import huggingface
from probes.monitor.live_measure import LiveMeasurement
from tests import small_gpt2
from tests.other_trainers import (
    EXAMPLES,
    MARKS,
    ROOT,
    Kept,
    Stop,
    announce_at,
    assert_same_numbers,
    assert_same_weights,
    losses_of,
    trainer,
)

pytestmark = MARKS


def test_the_numbers_are_those_of_measure_on_the_checkpoints_that_the_trainer_writes(tmp_path):
    callback = huggingface.MonitorCallback(budget=1.0, schedule=5)
    trainer(tmp_path, callback, max_steps=20, save_strategy="steps", save_steps=5).train()
    run = open_run(tmp_path)
    assert run.steps == [5, 10, 15, 20]  # the Trainer does not save step 0
    assert set(callback.monitor.table["step"]) == {0, *run.steps}
    assert_same_numbers(callback.monitor.table, probes.measure(run, audit=False, drift_over="previous"), run.steps)


def test_the_trainer_gives_the_same_weights_with_and_without_a_monitor(tmp_path):
    alone = trainer(tmp_path / "alone")
    alone.train()
    monitored = trainer(
        tmp_path / "monitored",
        huggingface.MonitorCallback(
            budget=1.0, checkpoints=AdaptiveCheckpoints(RunWriter(tmp_path / "run", small_gpt2.CONFIG.to_dict()))
        ),
    )
    monitored.train()
    assert_same_weights(alone.model, monitored.model)


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
    scalars = [name for name in callback.monitor.tracked.records if "." not in name]  # the others are probes
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


def test_a_resumed_trainer_goes_on_with_what_its_checkpoint_knows(tmp_path):
    whole = trainer(tmp_path, huggingface.MonitorCallback(budget=1.0), save_strategy="steps", save_steps=6)
    whole.train()
    callback = huggingface.MonitorCallback(budget=1.0)
    resumed = trainer(tmp_path, callback)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert callback.monitor.series("loss").index.tolist() == list(range(12))
    assert callback.monitor.series("ov.norm").index.tolist() == list(range(13))
    assert sorted(callback.monitor.table["step"].unique()) == [6, 7, 8, 9, 10, 11, 12]
    assert_same_numbers(
        callback.monitor.table, probes.measure(open_run(tmp_path), audit=False, drift_over="previous"), [6]
    )
    assert_same_weights(whole.model, resumed.model)


def test_an_error_in_the_monitor_does_not_stop_the_trainer(tmp_path, monkeypatch):
    monkeypatch.setattr(LiveMeasurement, "measure", lambda self, step, only: 1 / 0)
    callback = huggingface.MonitorCallback()
    assert trainer(tmp_path, callback).train().global_step == 12
    assert isinstance(callback.monitor.failure, ZeroDivisionError)


def test_an_announcement_makes_the_trainer_save_and_evaluate_there(tmp_path, monkeypatch):
    announce_at(7, monkeypatch)
    callback = huggingface.MonitorCallback(budget=1.0, save_on_event=True, evaluate_on_event=True)
    trainer(tmp_path, callback, eval_strategy="steps", eval_steps=1000, eval_delay=1000).train()
    assert [folder.name for folder in tmp_path.iterdir()] == ["checkpoint-7"]
    assert callback.monitor.series("eval_loss").index.tolist() == [7]
    step_7 = probes.measure(open_run(tmp_path), audit=False, drift_over="previous")
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
