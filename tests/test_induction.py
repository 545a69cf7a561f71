"""Scores of attention heads on random repeats: the same numbers by another route, and heads that are known."""

import copy
import math

import pytest
import torch
import transformers

import probes
from models.attention_only import model as attention_only
from models.attention_only.presets import QUICK
from models.lens import split
from probes.monitor.induction import InductionScores, prefix_matching, previous_token, repeated_tokens
from tests.told import event

CONFIG = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=32)


def gpt2():
    torch.manual_seed(5)
    return transformers.GPT2LMHeadModel(copy.deepcopy(CONFIG))


def by_loops(patterns, logits, tokens, distances):
    """The definitions word by word, one number after the other."""
    matching, previous, new, again = {}, {}, [], []
    for layer, pattern in enumerate(patterns):
        for head in range(pattern.shape[1]):
            seen, before = [], []
            for row, x in enumerate(tokens.tolist()):
                a, d = pattern[row, head].tolist(), int(distances[row])
                seen += [sum(a[i][j] for j in range(1, i) if x[j - 1] == x[i]) for i in range(d, len(x))]
                before += [a[i][i - 1] for i in range(1, len(x))]
            matching[layer, head], previous[layer, head] = sum(seen) / len(seen), sum(before) / len(before)
    for row, x in enumerate(tokens.tolist()):
        for i in range(1, len(x)):
            loss = -float(logits[row, i - 1].log_softmax(-1)[x[i]])
            if i < distances[row]:
                new.append(loss)
            elif i > distances[row]:
                again.append(loss)
    return matching, previous, sum(new) / len(new) - sum(again) / len(again)


def expect_same(scores: InductionScores, patterns, logits) -> None:
    found = scores()
    matching, previous, in_context = by_loops(patterns, logits, scores.tokens, scores.distances)
    heads = scores.heads.set_index(["layer", "head"])
    assert heads["prefix_matching"].to_dict() == pytest.approx(matching, rel=1e-4)
    assert heads["previous_token"].to_dict() == pytest.approx(previous, rel=1e-4)
    assert found == pytest.approx(
        {
            "prefix_matching": max(matching.values()),
            "previous_token": max(previous.values()),
            "in_context_score": in_context,
        },
        rel=1e-3,
        abs=1e-6,
    )


def test_of_transformers_the_scores_are_those_of_its_own_eager_attention():
    model = gpt2()  # with fused attention
    scores = InductionScores(model, count=4)
    eager = transformers.GPT2LMHeadModel._from_config(copy.deepcopy(CONFIG), attn_implementation="eager")
    eager.load_state_dict(model.state_dict())
    out = eager.eval()(scores.tokens, output_attentions=True)
    before = model.config._attn_implementation
    expect_same(scores, [pattern.detach() for pattern in out.attentions], out.logits.detach())
    assert model.config._attn_implementation == before != "eager"
    assert model.training


def test_of_transformer_lens_and_of_our_own_attention_only_models_they_are_the_same():
    from transformer_lens.model_bridge import TransformerBridge

    ours = attention_only.AttentionOnly(QUICK, 3)
    weights = split(ours.optimizer.parameters, ours.shape)

    def forward(tokens):
        with torch.no_grad():
            logits = attention_only.logits(weights, ours.shape, tokens)
            return logits, list(attention_only.patterns(weights, ours.shape, tokens))

    mine = InductionScores(forward=forward, vocabulary=ours.shape.d_vocab, length=32, count=4)
    logits, patterns = forward(mine.tokens)
    expect_same(mine, patterns, logits)
    bridge = TransformerBridge.boot_native(QUICK.describe()["bridge"])
    bridge.load_state_dict(dict(ours.weights()))
    theirs = InductionScores(bridge, vocabulary=ours.shape.d_vocab, length=32, count=4)
    assert theirs() == pytest.approx(mine(), rel=1e-3, abs=1e-5)


def test_a_head_that_counts_back_scores_little_and_one_that_looks_for_the_token_scores_one():
    tokens, distances = repeated_tokens(32, 60, 100, torch.Generator().manual_seed(0))
    assert len(distances.unique()) > 10
    query, key = torch.arange(60)[:, None], torch.arange(60)
    followed = tokens[:, :, None] == torch.cat([torch.full((32, 1), -1), tokens[:, :-1]], 1)[:, None]
    followed &= key < query
    looks = followed / followed.sum(-1, keepdim=True).clamp(min=1)
    counts = (key == query - 20 + 1).float().expand(32, 60, 60)
    back = (key == query - 1).float().expand(32, 60, 60)
    pattern = torch.stack([looks, counts, back], 1)
    matching = prefix_matching(pattern, tokens, distances)
    assert matching[0] == pytest.approx(1.0)
    assert matching[1] < 0.2  # right only where the distance happens to be its own
    assert previous_token(pattern)[2] == pytest.approx(1.0)


def test_a_model_that_copies_what_followed_saves_what_a_token_costs():
    def copies(given):
        logits = torch.zeros(*given.shape, 40)
        for row, x in enumerate(given.tolist()):
            for i, token in enumerate(x):
                if token in x[:i]:
                    logits[row, i, x[x.index(token) + 1]] = 50.0
        return logits, [torch.full((len(given), 1, 30, 30), 1 / 30)]

    scores = InductionScores(forward=copies, vocabulary=40, length=30)
    assert scores()["in_context_score"] == pytest.approx(math.log(40), rel=1e-5)


def test_training_does_not_notice_and_the_scores_are_recorded():
    model = gpt2()
    scores = InductionScores(model, count=4)
    state = torch.random.get_rng_state()
    first = scores()
    assert torch.equal(state, torch.random.get_rng_state())
    assert scores() == first  # the same sequences
    monitor = probes.Monitor(model, probes=["norm"], evaluate=scores)
    monitor._announce(event(0, detected_at=0))
    assert monitor.series("prefix_matching").tolist() == [first["prefix_matching"]]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: InductionScores(torch.nn.Linear(2, 2)), TypeError, r"of a Linear cannot be asked for.*forward="),
        (lambda: InductionScores(), TypeError, "of a model, or of a forward function"),
        (lambda: InductionScores(gpt2(), length=40), ValueError, "length is 40, and the model has room for 32"),
        (lambda: InductionScores(gpt2(), length=6), ValueError, "length is 6 and vocabulary 50"),
        (lambda: InductionScores(forward=lambda tokens: None), ValueError, "say vocabulary="),
        (
            lambda: InductionScores(forward=lambda t: (torch.zeros(*t.shape, 9), []), vocabulary=99)(),
            ValueError,
            "gave no attention patterns",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused_with_what_to_do(call, error, said):
    with pytest.raises(error, match=said):
        call()
