"""Attention-only models as TransformerLens' author published them: `NeelNanda/Attn_Only_2L512W_C4_Code` and its kin.

A loopback hub serves repositories of that layout: config.json with TransformerLens' own names, the final weights, and
`checkpoints/*_NUMBER.pth`, state dicts with `blocks.0.attn.W_Q` [head, d_model, d_head], masks and position embeddings
that are added to queries and keys alone (shortformer).
"""

import json
import math

import pytest
import torch

import probes
from checkpoints import open_run
from checkpoints.audit import audit, audit_hashes
from checkpoints.hub import Hub
from tests.hub_server import HubServer, serving
from tests.published_model import attention_bytes, read_everything, torch_saved

pytestmark = pytest.mark.filterwarnings("ignore:left out, not among the numbered checkpoints")

SMALL = {"d_model": 32, "d_head": 8, "n_heads": 4, "n_ctx": 16, "d_vocab": 900}
PRINTED = {"d_model": 512, "d_head": 64, "n_heads": 8, "n_ctx": 1024, "d_vocab": 48262}


def config(layers: int, sizes: dict) -> dict:
    """What TransformerLens reads of such a config.json, in `tl_legacy.derive_tl_legacy_config`."""
    return {
        "n_layers": layers,
        "d_mlp": 4 * sizes["d_model"],
        "act_fn": "gelu",
        "attn_only": True,
        "final_rms": False,
        "normalization": "LN",
        "shortformer_pos": True,
        "tokenizer_name": "NeelNanda/gpt-neox-tokenizer-digits",
        **sizes,
    }


def state_at(number: int, layers: int, sizes: dict) -> dict[str, torch.Tensor]:
    """Weights that drift from a start, as training makes them."""
    d, h, k, n, v = (sizes[key] for key in ("d_model", "n_heads", "d_head", "n_ctx", "d_vocab"))
    start, drift = torch.Generator().manual_seed(layers), torch.Generator().manual_seed(layers + 100)
    share = math.log1p(number) / math.log1p(22_000_000_000)

    def weights(*shape: int) -> torch.Tensor:
        rate = share * 0.05 * torch.rand(1, generator=drift)  # no two matrices grow alike
        return torch.randn(shape, generator=start) * 0.02 + rate * torch.randn(shape, generator=drift)

    vocabulary = torch.zeros(v, d) if v > 10_000 else weights(v, d)  # large, and not read
    state = {"embed.W_E": vocabulary, "pos_embed.W_pos": weights(n, d)}
    for layer in range(layers):
        prefix = f"blocks.{layer}.attn."
        state |= {f"{prefix}W_{x}": weights(h, d, k) for x in "QKV"} | {f"{prefix}W_O": weights(h, k, d)}
        state |= {f"{prefix}b_{x}": weights(h, k) for x in "QKV"} | {f"{prefix}b_O": weights(d)}
        state |= {f"{prefix}mask": torch.ones(n, n).tril().bool(), f"{prefix}IGNORE": torch.tensor(-1e5)}
        state |= {f"blocks.{layer}.ln1.w": 1 + weights(d), f"blocks.{layer}.ln1.b": weights(d)}
    return state | {"ln_final.w": 1 + weights(d), "ln_final.b": weights(d), "unembed.W_U": vocabulary.T.contiguous()}


def repository(layers: int, sizes: dict, numbers: list[int], stem: str = "Attn_Only") -> HubServer:
    name = f"NeelNanda/Attn_Only_{layers}L512W_C4_Code"
    saved = {number: torch_saved(state_at(number, layers, sizes)) for number in numbers}
    files = {
        "config.json": json.dumps(config(layers, sizes)).encode(),
        "model_final.pth": saved[numbers[-1]] if len(saved) > 1 else b"large, and not read",
        "README.md": b"hello",
        **{f"checkpoints/{stem}_{number:012d}.pth": content for number, content in saved.items()},
    }
    return HubServer(name, {"main": files})


TOKENS = [0, 100_000_000, 1_000_000_000, 4_000_000_000, 22_000_000_000]


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_it_is_opened_audited_and_measured_and_its_axis_counts_tokens(layers, tmp_path):
    server = repository(layers, SMALL, TOKENS)
    with serving(server) as address:
        with pytest.warns(UserWarning, match="numbers in the names are tokens and not updates"):
            run = open_run(f"hub:{server.repository}", hub=Hub(address, cache=tmp_path))
        assert run.steps == TOKENS
        assert run.step_unit == "token"
        assert "tokens 0 to 22000000000" in repr(run)
        assert any("left out" in notice and "model_final.pth" in notice for notice in run.notices)
        assert audit_hashes(run).is_sound
        assert not audit(run).condemned
        table = probes.measure(run)
        assert table.attrs["step_unit"] == "token"
        assert sorted(table["layer"].unique()) == list(range(layers))
        assert table["head"].nunique() == 4
        value = table.query("step == 22000000000 and layer == 0 and head == 1 and circuit == 'ov'")
        state = state_at(TOKENS[-1], layers, SMALL)
        ov = (state["blocks.0.attn.W_V"][1].double() @ state["blocks.0.attn.W_O"][1].double()).numpy()
        rank = value.query("probe == 'effective_rank'")["value"].item()
        assert rank == pytest.approx(probes.effective_rank(ov), rel=1e-6)


@pytest.mark.slow
def test_at_the_printed_size_no_more_than_attention_is_fetched(tmp_path):
    server = repository(2, PRINTED, TOKENS[-1:])
    with serving(server) as address:
        with pytest.warns(UserWarning, match="tokens and not updates"):
            run = open_run(f"hub:{server.repository}", hub=Hub(address, cache=tmp_path))
        read_everything(run)
        assert run.heads.sizes[0].heads == 8
        assert server.body_bytes <= 1.2 * attention_bytes(run)


def test_where_nothing_says_what_the_numbers_count_that_is_said(tmp_path):
    server = repository(1, SMALL, [100, 200])
    with serving(server) as address:
        with pytest.warns(UserWarning, match="nothing says whether the numbers .* up to 200, count updates or tokens"):
            run = open_run(f"hub:{server.repository}", hub=Hub(address, cache=tmp_path / "a"))
        assert run.step_unit == "number"
    server = repository(1, SMALL, [100, 200], stem="step")
    with serving(server) as address:
        assert open_run(f"hub:{server.repository}", hub=Hub(address, cache=tmp_path / "b")).step_unit == "step"
    server = repository(1, SMALL, [100, 200], stem="tokens")
    with serving(server) as address, pytest.warns(UserWarning, match="tokens and not updates"):
        assert open_run(f"hub:{server.repository}", hub=Hub(address, cache=tmp_path / "c")).step_unit == "token"
