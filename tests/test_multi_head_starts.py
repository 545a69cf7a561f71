"""What pages on paper 001 rest on: many flows at once, fixed points, zero blocks, stays at levels, rules on seeds."""

import numpy as np
import pytest
import torch

from analyses.paper_001_multi_head.fixed_point_measures import look_for_one, matrix_of, member, subsets
from analyses.paper_001_multi_head.plateau_measures import Staircase, clear_plateaus, stays
from analyses.paper_001_multi_head.seed_rules import BySeed, SpreadRises
from analyses.tools.claims import Measured
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART
from checkpoints import open_run
from models.linear_icl.task import Prompts
from models.multi_head.blocks import MultiHeadWithBlocks, blocks_loss_and_gradient, draw_whole_prompts
from models.multi_head.many_flows import many_flows
from models.multi_head.model import MultiHead, MultiHeadConfig
from models.multi_head.theory import PopulationFlow
from models.training import train
from probes import align

S, N = (0.4, 0.3, 0.2, 0.1), 31


@pytest.fixture
def starts(rng):
    value, key = rng.normal(0, 0.5, (3, 4)), rng.normal(0, 0.2, (2, 3, 4, 2, 4))
    return value, key[0], key[1]


def test_many_flows_at_once_are_those_one_by_one(starts):
    many = many_flows(S, 1 / N, starts, 400.0, step=0.5, kept=20)
    for i in range(3):
        one = PopulationFlow(S, 1 / N, *(part[i] for part in starts))
        reached = np.isfinite(many.half_times[i])
        assert reached[0]
        np.testing.assert_allclose(many.half_times[i][reached], one.half_times[reached], rtol=3e-3)  # between two steps
        np.testing.assert_allclose(many.loss[i, ::100], one.loss(many.times[::100]), atol=1e-6)
        value, key, query = one.weights(many.kept_times)
        np.testing.assert_allclose(many.key[:, i], key, atol=1e-4)
        np.testing.assert_allclose(many.query[-1, i], query[-1], atol=1e-4)
        np.testing.assert_allclose(many.conserved[:, i], one.conserved(many.kept_times), atol=1e-4)
        np.testing.assert_allclose(many.value[:, i], value, atol=1e-4)


def test_a_mode_that_is_not_reached_has_no_half_time(starts):
    assert np.isinf(many_flows(S, 1 / N, starts, 5.0).half_times[:, -1]).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that overflow on the way
def test_steps_that_are_too_large_are_refused(starts):
    with pytest.raises(RuntimeError, match="try smaller steps"):
        many_flows(S, 1 / N, starts, 4000.0, step=20.0)


@pytest.mark.parametrize("rank", [1, 2])
def test_every_member_of_every_set_is_at_rest_and_does_what_is_printed(rng, rank):
    config = MultiHeadConfig(rank=rank)
    for learned in subsets(4):
        flow = member(config, learned, rng)
        np.testing.assert_allclose(flow.velocity(flow.start), 0, atol=1e-12)
        np.testing.assert_allclose(flow.matrices([0.0])[0], matrix_of(config, learned), atol=1e-12)


def test_a_fixed_point_that_is_found_is_at_rest(rng):
    config = MultiHeadConfig()
    found = [one for one in (look_for_one(config, rng) for _ in range(3)) if one is not None]
    known = [matrix_of(config, s) for s in subsets(4)]
    assert found
    assert all(min(np.linalg.norm(one - k) for k in known) < 1e-9 for one in found)


def whole_weights(generator, heads=3, rank=2, d=4):
    shapes = {"value": (heads,), "key": (heads, rank, d), "query": (heads, rank, d)}
    shapes |= {"value_row": (heads, d), "key_row": (heads, rank)}
    return {name: torch.randn(1, *shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def test_the_loss_with_all_blocks_is_that_of_equation_1_on_explicit_tokens():
    generator, context, d = torch.Generator().manual_seed(0), 6, 4
    weights = whole_weights(generator)
    x = torch.randn(5, context + 1, d, generator=generator, dtype=torch.float64)
    w = torch.randn(5, d, generator=generator, dtype=torch.float64)
    y = (x @ w[..., None]).squeeze(-1)
    shown = torch.cat((y[:, :-1], torch.zeros(5, 1)), 1)
    matrix = torch.cat((x, shown[..., None]), -1).mT  # X of Eq 1: [batch, D + 1, N + 1]
    answer = torch.zeros(5, dtype=torch.float64)
    for i in range(3):
        row = torch.cat((weights["value_row"][0, i], weights["value"][0, i : i + 1]))
        keys = torch.cat((weights["key"][0, i], weights["key_row"][0, i][:, None]), 1)  # [rank, D + 1]
        scores = (matrix @ matrix.mT / context) @ keys.T @ (weights["query"][0, i] @ x[:, -1, :, None])
        answer = answer + (row @ scores).squeeze(-1)
    covariance = x[:, :-1].mT @ x[:, :-1] / context
    prompts = Prompts(covariance[None], x[None, :, -1], w[None])
    loss, _ = blocks_loss_and_gradient(weights, prompts, context)
    assert loss[0].item() == pytest.approx((answer - y[:, -1]).square().mean().item(), rel=1e-12)


def test_zero_blocks_are_pushed_by_a_task_and_back_by_its_opposite():
    generator = torch.Generator().manual_seed(1)
    weights = whole_weights(generator) | {
        "value_row": torch.zeros(1, 3, 4).double(),
        "key_row": torch.zeros(1, 3, 2).double(),
    }
    p = draw_whole_prompts(torch.tensor(S, dtype=torch.float64), 8, 7, generator)
    one, other = (Prompts(p.covariance[None], p.query[None], sign * p.task[None]) for sign in (1, -1))
    there, back = (blocks_loss_and_gradient(weights, prompts, 8)[1] for prompts in (one, other))
    for name in ("value_row", "key_row"):
        assert there[name].abs().max() > 1e-3
        torch.testing.assert_close(there[name], -back[name], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(there["key"], back["key"], rtol=1e-10, atol=1e-12)


def test_runs_with_blocks_begin_where_those_without_do_and_name_what_should_stay_zero(tmp_path):
    config = MultiHeadConfig(batch=16, learning_rate=0.1)
    model, plain = MultiHeadWithBlocks(config, [3]), MultiHead(config, [3])
    torch.testing.assert_close(model.weights(0)["key"], plain.weights(0)["key"])
    (path,) = train(lambda seeds: MultiHeadWithBlocks(config, seeds), [3], tmp_path, "run", 20, [10], quiet=True)
    (again,) = train(lambda seeds: MultiHeadWithBlocks(config, seeds), [3], tmp_path, "run", 40, [10], quiet=True)
    (whole,) = train(lambda seeds: MultiHeadWithBlocks(config, seeds), [3], tmp_path / "b", "run", 40, [10], quiet=True)
    assert path == again
    run, other = open_run(again), open_run(whole)
    torch.testing.assert_close(run.checkpoint(40)["value_row"], other.checkpoint(40)["value_row"], rtol=0, atol=0)
    flow = PopulationFlow(S, 1 / N, *(part[0].numpy() for part in plain.blocks.values()))
    assert 0 < align(run, flow).null_growth < 0.1


def test_stays_by_hand():
    times = np.exp(np.arange(11.0))
    loss = np.array([[1.0] * 3 + [0.5] * 5 + [0.0] * 3])
    pace = 1 - np.exp(-1)  # of one step of e, by its end
    np.testing.assert_allclose(stays(times, loss, np.array([1.0, 0.5, 0.0])), [[2 * pace, 5 * pace, 3 * pace]])
    stairs = Staircase(2, times, loss, np.array([1.0, 0.5, 0.0]), np.array([[0.1, 1.0, 0.6]]))
    assert stairs.new_head.tolist() == [False]
    assert stairs.grown().tolist() == [2]


def test_only_clear_plateaus_are_compared_with_their_level():
    times, levels = np.linspace(0, 100, 1001), np.array([1.0, 0.6, 0.2])
    loss = np.where(times < 10, 1.0, np.where(times < 15, 0.6, 0.22))
    found = clear_plateaus(times, loss, np.array([10.0, 15.0]), levels)
    assert [m for m, _ in found] == [0, 2]  # the second drop comes too soon
    assert dict(found)[2] == pytest.approx(1.1)


def test_a_rise_of_the_spread_must_be_beyond_chance(rng):
    first, noise = 10 + rng.standard_normal((2, 40))
    rising = Measured("", np.concatenate((first, 3 * noise - 20, 10 * noise - 90)))
    assert SpreadRises(3, relative=False).word(rising) == HOLDS
    assert SpreadRises(3, relative=True).word(Measured("", np.concatenate((first, 2 * first, 3 * first)))) == FAILS
    barely = Measured("", np.concatenate((first, np.roll(first, 1), 10 * noise - 90)))
    assert SpreadRises(3, relative=False).word(barely) == IN_PART
    missing = Measured("", np.concatenate((np.append(first, np.inf), np.append(3 * noise - 20, 1.0))))
    assert SpreadRises(2, relative=False).word(missing) == HOLDS  # without the run that lacks a number


def test_what_happens_in_one_seed_of_many_is_not_by_the_seed():
    word = BySeed(0.05).word
    assert [word(Measured("", np.arange(48) < count)) for count in (0, 1, 20, 47, 48)] == [
        FAILS,
        IN_PART,
        HOLDS,
        IN_PART,
        FAILS,
    ]
