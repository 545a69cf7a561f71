"""What no config says, said on the command line: heads, any other setting, and a family by name or by a file."""

import json

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import probes
from checkpoints import Family, Weight, open_run
from checkpoints.heads.described import family_from
from probes.__main__ import app
from probes.opening import settings

LINEAR = {
    "trunk.0.mixer.ask.weight": (32, 32),
    "trunk.0.mixer.tell.weight": (16, 32),
    "trunk.0.mixer.give.weight": (16, 32),
    "trunk.0.mixer.put.weight": (32, 32),
}
TOML = """
name = "mine"
query = {name = "trunk.{layer}.mixer.ask.weight", axes = "(head d_head) d_model"}
key = {name = "trunk.{layer}.mixer.tell.weight", axes = "(head d_head) d_model"}
value = {name = "trunk.{layer}.mixer.give.weight", axes = "(head d_head) d_model"}
output = {name = "trunk.{layer}.mixer.put.weight", axes = "d_model (head d_head)"}
"""


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    save_file({name: torch.randn(shape) for name, shape in LINEAR.items()}, tmp_path / "step1.safetensors")
    return tmp_path / "step1.safetensors"


def test_a_family_in_a_file_measures_what_no_family_here_knows(checkpoint, tmp_path):
    (tmp_path / "mine.toml").write_text(TOML)
    table, described = tmp_path / "table.parquet", ["--family", str(tmp_path / "mine.toml")]
    run = CliRunner()
    for heads in (["--heads", "4"], ["--config", "num_attention_heads=4"], ["--heads", "4", "--kv-heads", "2"]):
        result = run.invoke(app, ["measure", str(checkpoint), "-o", str(table), "--probes", "norm", *described, *heads])
        assert result.exit_code == 0, result.output
        measured = probes.read_table(table)
        assert len(measured[measured["circuit"] == "ov"]) == 4
        assert measured.attrs["notes"] == ["read as the caller's own family 'mine' describes"]
    result = run.invoke(
        app, ["measure", str(checkpoint), "-o", str(table), *described, "--heads", "4", "--kv-heads", "4"]
    )
    assert result.exit_code == 2
    assert "do not fit together" in result.output


def test_a_family_by_name_is_insisted_on_and_the_table_says_so(tmp_path):
    torch.manual_seed(0)
    names = {f"model.layers.0.self_attn.{kind}_proj.weight": torch.randn(8, 8) for kind in "qkvo"}
    (tmp_path / "run").mkdir()
    save_file(names, tmp_path / "run" / "step1.safetensors")
    (tmp_path / "run" / "config.json").write_text(json.dumps({"model_type": "unheard_of", "num_attention_heads": 2}))
    arguments = ["measure", str(tmp_path / "run"), "-o", str(tmp_path / "t.parquet"), "--probes", "norm"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "model_type 'unheard_of'" in result.output
    assert CliRunner().invoke(app, [*arguments, "--family", "llama"]).exit_code == 0
    insisted = "read as llama because the caller insisted: model_type is 'unheard_of'"
    assert probes.read_table(tmp_path / "t.parquet").attrs["notes"] == [insisted]
    assert open_run(tmp_path / "run", family="llama").heads.notes == (insisted,)


def test_files_of_both_kinds_describe_the_same_family_and_misspelt_ones_say_what_is_known(tmp_path):
    (tmp_path / "mine.toml").write_text(TOML)
    given = {
        role: {"name": f"trunk.{{layer}}.mixer.{word}.weight", "axes": axes}
        for role, word, axes in (
            ("query", "ask", "(head d_head) d_model"),
            ("key", "tell", "(head d_head) d_model"),
            ("value", "give", "(head d_head) d_model"),
            ("output", "put", "d_model (head d_head)"),
        )
    }
    (tmp_path / "mine.json").write_text(json.dumps(given))
    family = family_from(str(tmp_path / "mine.toml"))
    assert isinstance(family, Family)
    assert family == family_from(str(tmp_path / "mine.json"))
    assert family.query == Weight("trunk.{layer}.mixer.ask.weight", "(head d_head) d_model")
    for wrong, message in (
        (given | {"qery": {}}, "Family has no 'qery'; it has name, query"),
        ({key: value for key, value in given.items() if key != "key"}, "Family needs key too"),
        (given | {"query": "ask"}, "is expected, 'ask' came"),
        (given | {"query": {"name": "ask"}}, "query: Weight needs axes too"),
        (given | {"rotary_layers": 3, "name": 4}, "name is 4, str is expected"),
        ([], "a table of the arguments"),
    ):
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=message):
            family_from(str(tmp_path / "wrong.json"))
    (tmp_path / "wrong.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"wrong\.json: .* cannot be read"):
        family_from(str(tmp_path / "wrong.json"))
    with pytest.raises(ValueError, match="no family is called 'lama'"):
        family_from("lama")


def test_settings_are_json_where_they_can_be_and_dots_lead_inside():
    assert settings(["n_heads=4", "text_config.model_type=llama", "a.b=[1, 2]"]) == {
        "n_heads": 4,
        "text_config": {"model_type": "llama"},
        "a": {"b": [1, 2]},
    }
    with pytest.raises(ValueError, match="--config 'n_heads': KEY=VALUE is expected"):
        settings(["n_heads"])


def test_where_the_step_stands_in_the_names_is_said_on_the_command_line(tmp_path):
    for name in ("a-3-of-9.pt", "a-5-of-7.pt"):
        torch.save({"w": torch.randn(4, 4)}, tmp_path / name)
    asked = ["measure", str(tmp_path), "--circuits", "matrices", "--probes", "norm", "-o", str(tmp_path / "t.parquet")]
    result = CliRunner().invoke(app, [*asked, "--steps", r"a-(\d+)-of-\d+\.pt", "--no-audit"])
    assert result.exit_code == 0, result.output
    assert probes.read_table(tmp_path / "t.parquet")["step"].unique().tolist() == [3, 5]


def test_a_fraction_is_no_step_and_is_not_cut_to_one(tmp_path):
    for name in ("epoch_0.5.pt", "epoch_1.0.pt", "epoch_1.5.pt"):
        torch.save({"w": torch.randn(4, 4)}, tmp_path / name)
    with pytest.raises(ValueError, match=r'say the steps: open_run\(".*", steps={0: "epoch_0.5.pt"'):
        open_run(tmp_path)
