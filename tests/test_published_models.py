"""The page on the paper's own models: small ones of the same layout, induction planted, served by a loopback hub."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from analyses.__main__ import app
from analyses.paper_000_exact_dynamics.published_models import CLAIMS, page_of, run
from analyses.paper_000_exact_dynamics.published_study import (
    DEPTHS,
    NAME,
    emerged,
    open_model,
    patterns,
    prefix_matching,
)
from analyses.tools.verdicts import CANNOT, HOLDS
from tests.hub_server import HubServer, serving
from tests.published_model import torch_saved

pytestmark = pytest.mark.xdist_group("published-models")  # one worker serves and opens them

SIZES = {"d_model": 80, "d_head": 30, "n_heads": 2, "n_ctx": 16, "d_vocab": 30}
TOKENS = [0, *(int(x * 1e9) for x in (0.7, 1.2, 1.5, 1.9, 4, 22))]
GROWN = 2.4e9  # tokens at which the planted weights are halfway; attention is sharp a little before


def config(layers: int) -> dict:
    kind = {"attn_only": True, "normalization": "LN", "shortformer_pos": True, "act_fn": "gelu", "d_mlp": 256}
    return {"n_layers": layers, **kind, **SIZES}


def planted(tokens: int, layers: int) -> dict[str, torch.Tensor]:
    """A previous-token head in the first layer and, where there is one, an induction head in the second.

    Tokens are read in dimensions 0-29, places in 30-45 and the token before in 50-79; what was not planted is noise.
    """
    d, h, k, n, v = (SIZES[key] for key in ("d_model", "n_heads", "d_head", "n_ctx", "d_vocab"))
    strength = 1 / (1 + (GROWN / max(tokens, 1)) ** 3)
    start, moved = torch.Generator().manual_seed(layers), torch.Generator().manual_seed(layers + 100)

    def noise(*shape: int) -> torch.Tensor:
        later = 0.01 * math.log1p(tokens) / math.log1p(TOKENS[-1]) * torch.randn(shape, generator=moved)
        return 0.02 * torch.randn(shape, generator=start) + later

    state = {"embed.W_E": torch.eye(v, d), "pos_embed.W_pos": torch.zeros(n, d), "unembed.W_U": torch.zeros(d, v)}
    state["pos_embed.W_pos"][:, 30:46] = torch.eye(n)
    for layer in range(layers):
        at = f"blocks.{layer}.attn."
        state |= {f"{at}W_{x}": noise(h, d, k) for x in "QKV"}
        state |= {f"{at}W_O": noise(h, k, d)}
        state |= {f"{at}b_{x}": torch.zeros(h, k) for x in "QKV"} | {f"{at}b_O": torch.zeros(d)}
        state |= {f"blocks.{layer}.ln1.w": torch.ones(d), f"blocks.{layer}.ln1.b": torch.zeros(d)}
    first = "blocks.0.attn."
    state[f"{first}W_Q"][0, 30:46, :16] += 30 * torch.eye(16)
    state[f"{first}W_K"][0, 30:46, :16] += 30 * torch.eye(16).roll(1, 1)  # the key at j answers the query at j + 1
    state[f"{first}W_V"][0, :30] += 3 * torch.eye(30)
    state[f"{first}W_O"][0, :, 50:80] += torch.eye(30)
    if layers > 1:
        second = "blocks.1.attn."
        state[f"{second}W_Q"][0, :30] += 10 * strength * torch.eye(30)
        state[f"{second}W_K"][0, 50:80] += 10 * strength * torch.eye(30)
    return state


def files(layers: int) -> dict[str, bytes]:
    weights = {tokens: torch_saved(planted(tokens, layers)) for tokens in TOKENS}
    named = {f"checkpoints/{NAME.format(layers)}_{tokens:012d}.pth": content for tokens, content in weights.items()}
    return {"config.json": json.dumps(config(layers)).encode(), "model_final.pth": weights[TOKENS[-1]], **named}


class Hubs(HubServer):
    """One server with several repositories, asked one after another."""

    def __init__(self) -> None:
        self.all = {
            f"NeelNanda/{NAME.format(n)}": HubServer(f"NeelNanda/{NAME.format(n)}", {"main": files(n)}) for n in DEPTHS
        }
        super().__init__("", {})
        self.tamper = self.turn_to

    def turn_to(self, _, path: str) -> bool:
        for name, one in self.all.items():
            if name in path:
                self.repository, self.revisions, self.commits = name, one.revisions, one.commits
        return False


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The page, made of what a hub serves, and two of its models, from what it kept of them."""
    runs = tmp_path_factory.mktemp("runs")
    with serving(Hubs()) as address:
        page = run("quick", runs, source=address)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield page, {n: open_model(n, address, runs / "hub") for n in (1, 2)}


def test_a_planted_induction_head_is_seen_when_it_forms_and_not_where_there_is_none(served):
    page, models = served
    steps, values = prefix_matching(models[2])
    assert values[-1] > 0.5
    assert 1e9 < emerged((steps, values)) < GROWN
    none = prefix_matching(models[1])
    assert none[1].max() < 0.25
    assert np.isnan(emerged(none))
    assert f"emergence at 2 layers {emerged((steps, values)):.3g}" in page.facts


def test_the_page_judges_every_claim_on_models_from_a_hub(served):
    page, _ = served
    assert "wait for a machine" not in page.summary
    assert len(page.verdicts) == 1 + len(CLAIMS)
    assert page.verdicts[0].verdict == HOLDS
    assert [row.claim for row in page.verdicts if row.verdict == CANNOT] == []
    assert "n = 3 against 1" in page.verdicts[0].worth


def test_a_folder_with_copies_serves_as_well_and_without_a_source_the_page_waits(tmp_path, served):
    waiting = run("quick", tmp_path)
    assert {row.verdict for row in waiting.verdicts} == {CANNOT}
    assert all("--source hub" in row.why for row in waiting.verdicts)
    for path, content in files(2).items():
        place = tmp_path / NAME.format(2) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    with pytest.warns(UserWarning, match="tokens and not updates"):
        local = open_model(2, str(tmp_path), tmp_path)
    np.testing.assert_array_equal(prefix_matching(local)[1], prefix_matching(served[1][2])[1])
    outcome = CliRunner().invoke(app, ["grokking", "--source", "hub", "--size", "toy"])
    assert outcome.exit_code == 2
    assert "published_models" in outcome.output
    with pytest.raises(FileNotFoundError):
        run("quick", tmp_path, source=str(tmp_path / "nowhere"))


def test_where_nothing_emerges_no_time_is_made_up(served):
    shallow = page_of({depth: served[1][1] for depth in DEPTHS})
    assert shallow.verdicts[0].verdict != HOLDS
    assert all(row.verdict == CANNOT and "no time at which" in row.why for row in shallow.verdicts[1:])


def test_attention_is_what_a_plain_loop_computes_and_other_architectures_are_refused():
    torch.manual_seed(0)
    weights = {name: torch.randn_like(tensor) for name, tensor in planted(TOKENS[-1], 2).items()}
    tokens = torch.randint(0, 30, (1, 5))
    found = patterns(weights, config(2), tokens)
    x = weights["embed.W_E"][tokens[0]]
    for layer in range(2):
        at, after = f"blocks.{layer}.attn.", x.clone()
        centred = x - x.mean(-1, keepdim=True)
        read = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        read = read * weights[f"blocks.{layer}.ln1.w"] + weights[f"blocks.{layer}.ln1.b"]
        for head in range(2):
            q, k, v = (read @ weights[f"{at}W_{c}"][head] + weights[f"{at}b_{c}"][head] for c in "QKV")
            q, k = (y + weights["pos_embed.W_pos"][:5] @ weights[f"{at}W_{c}"][head] for y, c in ((q, "Q"), (k, "K")))
            for i in range(5):
                scores = torch.stack([q[i] @ k[j] / 30**0.5 for j in range(i + 1)]).softmax(0)
                torch.testing.assert_close(found[layer, 0, head, i, : i + 1], scores, rtol=1e-4, atol=1e-5)
                after[i] += scores @ v[: i + 1] @ weights[f"{at}W_O"][head]
        x = after + weights[f"{at}b_O"]
    assert found.triu(1).sum() == 0
    with pytest.raises(ValueError, match="attention-only models"):
        patterns(weights, config(2) | {"attn_only": False}, tokens)
