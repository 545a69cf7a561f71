"""What attention heads do about repetition: ready-made scores for `evaluate=`, on random tokens that come again.

Every sequence is random tokens, all different, that repeat from some token on. After how many tokens they repeat is
drawn for every sequence: with one distance for all, a head that merely counts back so far would pass for one that
looks for what it has seen. With x the tokens, d the distance and A the attention from query to key,

    prefix matching   mean over queries i >= d of  sum of A[i, j] over the j with x[j - 1] = x[i], j <= i
                      an induction head: it looks at what followed the present token last time
    previous token    mean over queries i >= 1 of  A[i, i - 1]
    in-context score  loss on the first d tokens - loss on those that repeat, in nats a token. Olsson et al. 2022 have
                      the other sign. The first token that repeats cannot be foretold and counts for neither

    scores = InductionScores(model)
    Monitor(model, evaluate=scores)               # at every event; monitor.log(**scores()) whenever you like
    scores.heads                                  # of the last call, by layer and head

Random tokens come from a generator of their own and are drawn once: the same sequences at every call. Patterns are
those of the model itself: of Transformers (its eager attention is switched on for the call), of TransformerLens, or
what a function of yours gives.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own habit)
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from probes.monitor.evaluation import preserving_rng_and_mode

Forward = Callable[[Tensor], tuple[Tensor, Sequence[Tensor]]]
"""From tokens [count, length] to logits [count, length, vocabulary] and, layer by layer, [count, head, query, key]."""

Pattern = Float[Tensor, "count head query key"]

_LENGTH = 64
_CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "block_size")
_VOCABULARIES = ("vocab_size", "d_vocab")


class InductionScores:
    """Call it for the scores of the weights as they are now: of the best head of each kind, and in context.

    model       a module of Transformers or TransformerLens; where it is another, `forward` runs it
    vocabulary  number of tokens to draw from, if the model's configuration does not say
    length      of a sequence; 64 or what the model has room for, if that is less
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        forward: Forward | None = None,
        vocabulary: int | None = None,
        length: int | None = None,
        count: int = 32,
        seed: int = 0,
    ) -> None:
        if (model is None) == (forward is None):
            raise TypeError("InductionScores is of a model, or of a forward function that gives logits and patterns")
        self.model = getattr(model, "module", model)  # inside DistributedDataParallel
        self.forward = forward or _forward_of(self.model)
        tokens = vocabulary or _said_by(self.model, _VOCABULARIES)
        if tokens is None:
            raise ValueError("how many tokens the model knows is not in its configuration: say vocabulary=...")
        room = _said_by(self.model, _CONTEXTS)
        size = length or min(_LENGTH, room or _LENGTH)
        if room is not None and size > room:
            raise ValueError(f"length is {size}, and the model has room for {room} tokens")
        generator = torch.Generator().manual_seed(seed)
        self.tokens, self.distances = repeated_tokens(count, size, tokens, generator)
        self.heads = pd.DataFrame({"layer": [], "head": [], "prefix_matching": [], "previous_token": []})

    def __call__(self) -> dict[str, float]:
        """prefix_matching and previous_token of the head that has most of it, and in_context_score."""
        parameter = next(self.model.parameters(), None) if self.model is not None else None
        tokens = self.tokens if parameter is None else self.tokens.to(parameter.device)
        with preserving_rng_and_mode(self.model), torch.no_grad():
            logits, patterns = self.forward(tokens)
        if not len(patterns):
            raise ValueError("the model gave no attention patterns: pass forward=..., which gives logits and patterns")
        logits, patterns = logits.float().cpu(), [pattern.float().cpu() for pattern in patterns]
        self.heads = pd.DataFrame(
            [
                {"layer": layer, "head": head, "prefix_matching": matching, "previous_token": previous}
                for layer, pattern in enumerate(patterns)
                for head, (matching, previous) in enumerate(
                    zip(
                        prefix_matching(pattern, self.tokens, self.distances).tolist(),
                        previous_token(pattern).tolist(),
                        strict=True,
                    )
                )
            ]
        )
        return {
            "prefix_matching": max(self.heads["prefix_matching"].to_list()),
            "previous_token": max(self.heads["previous_token"].to_list()),
            "in_context_score": in_context_score(logits, self.tokens, self.distances),
        }


def repeated_tokens(
    count: int, length: int, vocabulary: int, generator: torch.Generator
) -> tuple[Int64[Tensor, "count length"], Int64[Tensor, " count"]]:
    """Sequences that repeat, and after how many tokens each does: from a quarter to two thirds of the length."""
    longest = min(2 * length // 3, vocabulary)
    shortest = max(2, length // 4)
    if longest < shortest + 4:
        raise ValueError(
            f"length is {length} and vocabulary {vocabulary}: random distances from {shortest} on, of tokens that all "
            "differ, need a longer sequence or more tokens"
        )
    distances = torch.randint(shortest, longest + 1, (count,), generator=generator)
    tokens = torch.stack([torch.randperm(vocabulary, generator=generator)[:longest] for _ in range(count)])
    return tokens.gather(1, torch.arange(length) % distances[:, None]), distances


def prefix_matching(
    pattern: Pattern, tokens: Int64[Tensor, "count length"], distances: Int64[Tensor, " count"]
) -> Float[Tensor, " head"]:
    """Mean attention, from tokens that were there before, to what followed them."""
    length = tokens.shape[1]
    followed: Bool[Tensor, "count query key"] = torch.zeros(len(tokens), length, length, dtype=torch.bool)
    followed[:, :, 1:] = tokens[:, :, None] == tokens[:, None, :-1]
    followed &= torch.ones(length, length, dtype=torch.bool).tril(-1)
    queries = torch.arange(length) >= distances[:, None]
    looked = (pattern * followed[:, None]).sum(-1) * queries[:, None]
    return looked.sum((0, 2)) / queries.sum()


def previous_token(pattern: Pattern) -> Float[Tensor, " head"]:
    """Mean attention to the token before."""
    return pattern.diagonal(-1, dim1=-2, dim2=-1).mean((0, 2))


def in_context_score(
    logits: Float[Tensor, "count length vocabulary"],
    tokens: Int64[Tensor, "count length"],
    distances: Int64[Tensor, " count"],
) -> float:
    """Nats that a token costs less for being a repeat."""
    targets = tokens[:, 1:]
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    at = torch.arange(1, tokens.shape[1])
    return float(losses[at < distances[:, None]].mean() - losses[at > distances[:, None]].mean())


def _said_by(model: Any, names: Sequence[str]) -> int | None:
    """The first of these that the configuration of a model has."""
    for config in (getattr(model, "config", None), getattr(model, "cfg", None)):
        for name in names:
            found = getattr(config, name, None)
            if isinstance(found, int):
                return found
    return None


def _forward_of(model: Any) -> Forward:
    """How a model of a known library is asked for its patterns."""
    if hasattr(model, "run_with_cache"):
        return lambda tokens: _of_transformer_lens(model, tokens)
    if hasattr(model, "set_attn_implementation"):
        return lambda tokens: _of_transformers(model, tokens)
    raise TypeError(
        f"attention patterns of a {type(model).__name__} cannot be asked for: InductionScores(forward=...) takes a "
        "function of tokens that gives logits and the patterns [count, head, query, key] of every layer"
    )


def _of_transformers(model: Any, tokens: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """Logits and patterns of a model of Transformers."""
    with _eager(model):
        out = model(input_ids=tokens, output_attentions=True, use_cache=False)
    return out.logits, [pattern for pattern in out.attentions or () if pattern is not None]


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """The attention that makes its patterns, for a while: fused ones never have them."""
    before = model.config._attn_implementation
    if before == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _of_transformer_lens(model: Any, tokens: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    """Logits and patterns of a model of TransformerLens."""
    logits, cache = model.run_with_cache(tokens)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    return logits, [cache[name] for name in names]
