"""Tasks that can only be solved in context, what heads do about them, and training that can be repeated."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from checkpoints import open_run
from models.adamw import AdamWConfig
from models.attention_only.model import (
    AttentionOnly,
    AttentionOnlyConfig,
    attention_only,
    prefix_matching_score,
    previous_token_score,
)
from models.attention_only.tasks import Batch, MarkovChains, RepeatedSubsequence
from models.training import train

SMALL = RepeatedSubsequence(vocabulary=7, length=11, subsequence=3, copies=2)


def test_copies_are_where_they_are_said_to_be_and_never_overlap():
    task = RepeatedSubsequence(vocabulary=40, length=30, subsequence=6, copies=3)
    batch = task.draw(300, torch.Generator().manual_seed(0))
    assert batch.tokens.shape == (300, 30)
    assert batch.starts.diff(dim=1).min() >= 6
    assert batch.starts.min() == 0
    assert batch.starts.max() == 24
    at = batch.starts[..., None] + torch.arange(6)
    copies = batch.tokens.gather(1, at.flatten(1)).view(300, 3, 6)
    assert torch.equal(copies, copies[:, :1].expand_as(copies))
    assert all(len(set(row)) == 6 for row in copies[:, 0].tolist())


def test_every_arrangement_is_equally_likely():
    task = RepeatedSubsequence(vocabulary=9, length=6, subsequence=2, copies=2)
    starts = task.draw(60_000, torch.Generator().manual_seed(0)).starts
    arrangements, counts = torch.unique(starts, dim=0, return_counts=True)
    assert len(arrangements) == 6  # two blocks of 2 among 6 places
    assert (counts / 60_000 - 1 / 6).abs().max() < 5 * (1 / 6 / 60_000) ** 0.5


def test_repeated_tokens_and_where_to_look_by_hand():
    tokens = torch.tensor([[5, 1, 2, 3, 6, 6, 1, 2, 3, 0, 0]])
    batch = Batch(tokens, torch.tensor([[1, 6]]))
    assert SMALL.repeated(batch)[0].nonzero().flatten().tolist() == [6, 7]  # targets 2 and 3 at places 7 and 8
    # from the second 1 (place 6) to the first 2 (place 2); from the second 2 (place 7) to the first 3 (place 3)
    assert SMALL.sources(batch)[0].nonzero().tolist() == [[6, 2], [7, 3]]


def test_scores_of_losses_by_hand():
    batch = Batch(torch.tensor([[5, 1, 2, 3, 6, 6, 1, 2, 3, 0, 0]]), torch.tensor([[1, 6]]))
    losses = torch.full((1, 10), 2.0)
    losses[0, [6, 7]] = torch.tensor([0.5, 1.0])
    hits = torch.zeros(1, 10, dtype=torch.bool)
    hits[0, 7] = True
    scores = SMALL.scores(batch, losses, hits)
    assert scores == pytest.approx(
        {"loss_new": 2.0, "loss_repeated": 0.75, "icl_score": 1.25, "accuracy_repeated": 0.5}
    )


def test_perfect_previous_token_and_induction_heads_score_one_and_uniform_ones_their_share():
    task = RepeatedSubsequence(vocabulary=20, length=21, subsequence=5, copies=2)
    batch = task.draw(8, torch.Generator().manual_seed(0))
    previous = torch.zeros(20, 20)
    previous[torch.arange(1, 20), torch.arange(19)] = 1
    induction = task.sources(batch).float()
    uniform = torch.ones(20, 20).tril() / torch.arange(1, 21)[:, None]
    heads = torch.stack((previous.expand(8, -1, -1), induction, uniform.expand(8, -1, -1)), 1)[None]
    assert previous_token_score(heads)[0].tolist() == pytest.approx([1, 0, np.mean(1 / np.arange(2, 21))], abs=1e-6)
    found = prefix_matching_score(heads, task.sources(batch))[0]
    assert found[1].item() == pytest.approx(1)
    assert found[0].item() < 0.2  # only where the copies touch
    assert found[2].item() == pytest.approx(float((induction * uniform).sum() / induction.sum()), rel=1e-5)


def test_chains_follow_their_transition_matrix_and_counting_losses_by_hand():
    task = MarkovChains(vocabulary=2, length=6)
    unigram, bigram = task.counting_losses(torch.tensor([[0, 1, 0, 1, 0, 0]]))
    # counts begun at one: p(1) = 1/3, p(0) = 2/4, p(1) = 2/5, p(0) = 3/6, p(0) = 4/7
    assert unigram[0].exp().tolist() == pytest.approx([3, 2, 5 / 2, 2, 7 / 4])
    # p(1|0) = 1/2, p(0|1) = 1/2, p(1|0) = 2/3, p(0|1) = 2/3, p(0|0) = 1/4
    assert bigram[0].exp().tolist() == pytest.approx([2, 2, 3 / 2, 3 / 2, 4])


def test_counting_transitions_foretells_chains_better_than_counting_states():
    task = MarkovChains(vocabulary=3, length=40)
    batch = task.draw(4000, torch.Generator().manual_seed(0))
    unigram, bigram = task.counting_losses(batch.tokens)
    difference = (unigram - bigram).mean(1)
    assert difference.mean() > 10 * difference.std() / 4000**0.5
    # the first transition is uniform on average: ln 3
    assert bigram[:, 0].mean().item() == pytest.approx(np.log(3), abs=1e-5)
    last = batch.tokens[:, -1]
    assert torch.bincount(last, minlength=3).float().std() / 4000 < 0.02  # no state is preferred


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(RepeatedSubsequence, vocabulary=8), "vocabulary is 8, smaller than the subsequence of 12"),
        (partial(RepeatedSubsequence, length=30), "length is 30: 3 copies of 12 tokens need 36"),
        (partial(RepeatedSubsequence, copies=1), "at least 2 of both"),
        (partial(MarkovChains, vocabulary=1), "at least 2 states"),
        (partial(MarkovChains, length=2), "length is 2"),
        (partial(AdamWConfig, -1.0, 0.1, (0.9, 0.99), 0), "learning_rate is -1"),
        (partial(AdamWConfig, 1.0, -0.1, (0.9, 0.99), 0), "weight_decay is -0.1"),
        (partial(AdamWConfig, 1.0, 0.1, (0.9, 0.99), -1), "warm_up is -1"),
    ],
)
def test_impossible_tasks_are_refused_with_the_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def contents(path):
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if not file.name.startswith("resume")}


@pytest.mark.parametrize("task", [SMALL, MarkovChains(length=11)])
def test_a_seed_gives_the_same_bytes_alone_in_company_and_interrupted(tmp_path, task):
    config = AttentionOnlyConfig(task=task, d_model=8, d_head=4, batch=4, score_every=7)
    make = partial(attention_only, config)
    schedule = range(0, 41, 10)
    alone = train(make, [1], tmp_path / "alone", "run", 40, schedule, quiet=True)[0]
    company = train(make, [0, 1], tmp_path / "company", "run", 40, schedule, quiet=True)[1]
    train(make, [1], tmp_path / "interrupted", "run", 20, schedule, quiet=True)
    interrupted = train(make, [1], tmp_path / "interrupted", "run", 40, schedule, quiet=True)[0]
    assert contents(alone) == contents(company) == contents(interrupted)


def test_the_loss_comes_at_every_step_and_what_heads_do_now_and_then(tmp_path):
    config = AttentionOnlyConfig(task=SMALL, d_model=8, d_head=4, batch=4, score_every=10)
    run = open_run(train(partial(attention_only, config), [0], tmp_path, "run", 40, [40], quiet=True)[0])
    assert run.metrics.index.tolist() == list(range(40))
    assert run.metrics[["loss", "loss_new", "loss_repeated", "icl_score", "accuracy_repeated"]].notna().all(axis=None)
    scored = run.metrics["prefix_matching.1.0"].dropna()
    assert scored.index.tolist() == [0, 10, 20, 30]
    assert scored.between(0, 1).all()


def test_the_warm_up_makes_the_first_updates_small():
    def moved(warm_up: int) -> float:
        config = AttentionOnlyConfig(optimizer=AdamWConfig(1e-2, 0.0, (0.9, 0.99), warm_up))
        learner = AttentionOnly(config, 0)
        start = learner.optimizer.parameters.detach().clone()
        learner.update()
        return float((learner.optimizer.parameters.detach() - start).abs().max())

    assert moved(0) == pytest.approx(1e-2, rel=1e-3)  # Adam's first update has the size of the learning rate
    assert moved(100) == pytest.approx(1e-4, rel=1e-2)


@pytest.mark.slow
def test_two_layers_learn_in_context_and_one_does_not():
    """A smaller task than the quick preset's, so that emergence takes seconds. One layer can guess more of it, too."""
    task = RepeatedSubsequence(vocabulary=12, length=25, subsequence=6, copies=3)
    base = AttentionOnlyConfig(task=task, optimizer=AdamWConfig(1e-2, 0.01, (0.9, 0.99), warm_up=30), batch=16)
    accuracy, induction = {}, {}
    for layers in (1, 2):
        learner = AttentionOnly(replace(base, n_layers=layers), 0)
        rows = [learner.update() for _ in range(600)]
        accuracy[layers] = np.mean([row["accuracy_repeated"] for row in rows[-100:]])
        scores = learner.head_scores()
        induction[layers] = max(value for name, value in scores.items() if name.startswith("prefix_matching"))
    assert accuracy[2] > 0.8
    assert accuracy[1] < 0.5
    assert induction[2] > 0.5 > induction[1]
