"""A run as one table: the numbers of the pure functions, rows with reasons where there are none, flat memory."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import probes
from checkpoints import Tensors, open_run
from checkpoints.audit import audit
from probes.__main__ import app
from probes.circuits import ov, qk
from probes.matrices.factored import Factored
from probes.measuring.catalogue import PROBES, Probe, ProbeValues
from tests.walking_run import HEADS, LAYERS, STEPS, WIDTH, write_run

PER_MATRIX = sum(probe.count for probe in PROBES.values())
"""Numbers of one head: one of each probe, and the marginalized rank for k = 0 .. 4."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "walk", STEPS)


@pytest.fixture(scope="module")
def run(path):
    return open_run(path)


@pytest.fixture(scope="module")
def table(run):
    return probes.measure(run)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_number_has_its_row_and_the_columns_are_as_documented(table):
    assert list(table.columns) == [
        "run", "step", "layer", "head", "circuit", "probe", "component", "value", "why_missing",
    ]  # fmt: skip
    assert len(table) == len(STEPS) * LAYERS * HEADS * 2 * PER_MATRIX
    keys = ["step", "layer", "head", "circuit", "probe", "component"]
    assert not table.duplicated(keys).any()
    assert (table["value"].isna() == table["why_missing"].notna()).all()
    missing = table[table["value"].isna()]
    assert set(missing["probe"]) == {"subspace_drift", "subspace_drift_per_step"}
    assert set(missing["why_missing"]) == {"no checkpoint before this one"}
    assert set(missing["step"]) == {0}
    assert (table["component"].notna() == (table["probe"] == "marginalized_effective_rank")).all()


def test_values_equal_the_pure_functions_called_by_hand(run, table):
    read = {step: run.heads.read(run.checkpoint(step), 1) for step in STEPS}
    for circuit, build in (("ov", ov), ("qk", qk)):
        now, before, final = (build(read[step])[2] for step in (300, 200, 500))
        here = table[
            (table["step"] == 300) & (table["layer"] == 1) & (table["head"] == 2) & (table["circuit"] == circuit)
        ]
        found = here.set_index(["probe", "component"])["value"]
        by_hand = {
            "norm": probes.frobenius_norm(now),
            "effective_rank": probes.effective_rank(now),
            "stable_rank": probes.stable_rank(now),
            "participation_ratio": probes.participation_ratio(now),
            "subspace_distance": probes.subspace_distance(now, final, normalised=True),
            "column_subspace_distance": probes.column_subspace_distance(now, final, normalised=True),
            "subspace_drift": probes.subspace_drift(before, now),
        }
        for name, value in by_hand.items():
            assert found[name].item() == pytest.approx(float(value), rel=1e-9), (circuit, name)
        marginalized = found["marginalized_effective_rank"].sort_index()
        np.testing.assert_allclose(marginalized, probes.marginalized_effective_rank(now, 4), rtol=1e-9)
    last = table[(table["step"] == 500) & table["probe"].str.contains("subspace_distance")]
    assert (last["value"] == 0).all()


def test_a_small_transformer_trained_by_the_trainer_is_measured(tmp_path):
    config = transformers.GPT2Config(n_layer=2, n_embd=24, n_head=3, vocab_size=20, n_positions=8)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "output"), max_steps=8, save_steps=2, logging_steps=1, report_to=[], use_cpu=True,
        per_device_train_batch_size=4, learning_rate=1e-2, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": torch.randint(0, 20, (8,)), "labels": torch.randint(0, 20, (8,))} for _ in range(16)]
    transformers.Trainer(model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=rows).train()
    run = open_run(tmp_path / "output")
    table = probes.measure(run)
    assert len(table) == 4 * 2 * 3 * 2 * PER_MATRIX
    assert table.attrs["family"] == "gpt2"
    assert table.attrs["audit"].endswith("4 steps, 0 condemned, 0 suspect, 4 sound")
    joined = probes.with_metrics(table, run.metrics)
    assert joined.loc[joined["step"] == 6, "loss"].unique().tolist() == [run.metrics["loss"].loc[6]]
    sparse = pd.DataFrame({"a": [1.0, np.nan], "b": [np.nan, 2.0]}, index=pd.Index([1, 5], name="step"))
    assert probes.with_metrics(table, sparse).loc[lambda t: t["step"] == 6, ["a", "b"]].iloc[0].tolist() == [1, 2]


def test_pivots_and_means(table, run):
    wide = probes.by_head(table, "effective_rank", "ov")
    assert wide.shape == (len(STEPS), LAYERS * HEADS)
    means = probes.mean_over_heads(table)
    one = means[(means["step"] == 200) & (means["layer"] == 1) & (means["circuit"] == "ov")]
    assert one[one["probe"] == "effective_rank"]["value"].item() == pytest.approx(wide.loc[200, 1].mean())
    overall = probes.mean_over_layers(table)
    one = overall[(overall["step"] == 200) & (overall["circuit"] == "ov") & (overall["probe"] == "effective_rank")]
    assert one["value"].item() == pytest.approx(wide.loc[200].mean())
    assert probes.by_head(table, "marginalized_effective_rank", "qk", 4).notna().all().all()
    with pytest.raises(ValueError, match="has components"):
        probes.by_head(table, "marginalized_effective_rank", "qk")
    with pytest.raises(ValueError, match="the table has no 'rank' of 'ov'; it has norm of ov"):
        probes.by_head(table, "rank", "ov")


def test_parquet_keeps_the_numbers_and_what_they_mean(table, tmp_path):
    probes.write_table(table, tmp_path / "table.parquet")
    again = probes.read_table(tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(again, table)
    assert again.attrs == json.loads(json.dumps(table.attrs))
    assert "Roy & Vetterli" in again.attrs["definitions"]["effective_rank"]
    assert again.attrs["weight_processing"] == "none: raw weights"
    assert again.attrs["references"] == {"reference": 500}
    assert {"torch", "checkpoint-probes"} <= set(again.attrs["versions"])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        probes.read_table(tmp_path / "nothing.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(ValueError, match="is not a parquet file"):
        probes.read_table(tmp_path / "text.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="is not a table of probes: it lacks run"):
        probes.read_table(tmp_path / "other.parquet")


def test_several_horizons_in_one_pass_are_named_and_equal_separate_passes(run):
    several = probes.measure(run, probes=("subspace_distance",), references=("final", 200, 0.5))
    assert set(several["probe"]) == {"subspace_distance", "subspace_distance@200"}  # half of 500 is step 200
    assert several.attrs["references"] == {"reference": 500, "reference@200": 200}
    alone = probes.measure(run, probes=("subspace_distance",), references=(200,))
    assert alone["value"].tolist() == several.loc[several["probe"] == "subspace_distance@200", "value"].tolist()
    at_reference = alone.loc[alone["step"] == 200, "value"]
    assert (at_reference == 0).all()
    for wrong, message in (
        (250, "the nearest is"),
        (1.5, "between 0 and 1"),
        ("last", "'final', a step or a fraction"),
    ):
        with pytest.raises(ValueError, match=message):
            probes.measure(run, references=(wrong,))


def test_folded_circuits_carry_their_name_into_the_table(tmp_path):
    path = write_run(tmp_path / "walk", [0, 1])
    with pytest.raises(ValueError, match=r"ov_folded: there is no h\.0\.ln_1\.weight, whose gains are to be folded in"):
        probes.measure(open_run(path), circuits=("ov", "ov_folded"), probes=("norm",))
    for file in path.glob("*.safetensors"):
        tensors = load_file(file)
        save_file(tensors | {f"h.{layer}.ln_1.weight": torch.full((WIDTH,), 2.0) for layer in range(LAYERS)}, file)
    table = probes.measure(open_run(path), circuits=("ov", "ov_folded"), probes=("norm",))
    norms = {circuit: rows["value"].to_numpy() for circuit, rows in table.groupby("circuit")}
    assert norms["ov_folded"] == pytest.approx(2 * norms["ov"])
    assert set(table["circuit"]) == {"ov", "ov_folded"}
    assert "ov_folded" in table.attrs["weight_processing"]
    with pytest.raises(ValueError, match="no circuit is called 'vo'"):
        probes.measure(open_run(path), circuits=("vo",))


def test_circuits_of_one_shape_are_measured_together_and_do_not_touch_each_other(tmp_path):
    path = write_run(tmp_path / "walk", STEPS)
    tensors = dict(open_run(path).checkpoint(200))
    tensors["h.1.attn.c_proj.weight"][3, 5] = torch.nan  # of the first head
    save_file(tensors, path / "step200.safetensors")
    run = open_run(path)
    together = probes.measure(run, ("ov", "qk"), audit=False)
    for circuit in ("ov", "qk"):
        rows = together[together["circuit"] == circuit].reset_index(drop=True)
        pd.testing.assert_frame_equal(rows, probes.measure(run, circuit, audit=False), check_exact=True)
    broken = together[together["why_missing"] == "the weights are not finite"]
    assert not broken.empty
    assert len(broken[["circuit", "layer", "head", "step"]].drop_duplicates()) == 1
    assert tuple(broken.iloc[0][["circuit", "layer", "head", "step"]]) == ("ov", 1, 0, 200)


def test_circuits_of_several_shapes_keep_their_order_and_their_numbers(run):
    def cut(inner: int, tensors: Tensors) -> Factored:
        rows = tensors["h.0.attn.c_attn.weight"][None, None]
        return Factored(rows[..., :inner], rows[..., :inner].mT)

    circuits = {f"inner_{name}": partial(cut, inner) for name, inner in {"a": 8, "b": 5, "c": 8, "full": 24}.items()}
    table = probes.measure(run, circuits, probes=("norm", "subspace_drift"), audit=False)
    assert list(table["circuit"].unique()) == list(circuits)
    norms = {name: probes.by_head(table, "norm", name) for name in circuits}
    pd.testing.assert_frame_equal(norms["inner_a"], norms["inner_c"])
    for name, inner in {"inner_b": 5, "inner_full": 24}.items():
        by_hand = [np.linalg.norm(cut(inner, run.checkpoint(step)).dense()) for step in run.steps]
        np.testing.assert_allclose(norms[name].to_numpy().ravel(), by_hand, rtol=1e-12)


def test_circuits_whose_shapes_part_are_not_compared_and_say_so(tmp_path):
    path = write_run(tmp_path / "walk", [0, 1, 2])

    def values(tensors: Tensors) -> Factored:
        rows = tensors["h.0.attn.c_attn.weight"][None, None]
        inner = 8 if "note" not in tensors else 5
        return Factored(rows[..., :inner], rows[..., :inner].mT)

    def keys(tensors: Tensors) -> Factored:
        rows = tensors["h.0.attn.c_attn.weight"][None, None]
        return Factored(rows[..., 8:16], rows[..., 8:16].mT)

    save_file({**open_run(path).checkpoint(2), "note": torch.zeros(1)}, path / "step2.safetensors")
    table = probes.measure(open_run(path), {"values": values, "keys": keys}, audit=False)
    assert table.loc[table["probe"] == "norm", "value"].notna().all()
    distances = table[table["probe"].str.contains("distance") & (table["step"] < 2)]
    assert (distances["why_missing"] == "the shapes of the circuits are others in the checkpoint compared with").all()


def test_a_new_probe_appears_in_the_table_and_on_the_command_line(run, monkeypatch):
    def largest(heads) -> ProbeValues:
        """The largest singular value."""
        return ProbeValues.of(heads.singular_values[:, 0].numpy(), heads.missing_reason)

    monkeypatch.setitem(PROBES, "largest", Probe("largest", largest, "sigma_1", "weights", "any textbook"))
    table = probes.measure(run, probes=("largest", "stable_rank", "norm"))
    wide = {name: probes.by_head(table, name, "qk").to_numpy() for name in ("largest", "stable_rank", "norm")}
    np.testing.assert_allclose(wide["stable_rank"], (wide["norm"] / wide["largest"]) ** 2, rtol=1e-9)
    assert "largest" in CliRunner().invoke(app, ["list"]).output


# --- what is broken ---------------------------------------------------------------------------------------------------


def test_condemned_steps_are_left_out_with_the_reason_unless_told_otherwise(tmp_path):
    path = write_run(tmp_path / "walk", STEPS)
    (path / "step200.safetensors").write_bytes((path / "step500.safetensors").read_bytes())
    run = open_run(path)
    table = probes.measure(run, drift_over="previous")
    masked = table[table["step"] == 200]
    assert len(masked) == len(table) / len(STEPS)
    assert masked["why_missing"].str.startswith("condemned by the audit, final_weights").all()
    assert list(table.attrs["condemned"]) == ["200"]
    raw = probes.measure(run, audit=False)
    assert raw.loc[raw["step"] == 200, "value"].notna().all()
    first, later = (ov(run.heads.read(run.checkpoint(step), 0))[0] for step in (100, 300))
    drift = probes.by_head(table, "subspace_drift@previous", "ov").loc[300, (0, 0)]
    assert drift == pytest.approx(float(probes.subspace_drift(first, later)), rel=1e-9)
    given = probes.measure(run, audit=audit(run), drift_over="previous")
    pd.testing.assert_frame_equal(given, table)


def test_a_file_that_cannot_be_read_costs_its_rows_with_the_reason(tmp_path, table):
    path = write_run(tmp_path / "walk", STEPS)
    file = path / "step300.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    for audited in (True, False):
        found = probes.measure(open_run(path), audit=audited, drift_over=100)
        assert found.loc[found["step"] == 300, "why_missing"].str.contains("cut short").all()
        rest = (found["step"] != 300) & ~((found["step"] == 400) & found["probe"].str.startswith("subspace_drift"))
        assert found.loc[rest, "value"].equals(table.loc[rest, "value"])


def test_one_checkpoint_only_is_measured_as_far_as_it_goes(path):
    found = probes.measure(open_run(path / "step300.safetensors"))
    assert set(found["step"]) == {300}
    compared = {"subspace_drift", "subspace_drift_per_step", "subspace_distance", "column_subspace_distance"}
    assert set(found.loc[found["value"].isna(), "probe"]) == compared
    assert found.loc[found["value"].isna(), "why_missing"].notna().all()


def test_bad_arguments_are_refused_before_the_work(run, tmp_path):
    with pytest.raises(ValueError, match=r"no probe is called 'efective_rank': did you mean 'effective_rank'\?"):
        probes.measure(run, probes=("efective_rank",))
    with pytest.raises(ValueError, match="removed is -1"):
        probes.measure(run, removed=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be written: .*Nothing was measured"):
        probes.measure(run, resume_dir=tmp_path / "file" / "parts")


# --- the command line, and memory


def test_the_command_measures_and_says_what_is_wrong(path, table, tmp_path):
    run = CliRunner()
    result = run.invoke(app, ["measure", str(path), "-o", str(tmp_path / "table.parquet")])
    assert result.exit_code == 0, result.output
    missing = sum(table["value"].isna())
    assert f"{len(table)} numbers of 6 checkpoints ({missing} missing, with the reason)" in result.output
    pd.testing.assert_frame_equal(probes.read_table(tmp_path / "table.parquet"), table, check_exact=True)
    for arguments, message in (
        ([str(path), "-o", str(tmp_path / "table.csv")], "a .parquet file is expected"),
        ([str(path), "-o", str(tmp_path / "t.parquet"), "--probes", "norms"], "did you mean 'norm'?"),
        ([str(path), "-o", str(tmp_path / "t.parquet"), "--engine", "gpu"], "'serial', 'processes'"),
        ([str(path), "-o", str(tmp_path / "t.parquet"), "--references", "end"], "'final', a step or a fraction"),
        ([str(path), "-o", "/proc/t.parquet"], "cannot be written"),
        ([str(tmp_path / "nothing"), "-o", str(tmp_path / "t.parquet")], "does not exist"),
    ):
        result = run.invoke(app, ["measure", *arguments])
        assert result.exit_code == 2, (arguments, result.output)
        assert message in result.output, (arguments, result.output)
    save_file({"mlp.weight": torch.zeros(3, 3)}, tmp_path / "step1.safetensors")
    alone = ["measure", str(tmp_path / "step1.safetensors"), "-o", str(tmp_path / "t.parquet")]
    result = run.invoke(app, [*alone, "--circuits", "ov"])
    assert result.exit_code == 2
    assert "no attention here: no tensor is named as queries are" in result.output
