"""A model trained by several ranks, monitored: the same numbers, the same training, and nobody waits for ever."""

import weakref
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

import probes
from checkpoints import RunWriter, open_run
from checkpoints.files.in_memory import InMemory, whole
from probes.monitor import AdaptiveCheckpoints
from tests.process_group import on_ranks, outcomes_on_ranks
from tests.sharded_training import Training, Transformer, inside, replicated, sharded, wrapped
from tests.told import event

KEYS = ["step", "layer", "head", "circuit", "probe", "component"]
STEPS = [0, 1, 2, 5, 8]

pytestmark = pytest.mark.slow  # each claim starts processes of its own


# The numbers


def measured_and_written(rank, spread, seen_as, heads, path):
    training, budget = Training(spread, heads), 1.0 if rank == 0 else 1e-6  # the first rank's counts
    checkpoints = AdaptiveCheckpoints(path, schedule=STEPS)
    with probes.Monitor(seen_as(training.model), budget=budget, schedule=STEPS, checkpoints=checkpoints) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    assert monitor.failure is None
    return monitor.table


@pytest.mark.parametrize(
    ("ranks", "spread", "seen_as", "heads"),
    [
        pytest.param(2, replicated, wrapped, 2, id="replicated, the wrapped model"),
        pytest.param(2, replicated, inside, 2, id="replicated, the model inside"),
        pytest.param(2, sharded, inside, 3, id="sharded, ranks have two heads and one"),
        pytest.param(3, sharded, inside, 2, id="sharded, a rank has no heads"),
    ],
)
def test_the_numbers_and_their_order_are_those_of_measure_on_the_checkpoints(tmp_path, ranks, spread, seen_as, heads):
    live, *elsewhere = on_ranks(ranks, tmp_path, measured_and_written, spread, seen_as, heads, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.steps == STEPS
    written = probes.measure(run, audit=False, drift_over="previous")
    written = written.loc[written["probe"].isin(live["probe"].unique())]
    assert live[KEYS].fillna(-1).to_numpy().tolist() == written[KEYS].fillna(-1).to_numpy().tolist()
    assert live["value"].notna().mean() > 0.8
    np.testing.assert_allclose(live["value"], written["value"], rtol=1e-6, atol=1e-9)
    assert all(table.empty for table in elsewhere)


def measured_by_a_worker(rank, spread):
    """Tables of the same training measured by the ranks and by a worker, and whether training was the same."""
    here, beside = Training(spread), Training(spread)
    with probes.Monitor(here.model, budget=1.0, schedule=STEPS) as monitor:
        for _, loss in here:
            monitor.step(loss=loss)
    with probes.Monitor(beside.model, budget=1.0, schedule=STEPS, background=True) as worker:
        for _, loss in beside:
            worker.step(loss=loss)
    assert worker.failure is None
    weights = beside.weights()
    changed = [name for name, weight in here.weights().items() if not torch.equal(weight, weights[name])]
    return monitor.table, worker.table, changed


@pytest.mark.parametrize("spread", [replicated, sharded])
def test_a_worker_of_the_first_rank_measures_the_same(tmp_path, spread):
    (here, worker, changed), (*tables, also_changed) = on_ranks(2, tmp_path, measured_by_a_worker, spread)
    assert changed == also_changed == []
    assert all(table.empty for table in tables)
    assert sorted(set(worker["step"])) == STEPS
    assert here[KEYS].fillna(-1).to_numpy().tolist() == worker[KEYS].fillna(-1).to_numpy().tolist()
    np.testing.assert_allclose(here["value"], worker["value"], rtol=1e-9, atol=1e-12)


def scalars_recorded(rank):
    training, squares = Training(sharded, steps=3), []
    with probes.Monitor(training.model, probes=["norm"]) as monitor:
        for _, loss in training:
            square = training.model.wte.weight.detach().square().sum()  # of which each rank has a part
            squares.append(square.full_tensor().item())
            monitor.step(loss=loss, square=square)
    mine = [torch.stack(training.losses).tolist(), squares]
    return mine, [monitor.series(name).tolist() for name in ("loss", "square") if name in monitor.tracked.records]


def test_scalars_are_those_of_the_first_rank_and_may_be_spread_over_all(tmp_path):
    (mine, recorded), (other, recorded_elsewhere) = on_ranks(2, tmp_path, scalars_recorded)
    assert recorded == mine
    assert mine[0] != other[0]  # each has a loss of its own
    assert recorded_elsewhere == []


# The training


def trained_with_and_without(rank, spread, folder):
    alone = Training(spread)
    for _ in alone:
        pass
    monitored = Training(spread)
    checkpoints = AdaptiveCheckpoints(folder / spread.__name__, schedule=3, budget=1.0)
    with probes.Monitor(monitored.model, budget=1.0, evaluate=monitored.evaluate, checkpoints=checkpoints) as monitor:
        for step, loss in monitored:
            monitor.step(loss=loss)
            if step == 5 and monitor.is_active:
                monitor._announce(event(4, detected_at=5))
    assert monitor.failure is None
    if spread is sharded or rank == 0:
        assert monitor.budget.done["measurement"] > 5
        assert 4 in checkpoints.written
    else:
        assert monitor.budget.spent == 0  # a bystander does nothing at all
        assert not hasattr(monitor, "_measurement")
    assert torch.equal(torch.stack(alone.losses), torch.stack(monitored.losses))
    weights = monitored.weights()
    return [name for name, weight in alone.weights().items() if not torch.equal(weight, weights[name])]


@pytest.mark.parametrize("spread", [replicated, sharded])
def test_training_is_the_same_bit_for_bit_with_and_without_a_monitor(tmp_path, spread):
    assert on_ranks(2, tmp_path, trained_with_and_without, spread, tmp_path) == [[], []]


def most_gathered(rank):
    """The most bytes that were whole at any one time, and those of the attention weights and norm of a layer."""
    training, alive, most = Training(sharded), weakref.WeakSet(), 0

    def gathering(tensor):
        nonlocal most
        gathered = whole(tensor)
        alive.add(gathered)
        most = max(most, sum({t.data_ptr(): t.nbytes for t in alive}.values()))  # some are views of others
        return gathered

    with (
        patch("checkpoints.files.in_memory.whole", gathering),
        probes.Monitor(training.model, budget=1.0) as monitor,
    ):
        for _ in training:
            monitor.step()
    kept = monitor._measurement._before.open().tensors
    assert all(isinstance(tensor, DTensor) for tensor in kept.values())
    layer = [tensor.nbytes for name, tensor in kept.items() if name.startswith("h.0")]
    return most, sum(layer)


def test_a_rank_never_has_more_than_a_layer_of_now_and_of_before(tmp_path):
    for most, layer in on_ranks(2, tmp_path, most_gathered):
        assert most == 2 * layer


# Events


def told_of_a_cliff(rank, path):
    """The first rank's loss falls at step 250; the other's does not."""
    training = Training(sharded, steps=500)
    noise = np.random.default_rng(rank).normal(0, 0.02, training.steps)
    checkpoints, called = AdaptiveCheckpoints(path, schedule=250, budget=1.0), []
    with probes.Monitor(
        training.model, probes=["norm"], schedule=250, budget=1.0, checkpoints=checkpoints, on_event=called.append
    ) as monitor:
        for step, _ in training:
            fallen = rank == 0 and step > 250
            monitor.step(loss=(1.0 if fallen else 3.0) + noise[step - 1])
    assert monitor.failure is None
    assert called == monitor.detected
    return monitor.detected, checkpoints.written


def test_an_event_on_the_first_rank_is_known_to_all_and_makes_checkpoints_dense(tmp_path):
    (events, written), elsewhere = on_ranks(2, tmp_path, told_of_a_cliff, tmp_path / "run")
    assert elsewhere == (events, written)
    (found,) = events
    assert found.step == pytest.approx(250, abs=3)
    steps = open_run(tmp_path / "run").steps
    assert steps == sorted(written)
    around = [step for step in steps if found.low * 0.9 <= step <= 1.1 * found.detected_at]
    assert around[0] < found.low
    assert max(np.diff(around)) <= 0.06 * 500
    assert {*range(round(found.low) - 2, round(found.high) + 3)} <= {*around}
    assert [step for step in steps if step < 190] == [0]


# Errors


PLACES = {
    "measuring": lambda monitor: patch("probes.measuring.checkpoint.numbers_of", planted),
    "reading": lambda monitor: patch.object(monitor.weights, "now", planted),
    "copying": lambda monitor: patch.object(InMemory, "copy_of", planted),
    "taking in": lambda monitor: patch.object(monitor.tracked, "add_means", planted),
    "looking": lambda monitor: patch.object(monitor, "_found", planted),
    "saving": lambda monitor: patch.object(monitor.checkpoints.writer, "save", planted),
    "on_event": lambda monitor: patch.object(monitor, "on_event", planted),
    "evaluating": lambda monitor: patch.object(monitor, "evaluate", and_then_fails(monitor.evaluate)),
}
"""By what a rank is doing, what makes it fail there."""


def planted(*arguments, **named):
    raise ArithmeticError("planted")


def and_then_fails(evaluate):
    """In the model's own collectives the ranks have to meet: nobody else can see to that."""
    return lambda: planted(evaluate())


def broken_for_a_while(rank, place, culprit, path):
    """Measured at every step; at steps 2 to 4 one rank fails at one thing, and after step 3 there is an event."""
    training, checkpoints = Training(sharded, steps=6), AdaptiveCheckpoints(path, schedule=2)
    with probes.Monitor(
        training.model,
        probes=["norm", "subspace_drift"],
        schedule=1,
        budget=1.0,
        on_event=str,
        evaluate=training.evaluate,
        checkpoints=checkpoints,
    ) as monitor:
        breaking = PLACES[place](monitor) if rank == culprit else nullcontext()
        for step, loss in training:
            with breaking if 2 <= step <= 4 else nullcontext():
                monitor.step(loss=loss)
                if step == 3:
                    monitor._announce(event(2, detected_at=3))
    assert monitor.done == 6
    return str(monitor.failure), monitor.table


@pytest.mark.parametrize(
    ("place", "culprit"),
    [
        ("measuring", 1),
        ("reading", 1),
        ("saving", 0),
        ("on_event", 1),
        pytest.param("measuring", 0, marks=pytest.mark.slow),
        pytest.param("reading", 0, marks=pytest.mark.slow),
        pytest.param("copying", 1, marks=pytest.mark.slow),
        pytest.param("taking in", 0, marks=pytest.mark.slow),
        pytest.param("looking", 0, marks=pytest.mark.slow),
        pytest.param("evaluating", 1, marks=pytest.mark.slow),
    ],
)
def test_an_error_on_one_rank_keeps_nobody_waiting_and_does_no_harm_once_it_is_over(tmp_path, place, culprit):
    (failure, table), (elsewhere, _) = on_ranks(2, tmp_path, broken_for_a_while, place, culprit, tmp_path / "run")
    is_known = ["planted" in failure, "planted" in elsewhere]
    is_known_to_all = place not in ("on_event", "evaluating")
    assert is_known == [True, True] if is_known_to_all else [culprit == 0, culprit == 1]
    last, unbroken = (table.loc[table["step"] == step, [*KEYS[1:], "why_missing"]] for step in (6, 1))
    assert last.astype(str).to_numpy().tolist() == unbroken.astype(str).to_numpy().tolist()
    if place == "measuring":
        broken = table.loc[(table["step"] == 3) & table["why_missing"].str.contains("planted", na=False)]
        assert set(broken["head"]) == {culprit}  # it costs the heads of this rank
    if place == "saving":
        assert open_run(tmp_path / "run").steps == [0, 6]
    if place in ("saving", "looking"):
        assert set(table["step"]) == set(range(7))  # measuring went on


def training_goes_wrong(rank, culprit):
    training = Training(sharded, steps=6)
    with probes.Monitor(training.model, budget=1.0, schedule=1):
        for step, _ in training:
            if step == 3 and rank == culprit:
                raise ValueError("the data are gone")


@pytest.mark.parametrize("culprit", [0, 1])
def test_an_error_of_the_training_on_one_rank_is_raised_there_and_not_waited_upon(tmp_path, culprit):
    errors = outcomes_on_ranks(2, tmp_path, training_goes_wrong, culprit)
    assert "the data are gone" in str(errors[culprit])
    assert isinstance(errors[1 - culprit], RuntimeError)  # that the other has left


def refusals(rank, folder):
    model = Training(sharded).model
    for said, make in {
        "already holds a run": lambda: probes.Monitor(model, checkpoints=AdaptiveCheckpoints(folder / "there")),
        "nowhere to write on the first rank": lambda: probes.Monitor(model, checkpoints=AdaptiveCheckpoints(None)),
        "no circuit is called": lambda: probes.Monitor(model, circuits="ov" if rank == 0 else "vo"),
        "different tensors": lambda: probes.Monitor(stage(model, rank), config={"n_head": 2}),
        "only circuits of attention heads": lambda: probes.Monitor(model, circuits={"mine": dict}),
        "fully_shard": lambda: probes.Monitor(FullyShardedDataParallel(Transformer(2), device_id=torch.device("cpu"))),
    }.items():
        with pytest.raises((ValueError, OSError, RuntimeError), match=said):
            make()


def stage(model, rank):
    return lambda: {f"stages.{rank}.{name}": tensor for name, tensor in model.state_dict().items()}


def test_what_cannot_be_monitored_is_refused_on_all_ranks(tmp_path):
    RunWriter(tmp_path / "there").close()
    on_ranks(2, tmp_path, refusals, tmp_path)


def written_with_a_writer_of_ones_own(rank, path):
    training = Training(sharded, steps=2)
    writer = RunWriter(path, config=training.model.config) if rank == 0 else None
    with probes.Monitor(training.model, checkpoints=AdaptiveCheckpoints(writer)) as monitor:
        for step, loss in training:
            monitor.step(loss=loss)
            if writer:
                writer.log(step - 1, loss=loss)
    assert monitor.failure is None
    return training.weights()


def test_only_the_first_rank_needs_a_writer(tmp_path):
    weights, _ = on_ranks(2, tmp_path, written_with_a_writer_of_ones_own, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 1, 2]
    assert len(run.metrics) == 2
    last = run.checkpoint(2)
    assert set(last) == set(weights)
    assert all(torch.equal(last[name], weight) for name, weight in weights.items())
