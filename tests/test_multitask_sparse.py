"""Paper 004: the model on explicit prompts, its flow by two routes, four closed forms, and the tables of exponents."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import probes
from checkpoints import open_run
from models.multitask_sparse import laws
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig, flow_of, loss_and_gradient, matrix_of
from models.multitask_sparse.task import PowerLaw, power_law_tasks, prompt
from models.multitask_sparse.theory import (
    Corrected,
    FirstOrder,
    FullFlow,
    PrintedFirstOrder,
    ZerothOrder,
    aligned_start,
    uniform_start,
)
from models.training import train

PLAIN, VARIED = PowerLaw(1.8), PowerLaw(1.8, 0.3, 0.3)


def slope(x, y):
    return -np.polyfit(np.log(x), np.log(y), 1)[0]


def one_task(context=100.0, strength=0.5):
    return power_law_tasks(PLAIN, 1, context, strength)


def integrated(tasks, v, w, times):
    """Eq 9 by a general-purpose integrator, for the first task."""
    h, strength, p = tasks.moments[0], tasks.strength[0], tasks.probability[0]

    def velocity(_, state):
        gap = state[:2] @ h @ state[2:] - strength
        return -p * gap * np.concatenate((h @ state[2:], h @ state[:2]))

    start = np.concatenate((v[0], w[0]))
    flow = solve_ivp(velocity, (0, times[-1]), start, t_eval=times, rtol=1e-10, atol=1e-13, method="LSODA")
    return np.einsum("it,ij,jt->t", flow.y[:2], h, flow.y[2:])


# the model


def test_a_prompt_written_out_has_the_moments_of_equation_7_whatever_its_signs(rng):
    tasks = power_law_tasks(VARIED, 4, 6.0, 0.7)
    task, signs = 2, rng.choice([-1.0, 1.0], 6)
    tasks = replace(tasks, context=np.array([9.0, 7.0, 5.0, 3.0]))
    phi = prompt(tasks, task, signs)
    product = phi @ phi.T
    np.testing.assert_allclose(product[np.ix_([task, 4], [task, 4])], tasks.moments[task])
    product[np.ix_([task, 4], [task, 4])] = 0
    assert not product.any()


def test_loss_and_gradient_are_those_of_equation_6_on_explicit_prompts(rng):
    tasks = replace(power_law_tasks(PLAIN, 3, 4.0, 0.7), context=np.array([4.0, 3.0, 2.0]))
    big_v = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    big_w = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    drawn = [0, 0, 1, 2, 0]
    losses = []
    for task in drawn:
        signs = rng.choice([-1.0, 1.0], int(tasks.context[task]) + 1)
        phi = torch.as_tensor(prompt(tasks, task, signs))
        output = (big_v @ phi @ phi.T @ big_w @ phi[:3, -1])[task]
        losses.append(0.5 * (output - tasks.strength[task] * signs[-1]) ** 2)
    expected = torch.stack(losses).mean()
    expected.backward()
    places = [(s, torch.tensor([s, 3])) for s in range(3)]
    v = torch.stack([big_v[s, at] for s, at in places]).detach()
    w = torch.stack([big_w[at, s] for s, at in places]).detach()
    frequency = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    moments, strength = torch.as_tensor(tasks.moments), torch.as_tensor(tasks.strength)
    loss, gradient_v, gradient_w = loss_and_gradient(v, w, moments, strength, frequency)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(gradient_v, torch.stack([big_v.grad[s, at] for s, at in places]))
    torch.testing.assert_close(gradient_w, torch.stack([big_w.grad[at, s] for s, at in places]))
    assert big_v.grad.count_nonzero() == 6  # all other coordinates never move
    assert matrix_of(v).shape == (3, 4)
    assert matrix_of(v)[1].tolist() == [0, v[1, 0], 0, v[1, 1]]


def test_a_run_laid_over_the_full_flow_and_probed(tmp_path):
    config = MultitaskConfig(tasks=12, data=400, context=50.0, learning_rate=2e-3)
    (path,) = train(
        lambda seeds: MultitaskAttention(config, seeds), [3], tmp_path, "sparse", 1200, range(0, 1200, 20), quiet=True
    )
    run = open_run(path)
    alignment = probes.align(run, flow_of(FullFlow, run.config, run.theory))
    reached = alignment.modes["measured_half_time"] < 2
    assert reached.sum() >= 3
    np.testing.assert_allclose(alignment.modes.loc[reached, "half_time_ratio"], 1, atol=0.05)  # steps of 0.05 in time
    assert alignment.loss_r2 > 0.999
    assert alignment.conserved_drift < 0.01
    table = probes.measure(run, "ov")
    assert table.loc[table["probe"] == "norm", "value"].is_monotonic_increasing


def test_minibatches_follow_the_same_flow_and_a_cut_model_leaves_rare_tasks_alone():
    config = MultitaskConfig(tasks=8, batch=200, size=4, context=50.0, learning_rate=2e-3)
    experiment = MultitaskAttention(config, [0, 1])
    for _ in range(800):
        experiment.update()
    output = np.einsum("si,sij,sj->s", *(experiment.weights(0)[name].numpy() for name in ("v", "h", "w")))
    flow = flow_of(FullFlow, *experiment.describe(0))
    predicted = flow.modes([1.6])[0]
    np.testing.assert_allclose(output[:3], predicted[:3], rtol=0.05)
    np.testing.assert_allclose(output[3:], flow.modes([0.0])[0][3:])
    assert np.isinf(flow.half_times[3:]).all()


def test_a_run_goes_on_where_it_stopped(tmp_path):
    def make(seeds):
        return MultitaskAttention(MultitaskConfig(tasks=5, data=50, batch=7), seeds)

    train(make, [0, 1], tmp_path / "cut", "sparse", 6, [3], quiet=True)
    train(make, [0, 1], tmp_path / "cut", "sparse", 12, [3, 9], quiet=True)
    train(make, [0, 1], tmp_path / "whole", "sparse", 12, [3, 9], quiet=True)
    cut, whole = (open_run(tmp_path / kind / "sparse-seed1") for kind in ("cut", "whole"))
    np.testing.assert_array_equal(cut.metrics["loss"], whole.metrics["loss"])
    assert torch.equal(cut.checkpoint(12)["v"], whole.checkpoint(12)["v"])


# the flow and its closed forms


@pytest.mark.parametrize("init", [0.01, 0.3])  # from below and from above the strength
@pytest.mark.parametrize("context", [5.0, 100.0])
def test_the_quadrature_is_the_full_flow(context, init):
    tasks = one_task(context)
    v, w = uniform_start(tasks, init)
    w = w * [1.0, 0.6]
    times = np.concatenate(([0], np.geomspace(1e-3, 30, 200))) / context
    np.testing.assert_allclose(FullFlow(tasks, v, w).modes(times)[:, 0], integrated(tasks, v, w, times), atol=2e-5)


def test_check_values_of_the_zeroth_order_and_of_its_correction():
    errors = {ZerothOrder: [], Corrected: []}
    for context in (5.0, 20.0, 100.0, 1000.0):
        tasks = one_task(context)
        v, w = uniform_start(tasks, 0.01)
        times = np.concatenate(([0], np.geomspace(1e-3, 1e3, 2000))) / context
        full = FullFlow(tasks, v, w).modes(times)
        for kind, found in errors.items():
            found.append(np.abs(kind(tasks, v, w).modes(times) - full).max() / 0.5)
    np.testing.assert_allclose(errors[ZerothOrder], [0.206, 0.043, 0.006, 0.0003], rtol=0.05)
    assert max(errors[Corrected]) < 1e-3


def test_the_first_order_term_leaves_an_error_of_second_order_and_the_printed_one_does_not():
    errors = {FirstOrder: [], PrintedFirstOrder: [], ZerothOrder: []}
    for context in (20.0, 40.0, 80.0):
        tasks = one_task(context)
        v, w = aligned_start(tasks, 0.01, 0.1)
        times = np.concatenate(([0], np.geomspace(1e-3, 1e3, 2000))) / context
        full = FullFlow(tasks, v, w).modes(times)
        for kind, found in errors.items():
            found.append(np.abs(kind(tasks, v, w).modes(times) - full).max())
    first, zeroth = np.array(errors[FirstOrder]), np.array(errors[ZerothOrder])
    np.testing.assert_allclose(first[:-1] / first[1:], 4, rtol=0.15)
    np.testing.assert_allclose(zeroth[:-1] / zeroth[1:], 2, rtol=0.1)
    assert (np.array(errors[PrintedFirstOrder]) > zeroth).all()


@given(
    start=st.floats(-2, 2).filter(lambda x: abs(x) > 1e-6),
    ratio=st.sampled_from([-1.0, -0.3, 0.2, 1 - 1e-9, 1.0, 1 + 1e-7, 3.0]),
    strength=st.floats(0.05, 3),
)
def test_equation_13_solves_its_differential_equation_from_every_start_without_singular_points(start, ratio, strength):
    tasks = one_task(4.0, strength)
    v = np.array([[start, 0.3 * start]])
    if abs(start * (1 + 0.3 * strength)) < 1e-3:
        return  # as good as nothing
    flow = ZerothOrder(tasks, v, ratio * v)
    times = np.linspace(0, 2, 5) / (4 * (1 + strength**2) * strength)
    f, h = flow.modes(times)[:, 0], 1e-4 * times[1]
    assert np.isfinite(f).all()
    slope_now = (flow.modes(times[1:] + h)[:, 0] - flow.modes(times[1:] - h)[:, 0]) / (2 * h)
    expected = (flow.rate[0] * (strength - f) * np.sqrt(4 * f**2 + 2 * flow.constant[0]))[1:]
    np.testing.assert_allclose(slope_now, expected, rtol=5e-3, atol=1e-3 * np.abs(expected).max() + 1e-9)
    assert f[0] == pytest.approx(4 * ratio * (start * (1 + 0.3 * strength)) ** 2, rel=1e-6)


def test_equation_14_is_the_case_without_a_constant():
    tasks = one_task()
    v, w = uniform_start(tasks, 0.01, offset=0.0)
    flow = ZerothOrder(tasks, v, w)
    assert flow.constant[0] == 0
    t = np.array([0.0, 0.01, 0.05])
    delta = (0.5 - flow.start) / flow.start
    np.testing.assert_allclose(flow.modes(t)[:, 0], 0.5 / (1 + delta * np.exp(-flow.rate * t)), rtol=1e-12)


def test_a_start_on_the_target_stays_and_an_opposed_start_shrinks_to_nothing():
    tasks = one_task()
    on_target = ZerothOrder(tasks, *aligned_start(tasks, 1.0))
    np.testing.assert_allclose(on_target.modes([0.0, 1.0, 100.0]), 0.5, rtol=1e-12)
    v, _ = uniform_start(tasks, 0.01)
    opposed = ZerothOrder(tasks, v, -v)
    assert abs(opposed.modes([100.0])[0, 0]) < 1e-12
    assert opposed.fixed_point[0] == 0
    assert np.isinf(opposed.half_times[0])
    with pytest.raises(ValueError, match="can only shrink"):
        FullFlow(tasks, v, -v)
    with pytest.raises(ValueError, match="zero never leaves zero"):
        ZerothOrder(tasks, 0 * v, 0 * v)


def test_half_times_are_where_half_of_the_strength_is_reached():
    tasks = power_law_tasks(VARIED, 5, 100.0, 0.8)
    v, w = uniform_start(tasks, 0.01)
    for kind in (FullFlow, ZerothOrder, Corrected):
        flow = kind(tasks, v, w, [*tasks.probability[:4], 0.0])
        half = flow.half_times
        np.testing.assert_allclose(
            [flow.modes([t])[0, s] for s, t in enumerate(half[:4])], tasks.strength[:4] / 2, rtol=1e-4
        )
        assert np.isinf(half[4])
        assert flow.fixed_point[4] == 0


# scaling laws


@pytest.mark.slow
def test_exponents_of_table_1():
    tasks = power_law_tasks(PLAIN, 200_000, 100.0, 0.5)
    flow = FullFlow(tasks, *uniform_start(tasks, 0.1))
    times, sizes, draws = np.geomspace(3, 300, 12), np.geomspace(30, 3000, 12), np.geomspace(1e3, 1e5, 12)
    assert slope(times, flow.test_loss(times)) == pytest.approx(laws.time_exponent(PLAIN), rel=0.01)
    assert slope(sizes, laws.losses_of_size(flow, sizes)) == pytest.approx(laws.size_exponent(PLAIN), rel=0.02)
    assert slope(draws, laws.losses_of_data(flow, draws)) == pytest.approx(laws.data_exponent(PLAIN), rel=0.01)


def strong(law, strength):
    tasks = power_law_tasks(law, 10**7, 1e4, strength)
    flow = Corrected(tasks, *aligned_start(tasks, 0.01))
    ranks = np.geomspace(100, 1e5, 10)
    return flow, ranks, 1 / np.interp(ranks, tasks.rank, flow.rate * tasks.strength)


def test_exponents_of_table_2_and_its_swapped_shape():
    flow, ranks, times = strong(VARIED, 1e5)
    assert slope(times, flow.test_loss(times)) == pytest.approx(laws.time_exponent(VARIED), rel=0.005)
    draws = np.geomspace(1e4, 1e7, 10)
    found = slope(draws, laws.losses_of_data(flow, draws))
    assert found == pytest.approx(laws.data_exponent(VARIED), rel=0.005)
    assert abs(found - laws.printed_data_exponent_105(VARIED)) > 0.1
    compute = times * ranks
    loss, size = laws.best_split(flow, compute, np.geomspace(10, 1e6, 80))
    assert slope(compute, loss) == pytest.approx(laws.compute_exponent(VARIED), rel=0.01)
    assert -slope(compute, size) == pytest.approx(laws.best_size_exponent(VARIED), rel=0.02)
    assert laws.printed_best_size_exponent(VARIED) == pytest.approx(0.75)


def test_weak_strengths_have_a_time_law_of_their_own():
    flow, _, times = strong(VARIED, 1e-2)
    found = slope(times, flow.test_loss(times))
    assert found == pytest.approx(laws.weak_time_exponent(VARIED), rel=0.005)
    assert abs(found - laws.time_exponent(VARIED)) > 0.1


def test_equations_16_and_17_are_the_test_loss_of_theorem_3_1():
    tasks = power_law_tasks(VARIED, 30, 100.0, 0.5)
    flow = ZerothOrder(tasks, *aligned_start(tasks, 0.02))
    t = np.array([0.1, 1.0])
    growth = 49 * np.exp(-2 * flow.rate * tasks.strength * t[:, None])
    by_17 = 0.5 * (tasks.probability * tasks.strength**2 * (growth / (1 + growth)) ** 2).sum(-1)
    np.testing.assert_allclose(flow.test_loss(t), by_17, rtol=1e-10)
    tasks = power_law_tasks(PLAIN, 30, 100.0, 0.5)
    flow = ZerothOrder(tasks, *uniform_start(tasks, 0.01))
    f0, c = flow.start[0], flow.constant[0]
    size = np.sqrt(1 + 2 * c)
    p = (2 * f0 + 2 * c + size * np.sqrt(4 * f0**2 + 2 * c)) / (2 * (f0 - 0.5) * (size - 1))
    q = p * (1 - size) / (1 + size)
    grown = np.exp(flow.rate * size * t[:, None])
    by_16 = size**2 / 8 * (tasks.probability * (1 / (1 + p * grown) - 1 / (1 + q * grown)) ** 2).sum(-1)
    np.testing.assert_allclose(flow.test_loss(t), by_16, rtol=1e-6)


def test_gathering_rare_tasks_changes_no_sum():
    law, times = VARIED, np.array([0.5, 50.0])
    exact, gathered = (power_law_tasks(law, 20_000, 100.0, 0.5, exact=n) for n in (20_000, 300))
    assert gathered.multiplicity.sum() == 20_000
    losses = [Corrected(tasks, *uniform_start(tasks, 0.01)).test_loss(times) for tasks in (exact, gathered)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


# what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PowerLaw(1.0), "alpha"),
        (lambda: PowerLaw(1.8, -0.1), "beta"),
        (lambda: PowerLaw(1.8, 0.1, -0.1), "gamma"),
        (lambda: power_law_tasks(PLAIN, 0, 10.0, 0.5), "at least one task"),
        (lambda: power_law_tasks(PLAIN, 3, 0.0, 0.5), "psi"),
        (lambda: power_law_tasks(PLAIN, 3, 10.0, 0.0), "Lambda"),
        (lambda: uniform_start(one_task(), 0.0), "zero never leaves zero"),
        (lambda: aligned_start(one_task(), 0.0), "zero never leaves zero"),
        (lambda: FullFlow(one_task(), *uniform_start(one_task(), 0.1), [0.5, 0.5]), "one per task"),
        (lambda: FullFlow(one_task(), *uniform_start(one_task(), 0.1), [-0.5]), "cannot be negative"),
        (lambda: FirstOrder(one_task(), *uniform_start(one_task(), 0.1)), "along"),
        (lambda: FullFlow(one_task(), *uniform_start(one_task(), 0.1)).modes([-1.0]), "times must"),
        (lambda: MultitaskConfig(alpha=0.9), "alpha"),
        (lambda: MultitaskConfig(learning_rate=0.0), "learning_rate"),
        (lambda: MultitaskConfig(data=-1), "data is -1"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_best_size_at_the_edge_is_not_reported_as_best():
    flow, ranks, times = strong(VARIED, 1e5)
    with pytest.raises(ValueError, match="wider range"):
        laws.best_split(flow, times * ranks, np.geomspace(1e5, 1e6, 5))


def test_losses_of_size_and_data_by_hand():
    tasks = power_law_tasks(PLAIN, 5, 100.0, 0.5)
    flow = ZerothOrder(tasks, *aligned_start(tasks, 0.02))
    each = 0.5 * tasks.probability * (0.98 * 0.5) ** 2
    np.testing.assert_allclose(laws.losses_of_size(flow, np.array([1.0, 3.0, 6.0])), [each.sum(), each[2:].sum(), 0])
    unseen = each * (1 - tasks.probability) ** 7
    np.testing.assert_allclose(laws.losses_of_data(flow, np.array([7.0])), [unseen.sum()])
