"""A checkpoint written here is a TransformerLens model: it loads by its own names and gives the same logits."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from checkpoints import open_run
from models.attention_only.model import AttentionOnlyConfig, attention_only, logits, patterns
from models.attention_only.tasks import MarkovChains
from models.lens import Shape, draw, named, split, vector_of
from models.modular_addition.model import ModularAdditionConfig, all_logits, modular_addition
from models.modular_addition.task import ModularArithmetic
from models.training import train

SETTINGS = {
    "two layers": partial(attention_only, AttentionOnlyConfig()),
    "narrow heads, three layers": partial(attention_only, AttentionOnlyConfig(n_layers=3, n_heads=3, d_head=5)),
    "Markov chains": partial(attention_only, AttentionOnlyConfig(n_layers=1, task=MarkovChains())),
    "modular addition": partial(modular_addition, ModularAdditionConfig(task=ModularArithmetic(13))),
}


@pytest.fixture(scope="module", params=SETTINGS)
def trained(request, tmp_path_factory):
    """A few updates of one setting, on disk, and the TransformerLens model built from nothing but the run."""
    from transformer_lens.model_bridge import TransformerBridge

    path = train(SETTINGS[request.param], [3], tmp_path_factory.mktemp("runs"), "run", 20, [20], quiet=True)[0]
    run = open_run(path)
    bridge = TransformerBridge.boot_native(run.config["bridge"])
    bridge.load_state_dict(dict(run.checkpoint(20)), strict=True)
    return run, bridge


def shape_of(run) -> Shape:
    keys = ("n_layers", "n_heads", "d_model", "d_head", "n_ctx", "d_vocab", "d_vocab_out")
    return Shape(**{key: run.config["bridge"][key] for key in keys}, d_mlp=run.config["bridge"].get("d_mlp", 0))


def test_transformer_lens_gives_the_same_logits(trained):
    run, bridge = trained
    shape, weights = shape_of(run), run.checkpoint(20)
    generator = torch.Generator().manual_seed(1)
    if run.family == "modular-addition":
        config = ModularAdditionConfig(task=ModularArithmetic(13))
        ours = all_logits(weights, config).flatten(0, 1)
        a, b = torch.arange(13).repeat_interleave(13), torch.arange(13).repeat(13)
        with torch.no_grad():
            theirs = bridge(torch.stack((a, b, torch.full_like(a, 13)), 1))[:, -1].double()
    else:
        tokens = torch.randint(shape.d_vocab, (7, shape.n_ctx), generator=generator)
        with torch.no_grad():
            ours, theirs = logits(split(vector_of(weights, shape), shape), shape, tokens), bridge(tokens)
    assert ours.std() > 0.01  # logits of a model that says something
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_attention_patterns_and_circuits_are_transformer_lens_own(trained):
    run, bridge = trained
    shape, weights = shape_of(run), run.checkpoint(20)
    q = weights["blocks.0.attn.q.weight"].view(shape.n_heads, shape.d_head, shape.d_model)
    torch.testing.assert_close(q.mT, bridge.W_Q[0], rtol=0, atol=0)
    if run.family == "attention-only":
        tokens = torch.randint(shape.d_vocab, (2, shape.n_ctx), generator=torch.Generator().manual_seed(1))
        _, cache = bridge.run_with_cache(tokens)
        found = patterns(split(vector_of(weights, shape), shape), shape, tokens)
        for layer in range(shape.n_layers):
            theirs = cache[f"blocks.{layer}.attn.hook_pattern"]
            torch.testing.assert_close(found[layer], theirs.detach(), rtol=0, atol=1e-5)


def test_run_json_says_what_the_heads_are(trained):
    run, _ = trained
    shape = shape_of(run)
    for key in ("n_layers", "n_heads", "d_model", "d_head"):
        assert run.config[key] == getattr(shape, key)
    assert run.family in ("attention-only", "modular-addition")


def test_parameters_survive_the_way_to_a_checkpoint_and_back():
    shape = Shape(2, 3, 6, 2, 5, 7, 4, d_mlp=8)
    vector = draw(shape, 1.0, 1.0, torch.Generator().manual_seed(0))
    assert torch.equal(vector_of(named(vector, shape), shape), vector)
    parts, saved = split(vector, shape), named(vector, shape)
    q, k, v = parts["blocks.1.attn.qkv.weight"].split(6)
    for name, part in (("q", q), ("k", k), ("v", v)):
        assert torch.equal(part, saved[f"blocks.1.attn.{name}.weight"])
    assert torch.equal(parts["blocks.1.mlp.out.weight"], saved["blocks.1.mlp.out.weight"])


def test_the_start_has_the_size_it_is_said_to_have():
    shape = Shape(4, 2, 64, 32, 100, 500, 500)
    weights = named(draw(shape, 0.8, 0.2, torch.Generator().manual_seed(0)), shape)
    assert weights["embed.weight"].std().item() == pytest.approx(0.8 / 8, rel=0.03)
    assert weights["blocks.2.attn.q.weight"].std().item() == pytest.approx(0.8 / 8, rel=0.05)
    assert weights["blocks.2.attn.o.weight"].std().item() == pytest.approx(0.2 / 8, rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_heads": 64}, r"n_heads is 64 and d_model 32: more heads than dimensions.*at most 32"),
        ({"n_heads": 0}, "n_heads is 0: at least 1"),
        ({"d_head": 33}, "d_head is 33 and d_model 32: a head cannot be wider"),
        ({"n_layers": 0}, "n_layers is 0: at least 1"),
        ({"batch": 0}, "batch is 0"),
        ({"init_scale": 0.0}, "init_scale is 0"),
    ],
)
def test_impossible_shapes_are_refused_by_name_before_any_training(change, message):
    with pytest.raises(ValueError, match=message):
        replace(AttentionOnlyConfig(), **change)
    if change.keys() & {"n_heads", "d_head"} and change["n_heads" if "n_heads" in change else "d_head"] > 32:
        with pytest.raises(ValueError, match="d_model"):
            replace(ModularAdditionConfig(d_model=32), **change)
