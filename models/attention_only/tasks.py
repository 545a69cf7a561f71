"""Two tasks on which a transformer can do better than chance only by reading its own context.

Repeated subsequence   random tokens, and one short subsequence of different tokens pasted into them several times. All
                       but the first token of a later copy can be foretold by looking up what followed last time, which
                       takes two attention layers (a previous-token head and an induction head, Olsson et al. 2022).
                       Copies lie at random places: at fixed ones, one layer could count its way back.
Markov chains          each sequence from a chain of its own, rows of its transition matrix uniform on the simplex.
                       One layer can count states (unigrams); counting transitions (bigrams) takes two (Edelman et al.
                       2024). The best possible guess is known: (n_ij + 1) / (n_i + states).

A task draws sequences and says what a batch's losses mean. Tokens are drawn afresh for every batch, so that training
loss is test loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Generator, Tensor

Tokens = Int64[Tensor, "count length"]
Targets = Float32[Tensor, "count targets"]  # one number per foretold token: length - 1


@dataclass(frozen=True)
class Batch:
    """Sequences, and where each copy of the subsequence starts (none for Markov chains)."""

    tokens: Tokens
    starts: Int64[Tensor, "count copies"]


@runtime_checkable
class Task(Protocol):
    """What the model is trained on."""

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are."""
        ...

    @property
    def length(self) -> int:
        """Tokens per sequence; the model reads all but the last and foretells all but the first."""
        ...

    def draw(self, count: int, generator: Generator) -> Batch:
        """Sequences that were not drawn before, from this generator."""
        ...

    def scores(self, batch: Batch, losses: Targets, hits: Bool[Tensor, "count targets"]) -> Mapping[str, float]:
        """What the losses and right guesses on a batch say about learning in context."""
        ...


@dataclass(frozen=True)
class RepeatedSubsequence:
    """`copies` copies of one subsequence of `subsequence` different tokens, among random tokens."""

    vocabulary: int = 64
    length: int = 65
    subsequence: int = 12
    copies: int = 3

    def __post_init__(self) -> None:
        if self.subsequence < 2 or self.copies < 2:
            raise ValueError(
                f"subsequence is {self.subsequence} and copies {self.copies}: at least 2 of both are needed, "
                "or nothing can be foretold"
            )
        if self.vocabulary < self.subsequence:
            raise ValueError(
                f"vocabulary is {self.vocabulary}, smaller than the subsequence of {self.subsequence}: its tokens "
                "must all differ, or what followed a token last time would not be one thing"
            )
        if self.length < self.copies * self.subsequence:
            raise ValueError(
                f"length is {self.length}: {self.copies} copies of {self.subsequence} tokens need "
                f"{self.copies * self.subsequence}"
            )

    def draw(self, count: int, generator: Generator) -> Batch:
        """Random tokens with the copies pasted in; copies never overlap, every arrangement is equally likely."""
        tokens = torch.randint(self.vocabulary, (count, self.length), generator=generator)
        pasted = _different(count, self.vocabulary, self.subsequence, generator)
        slots = self.length - self.copies * (self.subsequence - 1)  # a copy shrunk to one token
        starts = _different(count, slots, self.copies, generator).sort(-1).values
        starts = starts + (self.subsequence - 1) * torch.arange(self.copies)
        at = starts[..., None] + torch.arange(self.subsequence)
        tokens.scatter_(1, at.flatten(1), pasted.repeat(1, self.copies))
        return Batch(tokens, starts)

    def repeated(self, batch: Batch) -> Bool[Tensor, "count targets"]:
        """Which foretold tokens are repeats: all but the first token of every copy but the first."""
        at = batch.starts[:, 1:, None] + torch.arange(1, self.subsequence)
        targets = torch.zeros(len(batch.tokens), self.length, dtype=torch.bool)
        return targets.scatter_(1, at.flatten(1), value=True)[:, 1:]

    def sources(self, batch: Batch) -> Bool[Tensor, "count targets targets"]:
        """Where an induction head looks from each repeated query: at what followed the token in earlier copies.

        [count, query, key]; a query is the token before a foretold repeat.
        """
        count, size = len(batch.tokens), self.length - 1
        found = torch.zeros(count, size, size, dtype=torch.bool)
        rows = torch.arange(count)[:, None]
        offsets = torch.arange(self.subsequence - 1)
        for later in range(1, self.copies):
            query = batch.starts[:, later, None] + offsets
            for earlier in range(later):
                found[rows, query, batch.starts[:, earlier, None] + offsets + 1] = True
        return found

    def scores(self, batch: Batch, losses: Targets, hits: Bool[Tensor, "count targets"]) -> Mapping[str, float]:
        """Loss on new and on repeated tokens, their difference (the ICL score) and accuracy on repeated ones.

        The ICL score is the nats a token costs less for being a repeat: Olsson et al.'s with its sign turned.
        """
        again = self.repeated(batch)
        share = float(again.sum()) / again.numel()
        on_repeated, overall = float(losses[again].mean()), float(losses.mean())
        on_new = (overall - share * on_repeated) / (1 - share)
        return {
            "loss_new": on_new,
            "loss_repeated": on_repeated,
            "icl_score": on_new - on_repeated,
            "accuracy_repeated": float(hits[again].float().mean()),
        }


@dataclass(frozen=True)
class MarkovChains:
    """Sequences from chains of `vocabulary` states, each with a transition matrix of its own."""

    vocabulary: int = 4
    length: int = 65

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary is {self.vocabulary}: a chain of at least 2 states is needed")
        if self.length < 3:
            raise ValueError(f"length is {self.length}: at least 3 tokens are needed to see a transition again")

    def draw(self, count: int, generator: Generator) -> Batch:
        """Chains that start in any state."""
        size = (count, self.vocabulary, self.vocabulary)
        rows = -torch.rand(size, generator=generator).clamp(min=1e-12).log()  # Dirichlet(1): exponentials, normalised
        cumulative = (rows / rows.sum(-1, keepdim=True)).cumsum(-1)[..., :-1]
        uniform = torch.rand(count, self.length, generator=generator)
        tokens = torch.empty(count, self.length, dtype=torch.int64)
        tokens[:, 0] = (uniform[:, 0] * self.vocabulary).long()
        at = torch.arange(count)
        for t in range(1, self.length):
            tokens[:, t] = (uniform[:, t, None] > cumulative[at, tokens[:, t - 1]]).sum(-1)
        return Batch(tokens, torch.empty(count, 0, dtype=torch.int64))

    def scores(self, batch: Batch, losses: Targets, hits: Bool[Tensor, "count targets"]) -> Mapping[str, float]:
        """The loss of counting states and of counting transitions, and how far the model is on the way between."""
        unigram, bigram = self.counting_losses(batch.tokens)
        came = (float(unigram.mean()) - float(losses.mean())) / (float(unigram.mean()) - float(bigram.mean()))
        return {"loss_unigram": float(unigram.mean()), "loss_bigram": float(bigram.mean()), "icl_score": came}

    def counting_losses(self, tokens: Tokens) -> tuple[Targets, Targets]:
        """-ln p of every token but the first, with p from the counts so far, each count begun at one."""
        hot = torch.nn.functional.one_hot(tokens, self.vocabulary).float()
        seen = hot.cumsum(1)[:, :-1]
        unigram = (1 + seen) / (self.vocabulary + seen.sum(-1, keepdim=True))
        pairs = hot[:, :-1, :, None] * hot[:, 1:, None, :]
        before = torch.nn.functional.pad(pairs.cumsum(1)[:, :-1], (0, 0, 0, 0, 1, 0))  # transitions known by then
        row = (before * hot[:, :-1, :, None]).sum(2)
        bigram = (1 + row) / (self.vocabulary + row.sum(-1, keepdim=True))
        target = tokens[:, 1:, None]
        return -unigram.gather(-1, target)[..., 0].log(), -bigram.gather(-1, target)[..., 0].log()


def _different(count: int, of: int, chosen: int, generator: Generator) -> Int64[Tensor, "count chosen"]:
    """`chosen` different numbers below `of`, in random order, `count` times."""
    return torch.rand(count, of, generator=generator).topk(chosen, dim=-1).indices
