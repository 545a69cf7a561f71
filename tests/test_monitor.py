"""A live monitor: the numbers of `measure`, no change to the training, every scalar at the step it belongs to."""

import random

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from probes.monitor import AdaptiveCheckpoints
from tests import small_gpt2
from tests.tiny_training import Training
from tests.told import event

KEYS = ["step", "layer", "head", "circuit", "probe", "component"]


def assert_same_numbers(live: pd.DataFrame, written: pd.DataFrame) -> None:
    """Of the probes that a live monitor has, at the same steps: every row, to rounding."""
    written = written.loc[written["probe"].isin(live["probe"].unique())]
    both = live.merge(written, on=KEYS, suffixes=("_live", ""), how="outer", indicator=True)
    assert (both["_merge"] == "both").all()
    assert len(both) == len(live)
    np.testing.assert_allclose(both["value_live"], both["value"], rtol=1e-6, atol=1e-9)


def test_the_numbers_are_those_of_measure_on_the_checkpoints_of_the_same_steps(tmp_path):
    training = Training(steps=30)
    writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
    with writer, probes.Monitor(training.model, budget=1.0) as monitor:
        writer.save(0, training.model)
        for step, loss in training:
            monitor.step(loss=loss)
            if monitor.measured == step:
                writer.save(step, training.model)
    table = probes.measure(open_run(tmp_path / "run"), audit=False, drift_over="previous")
    assert set(monitor.table["step"]) == {*range(11), 11, 13, 15, 17, 19, 21, 24, 27, 30}
    assert monitor.table["value"].notna().mean() > 0.9
    assert_same_numbers(monitor.table, table)
    for name in ("family", "circuits", "weight_processing", "versions"):
        assert monitor.table.attrs[name] == table.attrs[name]
    assert monitor.table.attrs["definitions"].items() <= table.attrs["definitions"].items()
    assert set(monitor.table.attrs["definitions"]) == set(monitor.table["probe"])


def test_a_speed_between_two_measurements_of_one_step_is_missing_and_says_why():
    monitor = probes.Monitor(Training(steps=1).model)
    with monitor, np.errstate(divide="raise", invalid="raise"):
        measurement = monitor._measurement
        measurement.measure(7)
        found, failure = measurement.measure(7)
    table = measurement.table([found])
    speeds = table.loc[table["probe"] == "subspace_drift_per_step@previous"]
    assert failure is None
    assert len(speeds)
    assert speeds["value"].isna().all()
    assert set(speeds["why_missing"]) == {"measured at step 7 before: no step lies between"}


@pytest.mark.parametrize("threads", [1, 2])
def test_training_is_the_same_bit_for_bit_with_and_without_a_monitor(tmp_path, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        alone = Training(steps=25, dropout=0.1)
        for _ in alone:
            pass
        monitored = Training(steps=25, dropout=0.1)
        writer = RunWriter(tmp_path / "run", config=small_gpt2.CONFIG.to_dict())
        with probes.Monitor(
            monitored.model, budget=1.0, evaluate=monitored.evaluate, checkpoints=AdaptiveCheckpoints(writer)
        ) as monitor:
            for step, loss in monitored:
                monitor.step(loss=loss)
                if step == 15:
                    monitor._announce(event(15))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert monitor.failure is None
    assert monitor.budget.done["measurement"] > 15
    for name, weight in alone.model.state_dict().items():
        assert torch.equal(weight, monitored.model.state_dict()[name]), name
    assert torch.equal(alone.losses, monitored.losses)


def test_an_evaluation_leaves_generators_and_modes_alone():
    training, modes = Training(steps=1), []
    training.model.train()

    def evaluate() -> dict[str, float]:
        modes.append(training.model.training)
        return {"luck": sum(drawn())}

    monitor = probes.Monitor(training.model, evaluate=evaluate)
    seed()
    expected = drawn()
    seed()
    monitor._announce(event(0))
    assert modes == [False]
    assert training.model.training
    assert drawn() == expected
    assert monitor.series("luck").tolist() == [sum(expected)]


def seed() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 (what people seed)


def drawn() -> list[float]:
    return [float(torch.rand(1)), random.random(), np.random.rand()]  # noqa: NPY002


def test_the_loss_of_an_update_belongs_to_the_weights_before_it():
    training = Training(steps=5)
    with probes.Monitor(training.model, step=100) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            monitor.log(test_loss=float(step))
    assert monitor.done == 105
    assert monitor.series("loss").index.tolist() == [100, 101, 102, 103, 104]
    assert monitor.series("loss").tolist() == pytest.approx(training.losses.tolist())
    assert monitor.series("test_loss").index.tolist() == [101, 102, 103, 104, 105]


def test_a_loss_is_recorded_as_it_was_when_it_came():
    loss, monitor = torch.tensor(1.0), probes.Monitor(small_gpt2.model(), step=1000)  # no look is due for a while
    monitor.series("ov.norm")  # flushes the buffer, so that the next stays in it for a while
    monitor.step(loss=loss)
    loss.zero_()
    assert monitor.series("loss").tolist() == [1.0]


def test_a_scalar_that_is_not_there_is_refused_with_those_that_are():
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], detect_in="los*")
    monitor.log(loss=1.0, accuracy=0.5)
    with pytest.raises(KeyError, match=r"no scalar is called 'lose'; there are ov\.norm, qk\.norm, loss, accuracy"):
        monitor.series("lose")
    with pytest.raises(KeyError, match=r"'accuracy' is no scalar .*\(detect_in\); there are loss"):
        monitor.autocorrelation_curvature("accuracy")


def test_the_table_keeps_the_latest_rows_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr("probes.monitor.measured_table.KEPT_ROWS", 20)
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], schedule=1, budget=1.0)  # 8 rows a step
    for _ in range(5):
        monitor.step()
    assert sorted(set(monitor.table["step"])) == [4, 5]


def test_what_is_asked_for_wrongly_is_refused_before_training_begins():
    model = small_gpt2.model()
    with pytest.raises(ValueError, match="final weights"):
        probes.Monitor(model, probes=["subspace_distance"])
    with pytest.raises(ValueError, match="did you mean 'effective_rank'"):
        probes.Monitor(model, probes=["efective_rank"])
    with pytest.raises(ValueError, match="budget is 2"):
        probes.Monitor(model, budget=2)
    with pytest.raises(ValueError, match="no attention"):
        probes.Monitor(torch.nn.BatchNorm1d(3))


def test_of_a_model_without_attention_every_matrix_is_measured_and_that_is_said():
    with pytest.warns(UserWarning, match="no attention here; measured are its matrices weight"):
        monitor = probes.Monitor(torch.nn.Linear(3, 3))
    monitor.close()
    assert monitor.table["circuit"].unique().tolist() == ["weight"]


def test_of_a_large_model_no_weights_are_copied_unless_drift_is_asked_for(monkeypatch):
    monkeypatch.setattr("probes.monitor.live_measure.SMALL_BYTES", 0)
    model = small_gpt2.model()
    monitor = probes.Monitor(model, probes=["norm"])
    assert monitor._measurement._before is None
    kept = probes.Monitor(model)._measurement._before.open()
    assert all(".attn." in name or ".ln_1." in name for name in kept)
    assert kept["transformer.h.0.attn.c_attn.weight"].data_ptr() != model.transformer.h[0].attn.c_attn.weight.data_ptr()
    live = monitor.weights.now("now")
    assert live["transformer.h.0.attn.c_attn.weight"].data_ptr() == model.transformer.h[0].attn.c_attn.weight.data_ptr()


def test_a_step_that_comes_again_with_other_weights_is_measured_anew():
    model = Training(steps=1).model
    measurement = probes.Monitor(model, budget=1.0, probes="norm")._measurement
    found = []
    for factor in (1.0, 3.0):
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(factor)
        found.append(measurement.measure(5)[0].values)
    np.testing.assert_allclose(found[1], 9 * found[0], rtol=1e-5)  # OV and QK are products of two
