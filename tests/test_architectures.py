"""What is read of a model is what the model does, in every architecture; and the judge of that can tell."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import checkpoints.run
from checkpoints.heads import HeadLayout
from tests.architectures.around import gain_of
from tests.architectures.build import build
from tests.architectures.models import MODELS
from tests.architectures.table import DOCUMENT, row, verdict
from tests.architectures.truth import Truth, truth_of
from tests.architectures.verdict import judge

QUICK = (
    *(
        "gpt2",
        "gpt_neox",
        "llama",
        "llama, one key head",
        "qwen3",
        "olmo2",
        "gptj",
        "opt",
        "falcon, 40b",
        "deepseek_v3",
    ),
    *("bert", "distilbert", "albert", "deberta", "t5", "bart", "whisper", "vit", "wav2vec2", "clip", "qwen2_vl"),
)


@pytest.mark.parametrize("name", QUICK)
def test_every_circuit_that_is_offered_is_the_models_own_and_the_table_says_so(name):
    found = verdict(name, MODELS[name])
    assert found.status in ("exact", "partly", "refused"), found
    assert row(found) in DOCUMENT.read_text(encoding="utf-8").splitlines()


def test_the_table_has_every_model_of_the_list_more_than_110_model_types_and_nothing_wrong():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert [name for name, _ in rows] == list(MODELS)
    assert {status for _, status in rows} == {"exact", "partly", "refused"}
    assert len({name.split(",")[0] for name in MODELS}) > 110


@pytest.mark.parametrize("role", ["W_Q", "W_K", "W_V", "W_O"])
def test_two_heads_taken_for_each_other_are_wrong(role, tmp_path, monkeypatch):
    honest = HeadLayout.read

    def swapped(self, checkpoint, layer):
        heads = honest(self, checkpoint, layer)
        return replace(heads, **{role: getattr(heads, role).flip(0)})

    monkeypatch.setattr(HeadLayout, "read", swapped)
    assert judge("gpt2", build("gpt2"), tmp_path).status == "WRONG"


@pytest.mark.parametrize("norm", ["input_norm", "query_norm", "key_norm"])
def test_a_gain_that_is_not_folded_in_is_wrong(norm, tmp_path, monkeypatch):
    honest = HeadLayout.read
    without = lambda self, *where: replace(honest(self, *where), **{norm: None})  # noqa: E731
    monkeypatch.setattr(HeadLayout, "read", without)
    found = judge("qwen3", build("qwen3"), tmp_path)
    assert (found.status, "qk_folded is off" in found.reason) == ("WRONG", True)


@pytest.mark.parametrize(("said", "status"), [((), "SILENT"), (("layer 1: because",), "partly")])
def test_a_layer_that_is_not_read_is_silence_unless_the_library_says_so(said, status, tmp_path, monkeypatch):
    honest = checkpoints.run.find_heads

    def half(*args, **kwargs):
        layout = honest(*args, **kwargs)
        return replace(layout, stacks=(replace(layout.stacks[0], layers=(0,)),), left_out=said)

    monkeypatch.setattr(checkpoints.run, "find_heads", half)
    found = judge("gpt2", build("gpt2"), tmp_path)
    assert found.status == status
    assert "1 of 2 attention modules not read: transformer.h.{layer}.attn" in found.reason


class OneHeadAttention(nn.Module):
    """Attention written down as in a textbook, for the judge to be judged."""

    def __init__(self, is_squared: bool = False):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(6, 6, bias=False) for _ in range(4))
        self.is_squared = is_squared

    def forward(self, hidden_states):
        query, key, value = (part(hidden_states)[:, None] for part in (self.q, self.k, self.v))
        pattern = (query @ key.mT).softmax(-1)
        return self.o((pattern @ (value**2 if self.is_squared else value))[:, 0])


def test_the_truth_of_one_head_is_the_product_of_its_matrices():
    torch.manual_seed(0)
    module = OneHeadAttention().double()
    truth = truth_of("attention", module)
    assert isinstance(truth, Truth)
    assert torch.allclose(truth.ov[0], module.v.weight.T @ module.o.weight.T)
    assert torch.allclose(truth.qk[0], module.q.weight.T @ module.k.weight)


def test_a_module_that_is_not_linear_in_what_it_reads_has_no_truth():
    assert (
        truth_of("attention", OneHeadAttention(is_squared=True).double())
        == "what it does is not linear in what it reads"
    )


def test_a_gain_is_measured_and_not_read():
    norm = nn.RMSNorm(5)
    nn.init.uniform_(norm.weight)
    assert torch.allclose(gain_of(norm), norm.weight.double(), rtol=1e-5)
    norm.forward = lambda x: torch.rms_norm(x, (5,), 1 + norm.weight)
    assert torch.allclose(gain_of(norm), 1 + norm.weight.double(), rtol=1e-5)
    norm.forward = torch.tanh
    assert gain_of(norm) is None
