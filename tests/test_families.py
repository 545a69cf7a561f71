"""Every family of decoders on one of its model types, judged by the model's own attention; and configs that lie."""

import json

import pytest
from transformers import CONFIG_MAPPING

from checkpoints.heads.families.decoders import DECODERS
from checkpoints.heads.families.fused import FUSED
from checkpoints.heads.families.latent import LATENT
from tests.architectures.build import build
from tests.architectures.models import MODELS
from tests.architectures.verdict import judge

HYBRIDS = {
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "helium": {"head_dim": 8},
    "gemma4_text": {"num_kv_shared_layers": 0},
}
"""Settings without which a tiny model has no layer of attention, or cannot be built."""

UNJUDGED = {
    "bloom": "its attention adds the stream itself, which the judge takes for a norm of what is written",
    "gemma3n": "its attention shares keys with other layers through an argument that the judge does not give",
    "xlm": "its attention needs a mask",
    "cpmant": "its attention needs a mask",
    "hrm": "saved under other names than in memory: hrm saved",
    "bailing": "saved under other names than in memory",
    "bailing lite": "saved under other names than in memory",
    "dbrx": "cannot be built by the judge",
}
"""Families that the judge cannot judge, and why; all but those under other names were compared by their patterns."""

FAMILIES = {
    family.name: family
    for family in (*FUSED, *DECODERS, *LATENT)
    if {*family.model_types} & {*CONFIG_MAPPING} and family.name not in UNJUDGED
}


def settings(model_type):
    return MODELS.get(model_type, {}) | HYBRIDS.get(model_type, {})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_type_of_every_family_of_decoders_is_read_as_the_model_computes(name, tmp_path):
    known = [one for one in FAMILIES[name].model_types if one in CONFIG_MAPPING]
    model_type = next((one for one in known if one in MODELS), known[0])
    model = build(model_type, **settings(model_type))
    found = judge(model_type, model, tmp_path)
    assert found.status in ("exact", "partly", "unproved"), found  # unproved: a circuit of which there is no truth
    assert found.error is not None, found
    assert {"ov", "qk"} <= {*found.circuits.split(", ")}


@pytest.mark.parametrize("model_type", ["llama", "phi3", "falcon, 40b", "deepseek_v3", "gpt_bigcode, many keys"])
@pytest.mark.parametrize("lie", ["gpt2", "bert", "diffllama", "unheard_of", None])
def test_a_config_that_lies_or_says_nothing_of_the_type_is_refused_or_does_no_harm(model_type, lie, tmp_path):
    model = build(model_type.split(",")[0], **MODELS.get(model_type, {}))
    model.save_pretrained(tmp_path)
    honest = model.save_pretrained

    def save_with_a_lie(folder):
        honest(folder)
        config = json.loads((folder / "config.json").read_text())
        config["model_type"] = lie
        (folder / "config.json").write_text(json.dumps(config if lie else {k: v for k, v in config.items() if v}))

    model.save_pretrained = save_with_a_lie
    found = judge(model_type, model, tmp_path)
    if lie is not None:
        assert found.status == "refused", found
        assert lie in found.reason or "not read" in found.reason or "is (" in found.reason, found
    elif model_type != "gpt_bigcode, many keys":  # nothing but a config tells that from nanoGPT
        assert found.status in ("exact", "unproved"), found
        assert "folded" not in found.circuits
