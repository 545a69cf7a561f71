"""The attention-only models that paper 000 used, as they were published: opened, run on random repeats, and measured.

They are `NeelNanda/Attn_Only_{1,2,3,4}L512W_C4_Code`: attention layers with LayerNorm and biases, positions added to
queries and keys alone (shortformer), trained on text and code, with checkpoints named by tokens. No losses come with
them, so what they can do is asked of the weights: sequences of random tokens in which one subsequence comes three times
at random places (models/attention_only/tasks.py), and how much of its attention the best head gives to what followed
before. Copies lie at varying distances: a head that counts back does not score.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own habit)
from torch import Tensor

import probes
from analyses.paper_000_exact_dynamics.icl_emergence_study import Emergence
from analyses.tools.study import PROBES, REMOVED, Curve
from checkpoints import Run, open_run
from checkpoints.hub import Hub
from models.attention_only.model import prefix_matching_score
from models.attention_only.tasks import RepeatedSubsequence

DEPTHS = (1, 2, 3, 4)
NAME = "Attn_Only_{}L512W_C4_Code"
HUB = "hub"
EMERGED = 0.3  # best prefix-matching score at the end of a model that has learned to look up
_EVALUATED, _SEQUENCES = 24, 16  # checkpoints that are run, and on how many sequences: each needs the whole embedding


def open_model(layers: int, source: str, cache: Path) -> Run:
    """One of the models: from the hub ("hub"), from another server (http...), or from a folder that holds a copy."""
    name = NAME.format(layers)
    if source == HUB or source.startswith(("http://", "https://")):
        return open_run(f"hub:NeelNanda/{name}", hub=Hub(None if source == HUB else source, cache=cache))
    return open_run(Path(source) / name)


class Published(Emergence):
    """One of the models. Its anchor is the number of tokens at which its best induction head was halfway."""

    @cached_property
    def table(self):
        """As of any run; drift is left out, because the checkpoints are not evenly spread."""
        wanted = [name for name in PROBES if name != "subspace_drift"]
        ends = sorted({*map(self.end, self.horizons), int(self.steps[-1])})
        return probes.measure(self.run, ("ov", "qk"), probes=wanted, removed=REMOVED, references=ends)


def prefix_matching(run: Run) -> Curve:
    """The best head's prefix-matching score at up to 24 checkpoints, spread evenly over those there are."""
    chosen = np.unique(np.linspace(0, len(run.steps) - 1, _EVALUATED).round().astype(int))
    steps = np.array(run.steps)[chosen]
    task = task_for(run.config)
    batch = task.draw(_SEQUENCES, torch.Generator().manual_seed(0))
    scores = []
    for step in steps:
        found = patterns(dict(run.checkpoint(int(step))), run.config, batch.tokens[:, :-1])
        scores.append(float(prefix_matching_score(found, task.sources(batch)).max()))
    return steps, np.array(scores)


def task_for(config: Mapping[str, Any]) -> RepeatedSubsequence:
    """Random repeats that fit the model's context."""
    return RepeatedSubsequence(config["d_vocab"], min(config["n_ctx"], 64) + 1, min(12, config["n_ctx"] // 4), 3)


def emerged(scores: Curve) -> float:
    """Where the score is halfway to its end, between checkpoints; NaN if it never becomes one of an induction head."""
    steps, values = scores
    return float(probes.half_time(values, steps)) if values[-1] >= EMERGED else np.nan


def patterns(weights: Mapping[str, Tensor], config: Mapping[str, Any], tokens: Tensor) -> Tensor:
    """What every head attends to: [layer, count, head, query, key]."""
    short = bool(config.get("shortformer_pos", False))
    if not config.get("attn_only", False) or config.get("normalization") not in ("LN", None):
        raise ValueError(
            f"attn_only is {config.get('attn_only')} and normalization {config.get('normalization')!r}: attention-only models "
            "with LayerNorm (LN) or none are understood"
        )
    length = tokens.shape[1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    places = weights["pos_embed.W_pos"][:length].float()
    x = F.embedding(tokens, weights["embed.W_E"].float()) + (0 if short else places)
    found = []
    for layer in range(config["n_layers"]):
        at = f"blocks.{layer}."
        read = _normed(x, weights, f"{at}ln1", config.get("normalization"))
        placed = read + places if short else read
        q, k, v = (
            _heads(source, weights, f"{at}attn.", letter)
            for source, letter in ((placed, "Q"), (placed, "K"), (read, "V"))
        )
        scores = (q @ k.mT / config["d_head"] ** 0.5).masked_fill(future, -torch.inf)
        found.append(scores.softmax(-1))
        mixed = torch.einsum("chqd,hdm->cqm", found[-1] @ v, weights[f"{at}attn.W_O"].float())
        x = x + mixed + weights[f"{at}attn.b_O"].float()
    return torch.stack(found)


def _heads(x: Tensor, weights: Mapping[str, Tensor], prefix: str, letter: str) -> Tensor:
    """Queries, keys or values: [count, head, length, d_head]."""
    projected = torch.einsum("clm,hmd->chld", x, weights[f"{prefix}W_{letter}"].float())
    return projected + weights[f"{prefix}b_{letter}"].float()[:, None]


def _normed(x: Tensor, weights: Mapping[str, Tensor], name: str, kind: str | None) -> Tensor:
    """LayerNorm, with weights where the checkpoint has them (where they are folded in, it has not)."""
    if kind is None:
        return x
    scale, shift = (weights.get(f"{name}.{letter}") for letter in "wb")
    return F.layer_norm(
        x, x.shape[-1:], None if scale is None else scale.float(), None if shift is None else shift.float()
    )
