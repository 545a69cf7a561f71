"""What the pages on paper 004 measure, on runs that were written by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from analyses.paper_004_sparse_tasks import sparse_general
from analyses.paper_004_sparse_tasks.runs import Group
from analyses.paper_004_sparse_tasks.softmax_measures import (
    BUDGETS,
    SIZES,
    Seen,
    Trained,
    compute_slopes,
    contexts_beside_none,
    frontier,
    of_times,
    size_slopes,
)
from models.multitask_sparse.idempotent import IdempotentFlow

STEPS = np.arange(3001)


def group(loss, seeds=2, **config) -> Group:
    """Runs with this loss at every step, the second seed twice as high."""
    settings = SimpleNamespace(**{"learning_rate": 1.0, "context": 100.0, "tasks": 500, "alpha": 1.8} | config)
    runs = [SimpleNamespace(metrics=pd.DataFrame({"test_loss": (1 + i) * loss(STEPS)})) for i in range(seeds)]
    return Group(settings, runs)  # pyright: ignore[reportArgumentType]


def planted(exponent: float) -> Group:
    """A power law of time."""
    return group(lambda t: (1.0 + t) ** -exponent)


def by_size() -> dict[int, Group]:
    """The larger of what time and what size leave, so that the best size at every budget is known."""
    return {d: group(lambda t, d=d: np.maximum(1.0 / (1 + t), 1.0 / d)) for d in SIZES}


def test_the_frontier_is_the_least_loss_of_any_size_at_its_own_time():
    trained = Trained("gd", {}, by_size(), {})
    budgets, losses = frontier(trained)
    by_hand = [min(max(1 / (1 + min(c / d, 3000)), 1 / d) for d in SIZES) for c in BUDGETS["gd"]]
    np.testing.assert_allclose(losses[0], by_hand, rtol=0.01)  # times between steps
    np.testing.assert_allclose(losses[1], 2 * losses[0])
    assert budgets is BUDGETS["gd"]
    by_fit = -np.polyfit(np.log(budgets), np.log(by_hand), 1)[0]
    assert compute_slopes(trained) == pytest.approx([by_fit] * 2, rel=0.02)


def test_budgets_of_adamw_count_steps_and_not_its_learning_rate():
    fast, slow = (Trained("adamw", {}, {3: group(lambda t: 1 / (1.0 + t), learning_rate=r)}, {}) for r in (1.0, 0.005))
    np.testing.assert_allclose(frontier(fast)[1], frontier(slow)[1])


def test_planted_exponents_are_found_and_held_against_the_printed_ones():
    seen = Seen(
        Trained("gd", {1.8: planted(0.8 / 1.8), 2.1: planted(2 * 1.1 / 2.1)}, {}, {}),
        Trained("adamw", {}, {}, {}),
        {0.3: planted(0.3), 0.6: planted(0.8 / 1.8)},
        {b: group(lambda t: (1.0 + 100 * t) ** -0.4, learning_rate=0.01) for b in (0.0, 0.3, 0.6)},
    )
    assert of_times(seen).runs == pytest.approx([1, 1, 2, 2], rel=0.01)
    assert contexts_beside_none(seen).runs == pytest.approx([0.675, 0.675, 1, 1], rel=0.01)
    assert contexts_beside_none(seen).text.endswith("linear attention: 1.000, 1.000")


def test_size_exponents_are_those_of_the_losses_at_the_end():
    sizes = {d: group(lambda t, d=d: np.full(len(t), d**-0.8)) for d in SIZES}
    assert size_slopes(Trained("gd", {}, sizes, {})) == pytest.approx([0.8, 0.8])


def test_one_coordinate_adapts_and_both_together_do_not():
    assert sparse_general.answer(3, 2.0, constrained=True) == pytest.approx(1, abs=1e-4)
    assert sparse_general.answer(3, 1.0, constrained=False) == pytest.approx(1, abs=1e-3)  # the strength it learned
    assert abs(sparse_general.answer(3, 2.0, constrained=False) - 1) > 0.05


def test_a_wrong_rate_is_an_error_of_the_closed_form():
    task = sparse_general.single_coordinate(1)
    right = sparse_general.SHORT * sparse_general.STRENGTH
    assert task.error(right) < 1e-3 < 0.1 < task.error(2 * right)
    start = IdempotentFlow(task.h, sparse_general.STRENGTH, task.v, task.w, right).modes([0.0])[0, 0]
    assert start == pytest.approx(float(task.v @ task.h @ task.w))
